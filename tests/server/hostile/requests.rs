//! Requests: as the server's own table says that they are written, then mutated.

use super::draw::Draw;
use super::table::{Argument, Command, Kind};

pub type Args = Vec<Vec<u8>>;

/// Never sent, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("SHUTDOWN", "ends the server, as it should"),
    ("CONFIG SET", "may take away what the checks need; see HARMLESS_DIRECTIVES"),
    ("CLIENT PAUSE", "nothing else would run; `tame` makes short ones"),
    ("FAILOVER", "writes wait until somebody takes over who has only said that he is a replica"),
    ("DEBUG", "stops the server and breaks its promises where it is told to; `tame` asks for what it may do"),
];

/// Seldom sent: they make the connection deaf or silent, end it, or throw away what others have built.
const SELDOM: &[&str] = &[
    "FLUSHALL",
    "FLUSHDB",
    "SWAPDB",
    "REPLICAOF",
    "SLAVEOF",
    "QUIT",
    "RESET",
    "CLIENT REPLY",
    "CLIENT KILL",
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "COMMAND",
    "COMMAND DOCS",
    "COMMAND INFO",
    "MULTI",
    "PFSELFTEST",
    "CONFIG REWRITE",
];
const SELDOM_ONE_IN: u32 = 12;

/// What CONFIG SET may change: no limits of connections and memory, since these are what keeps the checks true.
pub const HARMLESS_DIRECTIVES: &[&str] = &[
    "active-expire-enabled",
    "active-expire-interval-ms",
    "active-expire-cpu-percent",
    "active-expire-fast-us",
    "active-expire-sample-size",
    "active-expire-acceptable-stale",
    "active-expire-effort",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "hll-sparse-max-bytes",
    "hz",
    "list-compress-depth",
    "list-max-listpack-size",
    "notify-keyspace-events",
    "pipeline-order",
    "set-max-intset-entries",
    "set-max-listpack-entries",
    "set-max-listpack-value",
    "spin-us",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
];

/// Packed collections of more entries than these are slow in Redis too.
const SETTINGS: &[&str] = &[
    "0",
    "1",
    "2",
    "64",
    "1000",
    "-1",
    "-2",
    "-5",
    "yes",
    "no",
    "relaxed",
    "strict",
    "KEA",
    "KEm",
    "x",
    "",
    "9223372036854775808",
];

const DEBUG: &[&str] = &["DIGEST", "DIGEST-VALUE", "OBJECT", "PROTOCOL", "HELP", "ERROR"];
const PROTOCOL: &[&str] = &[
    "string", "integer", "double", "bignum", "null", "array", "set", "map", "attrib", "push", "verbatim", "true", "x",
];

const REPEATED: usize = 1_000;
/// What is repeated in a request is no more than this, and how much an argument takes beside its own bytes.
const BYTES_MAX: usize = 8 << 20;
const BYTES_AN_ARG: usize = 8;

pub struct Requests<'t> {
    commands: Vec<&'t Command>,
    blocking: Vec<&'t Command>,
    pub draw: Draw,
}

impl<'t> Requests<'t> {
    pub fn new(table: &'t [Command], draw: Draw) -> Requests<'t> {
        let is_left_out = |command: &&Command| LEFT_OUT.iter().any(|(name, _)| *name == joined(command));
        let commands: Vec<&Command> = table.iter().filter(|command| !is_left_out(command)).collect();
        let blocks = |command: &&Command| {
            let name = joined(command);
            name.starts_with('B') && !name.starts_with("BIT") || name.starts_with("XREAD")
        };
        let blocking = commands.iter().copied().filter(blocks).collect();
        Requests { commands, blocking, draw }
    }

    /// Any request.
    pub fn any(&mut self) -> Args {
        if self.draw.one_in(60) {
            return self.tame();
        }
        let command = loop {
            let command = *self.draw.pick(&self.commands);
            if !SELDOM.contains(&joined(command).as_str()) || self.draw.one_in(SELDOM_ONE_IN) {
                break command;
            }
        };
        self.request(command)
    }

    /// One that may wait.
    pub fn waiting(&mut self) -> Args {
        let command = *self.draw.pick(&self.blocking);
        self.request(command)
    }

    /// What is left out of the table, in a form that leaves the checks true.
    fn tame(&mut self) -> Args {
        match self.draw.rng.u32(..3) {
            0 => {
                let mode = self.draw.word(&["ALL", "WRITE"]);
                vec![b"CLIENT".to_vec(), b"PAUSE".to_vec(), self.draw.rng.u32(..30).to_string().into_bytes(), mode]
            }
            1 => {
                let mut args = vec![b"DEBUG".to_vec(), self.draw.word(DEBUG)];
                (0..self.draw.rng.usize(..3)).for_each(|_| args.push(self.draw.key("any")));
                if args[1] == b"PROTOCOL" {
                    args.push(self.draw.word(PROTOCOL));
                }
                args
            }
            _ => {
                let directive = self.draw.word(HARMLESS_DIRECTIVES);
                vec![b"CONFIG".to_vec(), b"SET".to_vec(), directive, self.draw.word(SETTINGS)]
            }
        }
    }

    /// A request as the table says that it is written.
    pub fn plausible(&mut self, command: &Command) -> Args {
        let mut args = command.words.clone();
        self.list(command, &command.arguments, &mut args);
        args
    }

    fn request(&mut self, command: &Command) -> Args {
        let mut args = self.plausible(command);
        if self.draw.one_in(5) {
            for _ in 0..self.draw.rng.usize(1..4) {
                self.mutate(command, &mut args);
            }
        }
        args
    }

    fn list(&mut self, command: &Command, arguments: &[Argument], out: &mut Args) {
        let mut announced = None;
        for (nth, argument) in arguments.iter().enumerate() {
            if argument.optional && !self.draw.one_in(3) {
                continue;
            }
            // A number of keys or fields stands before them.
            if argument.name.starts_with("num") && arguments.get(nth + 1).is_some_and(|next| next.multiple) {
                let count = self.draw.count();
                announced = Some(count);
                let is_wrong = self.draw.one_in(20);
                out.push(if is_wrong { self.draw.integer("") } else { count.to_string().into_bytes() });
                continue;
            }
            let count = match announced.take() {
                Some(count) => count,
                None if argument.multiple => self.draw.count(),
                None => 1,
            };
            self.repeat(command, argument, count, out);
        }
    }

    /// (Many of what is many itself, or long, end early: no request is larger than a query buffer may be.)
    fn repeat(&mut self, command: &Command, argument: &Argument, count: usize, out: &mut Args) {
        let is_one_thing = count > 100 && self.draw.rng.bool();
        let mut bytes = 0;
        for nth in 0..count {
            if bytes > BYTES_MAX {
                return;
            }
            if let Some(token) = &argument.token
                && (nth == 0 || argument.multiple_token)
            {
                out.push(token.clone());
            }
            let start = out.len();
            self.one(command, argument, out);
            let bytes_of_one: usize = out[start..].iter().map(|arg| arg.len() + BYTES_AN_ARG).sum();
            bytes += bytes_of_one;
            if is_one_thing {
                // The same key, field or value again and again.
                let one = out[start..].to_vec();
                let more = (count - 1).min(BYTES_MAX / bytes_of_one.max(1));
                (0..more).for_each(|_| out.extend_from_slice(&one));
                return;
            }
        }
    }

    fn one(&mut self, command: &Command, argument: &Argument, out: &mut Args) {
        let (group, name) = (command.group.as_str(), argument.name.as_str());
        let waits = name == "timeout" || name == "milliseconds" && argument.token.as_deref() == Some(b"BLOCK");
        let drawn = match argument.kind {
            Kind::Integer | Kind::Double if waits => self.draw.timeout(argument.kind == Kind::Double),
            Kind::Integer => self.draw.integer(name),
            Kind::Double => self.draw.double(),
            Kind::String => self.draw.string(group, name),
            Kind::Pattern => self.draw.pattern(),
            Kind::UnixTime => self.draw.unix_time(name),
            Kind::Key => self.draw.key(group),
            Kind::PureToken => return,
            Kind::OneOf => {
                let alternative = self.draw.pick(&argument.children);
                return self.repeat(command, alternative, 1, out);
            }
            // Keys and as many ids: XREAD.
            Kind::Block if argument.children.iter().filter(|child| child.multiple).count() == 2 => {
                let count = self.draw.count();
                return argument.children.iter().for_each(|child| self.repeat(command, child, count, out));
            }
            Kind::Block => return self.list(command, &argument.children, out),
        };
        out.push(drawn);
    }

    /// Changes an argument behind the command's name.
    fn mutate(&mut self, command: &Command, args: &mut Args) {
        let first = command.words.len();
        if args.len() == first {
            return args.push(self.draw.anything());
        }
        let at = self.draw.rng.usize(first..args.len());
        match self.draw.rng.u32(..12) {
            0..4 => args[at] = self.draw.anything(),
            4 => drop(args.remove(at)),
            5 => args.truncate(at),
            6 => args.insert(at, self.draw.anything()),
            7 => {
                let other = self.draw.rng.usize(first..args.len());
                args.swap(at, other);
            }
            8 if self.draw.one_in(8) => {
                let copies = vec![args[at].clone(); REPEATED.min(1_000_000 / (args[at].len() + 1))];
                args.splice(at..at, copies);
            }
            _ if command.arguments.is_empty() => args.push(self.draw.anything()),
            // Options once more.
            _ => {
                let argument = self.draw.pick(&command.arguments);
                self.repeat(command, argument, 1, args);
            }
        }
    }
}

pub fn joined(command: &Command) -> String {
    let words: Vec<_> = command.words.iter().map(|word| String::from_utf8_lossy(word)).collect();
    words.join(" ")
}
