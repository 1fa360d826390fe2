//! A command on data, taken apart by the shards of its keys.

use crate::command::spec::Keys;
use crate::command::{Handler, Merge, OwnedRequest};
use crate::keyspace::Hasher;
use crate::resp::Request;
use crate::server::client::replies::Gather;
use crate::shard::{At, Builder, EVERYTHING, Lock, Ticket};
use smallvec::SmallVec;

/// Hash and shard of a key.
pub type Route = (u64, usize);
/// Those of each key of a request, in their order.
pub type Routes = SmallVec<[Route; 16]>;
/// The same for one of very many requests.
pub type FewRoutes = SmallVec<[Route; 1]>;

pub fn routes(hasher: &Hasher, keys: Keys, request: Request) -> Routes {
    collect_routes(hasher, keys, request)
}

pub fn few_routes(hasher: &Hasher, keys: Keys, request: Request) -> FewRoutes {
    collect_routes(hasher, keys, request)
}

fn collect_routes<R: FromIterator<Route>>(hasher: &Hasher, keys: Keys, request: Request) -> R {
    let route = |index| {
        let key = hasher.key(request.arg(index));
        (key.hash, hasher.shard_of(key))
    };
    keys.indexes(request).map(route).collect()
}

/// The shard that has all keys.
pub fn common_target(routes: &[Route]) -> Option<usize> {
    let (_, first) = *routes.first()?;
    routes.iter().all(|(_, target)| *target == first).then_some(first)
}

/// The hash of the first key; any where there is none.
pub fn first_hash(routes: &[Route]) -> u64 {
    routes.first().map_or(0, |(hash, _)| *hash)
}

/// What takes the parts of a command.
pub trait Parts {
    /// Begins a part on a shard.
    fn part(&mut self, target: usize, handler: Handler, at: At);
    fn arg(&mut self, target: usize, arg: &[u8]);
    fn lock(&mut self, target: usize, lock: Lock);
}

/// Each shard gets a request with its own keys. Returns what gathers the replies.
pub fn spread(
    parts: &mut impl Parts,
    (handler, merge): (Handler, Merge),
    at: At,
    muted: bool,
    (request, keys): (Request, Keys),
    routes: &[Route],
) -> Gather {
    let mut positions: SmallVec<[(usize, Vec<u32>); 4]> = SmallVec::new();
    let (first, step) = (keys.first(), keys.step());
    for (position, (index, &(hash, target))) in keys.indexes(request).zip(routes).enumerate() {
        let of_target = match positions.iter().position(|(of, _)| *of == target) {
            Some(found) => found,
            None => {
                // (What it shows is known by the first of its own keys.)
                parts.part(target, handler, At { hash, ..at });
                (0..first).for_each(|index| parts.arg(target, request.arg(index)));
                positions.push((target, Vec::new()));
                positions.len() - 1
            }
        };
        positions[of_target].1.push(position as u32);
        parts.lock(target, Lock { hash, write: at.write });
        (index..index + step).for_each(|index| parts.arg(target, request.arg(index)));
    }
    let positions = positions.into_iter().map(|(_, positions)| positions).collect();
    Gather::new(Some(merge), at, muted, routes.len(), positions)
}

/// Every shard gets the whole request, and all of its keys are locked.
pub fn everywhere(
    parts: &mut impl Parts,
    (handler, merge): (Handler, Merge),
    at: At,
    muted: bool,
    request: Request,
    shards: usize,
) -> Gather {
    for target in 0..shards {
        whole(parts, handler, at, request, target, &[(EVERYTHING, target)], true);
    }
    Gather::new(Some(merge), at, muted, 0, vec![Vec::new(); shards])
}

/// One shard gets the whole request.
pub fn together(
    parts: &mut impl Parts,
    (handler, merge): (Handler, Option<Merge>),
    at: At,
    muted: bool,
    request: Request,
    target: usize,
    routes: &[Route],
) -> Gather {
    whole(parts, handler, at, request, target, routes, at.write);
    Gather::new(merge, at, muted, routes.len(), vec![(0..routes.len() as u32).collect()])
}

fn whole(
    parts: &mut impl Parts,
    handler: Handler,
    at: At,
    request: Request,
    target: usize,
    routes: &[Route],
    write: bool,
) {
    parts.part(target, handler, at);
    request.from(0).for_each(|arg| parts.arg(target, arg));
    routes.iter().for_each(|&(hash, _)| parts.lock(target, Lock { hash, write }));
}

/// Parts of a transaction that is about to be sent.
pub struct Sent<'a> {
    pub transaction: Builder<'a>,
    pub client: u64,
    pub reply: u64,
    /// Parts so far.
    pub count: u32,
}

impl Parts for Sent<'_> {
    fn part(&mut self, target: usize, handler: Handler, at: At) {
        let ticket = Ticket { client: self.client, reply: self.reply, part: self.count };
        self.transaction.part(target, handler, at, ticket);
        self.count += 1;
    }

    fn arg(&mut self, target: usize, arg: &[u8]) {
        self.transaction.arg(target, arg);
    }

    fn lock(&mut self, target: usize, lock: Lock) {
        self.transaction.lock(target, lock);
    }
}

/// Parts that a coordinator takes as steps. Their locks were taken before.
#[derive(Default)]
pub struct Steps(pub Vec<StepPart>);

pub struct StepPart {
    pub target: usize,
    pub handler: Handler,
    pub at: At,
    pub request: OwnedRequest,
}

impl Parts for Steps {
    fn part(&mut self, target: usize, handler: Handler, at: At) {
        self.0.push(StepPart { target, handler, at, request: OwnedRequest::default() });
    }

    fn arg(&mut self, target: usize, arg: &[u8]) {
        let part = self.0.iter_mut().rfind(|part| part.target == target).expect("begun before");
        part.request.push(arg);
    }

    fn lock(&mut self, _: usize, _: Lock) {}
}
