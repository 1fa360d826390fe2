//! A connection as CLIENT LIST and CLIENT INFO show it.

use super::session::Close;
use super::tracks::{Mode, Tracks};
use super::{Client, State};
use crate::clock::store_us;
use crate::config::RedisVersion;
use crate::resp::Proto;

/// So much of what is to be sent has room in the buffer that each connection of Redis has (`obl`); what is beyond is said
/// apart (`omem`), and is how one finds who does not read.
const OUTPUT_BUFFER_BYTES: usize = 16 * 1024;

/// From this version on Redis tells what a connection has sent and got in all.
const WITH_TOTALS: RedisVersion = RedisVersion::new(8, 2, 0);

/// A connection as CLIENT LIST shows it, the end of the line included. Fields that mean nothing here have the value
/// that says so in Redis. Some clients refuse a line with a field that they do not know: a field that is not in the Redis of
/// this version comes only where there is something to tell.
pub fn line(client: &Client, version: RedisVersion) -> String {
    let state = &*client.state.borrow();
    let session = &state.session;
    let now_us = store_us();
    let seconds_since = |us: u64| now_us.saturating_sub(us) / 1_000_000;
    let qbuf_bytes = state.input_bytes();
    let omem_bytes = state.unsent().saturating_sub(OUTPUT_BUFFER_BYTES);
    let mut line = format!(
        "id={id} addr={addr} laddr={laddr} fd={fd} name={name} age={age} idle={idle} flags={flags} db={db} sub={sub} \
         psub={psub} ssub={ssub} multi={multi} watch={watch} qbuf={qbuf_bytes} qbuf-free={qbuf_free_bytes} argv-mem=0 \
         multi-mem={multi_bytes} \
         rbs={rbs_bytes} rbp=0 obl={obl_bytes} oll={oll} omem={omem_bytes} tot-mem={total_bytes} events={events} cmd={cmd} \
         user={user} redir={redir} resp={resp} lib-name={lib_name} lib-ver={lib_ver}",
        id = session.peer.id,
        addr = session.peer.addr,
        laddr = session.peer.laddr,
        fd = session.peer.fd,
        name = String::from_utf8_lossy(&session.name),
        age = seconds_since(session.created_us),
        idle = seconds_since(session.used_us),
        flags = flags(state),
        db = session.db,
        sub = session.channels.len(),
        psub = session.patterns.len(),
        ssub = session.shard_channels.len(),
        multi = session.multi.as_ref().map_or(-1, |multi| multi.commands().len() as i64),
        watch = session.watched.len(),
        multi_bytes = session.multi.as_ref().map_or(0, |multi| multi.bytes()),
        qbuf_free_bytes = state.input.capacity() + state.ahead.memory_bytes() - qbuf_bytes,
        rbs_bytes = state.replies.out.capacity(),
        obl_bytes = state.unsent() - omem_bytes,
        oll = state.replies.open_slots(),
        total_bytes = state.memory_bytes(),
        events = if state.flow.in_flight > 0 { "rw" } else { "r" },
        cmd = session.last_command,
        user = String::from_utf8_lossy(session.user_name()),
        redir = redirection(session.tracks.as_deref()),
        resp = if session.proto == Proto::Resp3 { 3 } else { 2 },
        lib_name = String::from_utf8_lossy(&session.lib_name),
        lib_ver = String::from_utf8_lossy(&session.lib_ver),
    );
    if version >= WITH_TOTALS {
        let (received_bytes, sent_bytes) = (client.received_bytes.get(), client.sent_bytes.get());
        line += &format!(" tot-net-in={received_bytes} tot-net-out={sent_bytes} tot-cmds={}", session.commands);
    }
    if !session.live.is_empty() {
        line += &format!(" live={}", session.live.len());
    }
    line + "\n"
}

/// The connection that is told instead: 0 where it is this one, -1 where none is.
pub fn redirection(tracks: Option<&Tracks>) -> i64 {
    tracks.map_or(-1, |tracks| tracks.redirect.map_or(0, |(id, _)| id as i64))
}

/// A letter for each thing that is remarkable, in Redis's order.
pub fn flags(state: &State) -> String {
    let session = &state.session;
    let all = [
        (session.monitors, 'O'),
        (session.replica.is_some(), 'S'),
        (session.is_primary, 'M'),
        (session.listens(), 'P'),
        (session.multi.is_some(), 'x'),
        (state.flow.waits(), 'b'),
        (session.tracks.is_some(), 't'),
        (session.tracks.as_ref().is_some_and(|tracks| tracks.is_broken), 'R'),
        (session.tracks.as_ref().is_some_and(|tracks| tracks.mode == Mode::Broadcast), 'B'),
        (state.flow.close == Close::AfterReplies, 'c'),
        (session.peer.is_unix(), 'U'),
        (session.no_evict, 'e'),
        (session.no_touch, 'T'),
    ];
    let flags: String = all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    if flags.is_empty() { "N".to_owned() } else { flags }
}
