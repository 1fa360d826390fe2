//! How the server begins: its table of commands, its tasks, and what the shard calls it for.

use super::client::ClientRef;
use super::client::long::{LONG_BYTES, Long, ReplyBytes};
use super::client::replies::Answer;
use super::kept::rewriting;
use super::kept::saving;
use super::kept::tokens;
use super::replication::{minding, target};
use super::rows;
use super::run::script;
use super::run::turn::log_slow;
use super::state::global::Global;
use super::state::slowlog::SlowLog;
use super::state::{Run, Server, Table};
use super::told::live;
use super::told::pubsub;
use super::told::tracking;
use super::wire::client_eviction;
use super::wire::connection::{self, advance};
use crate::clock::Now;
use crate::command;
use crate::command::TokenFuture;
use crate::command::spec::Row;
use crate::executor;
use crate::journal::Record;
use crate::keyspace::{Invalidated, Notice, ViewNews};
use crate::net::{Transport, sleep};
use crate::resp::{Error, Request};
use crate::shard::{At, Batch, Claim, Front, Later, News, Shard, Ticket};
use std::any::Any;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The table of all commands: those on data first.
pub fn table() -> Table {
    Table::new(command::rows().map(on_data).chain(rows::all().copied()))
}

/// A row of the command room among those of this one. Made once for the life of the process.
fn on_data(row: &'static Row<command::Run>) -> Row<Run> {
    let subcommands: Vec<Row<Run>> = row.subcommands.iter().map(on_data).collect();
    Row { subcommands: Box::leak(subcommands.into_boxed_slice()), ..row.run_by(Run::Data(row.run)) }
}

/// Makes a shard's server, which is what the shard calls.
pub fn make(shard: Rc<Shard>, global: Arc<Global>, table: Arc<Table>, transport: Transport) -> Rc<Server> {
    let server = Server::new(shard, global, table, transport);
    server.shard.set_front(server.clone());
    client_eviction::configure(&server);
    server
}

/// Starts the tasks that are not about one connection.
pub fn start(server: &Rc<Server>) {
    executor::spawn(connection::resume_paused(server.clone()));
    executor::spawn(connection::look_after(server.clone()));
    executor::spawn(connection::resume_unread(server.clone()));
    executor::spawn(connection::resume_unlogged(server.clone()));
    executor::spawn(connection::look_at_held(server.clone()));
    executor::spawn(connection::look_at_slowed(server.clone()));
    executor::spawn(client_eviction::keep_below(server.clone()));
    executor::spawn(connection::let_early_go(server.clone()));
    executor::spawn(connection::follow_disk(server.clone()));
    executor::spawn(connection::follow_late(server.clone()));
    executor::spawn(live::tell_late(server.clone()));
    if server.shard.id == 0 {
        executor::spawn(live::add_up(server.clone()));
        executor::spawn(look_after_files(server.clone()));
    }
}

/// Snapshots and logs that are made by themselves, and what replicas are told by itself.
async fn look_after_files(server: Rc<Server>) {
    loop {
        sleep(Duration::from_secs(1)).await;
        saving::look(&server).await;
        target::let_go_of_idle();
        rewriting::look(&server).await;
        minding::look(&server).await;
    }
}

impl Front for Server {
    fn replies(&self, batch: &mut Batch) {
        let Some(server) = self.me() else { return };
        if batch.out.len() < LONG_BYTES {
            let batch = &*batch;
            take_in(&server, batch, |range| &batch.out[range]);
        } else {
            let mut long = Long::all(std::mem::take(&mut batch.out));
            take_in(&server, batch, |range| long.take(range));
        }
    }

    fn resume(&self) {
        let Some(server) = self.me() else { return };
        let mut postponed = self.postponed.take().into_iter();
        for client in postponed.by_ref() {
            client.postponed.set(false);
            advance(&server, &client, &[]);
            if self.shard.has_lasted_long() {
                break;
            }
        }
        let mut later: Vec<ClientRef> = postponed.collect();
        if !later.is_empty() {
            // Those that were postponed again come after them.
            later.append(&mut self.postponed.borrow_mut());
            self.postponed.replace(later);
            self.shard.postpone();
        }
    }

    fn notices(&self, notices: Vec<Notice>) {
        if let Some(server) = self.me() {
            pubsub::announce(&server, notices);
        }
    }

    fn leaves(&self, records: Vec<Record>) {
        let durable = &self.shard.durable;
        if self.logging.hands_over()
            && let Some(push) = self.logging.end_turn(records, durable.take_promise(), durable.is_kept())
        {
            durable.pushed(push);
        }
    }

    fn unsettled(&self) -> u64 {
        self.logging.unsettled()
    }

    fn invalidated(&self, invalidated: Invalidated) {
        if let Some(server) = self.me() {
            tracking::hand_out(&server, invalidated);
        }
    }

    fn views(&self, news: ViewNews) {
        if let Some(server) = self.me() {
            live::look_after(&server, news);
        }
    }

    fn script(&self, request: Request, at: At, now: Now, out: &mut Vec<u8>, later: Later) -> bool {
        let Some(server) = self.me() else { return true };
        script::begin_for_other(&server, request, at, now, out, later)
    }

    fn waited(&self, client: u64, claim: &Arc<Claim>, news: News) {
        self.waits.tell(client, claim, news);
    }

    fn ends_some(&self) -> bool {
        self.client_memory.is_full()
    }

    fn token(&self) -> TokenFuture {
        let server = self.me();
        Box::pin(async move { tokens::next(&server.ok_or(Error::text("ERR the server ends"))?).await })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Gives the replies of a batch to those who have asked for them.
fn take_in<B: ReplyBytes>(server: &Rc<Server>, batch: &Batch, mut bytes_of: impl FnMut(Range<usize>) -> B) {
    let mut touched: Vec<ClientRef> = Vec::new();
    for part in batch.parts.iter().filter(|part| !part.deferred) {
        if touched.last().is_none_or(|client| client.id != part.ticket.client) {
            let Some(client) = server.client(part.ticket.client) else {
                if part.stalls {
                    server.shard.let_go_on(batch.target, part.ticket.client, true);
                }
                continue;
            };
            touched.push(client);
        }
        let Some(client) = touched.last() else { continue };
        let bytes = bytes_of(part.out.0..part.out.1);
        let ends = &batch.ends[part.ends.0..part.ends.1];
        let ends = ends.iter().map(|end| end - part.out.0);
        let mut state = client.state.borrow_mut();
        let Ticket { reply, part: number, .. } = part.ticket;
        let answer = Answer { reply, part: number, bytes, command: part.at.command, ns: part.ns };
        state.replies.fill(&server.shard.meter, answer, ends);
        if batch.shows > 0 {
            state.replies.for_disk.show((batch.target, batch.shows));
        }
        if server.shard.meter.is_slow(part.ns) {
            log_slow(
                server,
                &state.session,
                part.at.command,
                part.ns,
                SlowLog::args(server.secrets(part.at.command), part.request(&batch.buffer, &batch.spans)),
            );
        }
        if part.stalls {
            state.flow.stalled_shards.push(batch.target);
        }
    }
    for client in touched {
        advance(server, &client, &[]);
    }
}
