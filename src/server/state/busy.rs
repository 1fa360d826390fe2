//! Scripts that last. Whoever needs one key of theirs waits in the queue of the key; whoever needs several, or everything,
//! waits outside of all queues, so that nobody waits behind such a command. When a script has run for longer than
//! `busy-reply-threshold` it is *busy*, and whoever needs what the script holds is told so rather than kept waiting.

use crate::config::ScriptScope;
use crate::shard::{EVERYTHING, Lock};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// One of them.
pub struct LastingScript {
    pub is_function: bool,
    is_busy: AtomicBool,
    /// What others are kept from.
    scope: ScriptScope,
    /// By their hashes, each once: there may be a hundred thousand of them.
    locks: Box<[Lock]>,
}

/// Those of all shards.
#[derive(Default)]
pub struct LastingScripts {
    /// How many there are.
    count: AtomicUsize,
    scripts: Mutex<Vec<Arc<LastingScript>>>,
}

/// What those are told who need what a script holds, or a function.
pub fn busy_text(is_function: bool) -> &'static str {
    match is_function {
        true => "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
        false => "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    }
}

/// What a command needs.
pub struct Needs<'l> {
    /// It looks at data, or changes them.
    pub data: bool,
    /// It is about all keys.
    pub everything: bool,
    pub locks: &'l [Lock],
}

impl LastingScript {
    pub fn new(is_function: bool, scope: ScriptScope, mut locks: Vec<Lock>) -> LastingScript {
        locks.sort_unstable_by_key(|lock| (lock.hash, !lock.write));
        locks.dedup_by_key(|lock| lock.hash);
        LastingScript { is_function, is_busy: AtomicBool::new(false), scope, locks: locks.into() }
    }

    pub fn text(&self) -> &'static str {
        busy_text(self.is_function)
    }

    pub fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Relaxed)
    }

    pub fn set_busy(&self) {
        self.is_busy.store(true, Ordering::Relaxed);
    }

    fn is_in_the_way(&self, needs: &Needs) -> bool {
        let has_everything = || self.held(EVERYTHING).is_some();
        let holds = |lock: &Lock| self.held(lock.hash).is_some_and(|held| held.write || lock.write);
        self.scope == ScriptScope::Server && self.is_busy()
            || needs.data && (needs.everything || has_everything() || needs.locks.iter().any(holds))
    }

    fn held(&self, hash: u64) -> Option<Lock> {
        self.locks.binary_search_by_key(&hash, |lock| lock.hash).ok().map(|index| self.locks[index])
    }
}

impl LastingScripts {
    /// Whether there are any: where there are none nobody has to look further.
    #[inline]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn add(&self, script: Arc<LastingScript>) {
        self.change(|scripts| scripts.push(script));
    }

    pub fn remove(&self, script: &Arc<LastingScript>) {
        self.change(|scripts| scripts.retain(|of| !Arc::ptr_eq(of, script)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<LastingScript>>)) {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut scripts);
        self.count.store(scripts.len(), Ordering::Relaxed);
    }

    /// One that is in the way of a command, or of a script (`own`): a busy one, if there is one.
    pub fn in_the_way(&self, needs: &Needs, own: Option<&Arc<LastingScript>>) -> Option<Arc<LastingScript>> {
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = |script: &&Arc<LastingScript>| own.is_none_or(|own| !Arc::ptr_eq(own, script));
        let in_the_way = || scripts.iter().filter(is_other).filter(|script| script.is_in_the_way(needs));
        in_the_way().find(|script| script.is_busy()).or_else(|| in_the_way().next()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(scope: ScriptScope, locks: &[(u64, bool)]) -> LastingScript {
        let locks = locks.iter().map(|&(hash, write)| Lock { hash, write }).collect();
        LastingScript::new(false, scope, locks)
    }

    fn refuses(script: &LastingScript, everything: bool, locks: &[(u64, bool)]) -> bool {
        let locks: Vec<Lock> = locks.iter().map(|&(hash, write)| Lock { hash, write }).collect();
        script.is_in_the_way(&Needs { data: true, everything, locks: &locks })
    }

    #[test]
    fn a_script_is_in_the_way_of_what_it_holds() {
        let writes = script(ScriptScope::Keys, &[(5, true)]);
        assert!(refuses(&writes, false, &[(4, true), (5, false)]));
        assert!(!refuses(&writes, false, &[(4, true)]));
        assert!(refuses(&writes, true, &[]));
        let reads = script(ScriptScope::Keys, &[(5, false)]);
        assert!(refuses(&reads, false, &[(5, true)]));
        assert!(!refuses(&reads, false, &[(5, false)]));
        let all = script(ScriptScope::Keys, &[(EVERYTHING, true)]);
        assert!(refuses(&all, false, &[(4, false)]));
        let no_data = Needs { data: false, everything: false, locks: &[] };
        assert!(!all.is_in_the_way(&no_data));
        let of_server = script(ScriptScope::Server, &[]);
        assert!(!of_server.is_in_the_way(&no_data));
        assert!(refuses(&of_server, true, &[]));
        of_server.set_busy();
        assert!(of_server.is_in_the_way(&no_data));
    }
}
