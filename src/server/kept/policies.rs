//! Expiry policies outside the configuration: in snapshots, in the log, and in the stream to replicas.
//!
//! Snapshots have the policies of their moment as fields; the log and the stream have each change in the order in which it took
//! effect. A replica takes the policies of its primary for its own. No shard has a policy while the log is read or another
//! server is followed, since what policies do stands there already.

use crate::config::{Policies, Policy, join_words, split_words};
use crate::observe::log;
use crate::persist::reading::Beside;
use crate::rdb::file;
use crate::server::state::Server;
use crate::shard::Shard;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The field in which a policy stands: its prefix and its words, with zero bytes between them.
const POLICY: &str = "emberdb-policy";
/// The first words of what the log has of a policy.
const IN_LOG: &str = "POLICY";
const NOT_IN_LOG: &str = "NOPOLICY";

/// A change of the policies.
#[derive(Clone, Debug)]
pub struct Change {
    prefix: Box<str>,
    /// None where the prefix has no policy any more.
    policy: Option<Policy>,
}

impl Change {
    pub fn new(prefix: &str, policy: Option<Policy>) -> Change {
        Change { prefix: prefix.into(), policy }
    }

    /// Makes the change; whether the prefix had a policy before.
    pub fn make(&self, policies: &mut BTreeMap<Box<str>, Policy>) -> bool {
        let before = match &self.policy {
            Some(policy) => policies.insert(self.prefix.clone(), policy.clone()),
            None => policies.remove(&self.prefix),
        };
        before.is_some()
    }

    /// As the log has it.
    pub fn in_log(&self) -> Vec<String> {
        self.words(&[if self.policy.is_some() { IN_LOG } else { NOT_IN_LOG }])
    }

    /// Tells replicas.
    pub fn tell(&self, server: &Server) {
        let words = self.words(&["EXPIRY", "POLICY", if self.policy.is_some() { "SET" } else { "DEL" }]);
        server.tell_replicas(words.iter().map(String::as_bytes));
    }

    fn words(&self, before: &[&str]) -> Vec<String> {
        let before = before.iter().copied().chain([&*self.prefix]).map(str::to_owned);
        before.chain(self.policy.iter().flat_map(Policy::words)).collect()
    }
}

/// All policies, as changes that make them.
pub fn all(server: &Server) -> Vec<Change> {
    let config = server.shard.config();
    let policies = config.expiry_policies.lock();
    policies.iter().map(|(prefix, policy)| Change::new(prefix, Some(policy.clone()))).collect()
}

/// Replicas that go on hear of all policies: the configuration may say otherwise than what was loaded.
pub fn tell_all(server: &Server) {
    all(server).iter().for_each(|change| change.tell(server));
}

/// Writes the policies into a snapshot.
pub fn write(out: &mut Vec<u8>, server: &Server) {
    all(server).iter().for_each(|change| file::write_field(out, POLICY, &join_words(&change.words(&[]))));
}

/// Takes the policies of a snapshot, where the configuration has no other for that prefix.
pub async fn take(server: &Rc<Server>, beside: &Beside) {
    for (_, value) in beside.fields.iter().filter(|(name, _)| name == POLICY.as_bytes()) {
        let words = split_words(value).unwrap_or_default();
        let parsed = Policies::parse(words.iter().map(String::as_str)).ok();
        let parsed = parsed.map(|(prefix, policy, _)| (prefix.to_owned(), policy));
        let Some((prefix, policy)) = parsed else {
            log::warning(format_args!("A policy in the file is none: '{}'", value.escape_ascii()));
            continue;
        };
        let config = server.shard.config();
        config.expiry_policies.lock().entry(prefix.as_str().into()).or_insert(policy);
        server.shard.call_all(move |shard| shard.take_over_policy(&prefix)).await;
    }
}

/// Takes what a note of the log says, if that is about a policy.
pub fn take_note(server: &Server, words: &[&str]) -> Option<()> {
    let config = server.shard.config();
    match words {
        [IN_LOG, words @ ..] => {
            let (prefix, policy, _) = Policies::parse(words.iter().copied()).ok()?;
            config.expiry_policies.lock().insert(prefix.into(), policy);
        }
        // (Zero bytes were not told from the ends of words once.)
        [NOT_IN_LOG, prefix @ ..] => drop(config.expiry_policies.lock().remove(prefix.join("\0").as_str())),
        _ => return None,
    }
    Some(())
}

/// Takes all policies out of the shards, or puts them back.
pub async fn suspend(server: &Rc<Server>, wants: bool) {
    for Change { prefix, policy } in all(server) {
        let policy = policy.filter(|_| !wants);
        let set = move |shard: &Rc<Shard>| {
            shard.keyspace.borrow_mut().set_policy(prefix.as_bytes(), policy.clone());
        };
        server.shard.call_all(set).await;
    }
}

/// The policies of a server that follows another one, taken out of its configuration: the primary's take their place.
pub fn give_up(server: &Server) -> Given {
    Given(std::mem::take(&mut *server.shard.config().expiry_policies.lock()))
}

/// Policies that were given up.
pub struct Given(BTreeMap<Box<str>, Policy>);

impl Given {
    /// Puts them back where there are no others by now.
    pub fn put_back(self, server: &Server) {
        let config = server.shard.config();
        let mut policies = config.expiry_policies.lock();
        for (prefix, policy) in self.0 {
            policies.entry(prefix).or_insert(policy);
        }
    }

    /// Says how many of them the primary does not have as they were.
    pub fn report(self, server: &Server) {
        let config = server.shard.config();
        let policies = config.expiry_policies.lock();
        let gone = self.0.iter().filter(|(prefix, policy)| policies.get(*prefix) != Some(policy)).count();
        if gone > 0 {
            log::notice(format_args!("Expiry policies of this server that give way to those of its primary: {gone}"));
        }
    }
}
