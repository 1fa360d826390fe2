//! Expiry policies at work: what they make of the keys that a command changes or uses, and what they refuse.

use super::Ctx;
use super::spec::flag::{DENY_OOM, OWN_DEADLINE};
use super::spec::{Keys, Spec};
use crate::clock::Now;
use crate::journal::Command;
use crate::keyspace::{Key, Keyspace, Touch, Used};
use crate::resp::{Error, Request, Result};

/// Why a policy with REQUIRE refuses a write.
const DEADLINE_REQUIRED: Error = Error::text(
    "ERR the expiry policy of this key requires a deadline: set it with the value (SET with EX, PX, EXAT or PXAT, SETEX, \
     RESTORE with a ttl)",
);

/// Whether MSET would leave some of its keys without a deadline whose policy requires one. Each of the shards that have
/// its keys sees its own ones only, so it is asked before they are sent there.
pub fn refuses_pairs(keyspace: &Keyspace, spec: &Spec, request: Request) -> bool {
    let requires = |index| keyspace.policy_of(request.arg(index)).is_some_and(|policy| policy.requires);
    keyspace.has_required_deadlines() && spec.keys == Keys::PAIRS && spec.keys.indexes(request).any(requires)
}

/// What runs then instead of the command.
pub fn refuse(_: &mut Ctx, _: Request) -> Result {
    Err(DEADLINE_REQUIRED)
}

impl Ctx<'_> {
    /// A key was changed: its policy may give it a deadline, or cut the one it has.
    #[inline(never)]
    pub(super) fn govern(&mut self, db: usize, key: Key) {
        if let Some(deadline_ms) = self.keyspace.govern(db, key, self.now) {
            self.say_deadline(db, key.bytes, deadline_ms);
        }
        self.bound(db, key);
    }

    /// The same for a key of which it is known which deadline it has.
    #[inline(never)]
    pub(super) fn govern_dated(&mut self, key: Key, deadline_ms: Option<u64>) {
        if let Some(deadline_ms) = self.keyspace.govern_dated(self.db, key, deadline_ms, self.now) {
            self.say_deadline(self.db, key.bytes, deadline_ms);
        }
        self.bound(self.db, key);
    }

    /// Groups leave a key no later deadline than they have.
    fn bound(&mut self, db: usize, key: Key) {
        if self.keyspace.has_groups()
            && let Some(deadline_ms) =
                self.keyspace.bound_by_groups(db, key, self.now).and_then(|found| found.deadline_ms)
        {
            self.say_deadline(db, key.bytes, deadline_ms);
        }
    }

    fn say_deadline(&mut self, db: usize, key: &[u8], deadline_ms: u64) {
        if self.is_journaled() {
            let command = self.deadline_command(db, key, deadline_ms);
            self.keyspace.effects.said.say_behind(command);
        }
    }

    fn deadline_command(&self, db: usize, key: &[u8], deadline_ms: u64) -> Command {
        let at_ms = self.clock.to_log_ms(deadline_ms).to_string();
        Command::new(db, [b"PEXPIREAT", key, at_ms.as_bytes()].into_iter())
    }

    /// The same for a key that was there before its policy, and that no command has changed.
    pub fn apply_policy(&mut self, key: Key) {
        self.propagate_nothing();
        if let Some(deadline_ms) = self.keyspace.govern(self.db, key, self.now) {
            self.say_deadline(self.db, key.bytes, deadline_ms);
            self.keyspace.effects.dirty += 1;
        }
        self.bound(self.db, key);
    }

    /// The command is over: the lives of the keys it has used are renewed, where their policies want that. `latest` is the
    /// latest moment at which anybody has looked at this shard.
    #[cold]
    pub fn renew_used(&mut self, latest: Now) {
        for used in self.keyspace.take_used() {
            let Some(deadline_ms) = self.keyspace.renew(&used, self.now, latest) else { continue };
            self.say_renewed(&used, deadline_ms);
            // Groups leave a key no later deadline than they have, whatever its policy would.
            let key = self.other_key(&used.key);
            let bounded = self.keyspace.bound_by_groups(used.db, key, self.now);
            if let Some(deadline_ms) = bounded.and_then(|found| found.deadline_ms) {
                self.say_renewed(&used, deadline_ms);
            }
        }
    }

    /// It is not the command's doing.
    fn say_renewed(&mut self, used: &Used, deadline_ms: u64) {
        if self.is_journaled() {
            let command = self.deadline_command(used.db, &used.key, deadline_ms);
            let said = &mut self.keyspace.effects.said;
            said.say(command);
            said.end();
        }
    }

    /// Refuses to leave a key without a deadline whose policy requires one. To be asked before anything is changed.
    #[inline]
    pub fn check_deadline(&self, key: &[u8], has_deadline: bool) -> Result {
        if has_deadline || !self.keyspace.has_required_deadlines() { Ok(()) } else { self.refuse_immortal(key) }
    }

    #[cold]
    fn refuse_immortal(&self, key: &[u8]) -> Result {
        let requires = self.keyspace.policy_of(key).is_some_and(|policy| policy.requires);
        if requires && !self.keyspace.is_death_stream(key) { Err(DEADLINE_REQUIRED) } else { Ok(()) }
    }

    /// The same for a key that keeps the deadline it has, if it is there.
    pub fn check_kept_deadline(&mut self, key: Key) -> Result {
        if !self.keyspace.has_required_deadlines() {
            return Ok(());
        }
        let found = self.keyspace.find(self.db, key, self.now, Touch::NOTHING);
        let has_deadline = found.is_some_and(|live| live.deadline_ms().is_some());
        self.check_deadline(key.bytes, has_deadline)
    }

    /// The same for a command that adds to the value of its one key. Those that say what deadline the key has ask
    /// themselves.
    #[cold]
    pub fn check_required(&mut self, spec: &Spec, request: Request) -> Result {
        if spec.keys != Keys::ONE || !spec.has(DENY_OOM) || spec.has(OWN_DEADLINE) {
            return Ok(());
        }
        self.check_kept_deadline(self.key(request.arg(1)))
    }
}

#[cfg(test)]
mod tests {
    use crate::command::trial::Trial;
    use crate::config::{Limits, PackLimits, Policies};

    fn trial(policies: &[&str]) -> Trial {
        let wide = PackLimits { entries: 100, value_bytes: 64 };
        let limits =
            Limits { string_bytes: 1 << 20, hash: wide, set: wide, zset: wide, list_size: 100, ..Limits::default() };
        let mut trial = Trial::new(1, limits);
        policies.iter().for_each(|line| set(&mut trial, line));
        trial
    }

    fn set(trial: &mut Trial, line: &str) {
        let (prefix, policy, _) = Policies::parse(line.split(' ')).unwrap();
        trial.keyspace.set_policy(prefix.as_bytes(), Some(policy));
    }

    #[test]
    fn whatever_leaves_a_key_without_a_deadline_gives_it_the_default() {
        for (commands, key) in [
            ("set s:k v", "s:k"),
            ("setnx s:k v", "s:k"),
            ("getset s:k v", "s:k"),
            ("mset a 1 s:k 1", "s:k"),
            ("msetnx a 1 s:k 1", "s:k"),
            ("append s:k v", "s:k"),
            ("incr s:k", "s:k"),
            ("increx s:k", "s:k"),
            ("setbit s:k 1 1", "s:k"),
            ("hset s:k f v", "s:k"),
            ("rpush s:k v", "s:k"),
            ("sadd s:k v", "s:k"),
            ("zadd s:k 1 v", "s:k"),
            ("xadd s:k * f v", "s:k"),
            ("pfadd s:k v", "s:k"),
            ("geoadd s:k 1 1 v", "s:k"),
            ("set a v; rename a s:k", "s:k"),
            ("set a v; copy a s:k", "s:k"),
            ("sadd a 1 2; sunionstore s:k a", "s:k"),
            ("zadd a 1 2; zunionstore s:k 1 a", "s:k"),
            ("rpush a 1; lmove a s:k left left", "s:k"),
            ("rpush a 1; sort a store s:k", "s:k"),
            ("set a x; bitop not s:k a", "s:k"),
            ("set s:k v px 500; set s:k w", "s:k"),
            ("set s:k v px 500; persist s:k", "s:k"),
            ("set s:k v px 500; getex s:k persist", "s:k"),
        ] {
            let mut trial = trial(&["s: 30s", "a: NONE"]);
            for command in commands.split("; ") {
                assert!(!trial.say(command).starts_with("ERR"), "{command}");
            }
            assert_eq!(trial.say(&format!("pttl {key}")), ":30000\r\n", "{commands}");
            assert!(!trial.say("pttl a").starts_with(":3"), "{commands}");
        }
    }

    #[test]
    fn a_deadline_of_its_own_wins_up_to_the_maximum() {
        let mut trial = trial(&["s: 30s MAX 1m", "only: NONE MAX 1m"]);
        let pttl = |trial: &mut Trial, command: &str, key: &str| {
            trial.say(command);
            trial.say(&format!("pttl {key}"))
        };
        assert_eq!(pttl(&mut trial, "set s:k v px 500", "s:k"), ":500\r\n");
        assert_eq!(pttl(&mut trial, "set s:k v ex 45", "s:k"), ":45000\r\n");
        assert_eq!(pttl(&mut trial, "set s:k v ex 61", "s:k"), ":60000\r\n");
        assert_eq!(pttl(&mut trial, "expire s:k 1000", "s:k"), ":60000\r\n");
        assert_eq!(pttl(&mut trial, "set only:k v", "only:k"), ":-1\r\n");
        assert_eq!(pttl(&mut trial, "expire only:k 1000", "only:k"), ":60000\r\n");
        // What is there already keeps its deadline while it is added to.
        trial.pass_ms(10_000);
        assert_eq!(pttl(&mut trial, "append s:k x", "s:k"), ":50000\r\n");
        // A longer prefix governs alone.
        set(&mut trial, "s:x: 1s");
        assert_eq!(pttl(&mut trial, "set s:x:k v ex 1000", "s:x:k"), ":1000000\r\n");
    }

    #[test]
    fn keys_that_were_there_are_left_alone_until_they_are_written() {
        let mut trial = trial(&[]);
        trial.say("rpush s:k v");
        set(&mut trial, "s: 30s SLIDING");
        trial.say("lrange s:k 0 -1");
        assert_eq!(trial.say("pttl s:k"), ":-1\r\n");
        trial.say("rpush s:k w");
        assert_eq!(trial.say("pttl s:k"), ":30000\r\n");
    }

    #[test]
    fn use_renews_nothing_before_the_last_part_of_a_life() {
        let mut trial = trial(&["s: 10s SLIDING LAST 20"]);
        trial.say("hset s:k f v");
        for _ in 0..79 {
            trial.pass_ms(100);
            trial.say("hget s:k f");
        }
        assert_eq!(trial.say("pttl s:k"), ":2100\r\n");
        trial.pass_ms(100);
        trial.say("hget s:k f");
        assert_eq!(trial.say("pttl s:k"), ":10000\r\n");
    }

    #[test]
    fn what_is_only_in_the_way_is_not_used() {
        for attempt in ["copy free s:k", "renamenx free s:k", "setnx s:k w", "set s:k w nx", "msetnx s:k w a 1"] {
            let mut trial = trial(&["s: 10s SLIDING"]);
            trial.say("set free v");
            trial.say("set s:k v");
            trial.pass_ms(9_000);
            trial.say(attempt);
            assert_eq!(trial.say("pttl s:k"), ":1000\r\n", "{attempt}");
        }
    }

    #[test]
    fn use_renews_a_life_at_most_a_hundred_times() {
        let mut trial = trial(&["s: 10s SLIDING"]);
        trial.say("hset s:k f v");
        let renewed = |trial: &mut Trial| {
            let before = trial.keyspace.effects.dirty;
            trial.say("hget s:k f");
            trial.keyspace.effects.dirty - before
        };
        assert_eq!(renewed(&mut trial), 0);
        let mut count = 0;
        for _ in 0..10_000 {
            trial.pass_ms(1);
            count += renewed(&mut trial);
        }
        assert_eq!(count, 99);
        trial.pass_ms(5_000);
        trial.say("ttl s:k");
        assert!(trial.say("pttl s:k").starts_with(":49"), "asking for it is no use");
        trial.say("hget s:k f");
        assert_eq!(trial.say("pttl s:k"), ":10000\r\n");
        // A command's own deadline stands; the next use renews it.
        trial.say("pexpire s:k 100");
        assert_eq!(trial.say("pttl s:k"), ":100\r\n");
        trial.pass_ms(101);
        trial.say("hget s:k f");
        assert_eq!(trial.say("pttl s:k"), ":-2\r\n", "nothing brings back the dead");
    }

    #[test]
    fn what_would_live_for_ever_is_refused() {
        let mut trial = trial(&[]);
        for old in ["set s:old 1", "rpush s:list a b"] {
            trial.say(old);
        }
        set(&mut trial, "s: 30s REQUIRE");
        for refused in [
            "set s:k v",
            "set s:k v keepttl",
            "setnx s:k v",
            "getset s:k v",
            "msetnx a 1 s:k 1",
            "msetex 1 s:k 1",
            "append s:old v",
            "incr s:k",
            "increx s:k",
            "setbit s:k 1 1",
            "hset s:k f v",
            "rpush s:list v",
            "sadd s:k v",
            "zadd s:k 1 v",
            "xadd s:k * f v",
            "pfadd s:k v",
            "rename other s:k",
            "copy other s:k",
            "sunionstore s:k set",
            "zunionstore s:k 1 set",
            "lmove list s:k left left",
            "smove set s:k 1",
            "sort list store s:k",
            "bitop not s:k other",
            "persist s:mortal",
            "getex s:mortal persist",
            "set s:mortal v",
            "getset s:mortal v",
        ] {
            for command in ["set other x", "sadd set 1", "rpush list 1", "set s:mortal v ex 5", "del a"] {
                trial.say(command);
            }
            let before = trial.keyspace.effects.dirty;
            assert!(trial.say(refused).starts_with("ERR the expiry policy"), "{refused}");
            assert_eq!(trial.keyspace.effects.dirty, before, "{refused}");
            assert_eq!(trial.say("exists s:k a"), ":0\r\n", "{refused}");
            assert_eq!(trial.say("get s:mortal"), "$1\r\nv\r\n", "{refused}");
        }
        for allowed in [
            "set s:k v ex 5",
            "append s:k v",
            "set s:k 1 keepttl",
            "incr s:k",
            "getex s:k px 100",
            "expire s:old 5",
            "msetex 1 s:m 1 ex 5",
            "increx s:n ex 5",
            "lpop s:list",
            "rename s:k s:j",
            "del s:j s:list",
        ] {
            assert!(!trial.say(allowed).starts_with("ERR"), "{allowed}");
        }
    }
}
