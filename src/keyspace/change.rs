//! What happens to keys: the vocabulary of events, and a change as those hear of it who asked.

use crate::config::NotifyFlags;
use crate::table::Kind;

macro_rules! events {
    ($($class:ident { $($event:ident $name:literal,)* })*) => {
        /// What keyspace notifications call what has happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $($($event,)*)*
        }

        impl Event {
            pub fn name(self) -> &'static str {
                match self {
                    $($(Event::$event => $name,)*)*
                }
            }

            /// Who asks for this class (`notify-keyspace-events`) is told of the event.
            pub fn class(self) -> NotifyFlags {
                match self {
                    $($(Event::$event => NotifyFlags::$class,)*)*
                }
            }
        }
    };
}

events! {
    GENERIC {
        Bless "bless",
        CopyTo "copy_to",
        Del "del",
        Expire "expire",
        MoveFrom "move_from",
        MoveTo "move_to",
        Persist "persist",
        RenameFrom "rename_from",
        RenameTo "rename_to",
        Restore "restore",
        Unbless "unbless",
    }
    STRING {
        Append "append",
        IncrBy "incrby",
        IncrByFloat "incrbyfloat",
        PfAdd "pfadd",
        Set "set",
        SetBit "setbit",
        SetRange "setrange",
    }
    LIST {
        LInsert "linsert",
        LPop "lpop",
        LPush "lpush",
        LRem "lrem",
        LSet "lset",
        LTrim "ltrim",
        RPop "rpop",
        RPush "rpush",
        SortStore "sortstore",
    }
    SET {
        SAdd "sadd",
        SDiffStore "sdiffstore",
        SExpire "sexpire",
        SExpired "sexpired",
        SInterStore "sinterstore",
        SPersist "spersist",
        SPop "spop",
        SRem "srem",
        SUnionStore "sunionstore",
    }
    HASH {
        HDel "hdel",
        HExpire "hexpire",
        HExpired "hexpired",
        HIncrBy "hincrby",
        HIncrByFloat "hincrbyfloat",
        HPersist "hpersist",
        HSet "hset",
    }
    ZSET {
        GeoRadiusStore "georadiusstore",
        GeoSearchStore "geosearchstore",
        ZAdd "zadd",
        ZDiffStore "zdiffstore",
        ZExpire "zexpire",
        ZExpired "zexpired",
        ZIncr "zincr",
        ZInterStore "zinterstore",
        ZPersist "zpersist",
        ZPopMax "zpopmax",
        ZPopMin "zpopmin",
        ZRangeStore "zrangestore",
        ZRem "zrem",
        ZRemRangeByLex "zremrangebylex",
        ZRemRangeByRank "zremrangebyrank",
        ZRemRangeByScore "zremrangebyscore",
        ZUnionStore "zunionstore",
    }
    STREAM {
        XAdd "xadd",
        XDel "xdel",
        XGroupCreate "xgroup-create",
        XGroupCreateConsumer "xgroup-createconsumer",
        XGroupDelConsumer "xgroup-delconsumer",
        XGroupDestroy "xgroup-destroy",
        XGroupSetId "xgroup-setid",
        XSetId "xsetid",
        XTrim "xtrim",
    }
    EXPIRED {
        Expired "expired",
    }
    EVICTED {
        Evicted "evicted",
    }
    KEY_MISS {
        KeyMiss "keymiss",
    }
    NEW {
        New "new",
    }
    OVERWRITTEN {
        Overwritten "overwritten",
    }
    TYPE_CHANGED {
        TypeChanged "type_changed",
    }
}

impl Event {
    /// Elements of such a collection have died.
    pub fn of_dead_elements(kind: Kind) -> Event {
        match kind {
            Kind::Set => Event::SExpired,
            Kind::Zset => Event::ZExpired,
            _ => Event::HExpired,
        }
    }

    /// The key is not there any more.
    pub(super) fn takes_key(self) -> bool {
        matches!(self, Event::Del | Event::Evicted | Event::Expired)
    }

    /// The key has another value than before, whatever that was.
    pub(super) fn brings_value(self) -> bool {
        matches!(self, Event::Set | Event::Restore | Event::CopyTo | Event::MoveTo | Event::RenameTo | Event::SortStore)
            || matches!(self, Event::SDiffStore | Event::SInterStore | Event::SUnionStore | Event::ZRangeStore)
            || matches!(self, Event::ZDiffStore | Event::ZInterStore | Event::ZUnionStore)
            || matches!(self, Event::GeoRadiusStore | Event::GeoSearchStore)
    }

    /// Elements have died, and nothing else has.
    pub fn is_death_of_elements(self) -> bool {
        matches!(self, Event::HExpired | Event::SExpired | Event::ZExpired)
    }
}

/// Why a key has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A command's doing.
    Command,
    /// Memory was short. Nobody has done it, but it is a change to those who watch the key.
    Evicted,
    /// Its deadline, or that of one of its fields or members, has passed. That is no change to those who watch the key.
    Expired,
}

/// A change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// In the order in which they are told.
    events: [Option<Event>; EVENTS_MAX],
    pub cause: Cause,
    /// How often it counts as a change of the data set.
    pub count: u64,
    /// The journal is told of it now. (Else later, by whoever writes the death down.)
    pub is_said: bool,
    /// Who watches or waits for the key has something to look at. (Groups of a stream are nothing to them.)
    pub is_seen: bool,
}

const EVENTS_MAX: usize = 3;

impl Change {
    /// A change of which no event tells.
    #[inline]
    pub const fn untold() -> Change {
        Change { events: [None; EVENTS_MAX], cause: Cause::Command, count: 1, is_said: true, is_seen: true }
    }

    #[inline]
    pub const fn of(event: Event) -> Change {
        Change { events: [Some(event), None, None], ..Change::untold() }
    }

    /// Something was taken out of a collection, perhaps the last of it and with it the key.
    #[inline]
    pub const fn removal(event: Event, is_gone: bool) -> Change {
        Change::of(event).and_if(is_gone, Event::Del)
    }

    /// What one of several changes did that count together.
    #[inline]
    pub const fn uncounted(self) -> Change {
        self.times(0)
    }

    #[inline]
    pub const fn times(self, count: u64) -> Change {
        Change { count, ..self }
    }

    #[inline]
    pub const fn unseen(self) -> Change {
        Change { is_seen: false, ..self }
    }

    #[inline]
    pub const fn unsaid(self) -> Change {
        Change { is_said: false, ..self }
    }

    #[inline]
    pub const fn expired(self) -> Change {
        Change { cause: Cause::Expired, ..self }
    }

    /// A key that went because memory was short.
    #[inline]
    pub const fn evicted() -> Change {
        Change { cause: Cause::Evicted, count: 0, ..Change::of(Event::Evicted) }
    }

    /// With one event more.
    #[inline]
    pub const fn and(mut self, event: Event) -> Change {
        debug_assert!(self.events[EVENTS_MAX - 1].is_none(), "no change has so many events");
        if self.events[0].is_none() {
            self.events[0] = Some(event);
        } else if self.events[1].is_none() {
            self.events[1] = Some(event);
        } else {
            self.events[2] = Some(event);
        }
        self
    }

    #[inline]
    pub const fn and_if(self, applies: bool, event: Event) -> Change {
        if applies { self.and(event) } else { self }
    }

    /// A value of one type has come where one of the other type was, if any was.
    pub fn over(self, old: Option<Kind>, new: Kind) -> Change {
        self.and_if(old.is_some(), Event::Overwritten).and_if(old.is_some_and(|old| old != new), Event::TypeChanged)
    }

    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.events.into_iter().flatten()
    }
}

impl From<Event> for Change {
    #[inline]
    fn from(event: Event) -> Change {
        Change::of(event)
    }
}
