//! What is asked of the server. Each thread has a workload of its own; its connections are its *links*.

use crate::encode::{Command, KeyForm, Part, Ttl};
use crate::keys::Choice;
use crate::template::Template;
use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// GET of keys that are loaded first
    Get,
    /// SET, with EX where --ttl is given
    Set,
    /// GET and SET, in the share of --reads
    Mixed,
    /// users log in (SET EX), make requests (GET, then EXPIRE), log out (DEL) after 20 on average
    Session,
    /// GET, and SET EX after a miss
    Cache,
    /// INCR, then EXPIRE NX
    Ratelimit,
    /// MGET of --batch keys, each chosen for itself
    Mget,
    /// MSET of --batch keys, each chosen for itself
    Mset,
    /// MULTI, --batch commands on keys with one hash tag, EXEC: one request (--keys counts tags)
    Transaction,
    /// MULTI, DECRBY of one key and INCRBY of another one, EXEC: one request; the sum over all keys stays the same
    Transfer,
    /// LCS of two strings with one hash tag: much work for the server, little for the generator (--keys counts pairs)
    Lcs,
    /// GETs of live keys before, while and after others die at one moment; like lag it resets the server's statistics
    /// and sets notify-keyspace-events meanwhile
    MassExpiry,
    /// nothing: what --idle connections cost the server (10000), which has to be on this machine
    Idle,
    /// GETs over connections of one shard, of keys of that shard and of another one, in turn (EmberDB only, one target)
    ForeignKey,
    /// how late expired events of 1,000 keys among many live ones arrive
    Lag,
    /// what is given with --command; with several of them each connection takes turns, all for one key
    Command,
    /// nothing: the bytes that what --load-command makes takes, for each of --keys; nothing is to be there before
    Memory,
    /// PINGs before and after --command is sent once, to what --load-command made: how long it keeps others waiting
    Stall,
}

/// What is between MULTI and EXEC of the transaction workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Steps {
    /// SET and GET in turn
    SetGet,
    /// INCR
    Incr,
}

/// The strings of the lcs workload.
const PAIR: [Part<'static>; 2] = [Part::Tagged(":a"), Part::Tagged(":b")];

/// Requests of a session between login and logout, on average.
const SESSION_REQUESTS: f64 = 20.0;

pub trait Workload: Send {
    /// Appends the next request for a link; what it returns comes back with the reply.
    fn request(&mut self, link: usize, out: &mut Vec<u8>) -> u64;

    fn reply(&mut self, _link: usize, _tag: u64, _nil: bool) {}
}

/// What workloads are made from.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub kind: Kind,
    pub keys: u64,
    /// `None` = uniform.
    pub zipf_exponent: Option<f64>,
    pub form: KeyForm,
    pub value: Vec<u8>,
    /// Keys of a MGET or MSET, commands of a transaction.
    pub batch: usize,
    pub steps: Steps,
    pub commands: Vec<Template>,
    pub load_command: Option<Template>,
    pub ttl: Option<Ttl>,
    pub reads: f64,
    pub loaded: bool,
    pub seed: u64,
}

/// Which of all connections a thread has: every `threads`-th from `first`.
#[derive(Clone, Copy, Debug)]
pub struct Links {
    pub first: usize,
    pub threads: usize,
    /// Of all threads.
    pub total: usize,
}

impl Recipe {
    fn choice(&self, keys: u64) -> Choice {
        match self.zipf_exponent {
            None => Choice::uniform(keys),
            Some(exponent) => Choice::zipf(keys, exponent),
        }
    }

    fn rng(&self, thread: usize) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed.wrapping_add(thread as u64))
    }

    /// Makes a key what the workload expects of it.
    pub fn load(&self) -> Command {
        if let Some(template) = &self.load_command {
            return self.given(template);
        }
        match self.kind {
            Kind::Lcs => self.set_pair(),
            Kind::Transaction => self.set_tagged(),
            Kind::Transfer => Command::new(&self.form, &[Part::Word(b"SET"), Part::Key, Part::Word(b"0")]),
            _ => self.set(),
        }
    }

    /// Whether `batch` says something.
    pub fn is_batched(&self) -> bool {
        matches!(self.kind, Kind::Mget | Kind::Mset | Kind::Transaction)
    }

    /// Replies to each request.
    pub fn replies(&self) -> u32 {
        // MULTI and EXEC have one each, too.
        match self.kind {
            Kind::Transaction => self.batch as u32 + 2,
            Kind::Transfer => 4,
            _ => 1,
        }
    }

    fn given(&self, template: &Template) -> Command {
        template.command(&self.form, self.keys, &self.value)
    }

    fn mget(&self) -> Command {
        let mut parts = vec![Part::Word(b"MGET")];
        parts.extend((0..self.batch).map(|_| Part::Key));
        Command::new(&self.form, &parts)
    }

    fn mset(&self) -> Command {
        let mut parts = vec![Part::Word(b"MSET")];
        parts.extend((0..self.batch).flat_map(|_| [Part::Key, Part::Word(&self.value)]));
        Command::new(&self.form, &parts)
    }

    /// What stands behind the tag, for each command of a transaction.
    fn names(&self) -> Vec<String> {
        let sort = if self.steps == Steps::Incr { "n" } else { "" };
        (0..self.batch).map(|at| format!(":{sort}{at}")).collect()
    }

    fn transaction(&self) -> Command {
        let names = self.names();
        let command = |(at, name)| match (self.steps, at % 2) {
            (Steps::Incr, _) => vec![Part::Word(b"INCR"), Part::Tagged(name)],
            (Steps::SetGet, 0) => vec![Part::Word(b"SET"), Part::Tagged(name), Part::Word(&self.value)],
            (Steps::SetGet, _) => vec![Part::Word(b"GET"), Part::Tagged(name)],
        };
        let commands: Vec<Vec<Part>> = names.iter().map(String::as_str).enumerate().map(command).collect();
        Command::transaction(&self.form, &commands.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// All keys of one tag.
    fn set_tagged(&self) -> Command {
        let names = self.names();
        let value = if self.steps == Steps::Incr { b"0".as_slice() } else { &self.value };
        let mut parts = vec![Part::Word(b"MSET")];
        parts.extend(names.iter().flat_map(|name| [Part::Tagged(name), Part::Word(value)]));
        Command::new(&self.form, &parts)
    }

    fn transfer(&self) -> Command {
        let step = |name: &'static [u8]| [Part::Word(name), Part::Key, Part::Word(b"1")];
        Command::transaction(&self.form, &[&step(b"DECRBY"), &step(b"INCRBY")])
    }

    pub fn get(&self) -> Command {
        Command::new(&self.form, &[Part::Word(b"GET"), Part::Key])
    }

    fn lcs(&self) -> Command {
        Command::new(&self.form, &[Part::Word(b"LCS"), PAIR[0], PAIR[1], Part::Word(b"LEN")])
    }

    /// Two strings of four letters that agree by chance only. Every pair holds the same two: what LCS costs depends on
    /// their lengths.
    fn set_pair(&self) -> Command {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let mut letters = || (0..self.value.len()).map(|_| b"ACGT"[rng.usize(..4)]).collect::<Vec<u8>>();
        let (one, two) = (letters(), letters());
        Command::new(&self.form, &[Part::Word(b"MSET"), PAIR[0], Part::Word(&one), PAIR[1], Part::Word(&two)])
    }

    pub fn set(&self) -> Command {
        let plain = [Part::Word(b"SET"), Part::Key, Part::Word(&self.value)];
        match self.ttl {
            None => Command::new(&self.form, &plain),
            Some(ttl) => {
                let [set, key, value] = plain;
                Command::new(&self.form, &[set, key, value, Part::Word(b"EX"), Part::Ttl(ttl)])
            }
        }
    }

    fn expire(&self, condition: &[&[u8]]) -> Command {
        let ttl = self.ttl.expect("workloads that renew deadlines have a default");
        let mut parts = vec![Part::Word(b"EXPIRE"), Part::Key, Part::Ttl(ttl)];
        parts.extend(condition.iter().map(|word| Part::Word(word)));
        Command::new(&self.form, &parts)
    }
}

/// One command that reads, one that writes, or both.
pub struct Plain {
    read: Command,
    write: Command,
    reads: f64,
    choice: Choice,
    rng: fastrand::Rng,
}

impl Plain {
    pub fn new(recipe: &Recipe, thread: usize) -> Plain {
        let reads = match recipe.kind {
            Kind::Set => 0.0,
            Kind::Mixed => recipe.reads,
            _ => 1.0,
        };
        let read = match recipe.kind {
            Kind::Lcs => recipe.lcs(),
            Kind::Transaction => recipe.transaction(),
            Kind::Stall => Command::new(&recipe.form, &[Part::Word(b"PING")]),
            _ => recipe.get(),
        };
        let choice = recipe.choice(recipe.keys);
        Plain { read, write: recipe.set(), reads, choice, rng: recipe.rng(thread) }
    }
}

impl Workload for Plain {
    #[inline]
    fn request(&mut self, _link: usize, out: &mut Vec<u8>) -> u64 {
        let key = self.choice.next(&mut self.rng);
        let read = self.reads >= 1.0 || (self.reads > 0.0 && self.rng.f64() < self.reads);
        let command = if read { &self.read } else { &self.write };
        command.push(key, &mut self.rng, out);
        0
    }
}

/// One command, or transaction, about several keys that are chosen each for itself.
pub struct Several {
    command: Command,
    /// How many keys there are, where no key may follow itself.
    distinct: Option<u64>,
    choice: Choice,
    rng: fastrand::Rng,
}

impl Several {
    pub fn new(recipe: &Recipe, thread: usize) -> Several {
        let command = match recipe.kind {
            Kind::Mget => recipe.mget(),
            Kind::Mset => recipe.mset(),
            _ => recipe.transfer(),
        };
        let distinct = (recipe.kind == Kind::Transfer).then_some(recipe.keys);
        Several { command, distinct, choice: recipe.choice(recipe.keys), rng: recipe.rng(thread) }
    }
}

impl Workload for Several {
    #[inline]
    fn request(&mut self, _link: usize, out: &mut Vec<u8>) -> u64 {
        let mut last = None;
        let next = |rng: &mut fastrand::Rng| {
            let mut key = self.choice.next(rng);
            if let Some(keys) = self.distinct.filter(|_| last == Some(key)) {
                key = (key + 1) % keys;
            }
            last = Some(key);
            key
        };
        self.command.push_each(next, &mut self.rng, out);
        0
    }
}

/// Every user belongs to one link, so a user's requests keep their order.
pub struct Session {
    login: Command,
    read: Command,
    renew: Command,
    logout: Command,
    choice: Choice,
    links: Links,
    users_a_link: u64,
    logged_in: Vec<bool>,
    /// The user whose session was read last and is renewed next, by link.
    renew_next: Vec<Option<u64>>,
    rng: fastrand::Rng,
}

impl Session {
    pub fn new(recipe: &Recipe, thread: usize, links: Links, own_links: usize) -> Session {
        let users_a_link = (recipe.keys / links.total as u64).max(1);
        Session {
            login: recipe.set(),
            read: recipe.get(),
            renew: recipe.expire(&[]),
            logout: Command::new(&recipe.form, &[Part::Word(b"DEL"), Part::Key]),
            choice: recipe.choice(users_a_link),
            links,
            users_a_link,
            logged_in: vec![recipe.loaded; users_a_link as usize * own_links],
            renew_next: vec![None; own_links],
            rng: recipe.rng(thread),
        }
    }

    fn user(&self, link: usize, at: u64) -> u64 {
        at * self.links.total as u64 + (self.links.first + link * self.links.threads) as u64
    }
}

impl Workload for Session {
    fn request(&mut self, link: usize, out: &mut Vec<u8>) -> u64 {
        if let Some(user) = self.renew_next[link].take() {
            self.renew.push(user, &mut self.rng, out);
            return 0;
        }
        let at = self.choice.next(&mut self.rng);
        let user = self.user(link, at);
        let state = link * self.users_a_link as usize + at as usize;
        if !self.logged_in[state] {
            self.logged_in[state] = true;
            self.login.push(user, &mut self.rng, out);
        } else if self.rng.f64() < 1.0 / SESSION_REQUESTS {
            self.logged_in[state] = false;
            self.logout.push(user, &mut self.rng, out);
        } else {
            self.renew_next[link] = Some(user);
            self.read.push(user, &mut self.rng, out);
            return state as u64 + 1;
        }
        0
    }

    fn reply(&mut self, _link: usize, tag: u64, nil: bool) {
        if nil && tag > 0 {
            // The session has expired: the user has to log in again.
            self.logged_in[tag as usize - 1] = false;
        }
    }
}

pub struct Cache {
    get: Command,
    fill: Command,
    choice: Choice,
    /// Missed and not filled yet, by link.
    missed: Vec<Vec<u64>>,
    rng: fastrand::Rng,
}

impl Cache {
    pub fn new(recipe: &Recipe, thread: usize, own_links: usize) -> Cache {
        let choice = recipe.choice(recipe.keys);
        let missed = vec![Vec::new(); own_links];
        Cache { get: recipe.get(), fill: recipe.set(), choice, missed, rng: recipe.rng(thread) }
    }
}

impl Workload for Cache {
    fn request(&mut self, link: usize, out: &mut Vec<u8>) -> u64 {
        if let Some(key) = self.missed[link].pop() {
            self.fill.push(key, &mut self.rng, out);
            return 0;
        }
        let key = self.choice.next(&mut self.rng);
        self.get.push(key, &mut self.rng, out);
        key + 1
    }

    fn reply(&mut self, link: usize, tag: u64, nil: bool) {
        if nil && tag > 0 {
            self.missed[link].push(tag - 1);
        }
    }
}

pub struct RateLimit {
    count: Command,
    limit: Command,
    choice: Choice,
    /// Counted and not limited yet, by link.
    counted: Vec<Option<u64>>,
    rng: fastrand::Rng,
}

impl RateLimit {
    pub fn new(recipe: &Recipe, thread: usize, own_links: usize) -> RateLimit {
        RateLimit {
            count: Command::new(&recipe.form, &[Part::Word(b"INCR"), Part::Key]),
            limit: recipe.expire(&[b"NX"]),
            choice: recipe.choice(recipe.keys),
            counted: vec![None; own_links],
            rng: recipe.rng(thread),
        }
    }
}

impl Workload for RateLimit {
    fn request(&mut self, link: usize, out: &mut Vec<u8>) -> u64 {
        if let Some(key) = self.counted[link].take() {
            self.limit.push(key, &mut self.rng, out);
            return 0;
        }
        let key = self.choice.next(&mut self.rng);
        self.counted[link] = Some(key);
        self.count.push(key, &mut self.rng, out);
        0
    }
}

/// Commands as given, in turn.
pub struct Given {
    commands: Vec<Command>,
    choice: Choice,
    /// Which command is next, and for which key, by link.
    next: Vec<(usize, u64)>,
    rng: fastrand::Rng,
}

impl Given {
    pub fn new(recipe: &Recipe, thread: usize, own_links: usize) -> Given {
        Given {
            commands: recipe.commands.iter().map(|template| recipe.given(template)).collect(),
            choice: recipe.choice(recipe.keys),
            next: vec![(0, 0); own_links],
            rng: recipe.rng(thread),
        }
    }
}

impl Workload for Given {
    #[inline]
    fn request(&mut self, link: usize, out: &mut Vec<u8>) -> u64 {
        let (at, key) = &mut self.next[link];
        if *at == 0 {
            *key = self.choice.next(&mut self.rng);
        }
        self.commands[*at].push(*key, &mut self.rng, out);
        *at = if *at + 1 == self.commands.len() { 0 } else { *at + 1 };
        0
    }
}

/// Words of all commands; in front of each command how many they are.
#[cfg(test)]
pub fn words(bytes: Vec<u8>) -> Vec<String> {
    let text = String::from_utf8(bytes).unwrap();
    text.split_terminator("\r\n").filter(|line| !line.starts_with('$')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe(kind: Kind, keys: u64) -> Recipe {
        Recipe {
            kind,
            keys,
            zipf_exponent: None,
            form: KeyForm::new("k", 3, keys),
            value: b"v".to_vec(),
            batch: 3,
            steps: Steps::SetGet,
            commands: Vec::new(),
            load_command: None,
            ttl: Some(Ttl { from: 9, to: 9 }),
            reads: 0.5,
            loaded: false,
            seed: 3,
        }
    }

    /// Name and key of the next request, and its tag.
    fn next(workload: &mut impl Workload, link: usize) -> (String, String, u64) {
        let mut out = Vec::new();
        let tag = workload.request(link, &mut out);
        let text = String::from_utf8(out).unwrap();
        let words: Vec<&str> = text.split("\r\n").collect();
        (words[2].to_owned(), words[4].to_owned(), tag)
    }

    #[test]
    fn a_session_has_its_order() {
        let links = Links { first: 1, threads: 2, total: 4 };
        let mut session = Session::new(&recipe(Kind::Session, 4), 1, links, 2);
        // One user a link: that of the link's number among all.
        assert_eq!(next(&mut session, 0), ("SET".into(), "k01".into(), 0));
        assert_eq!(next(&mut session, 1), ("SET".into(), "k03".into(), 0));
        let (mut logouts, mut reads) = (0, 0);
        for _ in 0..5_000 {
            match next(&mut session, 0) {
                (name, key, 1) if name == "GET" => {
                    reads += 1;
                    assert_eq!(next(&mut session, 0), ("EXPIRE".into(), key, 0));
                }
                (name, _, 0) if name == "DEL" => {
                    logouts += 1;
                    assert_eq!(next(&mut session, 0).0, "SET");
                }
                other => panic!("{other:?}"),
            }
        }
        assert!((150..350).contains(&logouts) && reads > 4_000, "{logouts} logouts");
        // An expired session is begun anew.
        loop {
            let (name, _, tag) = next(&mut session, 0);
            if name == "GET" {
                session.reply(0, tag, true);
                break;
            }
        }
        assert_eq!(next(&mut session, 0).0, "EXPIRE");
        assert_eq!(next(&mut session, 0).0, "SET");
    }

    #[test]
    fn a_cache_fills_what_it_missed() {
        let mut cache = Cache::new(&recipe(Kind::Cache, 100), 0, 2);
        let (name, key, tag) = next(&mut cache, 1);
        assert_eq!(name, "GET");
        cache.reply(1, tag, false);
        assert_eq!(next(&mut cache, 1).0, "GET");
        cache.reply(1, tag, true);
        assert_eq!(next(&mut cache, 0).0, "GET");
        assert_eq!(next(&mut cache, 1), ("SET".into(), key, 0));
    }

    #[test]
    fn a_rate_limit_counts_then_limits_the_same_key() {
        let mut limit = RateLimit::new(&recipe(Kind::Ratelimit, 100), 0, 1);
        let (name, key, _) = next(&mut limit, 0);
        assert_eq!(name, "INCR");
        assert_eq!(next(&mut limit, 0), ("EXPIRE".into(), key, 0));
        assert_eq!(next(&mut limit, 0).0, "INCR");
    }

    #[test]
    fn a_pair_is_loaded_under_the_keys_that_are_compared() {
        let recipe = Recipe { value: vec![0; 500], ..recipe(Kind::Lcs, 100) };
        let (mut load, mut ask) = (Vec::new(), Vec::new());
        recipe.load().push(7, &mut fastrand::Rng::with_seed(1), &mut load);
        Plain::new(&Recipe { keys: 1, ..recipe }, 0).request(0, &mut ask);
        let load = words(load);
        assert_eq!([&load[1], &load[2], &load[4]], ["MSET", "{k07}:a", "{k07}:b"]);
        assert!(load[3].len() == 500 && load[5].len() == 500 && load[3] != load[5]);
        assert_eq!(words(ask), ["*4", "LCS", "{k00}:a", "{k00}:b", "LEN"]);
    }

    fn asked(workload: &mut impl Workload) -> Vec<String> {
        let mut out = Vec::new();
        workload.request(0, &mut out);
        words(out)
    }

    #[test]
    fn each_key_of_several_is_chosen_for_itself() {
        let mut mset = Several::new(&recipe(Kind::Mset, 100), 0);
        let words = asked(&mut mset);
        assert_eq!([&words[0], &words[1], &words[3], &words[5], &words[7]], ["*7", "MSET", "v", "v", "v"]);
        let mut mget = Several::new(&recipe(Kind::Mget, 3), 0);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..1_000 {
            let words = asked(&mut mget);
            assert_eq!((words.len(), &words[..2]), (5, &["*4".to_owned(), "MGET".to_owned()][..]));
            seen.insert(words[2..].to_vec());
        }
        assert_eq!(seen.len(), 27, "all of three keys thrice");
    }

    #[test]
    fn given_commands_take_turns_about_one_key_on_each_link() {
        let commands = ["RPUSH KEY VALUE", "LLEN KEY", "LPOP KEY"].map(|text| text.parse().unwrap());
        let recipe = Recipe { commands: commands.into(), ..recipe(Kind::Command, 100) };
        let mut given = Given::new(&recipe, 0, 2);
        let (name, first, _) = next(&mut given, 0);
        assert_eq!(name, "RPUSH");
        let (name, second, _) = next(&mut given, 1);
        assert!(name == "RPUSH" && first != second);
        for name in ["LLEN", "LPOP"] {
            assert_eq!(next(&mut given, 1), (name.into(), second.clone(), 0));
            assert_eq!(next(&mut given, 0), (name.into(), first.clone(), 0));
        }
        let (name, third, _) = next(&mut given, 0);
        assert!(name == "RPUSH" && third != first);
    }

    #[test]
    fn what_is_loaded_can_be_given() {
        let load_command = Some("HSET KEY a VALUE b NUMBER".parse().unwrap());
        let mut out = Vec::new();
        let recipe = Recipe { load_command, ..recipe(Kind::Get, 100) };
        recipe.load().push(7, &mut fastrand::Rng::with_seed(1), &mut out);
        assert_eq!(words(out), ["*6", "HSET", "k07", "a", "v", "b", "7"]);
    }

    #[test]
    fn a_transaction_is_about_one_tag() {
        let incr = Recipe { steps: Steps::Incr, ..recipe(Kind::Transaction, 1) };
        let set_get = recipe(Kind::Transaction, 1);
        let begin = ["*1", "MULTI"];
        let set_get_words = ["*3", "SET", "{k00}:0", "v", "*2", "GET", "{k00}:1", "*3", "SET", "{k00}:2", "v"];
        let incr_words = ["*2", "INCR", "{k00}:n0", "*2", "INCR", "{k00}:n1", "*2", "INCR", "{k00}:n2"];
        let end = ["*1", "EXEC"];
        assert_eq!(asked(&mut Plain::new(&set_get, 0)), [&begin[..], &set_get_words, &end].concat());
        assert_eq!(asked(&mut Plain::new(&incr, 0)), [&begin[..], &incr_words, &end].concat());
        let mut load = Vec::new();
        incr.load().push(0, &mut fastrand::Rng::with_seed(1), &mut load);
        assert_eq!(words(load), ["*7", "MSET", "{k00}:n0", "0", "{k00}:n1", "0", "{k00}:n2", "0"]);
    }

    #[test]
    fn a_transfer_is_between_two_keys() {
        let mut transfer = Several::new(&recipe(Kind::Transfer, 2), 0);
        let mut first = 0;
        for _ in 0..1_000 {
            let words = asked(&mut transfer);
            let (from, to) = (&words[4], &words[8]);
            assert!([from, to].iter().all(|key| ["k00", "k01"].contains(&key.as_str())) && from != to, "{words:?}");
            assert_eq!([&words[3], &words[5], &words[7], &words[9]], ["DECRBY", "1", "INCRBY", "1"]);
            first += usize::from(from == "k00");
        }
        assert!((400..600).contains(&first), "{first}");
    }

    /// A reply that is not expected, or one that is missing, would stop the run or hang it.
    #[test]
    fn every_command_of_a_request_has_a_reply() {
        let commands = |words: Vec<String>| words.iter().filter(|word| word.starts_with('*')).count() as u32;
        for kind in [Kind::Mget, Kind::Mset, Kind::Transfer] {
            let recipe = recipe(kind, 10);
            assert_eq!(commands(asked(&mut Several::new(&recipe, 0))), recipe.replies(), "{kind:?}");
        }
        for kind in [Kind::Get, Kind::Lcs, Kind::Transaction] {
            let recipe = recipe(kind, 10);
            assert_eq!(commands(asked(&mut Plain::new(&recipe, 0))), recipe.replies(), "{kind:?}");
        }
    }

    #[test]
    fn reads_have_their_share() {
        let mut mixed = Plain::new(&recipe(Kind::Mixed, 100), 0);
        let reads = (0..10_000).filter(|_| next(&mut mixed, 0).0 == "GET").count();
        assert!((4_700..5_300).contains(&reads), "{reads}");
        assert_eq!(next(&mut Plain::new(&recipe(Kind::Get, 100), 0), 0).0, "GET");
        assert_eq!(next(&mut Plain::new(&recipe(Kind::Set, 100), 0), 0).0, "SET");
    }
}
