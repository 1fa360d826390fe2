//! The holes that were found in Lua 5.1, in Redis's libraries for it and in Redis's sandbox, each with what once got
//! through. Where nothing but a crash would tell, the fuzz target `script` runs the same under an address sanitiser.

use super::ffi;
use super::machine::Machine;
use super::memory;
use super::sandbox::add_deprecated;
use super::state::{Lua, Raise};
use super::trial::{eval, eval_on};
use std::ffi::{c_char, c_void};

const MEMORY: usize = 64 << 20;

fn eval_deprecated(source: &str) -> String {
    eval_on(&Machine::new(MEMORY, add_deprecated), source, |_| ())
}

/// CVE-2025-46817.
#[test]
fn unpack_counts_without_overflow() {
    let ranges = [
        ("-2", "2147483647"),
        ("0", "2147483647"),
        ("1", "2147483647"),
        ("-2147483648", "2147483647"),
        ("-2147483648", "0"),
        ("1", "8001"),
    ];
    for (first, last) in ranges {
        let call = format!("return select(2, pcall(unpack, {{1, 2, 3}}, {first}, {last}))");
        assert_eq!(eval(&call), "too many results to unpack", "{first} to {last}");
    }
    assert_eq!(eval("return unpack({1, 2, 3}, -2, 2147483647)"), "error: user_script:1: too many results to unpack");
    for end in ["2147483647", "-2147483648"] {
        assert_eq!(eval(&format!("return select('#', unpack({{}}, {end}, {end}))")), "1");
    }
    assert_eq!(eval("return select('#', unpack({}, 2147483647, -2147483648))"), "0");
}

/// Beside CVE-2025-46817: indexes at the ends of an integer's range.
#[test]
fn indexes_may_be_any_number() {
    let keys = "{-2^31, -2^31 - 1, 2^31 - 1, 2^31, 2^32, -2^53, 2^53, 2^63, -2^63, 1e308, 1/0, -1/0, 0.5, -0.0}";
    let script = format!(
        "local t, n = {{1, 2, 3}}, 0
         for i, key in ipairs({keys}) do t[key] = i end
         for i, key in ipairs({keys}) do if t[key] == i and rawget(t, key) == i then n = n + 1 end end
         for key in pairs(t) do if next(t, key) or true then n = n + 1 end end
         return n .. ' ' .. #t"
    );
    assert_eq!(eval(&script), "31 3");
    assert_eq!(eval("return table.concat({}, 'x', 2147483647, -2147483648)"), "");
    let error = "invalid value (nil) at index -2147483648 in table for 'concat'";
    assert_eq!(eval("return select(2, pcall(table.concat, {}, 'x', -2^31, 2^31 - 1))"), error);
    assert_eq!(eval("local t = {1} table.insert(t, 2^31 - 1, 5) return t[2^31 - 1] .. #t"), "51");
    for place in ["-2^31", "2^31 - 1"] {
        assert_eq!(eval(&format!("return select('#', table.remove({{1, 2}}, {place}))")), "0");
    }
    assert_eq!(eval("return select(2, pcall(select, -2^31, 1))"), "bad argument #1 to '?' (index out of range)");
    assert_eq!(eval("return ('abc'):sub(-2^63, 2^63) .. ('abc'):sub(2^62, -2^62) .. ('abc'):sub(-2^62, 2^62)"), "abc");
    assert_eq!(eval("return select('#', ('abc'):byte(-2^53, 2^53))"), "3");
}

/// The length of a table with keys at the powers of two was looked for one by one.
#[test]
fn a_length_is_found_by_halves() {
    let script = "local t = {} for i = 0, 30 do t[2^i] = 1 end
                  for i = 20000, 1, -1 do t[i] = 1 end
                  local n = #t return tostring(t[n] ~= nil and t[n + 1] == nil)";
    assert_eq!(eval(script), "true");
}

/// A reader of source, which is asked for pieces.
struct Source {
    state: *mut ffi::lua_State,
    pieces: Vec<&'static [u8]>,
    asked: usize,
}

unsafe extern "C-unwind" fn read(_: *mut ffi::lua_State, source: *mut c_void, len: *mut usize) -> *const c_char {
    // SAFETY: the source that `load_from` was given, and a place for the length.
    let (source, len) = unsafe { (&mut *source.cast::<Source>(), &mut *len) };
    source.asked += 1;
    memory::enter_native();
    // What nobody holds is collected, and its memory used again.
    let lua = Lua(source.state);
    // SAFETY: nothing is finalised, so that no code runs.
    unsafe { ffi::lua_gc(source.state, ffi::LUA_GCCOLLECT, 0) };
    lua.new_table(0, 0);
    for index in 0..100 {
        lua.push_bytes(format!("@something else of the same length {index:03}"));
        lua.raw_set_index(-2, index);
    }
    lua.pop(1);
    memory::leave_native();
    let piece = if source.pieces.is_empty() { b"" } else { source.pieces.remove(0) };
    *len = piece.len();
    piece.as_ptr().cast()
}

unsafe extern "C-unwind" {
    fn lua_load(
        state: *mut ffi::lua_State,
        read: unsafe extern "C-unwind" fn(*mut ffi::lua_State, *mut c_void, *mut usize) -> *const c_char,
        source: *mut c_void,
        name: *const c_char,
    ) -> i32;
}

/// Loads and runs source that comes in pieces; how it ends, and how often was asked for a piece.
fn load_from(pieces: Vec<&'static [u8]>) -> (Result<(), String>, usize) {
    let machine = Machine::new(MEMORY, |_| ());
    let lua = machine.worker().expect("a worker").lua;
    let mut source = Source { state: lua.0, pieces, asked: 0 };
    let name = c"@the name of a chunk that is parsed: 000";
    memory::leave_native();
    // SAFETY: the source and the name live as long as the call.
    let status = unsafe { lua_load(lua.0, read, (&raw mut source).cast(), name.as_ptr()) };
    memory::enter_native();
    let result = if status == 0 { lua.call(0, 0) } else { Err(Raise) };
    let result = result.map_err(|Raise| String::from_utf8_lossy(lua.to_bytes(-1).unwrap_or_default()).into_owned());
    (result, source.asked)
}

/// CVE-2025-49844.
#[test]
fn a_chunk_keeps_its_name_while_it_is_read() {
    let (result, _) = load_from(vec![b"local a = 1 ", b"error('raised')"]);
    assert_eq!(result, Err("the name of a chunk that is parsed: 000:1: raised".to_owned()));
}

/// Lua 5.1.5's known bug.
#[test]
fn a_reader_is_not_asked_again() {
    assert_eq!(load_from(vec![]), (Ok(()), 1));
    assert_eq!(load_from(vec![b"local a = 1"]), (Ok(()), 2));
    assert_eq!(load_from(vec![b"", b"error('behind the end')"]), (Ok(()), 1));
}

/// CVE-2025-46819.
#[test]
fn long_brackets_are_told_from_others() {
    assert_eq!(eval("return [==[a]]b]=]c]==]"), "a]]b]=]c");
    assert_eq!(eval("local t = {1} return t[t[1]]"), "1");
    let error = "return select(2, loadstring('x = [' .. ('='):rep(1e6) .. 'x', '=name'))";
    assert!(eval(error).starts_with("name:1: invalid long string delimiter near '[==="));
    let whole = "local signs = ('='):rep(1e6)
                 return loadstring('return [' .. signs .. '[a]' .. signs .. ']', '=name')()";
    assert_eq!(eval(whole), "a");
    assert_eq!(eval("return loadstring('return ' .. ('\\n'):rep(1e6) .. '1', '=name')()"), "1");
    assert_eq!(
        eval("return select(2, loadstring(('\\n'):rep(1e6) .. '(', '=name'))"),
        "name:1000001: unexpected symbol near '<eof>'"
    );
}

#[test]
fn compiled_code_is_not_loaded() {
    let error = "chunk:1: unexpected symbol near 'char(27)'";
    let dump = "local code = string.dump(function() return 1 end)";
    assert_eq!(eval(&format!("{dump} return select(2, loadstring(code, '=chunk'))")), error);
    let by_piece = "local left = {code:sub(1, 1), code:sub(2)}
                    local read = function() return table.remove(left, 1) end";
    assert_eq!(eval(&format!("{dump} {by_piece} return select(2, load(read, '=chunk'))")), error);
    let error = Machine::new(MEMORY, |_| ()).compile(b"\x1bLuaQ\0\x01\x04\x08\x04\x08\0", c"@chunk");
    assert_eq!(error, Err(b"chunk:1: unexpected symbol near 'char(27)'".to_vec()));
}

/// CVE-2025-46818: what values of a type have in common is everybody's.
#[test]
fn metatables_of_basic_types_cannot_be_changed() {
    let read_only = "user_script:1: Attempt to modify a readonly table";
    for change in ["getmetatable('').__index = print", "getmetatable('').__add = error", "('').format = nil"] {
        assert!(eval(change).starts_with("error: "), "{change}");
    }
    assert_eq!(eval("getmetatable('').__index = error"), format!("error: {read_only}"));
    assert_eq!(eval("getmetatable('').__index.rep = error"), format!("error: {read_only}"));
    for function in ["rawset(%, 'x', 1)", "setmetatable(%, {})", "table.insert(%, 1)"] {
        let change = function.replace('%', "getmetatable('')");
        assert!(eval(&change).ends_with("eadonly table"), "{change}: {}", eval(&change));
    }
    for value in ["1", "true", "nil", "error", "coroutine.create(function() end)", "cjson.null"] {
        assert_eq!(eval(&format!("return tostring(getmetatable({value}))")), "nil");
        let error = eval(&format!("return setmetatable({value}, {{}})"));
        assert!(error.contains("bad argument #1 to 'setmetatable' (table expected"), "{error}");
    }
}

#[test]
fn deprecated_functions_are_seen_where_they_are_to_be() {
    for name in ["getfenv", "setfenv", "newproxy"] {
        let error = format!("error: user_script:1: Script attempted to access nonexistent global variable '{name}'");
        assert_eq!(eval(&format!("return {name}")), error);
        assert_eq!(eval_deprecated(&format!("return type({name})")), "function");
    }
    for (script, result) in [
        ("return tostring(getfenv(1) == _G and getfenv() == _G and getfenv(0) == _G and getfenv(pcall) == _G)", "true"),
        ("local f = function() return x end setfenv(f, {x = 5}) return f()", "5"),
        ("setfenv(1, {}) return type(tostring)", "error: user_script:1: attempt to call global 'type' (a nil value)"),
        ("return setfenv(pcall, {})", "error: user_script:1: 'setfenv' cannot change environment of given object"),
        ("getfenv(pcall).x = 1", "error: user_script:1: Attempt to modify a readonly table"),
        ("rawset(getfenv(1), 'a', 1)", "error: Attempt to modify a readonly table"),
        ("return getfenv(200)", "error: user_script:1: bad argument #1 to 'getfenv' (invalid level)"),
        ("local p = newproxy(true) getmetatable(p).__index = function(_, k) return k end return p.foo", "foo"),
        ("return tostring(getmetatable(newproxy(false)))", "nil"),
        ("return newproxy(3)", "error: user_script:1: bad argument #1 to 'newproxy' (boolean or proxy expected)"),
        ("local p = newproxy(true) return tostring(getmetatable(newproxy(p)) == getmetatable(p))", "true"),
    ] {
        assert_eq!(eval_deprecated(script), result, "{script}");
    }
}

/// What one script does to its thread's globals is not there for the next.
#[test]
fn a_thread_gets_its_globals_back() {
    let machine = Machine::new(MEMORY, add_deprecated);
    for _ in 0..3 {
        assert_eq!(eval_on(&machine, "setfenv(0, {}) return type(loadstring('return x')())", |_| ()), "nil");
        assert_eq!(eval_on(&machine, "return type(loadstring('return tostring')())", |_| ()), "function");
    }
}

/// CVE-2024-46981, and code that could not be ended, since the collector calls it without hooks.
#[test]
fn nothing_is_finalized() {
    let machine = Machine::new(MEMORY, add_deprecated);
    let script = "local seen = {}
                  local collect = function() seen.called = true while true do end end
                  for i = 1, 100 do getmetatable(newproxy(true)).__gc = collect setmetatable({}, {__gc = collect}) end
                  for i = 1, 1000 do collectgarbage() end
                  held = nil
                  return tostring(seen.called)";
    assert_eq!(eval_on(&machine, &script.replace("held = nil", ""), |_| ()), "nil");
    let held = "local proxy = newproxy(true) getmetatable(proxy).__gc = function() while true do end end
                local table = {proxy} table[2] = table return #table";
    assert_eq!(eval_on(&machine, held, |_| ()), "2");
    drop(machine);
}

/// CVE-2024-31449, CVE-2022-24834, CVE-2020-14147: the libraries that Redis adds, with numbers that do not fit.
#[test]
fn libraries_of_redis_take_any_number() {
    let digits = [
        ("0, -2^31", "00000000"),
        ("-1, 2^31 - 1", "ffffffff"),
        ("65535, -8", "0000FFFF"),
        ("65535, -2^53", ""),
        ("255, 0", ""),
    ];
    for (args, text) in digits {
        assert_eq!(eval(&format!("return bit.tohex({args})")), text, "{args}");
    }
    for name in ["lshift", "rshift", "arshift", "rol", "ror"] {
        for by in ["2^31", "-2^31", "2^53", "-1", "1/0", "0/0"] {
            let result = eval(&format!("return type(bit.{name}(1, {by}))"));
            assert_eq!(result, "number", "{name} by {by}");
        }
    }
    for format in ["i2147483648", "i4294967297", "!2147483648", "c4294967296", "c-1", "i-1", "s2147483647", "!0i"] {
        let _ = eval(&format!("return pcall(struct.pack, '{format}', 1)"));
        let _ = eval(&format!("return pcall(struct.unpack, '{format}', 'abcdefgh')"));
        let _ = eval(&format!("return pcall(struct.size, '{format}')"));
    }
    for place in ["2147483647", "-2147483648", "2^53", "-1", "0", "1/0", "0/0"] {
        assert_eq!(eval(&format!("return tostring(pcall(struct.unpack, 'i', 'abcd', {place}))")), "false", "{place}");
        let _ = eval(&format!("return pcall(cmsgpack.unpack_one, 'abcd', {place})"));
        let _ = eval(&format!("return pcall(cmsgpack.unpack_limit, 'abcd', {place}, {place})"));
    }
}

/// CVE-2014-5461, and CVE-2018-11218: more arguments or results than the stack has room for.
#[test]
fn functions_take_as_many_arguments_as_there_can_be() {
    let parameters: Vec<String> = (0..199).map(|index| format!("a{index}")).collect();
    let script = format!(
        "local f = function({}, ...) return select('#', ...) end local n = 0
         for i = 1, 300 do n = n + coroutine.wrap(f)() + f() end return n",
        parameters.join(", ")
    );
    assert_eq!(eval(&script), "0");
    let script = "local n = 0
        for _, library in ipairs({_G, string, table, math, bit, struct, cjson, cmsgpack, coroutine, os}) do
          for name, f in pairs(library) do
            if type(f) == 'function' then
              n = n + 1
              for _, value in ipairs({1, 'a', {}}) do
                local args = {} for i = 1, 7900 do args[i] = value end
                pcall(f, unpack(args))
                pcall(f, unpack(args, 1, 250))
                pcall(f)
              end
            end
          end
        end
        return tostring(n > 70)";
    assert_eq!(eval(script), "true");
    let many = ["0"; 240].join(", ");
    let deep = format!("local function f(...) return f({many}, ...) end return select(2, pcall(f))");
    assert_eq!(eval(&deep), "user_script:1: stack overflow");
    assert_eq!(eval("local f = function(...) return ... end return select('#', f(unpack({}, 1, 7900)))"), "7900");
}

/// CVE-2021-32626 and others: calls from C into Lua and back are bounded, wherever they go through.
#[test]
fn nothing_nests_without_end() {
    for script in [
        "local function f() return coroutine.wrap(f)() end return tostring(pcall(f))",
        "local function f() return coroutine.resume(coroutine.create(f)) end return tostring(pcall(f))",
        "local function f() return pcall(f) end return tostring(f())",
        "local function f() return xpcall(f, f) end return tostring(f())",
        "local function f() return (('x'):gsub('x', f)) end return tostring(pcall(f))",
        "local function f() table.sort({1, 2, 3}, f) end return tostring(pcall(f))",
        "local function f() table.foreach({1}, f) end return tostring(pcall(f))",
        "local function f() return load(f) end return type(f())",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k + 1] end
         return tostring(pcall(function() return t[1] end))",
        "local t = setmetatable({}, {}) getmetatable(t).__tostring = tostring return tostring(pcall(tostring, t))",
        "local t = setmetatable({}, {}) getmetatable(t).__call = t return tostring(pcall(t))",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return tostring(pcall(function() return t.x end))",
        "local function f() return f() + 1 end return tostring(pcall(f))",
        "local t = {} for i = 1, 1e5 do t = {t} end return tostring(pcall(cjson.encode, t))",
        "local t = {} for i = 1, 1e5 do t = {t} end return type(cmsgpack.pack(t))",
        "return tostring(pcall(cjson.decode, ('['):rep(1e6)))",
        "return tostring(pcall(cmsgpack.unpack, ('\\145'):rep(1e6)))",
        "return type(loadstring('return ' .. ('('):rep(1e5)))",
        "return type(loadstring(('do '):rep(1e5)))",
        "return type(loadstring('x = ' .. ('{'):rep(1e5)))",
        "return type(loadstring('x = ' .. ('function() return '):rep(1e5)))",
        "return type(loadstring('x = ' .. ('-'):rep(1e5) .. '1'))",
        "return type(loadstring('x = 1' .. ('..1'):rep(1e5)))",
        "return type(loadstring(('a,'):rep(1e5) .. 'a = 1'))",
    ] {
        let result = eval(script);
        assert!(!result.starts_with("error: ") || result.contains("overflow"), "{script}: {result}");
    }
}

/// How often a script is suspended that has nothing but its instructions to be suspended at.
fn looks(source: &str) -> usize {
    let mut looks = 0;
    let result = eval_on(&Machine::new(1 << 30, |_| ()), source, |_| looks += 1);
    assert!(!result.starts_with("error"), "{result}");
    looks
}

/// Ten thousand instructions took minutes where each of them had much to do.
#[test]
fn long_instructions_count_as_many() {
    let million = "local s = ('1'):rep(1e6)";
    for (script, least) in [
        ("for i = 1, 50 do local t = s .. i end", 50),
        ("local t = s .. 'x' for i = 1, 50 do local b = s < t end", 50),
        ("local z = ('\\0'):rep(1e6) local y = z .. 'a' for i = 1, 50 do local b = z <= y end", 50),
        ("for i = 1, 50 do local b = s + 1 end", 50),
        ("for i = 1, 2000 do select('#', unpack({}, 1, 7900)) end", 200),
        ("local function f(n, ...) if n > 0 then return f(n - 1, ...) end end f(2000, unpack({}, 1, 7000))", 300),
        ("for i = 1, 50 do local b = tonumber(s, 2) end", 50),
        ("for i = 1, 50 do local b = loadstring('local a = ' .. i .. ' --' .. s) end", 50),
        (
            "local t = {} for i = 1, 1e6 do t[i] = 1 end for i = 1, 1e6 - 1 do t[i] = nil end \
          for i = 1, 50 do next(t) end",
            350,
        ),
        (
            "local t = {} for i = 1, 2^15 do t['k' .. i] = 1 end \
          for i = 1, 50 do t['k' .. i] = nil t['z' .. i] = 1 end",
            50,
        ),
    ] {
        let looks = looks(&format!("{million} {script}"));
        assert!(looks >= least, "{looks} looks: {script}");
    }
    // Of strings of so many bytes every second one is looked at by the hash: these are all the same to it.
    let same = "local t = {} for i = 1, 5000 do t[i] = (('%05d'):format(i):gsub('%d', '%0a')) .. ('b'):rep(30) end";
    let other = same.replace("%0a", "a%0");
    let (same, other) = (looks(same), looks(&other));
    assert!(same.abs_diff(other) > 1000, "{same} looks, and {other} where they are told apart");
}

/// Coroutines that resume each other, each for a few instructions only, once went on without a look: nobody could end them.
#[test]
fn instructions_count_whichever_coroutine_runs() {
    for script in [
        "local function f(n) for i = 1, n do coroutine.resume(coroutine.create(f), n - 1) end end f(7)",
        "local function f(n) for i = 1, n do coroutine.wrap(f)(n - 1) end end f(7)",
        "local function f(n) for i = 1, n do
           table.sort({1, 2}, function() coroutine.resume(coroutine.create(f), n - 1) return false end)
         end end f(7)",
        "local co = coroutine.wrap(function() while true do coroutine.yield() end end) for i = 1, 13700 do co() end",
    ] {
        let looks = looks(script);
        assert!(looks >= 300, "{looks} looks: {script}");
    }
}

/// A script that stood still between a call whose number of results is open and who takes them, while another one had the machine
/// collect, went on behind the end of its stack, which had been cut meanwhile. (In tests memory has borders.)
#[test]
fn stacks_are_not_cut_below_what_their_functions_need() {
    let many = (0..190).map(|index| format!("v{index}")).collect::<Vec<_>>().join(", ");
    let script = format!(
        "local t = setmetatable({{}}, {{__index = function() return 1 end}})
         local function two() return 1, 2 end
         local function many(n)
           if n == 0 then local {many} = 1 return v189 end
           for i = 1, n do select('#', two()) local x = t.x end
         end
         many(300000)"
    );
    let machine = Machine::new(MEMORY, |_| ());
    let mut looks = 0;
    let result = eval_on(&machine, &script, |machine| {
        looks += 1;
        while !machine.collect_some() {}
    });
    assert_eq!(result, "nil");
    assert!(looks > 100, "{looks} looks");
}
