//! Lua scripts: calls of all other families from within one, values on their way out and back, the libraries, errors.
//!
//! Left out on purpose: `error({})` that nobody catches, which ends redis-server 7.0.15; what shows an address
//! (`tostring({})`), or the order of a table's keys where there are several; what one script leaves to the next (the state of
//! `math.random`, settings of cjson), which each shard has for itself.

use super::super::{Generator, Step, args};
use super::{Family, TYPES, is_sort};
use crate::differential::compare::Rule;
use crate::differential::generate::KEYS;
use sha1::{Digest, Sha1};

pub const NAMES: &[&str] = &["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"];

/// Scripts that run the command in their arguments.
const CALLS: &[&str] = &[
    "return redis.call(unpack(ARGV))",
    "return redis.call(unpack(ARGV))",
    "return redis.pcall(unpack(ARGV))",
    "redis.setresp(3) return redis.call(unpack(ARGV))",
    "redis.setresp(3) return redis.pcall(unpack(ARGV))",
    "local reply = redis.pcall(unpack(ARGV)) return reply",
    "local done, reply = pcall(redis.call, unpack(ARGV)) return reply",
    "return (string.gsub('x', 'x', function() reply = nil end)) and redis.call(unpack(ARGV))",
    "local reply string.gsub('x', 'x', function() reply = redis.call(unpack(ARGV)) end) return reply",
    "return coroutine.wrap(function() return redis.call(unpack(ARGV)) end)()",
];
/// The same, where what comes out has another form than the command's own reply.
const SHOWN_CALLS: &[&str] = &[
    "local r = redis.pcall(unpack(ARGV)) return type(r)",
    "local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' then return {#r, r.ok or 0, r.err or 0} end return tostring(r)",
    "redis.setresp(3) local r = redis.pcall(unpack(ARGV)) if type(r) == 'table' then \
     return {#r, r.ok or 0, r.err or 0, r.map and 1, r.set and 2, r.double and 3} end return tostring(r)",
    "redis.call(unpack(ARGV)) return error('after it')",
    "redis.call(unpack(ARGV)) return redis.call('INCR', KEYS[1] or 'k0', 'too', 'many')",
];

const JSON: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-1.5",
    "1e3",
    "1E+2",
    "123456789012345678",
    "0.1",
    "1e999",
    "01",
    "+1",
    ".5",
    "1.",
    "0x10",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "[]",
    "{}",
    "[1,2,3]",
    "[1,[2,[3,[]]]]",
    "[null]",
    "[null,1]",
    "{\"a\":1}",
    "{\"a\":{\"b\":null}}",
    "{\"1\":2}",
    "\"\"",
    "\"text\"",
    "\"\\u00e9\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\x\"",
    "\"\\n\\t\\\\\\\"\\/\"",
    "\"unfinished",
    "[1,",
    "[1,]",
    "{\"a\"}",
    "{\"a\":}",
    "{a:1}",
    "[1 2]",
    "tru",
    " [ 1 ] ",
    "",
    " ",
    "1 2",
    "[1]x",
    "\"\\u12\"",
    "\"tab\tinside\"",
    "{\"a\":1,\"a\":2}",
    "[true,false,null,\"x\",1.5]",
];
const TEXTS: &[&str] = &[
    "",
    "a",
    "abc",
    "hello world",
    "OK",
    "10",
    "-3",
    "0x1F",
    "1e2",
    " 7 ",
    "3.0",
    "a,b,,c",
    "key=value",
    "[x]",
    "%d",
    "a.b.c",
    "THE (quick) fox",
    "ERR bad",
    "x\\0y",
    "l1\\nl2",
    "\\195\\169",
    "nan",
    "inf",
    "9007199254740993",
];
const PATTERNS: &[&str] = &[
    "a",
    ".",
    "%a+",
    "%d+",
    "^%s*(.-)%s*$",
    "(%w+)=(%w+)",
    "[^,]*",
    "[a-c]",
    "%b()",
    "%f[%w]%w+",
    ".-b",
    "()",
    "(a)(b)(c)",
    "%",
    "[",
    "(",
    "[a",
    "%b",
    "%f",
    "(()",
    ")",
    "%1",
    "(.)%1",
    "[%a_][%w_]*",
    "a*",
    "a?b",
    "^",
    "$",
    "%z",
    "[%z]",
    ".-$",
];
const REPLACEMENTS: &[&str] = &[
    "''",
    "'x'",
    "'%0%0'",
    "'<%1>'",
    "'%2'",
    "'%'",
    "'%9'",
    "string.upper",
    "{a='A'}",
    "function() end",
    "function(x) return #x end",
    "function() return {} end",
    "1",
    "nil",
];
const FORMATS: &[&str] = &[
    "%d", "%i", "%5d", "%-5d|", "%05d", "%+d", "%x", "%X", "%#x", "%o", "%c", "%e", "%.3f", "%g", "%10.2f", "%s",
    "%.2s", "%10s", "%q", "%%", "%", "%y", "%5.5.5d", "%123d", "%u", "%a", "%s %s", "%.20s", "%ld",
];
const PACKINGS: &[&str] = &[
    "b", "B", "h", "H", "i", "I", "l", "L", "i3", "I8", "f", "d", "s", "c3", "c0", "x", ">I4", "<i2", "=h", "!4i",
    "!i", "bBhH", "i9", "i33", "z", "", "c", "b ", ">I4<I4", "bc0", "!3i", "i0",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3.99",
    "-1.5",
    "42",
    "255",
    "256",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967296",
    "9007199254740992",
    "9007199254740993",
    "1e15",
    "123456789012345",
    "1e17",
    "1e100",
    "-0",
    "1/0",
    "-1/0",
    "0/0",
    "0.1",
    "9223372036854775807",
    "-9223372036854775808",
    "1e308*10",
];
const LINES: &[&str] = &[
    "return",
    "return nil",
    "return foo",
    "foo = 1",
    "local t = redis t.x = 1",
    "redis.call = nil",
    "return redis.nothing",
    "return nothing.field",
    "return #nil",
    "return 1 + {}",
    "return 'a' .. {}",
    "return 1 < 'x'",
    "return {} < {}",
    "return nil .. 'x'",
    "return redis.call()",
    "return redis.call(1)",
    "return redis.call({})",
    "return redis.call('nothing')",
    "return redis.call('GET')",
    "return redis.call('GET', {})",
    "return redis.call('GET', nil)",
    "return redis.call('GET', true)",
    "return redis.pcall('GET').err",
    "return redis.call('SET', 'k0', 12.5)",
    "return redis.call('SET', 'k0', 1e20)",
    "return redis.call('SET', 'k0', 0/0)",
    "return redis.call('EVAL', 'return 1', 0)",
    "return redis.call('SUBSCRIBE', 'c')",
    "return redis.call('MULTI')",
    "return redis.call('SELECT', 1)",
    "return redis.call('SELECT', 99)",
    "return redis.call('SELECT', 1) and redis.call('EXISTS', 'k0')",
    "return redis.call('TIME')[3]",
    "return redis.call('CONFIG', 'GET', 'hz')",
    "return redis.call('CLIENT', 'ID')",
    "return redis.call('OBJECT', 'HELP')[1]",
    "return redis.call('COMMAND', 'COUNT', 1)",
    "return redis.sha1hex()",
    "return redis.sha1hex('x', 'y')",
    "return redis.sha1hex('')",
    "return redis.sha1hex(12)",
    "return redis.error_reply('My Err')",
    "return redis.error_reply('')",
    "return redis.error_reply()",
    "return redis.error_reply(1)",
    "return redis.error_reply('-MY err')",
    "return redis.status_reply('FINE')",
    "return redis.status_reply()",
    "return redis.status_reply({})",
    "return redis.setresp(2)",
    "return redis.setresp(4)",
    "return redis.setresp()",
    "return redis.log()",
    "return redis.log(9, 'x')",
    "return redis.log('x', 'y')",
    "return redis.LOG_WARNING",
    "return redis.REPL_ALL",
    "return redis.set_repl(redis.REPL_ALL)",
    "return redis.set_repl(99)",
    "return redis.replicate_commands()",
    "return redis.breakpoint()",
    "return redis.REDIS_VERSION_NUM > 0",
    "return redis.acl_check_cmd('GET', 'k')",
    "return redis.acl_check_cmd('nothing')",
    "return redis.acl_check_cmd()",
    "error('text')",
    "error('text', 0)",
    "error('text', 2)",
    "error()",
    "error(nil)",
    "error({err='MY table'})",
    "error({err='x', y=1})",
    "return {err='in a table'}",
    "return {err='ERR in a table'}",
    "return {ok='st', err='er'}",
    "return {ok=1}",
    "return {err=1}",
    "assert(false)",
    "assert(nil, 'why')",
    "assert(1 == 1) return 1",
    "assert()",
    "local f = 1 f()",
    "local t = nil t.x = 1",
    "return loadstring('return 7')()",
    "return loadstring('return +')",
    "return load(function() end)",
    "return dofile",
    "return io",
    "return require",
    "return print",
    "return getfenv",
    "return setfenv",
    "return newproxy",
    "return _G == nil",
    "return math.huge",
    "return -math.huge",
    "return math.pi",
    "math.randomseed(3) return tostring(math.random())",
    "math.randomseed(4) return math.random(10)",
    "math.randomseed(-5) return math.random(5, 9)",
    "return math.random(0)",
    "return math.random(2, 1)",
    "math.randomseed(7) return {math.random(100), math.random(100)}",
    "math.randomseed(1e9) return {math.random(1000000), math.random(1000000)}",
    "return math.floor(-1.5)",
    "return math.fmod(7, -3)",
    "return 7 % -3",
    "return 2 ^ 10",
    "return math.max()",
    "return math.max(1, 5, 3)",
    "return math.ldexp(1, 4)",
    "return {math.frexp(10)}",
    "return {math.modf(-3.7)}",
    "return tostring(1e15)",
    "return tostring(0/0)",
    "return tostring(-0)",
    "return tostring(12345678901234567890)",
    "return tostring()",
    "return tonumber('0x10')",
    "return tonumber('10', 2)",
    "return tonumber('zz', 36)",
    "return tonumber('1', 99)",
    "return tonumber()",
    "return tonumber(' 5 ')",
    "return tonumber('5x')",
    "return {select('#', 1, nil, nil)}",
    "return select(0)",
    "return {select(-1, 1, 2)}",
    "return {unpack({1, 2, 3}, 2)}",
    "return unpack({}, 1, 1e8)",
    "return {pcall(error, 'x')}",
    "return {pcall(error, {err='y'})}",
    "return {pcall(function() return 1, 2 end)}",
    "return {xpcall(function() error('z') end, function(e) return 'handled' end)}",
    "return type(pcall)",
    "return rawequal(1, 1)",
    "return rawget({a=1}, 'a')",
    "return next({})",
    "return ipairs",
    "return #{1, 2, nil, 4} > 0",
    "local t = setmetatable({}, {__index=function(_, k) return k end}) return t.hello",
    "return getmetatable('').__index == string",
    "local t = {} t[nil] = 1",
    "local t = {} t[0/0] = 1",
    "for i = 1, 10, 0 do end",
    "for i = 'a', 2 do end",
    "goto x",
    "return 1 return 2",
    "x = ",
    "return ...",
    "return {...}",
    "local function f(n) if n == 0 then return 0 end return f(n - 1) end return f(100000)",
    "local function f() return 1 + f() end return f()",
    "return string.rep('ab', 3)",
    "return string.rep('x', -1)",
    "return #string.rep('x', 100000)",
    "return ('x'):rep(3)",
    "return ('abc'):byte(1, -1)",
    "return {('abc'):byte(1, -1)}",
    "return string.char(72, 105)",
    "return string.char(256)",
    "return string.char()",
    "return string.reverse('abc')",
    "return ('abc'):sub(-2)",
    "return ('abc'):sub(2, 10)",
    "return string.len('a\\0b')",
    "return string.dump(function() end)",
    "return table.concat({1, 2, 'x'}, '-')",
    "return table.concat({1, {}, 2})",
    "return table.concat({}, 'x')",
    "local t = {3, 1, 2} table.sort(t) return t",
    "local t = {3, 'x', 2} table.sort(t) return t",
    "local t = {5, 2, 8} table.sort(t, function(a, b) return a > b end) return t",
    "local t = {1, 2} table.insert(t, 1, 0) return t",
    "local t = {} table.insert(t) return t",
    "local t = {1, 2, 3} return {table.remove(t), table.remove(t, 1), #t}",
    "return table.getn({1, 2})",
    "return table.maxn({1, 2, [10]=3})",
    "local t = {} table.foreach({7}, function(k, v) t[k] = v end) return t",
    "return KEYS",
    "return ARGV",
    "return {KEYS[1], ARGV[1]}",
    "KEYS[1] = 'changed' return KEYS",
    "return bit.bnot(0)",
    "return bit.tobit(4294967295)",
    "return bit.tohex(255)",
    "return bit.tohex(255, 4)",
    "return bit.tohex(255, -8)",
    "return bit.lshift(1, 31)",
    "return bit.rshift(-1, 4)",
    "return bit.arshift(-256, 4)",
    "return bit.rol(305419896, 8)",
    "return bit.ror(305419896, 8)",
    "return bit.bswap(305419896)",
    "return bit.band()",
    "return bit.band('x')",
    "return bit.bor(1, 2, 4)",
    "return bit.bxor(7, 2)",
    "return cjson.encode(nil)",
    "return cjson.encode()",
    "return cjson.encode({[1]=1, [100]=2})",
    "return cjson.encode({[1.5]=1})",
    "return cjson.encode({[true]=1})",
    "return cjson.encode(function() end)",
    "return cjson.encode(0/0)",
    "return cjson.encode(1/0)",
    "local t = {} t.t = t return cjson.encode(t)",
    "return cjson.decode()",
    "return cjson.decode(1)",
    "return cjson.null == cjson.decode('null')",
    "return type(cjson.new())",
    "return cjson.encode_max_depth()",
    "return cjson.decode_max_depth(0)",
    "return cjson.encode_number_precision(20)",
    "return cjson.encode_keep_buffer()",
    "return {cjson.encode_sparse_array()}",
    "return cjson.encode_invalid_numbers('x')",
    "return cmsgpack.pack()",
    "return cmsgpack.unpack('')",
    "return cmsgpack.unpack('\\193')",
    "return {cmsgpack.unpack_one(cmsgpack.pack(1, 2))}",
    "return {cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2)}",
    "return cmsgpack.unpack_one('x', -5)",
    "return struct.pack()",
    "return struct.unpack('i', 'x')",
    "return struct.size('ihb')",
    "return struct.size('s')",
];

/// Text as a literal of Lua.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "\\'"))
}

impl Generator {
    pub fn script(&mut self) -> Step {
        match self.rng.u32(..100) {
            0..45 => self.calling_script(),
            45..60 => {
                let line = *self.pick(LINES);
                self.eval(line, Rule::Exact)
            }
            60..75 => {
                let value = self.lua_value(3);
                self.eval(&format!("return {value}"), Rule::Exact)
            }
            _ => {
                let expression = self.lua_expression();
                let line = match self.rng.u32(..4) {
                    0 => format!("return {{pcall(function() return {expression} end)}}"),
                    1 => format!("return {{{expression}}}"),
                    _ => format!("return {expression}"),
                };
                self.eval(&line, Rule::Exact)
            }
        }
    }

    /// A command of another family, from within a script, whose errors may be texts to that: so both servers must give the
    /// same ones.
    fn calling_script(&mut self) -> Step {
        let family = if self.one_in(4) { Family::Strings } else { *self.pick(&TYPES) };
        let (called, rule) = match family.own_step(self) {
            Step::Command(called, rule) if !is_sort(&called) && rule != Rule::EarlyErrors => (called, rule),
            _ => (self.many_keys("EXISTS"), Rule::Exact),
        };
        self.queued.clear();
        let is_shown = self.one_in(4);
        let (script, rule) = match is_shown {
            true if rule == Rule::Exact => (*self.pick(SHOWN_CALLS), Rule::Exact),
            _ => (*self.pick(CALLS), rule),
        };
        let declared: &[&[u8]] = if self.one_in(2) { &KEYS } else { &[] };
        let name = if self.one_in(12) { "EVAL_RO" } else { "EVAL" };
        let mut out = args(name, [script.into(), declared.len().to_string().into()]);
        out.extend(declared.iter().map(|key| key.to_vec()));
        out.extend(called);
        if self.one_in(10) {
            // What came by SCRIPT LOAD stays.
            out[0].splice(4..4, *b"SHA");
            out[1] = format!("{:x}", Sha1::digest(script)).into();
            self.queued.push_back(Step::Command(out, rule));
            return Step::of(args("SCRIPT", [b"LOAD".to_vec(), script.into()]));
        }
        Step::Command(out, rule)
    }

    fn eval(&mut self, script: &str, rule: Rule) -> Step {
        let mut out = args("EVAL", [script.into(), b"1".to_vec(), self.key()]);
        out.extend(self.times(2, Generator::value));
        if self.one_in(30) {
            out[2] = self.any_of(&["0", "-1", "x", "4", "5", ""]);
        }
        Step::Command(out, rule)
    }

    /// A literal, or an expression whose value is one.
    fn lua_value(&mut self, depth: u32) -> String {
        match self.rng.u32(..if depth > 0 { 14 } else { 7 }) {
            0 => "nil".into(),
            1 => self.pick(&["true", "false"]).to_string(),
            2..4 => self.pick(NUMBERS).to_string(),
            4 => "cjson.null".into(),
            5 | 6 => self.lua_text(),
            7..10 => {
                let items: Vec<String> = (0..self.rng.usize(..5)).map(|_| self.lua_value(depth - 1)).collect();
                format!("{{{}}}", items.join(", "))
            }
            10 => format!("{{ok={}}}", self.lua_value(0)),
            11 => format!("{{err={}}}", self.lua_value(0)),
            12 => {
                let name = *self.pick(&["double", "map", "set", "big_number", "a", "verbatim_string"]);
                let value = match name {
                    "map" => format!("{{[{}]={}}}", self.lua_key(), self.lua_value(depth - 1)),
                    "set" => format!("{{[{}]=true}}", self.lua_key()),
                    "verbatim_string" => "{format='txt', string='verbatim'}".into(),
                    // Redis writes what is no number as C does, which no client understands.
                    "double" => self.pick(NUMBERS).replace("0/0", "0.5"),
                    _ => self.lua_value(depth - 1),
                };
                format!("{{{name}={value}}}")
            }
            _ => format!("{{[{}]={}}}", self.lua_key(), self.lua_value(depth - 1)),
        }
    }

    fn lua_key(&mut self) -> String {
        match self.rng.u32(..3) {
            0 => self.pick(&["1", "2", "1.5", "-1", "3"]).to_string(),
            1 => self.lua_text(),
            _ => "true".into(),
        }
    }

    fn lua_text(&mut self) -> String {
        quoted(self.pick::<&str>(TEXTS))
    }

    /// Something that calls a library.
    fn lua_expression(&mut self) -> String {
        let (text, value) = (self.lua_text(), self.lua_value(2));
        let (number, other) = (*self.pick(NUMBERS), *self.pick(NUMBERS));
        let pattern = quoted(self.pick::<&str>(PATTERNS));
        match self.rng.u32(..24) {
            0 | 1 => format!("cjson.encode({value})"),
            2 | 3 => format!("cjson.decode({})", quoted(&self.pick(JSON).replace('\\', "\\\\"))),
            4 => format!("cjson.encode(cjson.decode({}))", quoted(&self.pick(JSON).replace('\\', "\\\\"))),
            5 => format!("cmsgpack.pack({value}, {number})"),
            6 => format!("cmsgpack.unpack(cmsgpack.pack({value}))"),
            7 => {
                let bytes: Vec<String> = (0..self.rng.usize(1..8)).map(|_| self.rng.u8(..).to_string()).collect();
                format!("cmsgpack.unpack(string.char({}))", bytes.join(", "))
            }
            8 => format!("struct.pack('{}', {number}, {other}, {text})", self.pick(PACKINGS)),
            9 => format!("struct.unpack('{}', {text} .. 'some more bytes')", self.pick(PACKINGS)),
            10 => format!("struct.size('{}')", self.pick(PACKINGS)),
            11 => {
                let name = *self.pick(&["band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror", "tohex"]);
                format!("bit.{name}({number}, {other})")
            }
            12 => format!("string.format('{}', {number}, {text})", self.pick(FORMATS)),
            13 => format!("string.format('{}', {text}, {number})", self.pick(FORMATS)),
            14 => format!("string.find({text}, {pattern})"),
            15 => format!("string.match({text}, {pattern}, {})", self.pick(&["1", "2", "-1", "100", "0"])),
            16 => format!("string.gsub({text}, {pattern}, {})", self.pick(REPLACEMENTS)),
            17 => format!(
                "(function() local t = {{}} for a, b in string.gmatch({text}, {pattern}) do t[#t + 1] = a if #t > 9 \
                           then break end end return t end)()"
            ),
            18 => format!("tostring(tonumber({text}))"),
            19 => {
                let name =
                    *self.pick(&["abs", "ceil", "floor", "sqrt", "exp", "log", "log10", "sin", "deg", "rad", "tan"]);
                format!("tostring(math.{name}({number}))")
            }
            20 => format!(
                "tostring({number} {} {other})",
                self.pick(&["+", "-", "*", "/", "%", "^", "==", "<", "<=", ".."])
            ),
            21 => {
                let name = *self.pick(&["upper", "lower", "len", "reverse", "byte"]);
                format!("string.{name}({text})")
            }
            22 => format!("string.sub({text}, {number}, {other})"),
            _ => format!("type({value})"),
        }
    }
}
