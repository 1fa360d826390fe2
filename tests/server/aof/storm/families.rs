//! What writers count, one way each: how it is written, how readers see it, what of it is there in the end. Each is a number
//! that only grows, so that what was acknowledged, shown or heard is the least that has to be there.

use crate::common::{Client, Value, encode, words};

/// How a reply says how far the number is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Counts {
    /// It is in the reply.
    Told,
    /// By one more.
    OneMore,
    /// It is what was written.
    Written,
}

/// `$a` and `$b` are the keys of a writer, `$n` is what it writes. Words are apart by spaces, or by bars where there are any;
/// commands by semicolons, where a script has none.
pub struct Family {
    pub writes: &'static [&'static str],
    pub counts: Counts,
    /// Numbers in the reply are equal where there are several: both keys are written in one moment.
    pub is_pair: bool,
    pub reads: &'static [&'static str],
    /// The sum of what these say is there.
    pub kept: &'static [&'static str],
}

impl Family {
    /// Which of the writes says how far the number is: where there is one more from the first on, that; else the last.
    pub fn counting(&self) -> usize {
        if self.counts == Counts::OneMore { 0 } else { self.writes.len() - 1 }
    }

    pub fn writes_numbers(&self) -> bool {
        self.writes.iter().any(|template| template.contains("$n"))
    }
}

const TWO: &str = "EVAL|redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])|2|$a|$b";
const STRAYING: &str = "EVAL|redis.call('INCR', KEYS[1]) return redis.call('INCR', ARGV[1])|1|$a|$b";
const TELLING: &str = "EVAL|local n = redis.call('INCR', KEYS[1]) redis.call('PUBLISH', KEYS[1], n) return n|1|$a";
const BOTH: &[&str] = &["GET $a", "GET $b", "MGET $a $b", "MULTI;GET $b;GET $a;EXEC", "MGET $b $a"];

pub const FAMILIES: &[Family] = &[
    Family {
        writes: &["INCR $a"],
        counts: Counts::Told,
        is_pair: false,
        reads: &["GET $a", "MGET none $a", "GETRANGE $a 0 -1", "EVAL_RO|return redis.call('GET', KEYS[1])|1|$a"],
        kept: &["GET $a"],
    },
    Family {
        writes: &["RPUSH $a x"],
        counts: Counts::Told,
        is_pair: false,
        reads: &["LLEN $a", "EVAL|return redis.call('LLEN', KEYS[1])|1|$a"],
        kept: &["LLEN $a"],
    },
    Family {
        writes: &["HINCRBY $a f 1"],
        counts: Counts::Told,
        is_pair: false,
        reads: &["HGET $a f", "HGETALL $a", "HVALS $a", "HMGET $a none f"],
        kept: &["HGET $a f"],
    },
    Family {
        writes: &["ZINCRBY $a 1 m"],
        counts: Counts::Told,
        is_pair: false,
        reads: &["ZSCORE $a m", "ZRANGE $a 0 -1 WITHSCORES", "ZMSCORE $a none m", "ZRANGEBYSCORE $a 0 +inf WITHSCORES"],
        kept: &["ZSCORE $a m"],
    },
    Family {
        writes: &["XADD $a * f v"],
        counts: Counts::OneMore,
        is_pair: false,
        reads: &["XLEN $a"],
        kept: &["XLEN $a"],
    },
    Family {
        writes: &["SADD $a $n"],
        counts: Counts::OneMore,
        is_pair: false,
        reads: &["SCARD $a", "SINTERCARD 2 $a $a"],
        kept: &["SCARD $a"],
    },
    Family {
        writes: &["MULTI;INCR $a;INCR $b;EXEC"],
        counts: Counts::Told,
        is_pair: true,
        reads: BOTH,
        kept: &["GET $a"],
    },
    Family { writes: &[TWO], counts: Counts::Told, is_pair: true, reads: BOTH, kept: &["GET $a"] },
    Family { writes: &[STRAYING], counts: Counts::Told, is_pair: true, reads: BOTH, kept: &["GET $b"] },
    Family { writes: &["MSET $a $n $b $n"], counts: Counts::Written, is_pair: true, reads: BOTH, kept: &["GET $b"] },
    Family {
        writes: &["SET $b $n", "COPY $b $a REPLACE"],
        counts: Counts::Written,
        is_pair: false,
        reads: &["GET $a", "MGET $a"],
        kept: &["GET $a"],
    },
    Family {
        writes: &["SET $b $n", "RENAME $b $a"],
        counts: Counts::Written,
        is_pair: false,
        reads: &["GET $a", "MULTI;GET $a;EXEC"],
        kept: &["GET $a"],
    },
    // What moves is in one of the two, never in both or none.
    Family {
        writes: &["RPUSH $a x", "LMOVE $a $b LEFT RIGHT"],
        counts: Counts::OneMore,
        is_pair: false,
        reads: &["LLEN $b"],
        kept: &["LLEN $a", "LLEN $b"],
    },
    Family {
        writes: &["SET $a $n PXAT 4102444800000"],
        counts: Counts::Written,
        is_pair: false,
        reads: &["GET $a", "GETEX $a PXAT 4102444800001"],
        kept: &["GET $a"],
    },
    Family { writes: &[TELLING], counts: Counts::Told, is_pair: false, reads: &["GET $a"], kept: &["GET $a"] },
    Family {
        writes: &["MULTI;PUBLISH $a $n;SET $a $n;EXEC"],
        counts: Counts::Written,
        is_pair: false,
        reads: &["GET $a"],
        kept: &["GET $a"],
    },
    Family {
        writes: &["SADD $b $n", "SUNIONSTORE $a $b"],
        counts: Counts::OneMore,
        is_pair: false,
        reads: &["SCARD $b"],
        kept: &["SCARD $b"],
    },
];

/// A key of a writer.
pub fn name(which: char, writer: usize, family: usize) -> String {
    format!("{which}:{writer}:{family}")
}

/// The writer and the family of a key.
pub fn of_name(name: &str) -> Option<(usize, usize)> {
    let mut parts = name.split(':').skip(1).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// The bytes of a template, and how many replies come.
pub fn request(template: &str, writer: usize, family: usize, number: u64) -> (Vec<u8>, usize) {
    let text = template
        .replace("$a", &name('a', writer, family))
        .replace("$b", &name('b', writer, family))
        .replace("$n", &number.to_string());
    if text.contains('|') {
        return (encode(&text.split('|').collect::<Vec<_>>()), 1);
    }
    let commands: Vec<Vec<u8>> = text.split(';').map(|line| encode(&words(line))).collect();
    (commands.concat(), commands.len())
}

/// The numbers in a reply.
pub fn numbers(reply: &Value) -> Vec<u64> {
    match reply {
        Value::Int(number) => vec![*number as u64],
        Value::Bulk(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

/// How far a family is, or what is wrong with it.
pub fn kept(client: &mut Client, writer: usize, family: usize) -> Result<u64, String> {
    let mut ask = |template: &str| {
        let (bytes, _) = request(template, writer, family, 0);
        client.send_raw(&bytes);
        client.read()
    };
    let Family { is_pair, kept, .. } = &FAMILIES[family];
    let replies: Vec<Value> = kept.iter().map(|template| ask(template)).collect();
    if *is_pair {
        let both = numbers(&ask("MGET $a $b"));
        if both.len() == 1 || both.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(format!("torn: {both:?}"));
        }
    }
    Ok(replies.iter().flat_map(numbers).sum())
}
