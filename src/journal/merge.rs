//! One stream out of the records of several shards.
//!
//! Records that stand alone leave as they come. A part of a transaction waits at the head of its shard's queue until the
//! other shards have come to theirs, and then leaves with them. Two transactions that touch different keys may have run
//! in opposite orders on two shards, so that each waits for the other: then both, and what stands between their parts,
//! leave as one unit. Nothing in it depends on anything else in it but on its own shard, whose order is kept.
//!
//! A stream is seen at each of its moments, by who reads on a replica, and should not show a change without one that could be
//! seen, or was answered, before the change was asked for. So what is seen leaves as it came: where a transaction has come in
//! part, everything that comes behind that part waits until no transaction has come in part alone, and leaves with it. The log
//! is read at its end only: there no shard waits for another's transactions. Nor is there one in a stream for ever: where
//! there is always some transaction that has come in part, more than [`TOGETHER_MAX`] records are not kept waiting for that.

use super::{Command, Record, Transaction};
use std::collections::{HashMap, HashSet, VecDeque};

/// So many records wait for transactions of others.
const TOGETHER_MAX: usize = 1_000;

pub struct Merger {
    queues: Vec<Queue>,
    /// The queue that is looked at first, so that a busy shard does not hold up the others.
    next: usize,
    /// How many records have come.
    came: u64,
    /// How many parts are missing of each transaction of which some have come.
    missing: HashMap<u64, usize>,
    /// How many records had come whenever none were missing.
    whole: VecDeque<u64>,
}

/// What has come from one shard and has not left.
#[derive(Default)]
struct Queue {
    records: VecDeque<Record>,
    /// Of each of them: how many had come before, from all shards.
    arrivals: VecDeque<u64>,
    /// How many have left: the position of the first record.
    left: u64,
    /// The positions of the parts of transactions.
    parts: HashMap<u64, u64>,
}

impl Queue {
    fn pop(&mut self) -> Option<Record> {
        let record = self.records.pop_front()?;
        self.arrivals.pop_front();
        self.left += 1;
        if let Some(transaction) = &record.part_of {
            self.parts.remove(&transaction.number);
        }
        Some(record)
    }
}

/// Commands that belong together.
#[derive(Debug, PartialEq, Eq)]
pub struct Unit {
    pub commands: Vec<Command>,
    /// Bytes of all commands that have left for it: what is about all data every shard has said.
    pub bytes: usize,
    /// How many transactions are in it: none where it is one record of one shard, more than one where they had to leave
    /// together.
    pub transactions: usize,
}

/// What leaves together.
struct Closed {
    /// Up to which position, of each shard.
    ends: Vec<u64>,
    transactions: usize,
}

impl Merger {
    pub fn new(shards: usize) -> Merger {
        let queues = (0..shards).map(|_| Queue::default()).collect();
        Merger { queues, next: 0, came: 0, missing: HashMap::new(), whole: VecDeque::new() }
    }

    /// The next record of a shard.
    pub fn push(&mut self, shard: usize, record: Record) {
        let queue = &mut self.queues[shard];
        if let Some(transaction) = &record.part_of {
            debug_assert!(transaction.shards.contains(shard));
            queue.parts.insert(transaction.number, queue.left + queue.records.len() as u64);
            let missing = self.missing.entry(transaction.number).or_insert_with(|| transaction.shards.len());
            *missing -= 1;
            if *missing == 0 {
                self.missing.remove(&transaction.number);
            }
        }
        queue.records.push_back(record);
        queue.arrivals.push_back(self.came);
        self.came += 1;
        if self.missing.is_empty() {
            self.whole.push_back(self.came);
        }
    }

    /// Records that have come and have not left.
    pub fn waiting(&self) -> usize {
        self.queues.iter().map(|queue| queue.records.len()).sum()
    }

    /// How many records of a shard have left.
    pub fn left(&self, shard: usize) -> u64 {
        self.queues[shard].left
    }

    /// What leaves next, if what has come allows anything to: as it came, where that `is_seen` at each moment.
    pub fn pop(&mut self, is_seen: bool) -> Option<Unit> {
        if is_seen {
            let unit = self.pop_as_it_came();
            if unit.is_some() || self.waiting() <= TOGETHER_MAX {
                return unit;
            }
        }
        let shards = self.queues.len();
        let free = (self.next..shards).chain(0..self.next).find(|shard| self.is_free(*shard));
        let closed = match free {
            Some(shard) => {
                self.next = (shard + 1) % shards;
                self.closed_from(shard)?
            }
            // Every shard waits, or has sent nothing: of those that wait for each other the fewest.
            None => (0..shards).filter_map(|shard| self.closed_from(shard)).min_by_key(|closed| closed.transactions)?,
        };
        let unit = self.take(&closed.ends);
        let first = self.queues.iter().filter_map(|queue| queue.arrivals.front()).min().copied();
        while self.whole.front().is_some_and(|until| first.is_none_or(|first| *until <= first)) {
            self.whole.pop_front();
        }
        Some(unit)
    }

    /// What came until nothing was missing, and has not left.
    fn pop_as_it_came(&mut self) -> Option<Unit> {
        loop {
            let until = self.whole.pop_front()?;
            let behind =
                |queue: &Queue| queue.left + queue.arrivals.iter().take_while(|came| **came < until).count() as u64;
            let ends: Vec<u64> = self.queues.iter().map(behind).collect();
            if self.queues.iter().zip(&ends).any(|(queue, end)| *end > queue.left) {
                return Some(self.take(&ends));
            }
        }
    }

    /// Whether nothing stands before the record at the head of a shard's queue, nor before its other parts.
    fn is_free(&self, shard: usize) -> bool {
        match self.head(shard) {
            None => false,
            Some(Record { part_of: None, .. }) => true,
            Some(Record { part_of: Some(transaction), .. }) => transaction.shards.iter().all(|participant| {
                let head = self.head(participant).and_then(|record| record.part_of.as_ref());
                head.is_some_and(|head| head.number == transaction.number)
            }),
        }
    }

    fn head(&self, shard: usize) -> Option<&Record> {
        self.queues[shard].records.front()
    }

    /// What leaves together with the record at the head of a shard's queue; `None` where not all of it has come.
    fn closed_from(&self, shard: usize) -> Option<Closed> {
        let mut ends: Vec<u64> = self.queues.iter().map(|queue| queue.left).collect();
        let head = self.head(shard)?;
        ends[shard] += 1;
        let mut seen = HashSet::new();
        let mut open: Vec<&Transaction> = head.part_of.iter().collect();
        while let Some(transaction) = open.pop() {
            if !seen.insert(transaction.number) {
                continue;
            }
            for participant in transaction.shards.iter() {
                let queue = &self.queues[participant];
                let (from, end) = (ends[participant], queue.parts.get(&transaction.number)? + 1);
                if end > from {
                    ends[participant] = end;
                    // Whatever stands before it leaves before it, and takes its other parts along.
                    let before = (from - queue.left) as usize..(end - queue.left) as usize;
                    open.extend(queue.records.range(before).filter_map(|record| record.part_of.as_ref()));
                }
            }
        }
        Some(Closed { ends, transactions: seen.len() })
    }

    /// Takes the records up to these positions out. What is about all data stands between what each shard says before
    /// and behind it. (What is about all data is a part of every shard's, in one order.)
    fn take(&mut self, ends: &[u64]) -> Unit {
        let mut said: Vec<std::iter::Peekable<std::vec::IntoIter<Command>>> = Vec::new();
        let (mut transactions, mut bytes) = (0, 0);
        for (shard, (queue, end)) in self.queues.iter_mut().zip(ends).enumerate() {
            let mut commands = Vec::new();
            while queue.left < *end {
                let Some(record) = queue.pop() else { break };
                // (Each is counted where its first part is.)
                transactions += usize::from(record.part_of.is_some_and(|of| of.shards.iter().next() == Some(shard)));
                bytes += record.bytes();
                commands.extend(record.commands);
            }
            said.push(commands.into_iter().peekable());
        }
        let mut commands = Vec::new();
        loop {
            for of_shard in &mut said {
                commands.extend(std::iter::from_fn(|| of_shard.next_if(|command| !command.is_whole)));
            }
            let wholes: Vec<Command> = said.iter_mut().filter_map(Iterator::next).collect();
            let Some(whole) = wholes.into_iter().next() else { break };
            commands.push(whole);
        }
        Unit { commands, bytes, transactions }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Shards;
    use super::*;
    use proptest::prelude::*;

    fn command(name: &str) -> Command {
        Command::new(0, std::iter::once(name.as_bytes()))
    }

    fn single(name: &str) -> Record {
        Record { part_of: None, commands: vec![command(name)] }
    }

    fn part(number: u64, shards: &[usize], name: &str) -> Record {
        let part_of = Some(Transaction { number, shards: shards.iter().copied().collect() });
        Record { part_of, commands: vec![command(name)] }
    }

    fn names(unit: &Unit) -> Vec<String> {
        let name = |command: &Command| String::from_utf8_lossy(&command.bytes).lines().nth(2).map(str::to_owned);
        unit.commands.iter().map(|command| name(command).expect("a command with a name")).collect()
    }

    fn popped(merger: &mut Merger) -> Option<(Vec<String>, usize)> {
        merger.pop(false).map(|unit| (names(&unit), unit.transactions))
    }

    fn unit(names: &[&str], transactions: usize) -> Option<(Vec<String>, usize)> {
        Some((names.iter().map(ToString::to_string).collect(), transactions))
    }

    #[test]
    fn a_transaction_leaves_when_all_its_parts_have_come() {
        let mut merger = Merger::new(3);
        merger.push(0, part(1, &[0, 2], "a"));
        merger.push(0, single("behind"));
        assert_eq!(popped(&mut merger), None);
        merger.push(1, single("beside"));
        merger.push(2, single("before"));
        merger.push(2, part(1, &[0, 2], "b"));
        assert_eq!(popped(&mut merger), unit(&["beside"], 0));
        assert_eq!(popped(&mut merger), unit(&["before"], 0));
        assert_eq!(popped(&mut merger), unit(&["a", "b"], 1));
        assert_eq!(popped(&mut merger), unit(&["behind"], 0));
        assert_eq!((popped(&mut merger), merger.waiting()), (None, 0));
    }

    /// A part of a transaction came first: what came behind it may have been asked for by who has seen the transaction.
    #[test]
    fn what_is_seen_leaves_as_it_came() {
        let mut merger = Merger::new(3);
        merger.push(2, single("while nothing waits"));
        merger.push(0, part(1, &[0, 1], "1a"));
        merger.push(0, single("behind"));
        merger.push(2, single("asked for later"));
        let popped = |merger: &mut Merger| merger.pop(true).map(|unit| (names(&unit), unit.transactions));
        assert_eq!(popped(&mut merger), unit(&["while nothing waits"], 0));
        assert_eq!(popped(&mut merger), None);
        merger.push(1, part(2, &[1, 2], "2b"));
        merger.push(1, part(1, &[0, 1], "1b"));
        assert_eq!(popped(&mut merger), None);
        merger.push(2, part(2, &[1, 2], "2c"));
        merger.push(1, single("last"));
        assert_eq!(popped(&mut merger), unit(&["1a", "behind", "2b", "1b", "asked for later", "2c"], 2));
        assert_eq!(popped(&mut merger), unit(&["last"], 0));
        assert_eq!((popped(&mut merger), merger.waiting()), (None, 0));
    }

    /// Where something is always missing, no shard waits for ever.
    #[test]
    fn not_everything_waits_where_something_is_always_missing() {
        let mut merger = Merger::new(2);
        merger.push(0, part(0, &[0, 1], "0a"));
        let mut left = Vec::new();
        for number in 1..5_000 {
            merger.push(0, part(number, &[0, 1], "a"));
            merger.push(1, part(number - 1, &[0, 1], "b"));
            left.extend(std::iter::from_fn(|| merger.pop(true)));
        }
        assert!(left.len() > 3_000 && left.iter().all(|unit| unit.transactions == 1), "{}", left.len());
        assert!(merger.waiting() <= TOGETHER_MAX);
        merger.push(1, part(4_999, &[0, 1], "b"));
        left.extend(std::iter::from_fn(|| merger.pop(true)));
        assert_eq!((merger.waiting(), left.iter().map(|unit| unit.transactions).sum::<usize>()), (0, 5_000));
    }

    /// However many come at once.
    #[test]
    fn what_is_whole_leaves_as_it_came() {
        let mut merger = Merger::new(2);
        for number in 0..2_000 {
            merger.push(number % 2, single(&number.to_string()));
        }
        let left = std::iter::from_fn(|| merger.pop(true)).flat_map(|unit| names(&unit));
        assert!(left.eq((0..2_000).map(|number| number.to_string())));
    }

    #[test]
    fn transactions_in_opposite_orders_leave_together_with_what_is_between() {
        let mut merger = Merger::new(2);
        merger.push(0, part(1, &[0, 1], "1a"));
        merger.push(0, single("between"));
        merger.push(0, part(2, &[0, 1], "2a"));
        merger.push(1, part(2, &[0, 1], "2b"));
        assert_eq!(popped(&mut merger), None);
        merger.push(1, part(1, &[0, 1], "1b"));
        merger.push(1, single("after"));
        assert_eq!(popped(&mut merger), unit(&["1a", "between", "2a", "2b", "1b"], 2));
        assert_eq!(popped(&mut merger), unit(&["after"], 0));
    }

    /// What waits for two others that wait for each other does not leave with them.
    #[test]
    fn no_more_leave_together_than_have_to() {
        let mut merger = Merger::new(3);
        merger.push(0, part(3, &[0, 1], "3a"));
        merger.push(1, part(1, &[1, 2], "1b"));
        merger.push(1, part(2, &[1, 2], "2b"));
        merger.push(1, part(3, &[0, 1], "3b"));
        merger.push(2, part(2, &[1, 2], "2c"));
        merger.push(2, part(1, &[1, 2], "1c"));
        assert_eq!(popped(&mut merger), unit(&["1b", "2b", "2c", "1c"], 2));
        assert_eq!(popped(&mut merger), unit(&["3a", "3b"], 1));
    }

    #[test]
    fn what_is_about_all_data_is_said_once_between_the_same() {
        let mut merger = Merger::new(3);
        let flush = Command { is_whole: true, ..command("FLUSHALL") };
        for (shard, names) in [(1, ["before b", "behind b"]), (0, ["before a", "behind a"])] {
            let [before, behind] = names.map(command);
            let part = part(1, &[0, 1, 2], "");
            merger.push(shard, Record { commands: vec![before, flush.clone(), flush.clone(), behind], ..part });
        }
        merger.push(2, Record { commands: vec![flush.clone(), flush.clone()], ..part(1, &[0, 1, 2], "") });
        let all = ["before a", "before b", "FLUSHALL", "FLUSHALL", "behind a", "behind b"];
        assert_eq!(popped(&mut merger), unit(&all, 1));
        assert_eq!(merger.waiting(), 0);
    }

    #[test]
    fn sets_of_shards() {
        let shards: Shards = [0, 63, 64, 255, 64].into_iter().collect();
        assert_eq!(shards.iter().collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!((shards.len(), shards.is_empty(), Shards::default().is_empty()), (4, false, true));
        assert!(shards.contains(255) && !shards.contains(254));
    }

    /// Records of some shards: transactions come to each shard in the order of their numbers, but for neighbours that
    /// have changed places there.
    fn histories(swaps: bool) -> impl Strategy<Value = Vec<Vec<Record>>> {
        let participants = prop::collection::btree_set(0..4_usize, 1..=4);
        let one = (participants, prop::array::uniform4(0..8_u8));
        prop::collection::vec(one, 0..40).prop_map(move |transactions| {
            let mut shards = vec![Vec::new(); 4];
            let mut swapped = vec![Vec::new(); 4];
            for (number, (participants, chances)) in transactions.into_iter().enumerate() {
                let participants: Vec<usize> = participants.into_iter().collect();
                for &shard in &participants {
                    let name = format!("{number}@{shard}");
                    let record = match &participants[..] {
                        [_] => single(&name),
                        several => part(number as u64, several, &name),
                    };
                    shards[shard].push(record);
                    swapped[shard].push(chances[shard] == 0);
                }
            }
            for (shard, swapped) in shards.iter_mut().zip(swapped) {
                for (index, is_swapped) in swapped.into_iter().enumerate().skip(1) {
                    if swaps && is_swapped {
                        shard.swap(index - 1, index);
                    }
                }
            }
            shards
        })
    }

    /// Pushes all records in some order, and pops in between.
    fn merge(shards: &[Vec<Record>], seed: u64, is_seen: bool) -> (Vec<Unit>, usize) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut merger, mut units) = (Merger::new(shards.len()), Vec::new());
        let mut rest: Vec<_> = shards.iter().map(|records| records.iter()).collect();
        loop {
            let more: Vec<usize> = (0..rest.len()).filter(|shard| rest[*shard].len() > 0).collect();
            let Some(shard) = rng.choice(more) else { break };
            merger.push(shard, rest[shard].next().expect("there is one more").clone());
            if rng.bool() {
                units.extend(merger.pop(is_seen));
            }
        }
        units.extend(std::iter::from_fn(|| merger.pop(is_seen)));
        (units, merger.waiting())
    }

    proptest! {
        #[test]
        fn every_record_leaves_in_its_shards_order_and_transactions_are_whole(
            shards in histories(true),
            seed: u64,
            is_seen: bool,
        ) {
            let (units, waiting) = merge(&shards, seed, is_seen);
            prop_assert_eq!(waiting, 0);
            for (shard, records) in shards.iter().enumerate() {
                let of_shard = |name: &String| name.ends_with(&format!("@{shard}"));
                let left: Vec<String> = units.iter().flat_map(names).filter(of_shard).collect();
                let came: Vec<String> = records.iter().flat_map(|record| {
                    names(&Unit { commands: record.commands.clone(), bytes: 0, transactions: 0 })
                }).collect();
                prop_assert_eq!(left, came);
            }
            let mut seen = HashSet::new();
            for unit in &units {
                let of: HashSet<String> =
                    names(unit).iter().map(|name| name.split('@').next().expect("a number").to_owned()).collect();
                prop_assert!(of.iter().all(|number| seen.insert(number.clone())), "{of:?} has left in parts");
            }
        }

        #[test]
        fn where_all_shards_agree_on_the_order_every_transaction_leaves_alone(
            shards in histories(false),
            seed: u64,
        ) {
            let (units, waiting) = merge(&shards, seed, false);
            prop_assert_eq!(waiting, 0);
            prop_assert!(units.iter().all(|unit| unit.transactions <= 1));
        }
    }
}
