//! The users have changed: each shard tells its connections, and ends those whose user is gone, who listen to what is not
//! theirs any more, or whose command waits for what they may not have.

use super::output::close_now;
use crate::acl::log::Context;
use crate::acl::{User, Users, Vocabulary};
use crate::keyspace::Aspect;
use crate::server::client::ClientRef;
use crate::server::client::session::{Close, Session};
use crate::server::client::tracks::Mode;
use crate::server::state::Server;
use crate::server::state::waits::End;
use crate::shard::Shard;
use std::rc::Rc;
use std::sync::Arc;

/// Tells all shards, and returns when the last of them has taken the users over, and what each had sent to others before is
/// done: from then on nothing runs that is not allowed any more. A connection that has brought this about itself still hears
/// the answer.
pub async fn tell_all(server: &Server, caller: u64) {
    let of_shard = move |shard: Rc<Shard>| async move {
        take_over(&Server::of(&shard), caller);
        shard.call_all(|_| ()).await;
    };
    server.shard.call_all_later(of_shard).await;
}

/// Takes over what the users are now. (The newest are looked up here: of two changes at the same time all shards end with
/// the later one.)
pub fn take_over(server: &Server, caller: u64) {
    let users = server.global.users.newest();
    server.users.set(users.clone());
    for client in server.clients() {
        let stays = tell(server, &users, &client);
        if stays {
            continue;
        }
        if client.id == caller {
            client.state.borrow_mut().session.close = Close::AfterReplies;
        } else {
            close_now(server, &client);
        }
    }
}

/// Gives a connection its user as that is now; whether it may stay.
fn tell(server: &Server, users: &Users, client: &ClientRef) -> bool {
    let mut state = client.state.borrow_mut();
    let session = &mut state.session;
    let Some(before) = &session.user else { return true };
    let Some(now) = users.get(&before.name).filter(|now| now.id == before.id) else {
        // What is under way, and asks again, finds that nothing is allowed any more.
        let nothing = User::new(&server.global.users.vocabulary, before.id, &before.name, false);
        session.set_user(Arc::new(nothing));
        return false;
    };
    if Arc::ptr_eq(now, before) {
        return true;
    }
    session.set_user(now.clone());
    let vocabulary = &server.global.users.vocabulary;
    let stays =
        hears_all(session, now) && tracks_all(session, vocabulary, now) && is_shown_all(session, vocabulary, now);
    drop(state);
    if stays {
        end_wait(server, client.id, now);
    }
    stays
}

fn hears_all(session: &Session, user: &User) -> bool {
    let hears = |channel: &[u8], is_pattern| user.hears(channel, is_pattern);
    user.hears_everything()
        || session.channels.iter().chain(&session.shard_channels).all(|channel| hears(channel, false))
            && session.patterns.iter().all(|pattern| hears(pattern, true))
}

/// Whether it may read all keys whose changes it is told.
fn tracks_all(session: &Session, vocabulary: &Vocabulary, user: &User) -> bool {
    let tracks = session.tracks.as_ref().filter(|tracks| tracks.mode == Mode::Broadcast);
    let is_told = |prefix: &[u8]| user.is_told_of(vocabulary, b"client|tracking", prefix);
    tracks.is_none_or(|tracks| tracks.prefixes.iter().all(|prefix| is_told(prefix)))
}

/// Whether it may read all keys that its live queries are about.
fn is_shown_all(session: &Session, vocabulary: &Vocabulary, user: &User) -> bool {
    let mut questions = session.live.iter().map(|query| &query.question);
    questions.all(|question| user.is_told_of(vocabulary, command_of(question.aspect), &question.prefix))
}

fn command_of(aspect: Aspect) -> &'static [u8] {
    match aspect {
        Aspect::Count => b"live|count",
        Aspect::Bytes => b"live|sum",
        Aspect::Names(_) => b"live|keys",
        Aspect::Next(_) => b"live|next",
    }
}

/// A command that waits must not be served what its user may not have any more.
fn end_wait(server: &Server, client: u64, user: &User) {
    let Some(blocked) = server.waits.of(client) else { return };
    let Some((command, request)) = &blocked.asked else { return };
    let checked = user.check(&server.global.users.vocabulary, *command, request.as_request());
    let Err(denied) = checked else { return };
    if blocked.finish(End::Denied(denied)) {
        server.note_denied((client, &user.name), Context::TopLevel, denied, (*command, request.as_request()));
    }
}
