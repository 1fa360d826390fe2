//! What every contestant can do, and the store that they share.

use emberdb::clock::{Now, thread_cpu_ns};
use emberdb::keyspace::{Hasher, Key, Keyspace, Lookup, Touch, Value};

/// Keys of an operation come in batches of this many.
pub const BATCH: usize = 16;
/// Where virtual time begins.
pub const START_MS: u64 = 1_000_000;
/// Keys looked at or deleted between two looks at the clock, which cost some 0.2 us each.
pub const PROBES: usize = 64;

/// A store of keys with deadlines. A key is dead where now is past its deadline.
pub trait Contestant {
    /// Stores new keys with their deadlines.
    fn insert(&mut self, batch: &[(u64, u64)], now: Now);
    /// Gives keys a later deadline.
    fn refresh(&mut self, batch: &[(u64, u64)], now: Now);
    fn remove(&mut self, batch: &[u64], now: Now);
    /// Deletes dead keys until none is left to be found, or the budget is spent. Returns how many.
    fn expire(&mut self, now: Now, budget: &Budget) -> usize;
    /// Finds dead keys without deleting any; `None` where there is no way to do that.
    fn find_due(&mut self, now: Now) -> Option<Found>;
    /// Memory that serves deadlines alone.
    fn deadline_bytes(&self) -> usize;
    fn store(&mut self) -> &mut Store;
}

#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub keys: usize,
    pub cpu_ns: u64,
}

/// CPU time of the thread, to be spent.
pub struct Budget {
    end_ns: u64,
}

impl Budget {
    pub const UNLIMITED: Budget = Budget { end_ns: u64::MAX };

    pub fn of(cpu_ns: u64) -> Budget {
        Budget { end_ns: thread_cpu_ns() + cpu_ns }
    }

    pub fn is_spent(&self) -> bool {
        self.end_ns != u64::MAX && thread_cpu_ns() >= self.end_ns
    }
}

/// The CPU time of a piece of work, with its result.
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let start_ns = thread_cpu_ns();
    let result = work();
    (result, thread_cpu_ns() - start_ns)
}

/// Keys and values, the same for all: a keyspace, with a word of the contestant's own in each value.
pub struct Store {
    pub keyspace: Keyspace,
    hasher: Hasher,
}

/// What a value holds beside its first word.
const FILLING: [u8; 24] = [b'v'; 24];
const KEY_BYTES: usize = 16;
pub const VALUE_BYTES: usize = 8 + FILLING.len();
/// Bytes of a key with its value in the keyspace, header included.
pub const ENTRY_BYTES: usize = 8 + KEY_BYTES + VALUE_BYTES;

impl Store {
    pub fn new() -> Store {
        let hasher = Hasher::new(1, 1);
        Store { keyspace: Keyspace::new(1, hasher.clone()), hasher }
    }

    /// Keys, dead ones included.
    pub fn len(&self) -> usize {
        // At the beginning of time nobody is dead.
        self.keyspace.live_len(0, Now::from_ms(0))
    }

    /// Prefetches the keys of a batch and shows each with its place in the batch.
    pub fn each(&mut self, ids: impl ExactSizeIterator<Item = u64>, mut each: impl FnMut(&mut Keyspace, Key, usize)) {
        let count = ids.len();
        assert!(count <= BATCH);
        let mut names = [[0; KEY_BYTES]; BATCH];
        let mut hashes = [0; BATCH];
        for (at, id) in ids.enumerate() {
            names[at] = name(id);
            hashes[at] = self.hasher.hash(&names[at]);
        }
        self.keyspace.prefetch(hashes[..count].iter().map(|&hash| Lookup::key(0, hash)));
        for at in 0..count {
            each(&mut self.keyspace, Key { bytes: &names[at], hash: hashes[at] }, at);
        }
    }

    /// Stores new keys, each with a word and without a deadline.
    pub fn insert(&mut self, batch: &[(u64, u64)], word: impl Fn(usize) -> u64, now: Now) {
        self.each(ids(batch), |keyspace, key, at| {
            keyspace.insert(0, key, Value::Bytes(&value(word(at))), None, now);
        });
    }

    pub fn remove(&mut self, ids: &[u64], now: Now) {
        self.each(ids.iter().copied(), |keyspace, key, _| {
            keyspace.remove(0, key, now);
        });
    }
}

pub fn ids(batch: &[(u64, u64)]) -> impl ExactSizeIterator<Item = u64> + '_ {
    batch.iter().map(|&(id, _)| id)
}

fn name(id: u64) -> [u8; KEY_BYTES] {
    let mut name = *b"????????:session";
    name[..8].copy_from_slice(&id.to_le_bytes());
    name
}

pub fn value(word: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value[..8].copy_from_slice(&word.to_le_bytes());
    value[8..].copy_from_slice(&FILLING);
    value
}

/// The word in the value of a key; `None` where the key is gone.
pub fn word(keyspace: &mut Keyspace, key: Key, now: Now) -> Option<u64> {
    match keyspace.find(0, key, now, Touch::NOTHING)?.value() {
        Value::Bytes(bytes) => Some(u64::from_le_bytes(bytes[..8].try_into().expect("a value begins with its word"))),
        Value::Int(_) => None,
    }
}

/// Asks the cache for what is read soon.
pub fn prefetch<T>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(std::ptr::from_ref(target).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}

/// No deadlines at all: what the operations cost without.
pub struct None {
    store: Store,
}

impl None {
    pub fn boxed() -> Box<dyn Contestant> {
        Box::new(None { store: Store::new() })
    }
}

impl Contestant for None {
    fn insert(&mut self, batch: &[(u64, u64)], now: Now) {
        self.store.insert(batch, |_| 0, now);
    }

    fn refresh(&mut self, batch: &[(u64, u64)], now: Now) {
        self.store.each(ids(batch), |keyspace, key, _| {
            std::hint::black_box(word(keyspace, key, now));
        });
    }

    fn remove(&mut self, batch: &[u64], now: Now) {
        self.store.remove(batch, now);
    }

    fn expire(&mut self, _: Now, _: &Budget) -> usize {
        0
    }

    fn find_due(&mut self, _: Now) -> Option<Found> {
        Option::None
    }

    fn deadline_bytes(&self) -> usize {
        0
    }

    fn store(&mut self) -> &mut Store {
        &mut self.store
    }
}
