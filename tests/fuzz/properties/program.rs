//! Programs made of a row of choices: each byte chooses once, and where there are no more bytes the first and shortest
//! choice is taken, so that every row makes a program and small changes of it small changes of that.

use std::fmt::Write as _;

/// Statements within statements, and values within values.
const DEPTH_MAX: usize = 5;
/// Bytes of a program, beyond which only what has begun is ended.
const BYTES_MAX: usize = 6_000;

const NUMBERS: &[&str] = &[
    "1", "0", "-1", "2", "3", "0.5", "-0", "7", "8", "16", "20", "100", "199", "200", "250", "255", "256", "1000",
    "7980", "8000", "8001", "65535", "65536", "1e5", "2^31-1", "-2^31", "2^31", "2^32", "-2^31-1", "2^53", "-2^53",
    "2^63", "-2^63", "1e15", "1e100", "1e308", "-1e308", "5e-324", "1/0", "-1/0", "0/0",
];
const STRINGS: &[&str] = &[
    "'a'",
    "''",
    "'abc'",
    "'1'",
    "'0x10'",
    "'-1e5'",
    "'\\0'",
    "'\\255\\254'",
    "'a\\0b\\r\\nc'",
    "'\\27Lua'",
    "('x'):rep(100)",
    "('ab'):rep(5000)",
    "('x'):rep(70000)",
    "('\\0'):rep(300)",
    "('('):rep(40)",
    "('%'):rep(33)",
    // Patterns.
    "'(.-)%1'",
    "'%b()'",
    "'%f[%w]'",
    "'[%a-z]'",
    "'[^]]*'",
    "'()a()'",
    "'(a*(.)%w(%s*))'",
    "'%1'",
    "'[a'",
    "'%'",
    "'.-b$'",
    "('(a)'):rep(32)",
    "('a?'):rep(50)",
    "'^.*$'",
    // Formats.
    "'%s%q%d'",
    "'%99.99f'",
    "'%5.3s'",
    "'%c%x%g'",
    "'%-+ #010d'",
    "'%100d'",
    "'%%'",
    "'%.20s%.f'",
    "'%i%o%u%E%G%X%e'",
    "'i4'",
    "'>i8<I2'",
    "'!8bBhHlLTfdsxc0c10'",
    "'c2147483647'",
    "'i17'",
    "'xxxx'",
    "'!16d'",
    "'s'",
    "'Bc0'",
    // JSON, MessagePack, source, words.
    "'{\"a\":[1,2,{\"b\":null}],\"c\":1e400}'",
    "('['):rep(1001)",
    "'[1,2'",
    "'\"\\\\ud800\\\\u0041\"'",
    "'[nan,-inf,0x1p3]'",
    "'\\221\\255\\255\\255\\255\\1'",
    "'\\145\\145\\1'",
    "('\\145'):rep(200)",
    "'\\222\\0\\2\\161a\\1\\161b\\2'",
    "'\\199\\255\\0\\0'",
    "'return 1'",
    "'return ...'",
    "('('):rep(250)",
    "'local a='..('{'):rep(190)",
    "'x = [===['",
    "'--[['",
    "'a.b.c = '",
    "'collect'",
    "'step'",
    "'count'",
    "'#'",
    "'k'",
    "'v'",
    "'kv'",
    "'__index'",
    "'__gc'",
    "'__mode'",
    "'n'",
    "'err'",
    "'ok'",
    "'map'",
    "'set'",
    "'double'",
    "'later'",
    "'refuse'",
    "'-ERR x\\r\\n+y'",
];
const FUNCTIONS: &[&str] = &[
    "tostring",
    "tonumber",
    "type",
    "unpack",
    "select",
    "rawget",
    "rawset",
    "rawequal",
    "next",
    "pairs",
    "ipairs",
    "pcall",
    "xpcall",
    "error",
    "assert",
    "load",
    "loadstring",
    "setmetatable",
    "getmetatable",
    "collectgarbage",
    "gcinfo",
    "string.byte",
    "string.char",
    "string.dump",
    "string.find",
    "string.format",
    "string.gmatch",
    "string.gsub",
    "string.len",
    "string.lower",
    "string.match",
    "string.rep",
    "string.reverse",
    "string.sub",
    "string.upper",
    "table.concat",
    "table.foreach",
    "table.foreachi",
    "table.getn",
    "table.insert",
    "table.maxn",
    "table.remove",
    "table.setn",
    "table.sort",
    "math.abs",
    "math.ceil",
    "math.floor",
    "math.fmod",
    "math.frexp",
    "math.ldexp",
    "math.max",
    "math.min",
    "math.modf",
    "math.pow",
    "math.random",
    "math.randomseed",
    "math.sqrt",
    "bit.arshift",
    "bit.band",
    "bit.bnot",
    "bit.bor",
    "bit.bswap",
    "bit.bxor",
    "bit.lshift",
    "bit.rol",
    "bit.ror",
    "bit.rshift",
    "bit.tobit",
    "bit.tohex",
    "cjson.decode",
    "cjson.encode",
    "cjson.decode_max_depth",
    "cjson.encode_max_depth",
    "cjson.encode_keep_buffer",
    "cjson.encode_number_precision",
    "cjson.encode_sparse_array",
    "cjson.encode_invalid_numbers",
    "cjson.decode_invalid_numbers",
    "cjson.new",
    "cmsgpack.pack",
    "cmsgpack.unpack",
    "cmsgpack.unpack_one",
    "cmsgpack.unpack_limit",
    "struct.pack",
    "struct.size",
    "struct.unpack",
    "coroutine.create",
    "coroutine.resume",
    "coroutine.running",
    "coroutine.status",
    "coroutine.wrap",
    "coroutine.yield",
    "os.clock",
    "redis.call",
    "redis.pcall",
    "redis.error_reply",
    "redis.status_reply",
    "redis.sha1hex",
    "redis.setresp",
    "redis.set_repl",
    "redis.acl_check_cmd",
    "redis.replicate_commands",
    "_G.getfenv",
    "_G.setfenv",
    "_G.newproxy",
    "f",
    "g",
];
const OPERATORS: &[&str] = &["..", "+", "-", "*", "/", "%", "^", "==", "~=", "<", "<=", ">", ">=", "and", "or"];
const EVENTS: &[&str] = &[
    "__index",
    "__newindex",
    "__call",
    "__add",
    "__concat",
    "__eq",
    "__lt",
    "__le",
    "__len",
    "__unm",
    "__tostring",
    "__mode",
    "__metatable",
    "__gc",
    "__fenv",
    "__name",
];
const LOCALS: &[&str] = &["a", "b", "t", "u", "s", "ARGV", "KEYS", "_G", "string", "redis"];

/// The program that the choices make.
pub fn make(choices: &[u8]) -> String {
    let mut maker = Maker { choices, out: String::new(), depth: 0, loops: 0 };
    // Unknown names are errors, so that what may be missing is asked for in a way that is none.
    maker.out.push_str(
        "local a, b, s, t, u = 1, 'b', 'text', {1, 2, 3, x = 1}, {}\n\
         local f, g, co\n\
         local _G = setmetatable({}, {__index = function(_, k) return rawget(_G, k) end, __newindex = function() end})\n",
    );
    while !maker.choices.is_empty() && maker.out.len() < BYTES_MAX {
        maker.statement();
    }
    maker.out.push_str("return ");
    maker.value();
    maker.out.push('\n');
    maker.out
}

struct Maker<'c> {
    choices: &'c [u8],
    out: String,
    depth: usize,
    /// Loops around what is made now.
    loops: usize,
}

impl Maker<'_> {
    fn byte(&mut self) -> u8 {
        match self.choices.split_first() {
            Some((byte, rest)) => {
                self.choices = rest;
                *byte
            }
            None => 0,
        }
    }

    fn pick<'w>(&mut self, of: &[&'w str]) -> &'w str {
        of[usize::from(self.byte()) % of.len()]
    }

    fn word(&mut self, of: &[&str]) {
        let word = self.pick(of);
        self.out.push_str(word);
    }

    fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn is_enough(&self) -> bool {
        self.depth >= DEPTH_MAX || self.out.len() >= BYTES_MAX
    }

    fn block(&mut self) {
        self.depth += 1;
        let statements = self.byte() % 4;
        for _ in 0..=statements {
            if self.is_enough() {
                break;
            }
            self.statement();
        }
        self.depth -= 1;
    }

    fn statement(&mut self) {
        match self.byte() % 24 {
            0..=3 => {
                self.word(&["a", "b", "s"]);
                self.text(" = ");
                self.value();
            }
            4 => {
                self.word(&["t", "u"]);
                self.text(" = ");
                self.table();
            }
            5 | 6 => {
                self.word(&["t", "u", "a"]);
                self.text("[");
                self.value();
                self.text("] = ");
                self.value();
            }
            7 | 8 => self.call(),
            9 => {
                self.word(&["f", "g"]);
                self.text(" = ");
                self.function();
            }
            10 => self.protected(),
            11 => {
                self.text("if ");
                self.value();
                self.text(" then ");
                self.block();
                self.text(" else ");
                self.block();
                self.text(" end");
            }
            12 => {
                let times = self.pick(if self.loops == 0 { &["3", "10", "60", "300"] } else { &["3", "10"] });
                let _ = write!(self.out, "for i = 1, {times} do a = i ");
                self.loops += 1;
                self.block();
                self.loops -= 1;
                self.text(" end");
            }
            13 => {
                self.text("for k, v in pairs(type(t) == 'table' and t or u) do a, b = k, v ");
                self.loops += 1;
                self.block();
                self.loops -= 1;
                self.text(" end");
            }
            14 => {
                self.text("co = coroutine.create(");
                self.function();
                self.text(")");
            }
            15 => {
                self.text("a, b = coroutine.resume(co or coroutine.create(function(...) return ... end), ");
                self.values();
                self.text(")");
            }
            16 => {
                self.text("setmetatable(type(u) == 'table' and u or {}, {");
                self.word(EVENTS);
                self.text(" = ");
                self.callable();
                self.text(", ");
                self.word(EVENTS);
                self.text(" = ");
                self.value();
                self.text("})");
            }
            17 => self.text("collectgarbage()"),
            18 => {
                self.text("do local ");
                for index in 0..self.byte() % 60 {
                    let _ = write!(self.out, "l{index}, ");
                }
                self.text("l = ");
                self.values();
                self.text(" ");
                self.block();
                self.text(" f = function() return l, a end end");
            }
            19 => {
                self.text("table.sort(type(t) == 'table' and t or {3, 1, 2}, ");
                self.function();
                self.text(")");
            }
            20 => {
                self.text("a = string.gsub(s .. '', ");
                self.word(STRINGS);
                self.text(", ");
                self.callable();
                self.text(")");
            }
            21 => {
                self.text("a = (loadstring or f)(");
                self.source();
                self.text(")");
            }
            22 => {
                self.text("for i = 1, 2000 do ");
                self.word(&[
                    "t[i] = i",
                    "u[-i] = t",
                    "u['k' .. i] = i",
                    "s = s .. i",
                    "t[i] = nil",
                    "t[2 ^ (i % 32)] = i",
                ]);
                self.text(" end");
            }
            _ => {
                self.text("if a == b then ");
                self.word(&["error(t)", "return a, b", "error('x', 2)", "coroutine.yield(a)", "error()"]);
                self.text(" end");
            }
        }
        self.text("\n");
    }

    fn protected(&mut self) {
        self.text("a, b = pcall(");
        self.callable();
        if self.byte().is_multiple_of(2) {
            self.text(", ");
            self.values();
        }
        self.text(")");
    }

    fn call(&mut self) {
        self.text("a = ");
        self.called();
    }

    /// A call under protection, mostly, whose results are more or fewer.
    fn called(&mut self) {
        let is_bare = self.byte().is_multiple_of(5);
        if is_bare {
            self.word(FUNCTIONS);
            self.text("(");
        } else {
            self.text("pcall(");
            self.word(FUNCTIONS);
            self.text(", ");
        }
        self.values();
        self.text(")");
    }

    fn callable(&mut self) {
        match self.byte() % 3 {
            0 => self.word(FUNCTIONS),
            1 => self.function(),
            _ => self.word(&["f", "t", "g", "u", "co"]),
        }
    }

    fn function(&mut self) {
        self.text("function(");
        let parameters = self.byte();
        let parameters = if parameters > 250 { 200 } else { parameters % 5 };
        for index in 0..parameters {
            let _ = write!(self.out, "p{index}, ");
        }
        self.text("...) ");
        let loops = std::mem::take(&mut self.loops);
        self.block();
        self.loops = loops;
        match self.byte() % 5 {
            0 => self.text("return ... end"),
            1 => self.text("return a, b, ... end"),
            2 => self.text("return f and f(...) end"),
            3 => self.text("return coroutine.yield(...) end"),
            _ => {
                self.text("return ");
                self.value();
                self.text(" end");
            }
        }
    }

    fn values(&mut self) {
        for _ in 0..self.byte() % 4 {
            self.value();
            self.text(", ");
        }
        match self.byte() % 8 {
            0 => {
                self.text("unpack(");
                self.table();
                self.text(", ");
                self.word(NUMBERS);
                self.text(", ");
                self.word(NUMBERS);
                self.text(")");
            }
            _ => self.value(),
        }
    }

    fn table(&mut self) {
        match self.byte() % 10 {
            0 => self.text("{}"),
            1 => self.text("{1, 2, 3}"),
            2 => self.text("{[1] = 1, [2] = 2, [4] = 4, [-1] = 0, [2^31] = 5}"),
            3 => self.text("{unpack({}, 1, 300)}"),
            4 => self.text("{t, u, {t}}"),
            5 => self.text("setmetatable({}, {__mode = 'kv'})"),
            6 if !self.is_enough() => {
                self.text("{");
                self.depth += 1;
                for _ in 0..self.byte() % 5 {
                    self.text("[");
                    self.value();
                    self.text("] = ");
                    self.value();
                    self.text(", ");
                }
                self.depth -= 1;
                self.text("}");
            }
            7 => {
                self.text("{");
                for index in 0..self.byte() {
                    let _ = write!(self.out, "{index},");
                }
                self.text("}");
            }
            8 => self.text("{map = {a = 1, [2] = {}}, set = {x = true}}"),
            _ => self.text("{err = s, ok = a, double = b}"),
        }
    }

    fn value(&mut self) {
        if self.is_enough() {
            self.text("1");
            return;
        }
        self.depth += 1;
        match self.byte() % 16 {
            0..=2 => self.word(NUMBERS),
            3..=5 => self.word(STRINGS),
            6 | 7 => self.word(LOCALS),
            8 => self.word(&["nil", "true", "false", "cjson.null", "f", "g", "co"]),
            9 => self.table(),
            10 => self.called(),
            11 => {
                self.text("(");
                self.value();
                self.text(" ");
                self.word(OPERATORS);
                self.text(" ");
                self.value();
                self.text(")");
            }
            12 => {
                self.text("(");
                self.word(&["t", "u", "a", "s"]);
                self.text(")[");
                self.value();
                self.text("]");
            }
            13 => {
                self.word(&["#", "-", "not "]);
                self.word(&["t", "u", "a", "s", "b"]);
            }
            14 => self.function_value(),
            _ => {
                self.text("select(2, pcall(");
                self.callable();
                self.text(", ");
                self.values();
                self.text("))");
            }
        }
        self.depth -= 1;
    }

    fn function_value(&mut self) {
        self.text("(");
        self.function();
        self.text(")");
    }

    /// Source as a value: one that is parsed, or nearly.
    fn source(&mut self) {
        match self.byte() % 6 {
            0 => self.word(STRINGS),
            1 => self.text("'return ' .. ('1,'):rep(300) .. '1'"),
            2 => self.text("('local x = 1 '):rep(210)"),
            3 => self.text("'return function(' .. ('a,'):rep(210) .. '...) return ... end'"),
            4 => self.text("'return {' .. ('{1},'):rep(120) .. '}'"),
            _ => {
                self.text("[==[ local a, b, s, t, u, f, g, co = 1, 2, '', {}, {} return ");
                self.value();
                self.text(" ]==]");
            }
        }
    }
}
