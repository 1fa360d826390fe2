//! `string.find`, `match`, `gmatch` and `gsub`.

use super::output::{BYTES_A_STEP, Output, find_byte};
use super::patterns::Matcher;
use super::state::{Lua, Raise, Returned, Type, upvalue};
use memchr::memmem;

/// Bytes that are searched at once.
const WINDOW: usize = 1 << 18;
/// As much of a longer string is searched for; the rest is compared then.
const MAX_NEEDLE: usize = 1 << 12;
/// How far `__index` leads at most.
const MAX_INDEX_STEPS: usize = 100;

/// Replaces functions of the library, which is on top of the stack.
pub fn open(lua: Lua) {
    lua.set_function(-1, "find", |lua| find_or_match(lua, true));
    lua.set_function(-1, "match", |lua| find_or_match(lua, false));
    lua.set_function(-1, "gsub", gsub);
    lua.push_function(gmatch);
    lua.copy(-1);
    lua.set_field(-3, "gmatch");
    lua.set_field(-2, "gfind");
}

fn find_or_match(lua: Lua, is_find: bool) -> Returned {
    let (subject, pattern) = (lua.check_bytes(1)?, lua.check_bytes(2)?);
    let init = match lua.check_integer_or(3, 1)? {
        init if init < 0 => init.saturating_add(subject.len() as i64).max(0),
        init => (init - 1).max(0),
    };
    let start = usize::try_from(init).unwrap_or(0).min(subject.len());
    if is_find && (lua.bool(4) || !has_specials(lua, pattern)?) {
        let Some(found) = find_plain(lua, &subject[start..], pattern)? else {
            lua.push_nil();
            return Ok(1);
        };
        lua.push_number((start + found + 1) as f64);
        lua.push_number((start + found + pattern.len()) as f64);
        return Ok(2);
    }
    let mut matcher = Matcher::anchored(lua, subject, pattern)?;
    let Some((start, end)) = matcher.search(start)? else {
        lua.push_nil();
        return Ok(1);
    };
    if !is_find {
        return matcher.push_captures(Some(&subject[start..end]));
    }
    lua.push_number((start + 1) as f64);
    lua.push_number(end as f64);
    Ok(2 + matcher.push_captures(None)?)
}

/// Whether a pattern is more than the text that it matches. As in C, a zero is the end of it.
fn has_specials(lua: Lua, pattern: &[u8]) -> Result<bool, Raise> {
    for piece in pattern.chunks(WINDOW) {
        if let Some(byte) = piece.iter().find(|byte| b"^$*+?.([%-\0".contains(byte)) {
            return Ok(*byte != 0);
        }
        lua.checkpoint(piece.len())?;
    }
    Ok(false)
}

fn find_plain(lua: Lua, text: &[u8], needle: &[u8]) -> Result<Option<usize>, Raise> {
    if text.len() <= WINDOW {
        lua.checkpoint(text.len() / BYTES_A_STEP)?;
        return Ok(memmem::find(text, needle));
    }
    let (head, tail) = needle.split_at(needle.len().min(MAX_NEEDLE));
    let finder = memmem::Finder::new(head);
    let mut from = 0;
    while text.len() - from >= needle.len() {
        let window = &text[from..text.len().min(from + WINDOW)];
        lua.checkpoint(window.len() / BYTES_A_STEP)?;
        let Some(found) = finder.find(window) else {
            if from + window.len() == text.len() {
                break;
            }
            // The last bytes may be the first of what is looked for.
            from += window.len() - (head.len() - 1);
            continue;
        };
        from += found;
        if is_prefix(lua, tail, &text[from + head.len()..])? {
            return Ok(Some(from));
        }
        from += 1;
    }
    Ok(None)
}

fn is_prefix(lua: Lua, prefix: &[u8], text: &[u8]) -> Result<bool, Raise> {
    if prefix.len() > text.len() {
        return Ok(false);
    }
    for (one, other) in prefix.chunks(WINDOW).zip(text.chunks(WINDOW)) {
        if !other.starts_with(one) {
            return Ok(false);
        }
        lua.checkpoint(one.len() / BYTES_A_STEP)?;
    }
    Ok(true)
}

fn gmatch(lua: Lua) -> Returned {
    lua.check_bytes(1)?;
    lua.check_bytes(2)?;
    lua.set_top(2);
    lua.push_number(0.0);
    lua.push_closure(next_match, 3);
    Ok(1)
}

/// The function that `gmatch` returns. Its upvalues are the subject, the pattern, and where to go on.
fn next_match(lua: Lua) -> Returned {
    let subject = lua.bytes(upvalue(1)).unwrap_or_default();
    let pattern = lua.bytes(upvalue(2)).unwrap_or_default();
    let from = lua.number(upvalue(3)).map_or(0, |from| from as usize);
    let mut matcher = Matcher::new(lua, subject, pattern)?;
    let Some((start, end)) = matcher.search(from)? else { return Ok(0) };
    // After a match of nothing it goes on one byte further.
    lua.push_number(end.max(start + 1) as f64);
    lua.replace(upvalue(3));
    matcher.push_captures(Some(&subject[start..end]))
}

fn gsub(lua: Lua) -> Returned {
    let (subject, pattern) = (lua.check_bytes(1)?, lua.check_bytes(2)?);
    let replacement = lua.type_of(3);
    // Lua counts in C's integers.
    let most = lua.check_integer_or(4, subject.len() as i64 + 1)? as i32;
    if !matches!(replacement, Type::Number | Type::String | Type::Function | Type::Table) {
        return Err(lua.arg_error(3, "string/function/table expected"));
    }
    let mut matcher = Matcher::anchored(lua, subject, pattern)?;
    let mut output = Output::new(lua);
    // What is from here on is not in the output yet.
    let mut kept = 0;
    let mut next = 0;
    let mut count = 0;
    while count < most {
        let Some((start, end)) = matcher.search(next)? else { break };
        count += 1;
        output.add(&subject[kept..start])?;
        add_replacement(lua, &mut output, &matcher, &subject[start..end], replacement)?;
        kept = end;
        next = end.max(start + 1);
        if matcher.is_anchored() {
            break;
        }
    }
    if count == 0 {
        lua.copy(1);
    } else {
        output.add(&subject[kept..])?;
        output.push()?;
    }
    lua.push_number(f64::from(count));
    Ok(2)
}

fn add_replacement(
    lua: Lua,
    output: &mut Output,
    matcher: &Matcher,
    matched: &[u8],
    replacement: Type,
) -> Result<(), Raise> {
    let top = lua.top();
    match replacement {
        Type::Table => {
            matcher.push_capture(0, matched)?;
            index(lua, 3)?;
        }
        Type::Function => {
            lua.ensure(1)?;
            lua.copy(3);
            let args = matcher.push_captures(Some(matched))?;
            lua.call(args, 1)?;
        }
        _ => return add_template(lua, output, matcher, matched),
    }
    if !lua.bool(-1) {
        output.add(matched)?;
    } else if let Some(bytes) = lua.to_bytes(-1) {
        output.add(bytes)?;
    } else {
        return Err(lua.error(format!("invalid replacement value (a {})", lua.type_name(-1))));
    }
    lua.set_top(top);
    lua.checkpoint(50)
}

/// Adds a replacement in which `%1` is a capture.
fn add_template(lua: Lua, output: &mut Output, matcher: &Matcher, matched: &[u8]) -> Result<(), Raise> {
    let mut rest = lua.to_bytes(3).unwrap_or_default();
    while let Some(escape) = find_byte(lua, b'%', rest)? {
        output.add(&rest[..escape])?;
        // At the end of the string it is C's zero that follows.
        match rest.get(escape + 1).copied().unwrap_or(0) {
            b'0' => output.add(matched)?,
            digit @ b'1'..=b'9' => {
                matcher.push_capture(usize::from(digit - b'1'), matched)?;
                output.add(lua.to_bytes(-1).unwrap_or_default())?;
                lua.pop(1);
            }
            other => output.add(&[other])?,
        }
        rest = rest.get(escape + 2..).unwrap_or_default();
        lua.checkpoint(20)?;
    }
    output.add(rest)?;
    lua.checkpoint(10)
}

/// The value under the key on top of the stack takes its place, where metatables are asked as Lua does.
fn index(lua: Lua, table: i32) -> Result<(), Raise> {
    let key = lua.top();
    lua.copy(table);
    for _ in 0..MAX_INDEX_STEPS {
        // The value that is indexed is on top of the stack.
        let is_table = lua.is(-1, Type::Table);
        if is_table {
            lua.copy(key);
            lua.raw_get(-2);
            if !lua.is(-1, Type::Nil) {
                lua.replace(key);
                lua.set_top(key);
                return Ok(());
            }
            lua.pop(1);
        }
        if lua.metatable(-1) {
            lua.field(-1, "__index");
            lua.remove(-2);
        } else {
            lua.push_nil();
        }
        match lua.type_of(-1) {
            Type::Nil if is_table => {
                lua.replace(key);
                lua.set_top(key);
                return Ok(());
            }
            Type::Nil => {
                lua.push_bytes(format!("attempt to index a {} value", lua.type_name(-2)));
                return Err(Raise);
            }
            Type::Function => {
                lua.insert(-2);
                lua.copy(key);
                lua.call(2, 1)?;
                lua.replace(key);
                lua.set_top(key);
                return Ok(());
            }
            _ => lua.remove(-2),
        }
    }
    lua.push_bytes("loop in gettable");
    Err(Raise)
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn plain_text_is_found_across_windows() {
        assert_eq!(eval("local s = ('x'):rep(6e5) .. 'yz' return (string.find(s, 'xyz', 1, true))"), "600000");
        assert_eq!(
            eval("local n = ('x'):rep(5e3) .. 'y' return (string.find(('x'):rep(3e5) .. n, n, 1, true))"),
            "300001"
        );
        assert_eq!(eval("return string.find('abc', '', 10)"), "4");
        assert_eq!(eval("return string.find(('x'):rep(3e5), '', 3e5, true)"), "300000");
    }

    #[test]
    fn matches_of_nothing_come_once_a_place() {
        assert_eq!(eval("local n = 0 for _ in string.gmatch('abc', 'x*') do n = n + 1 end return n"), "4");
        assert_eq!(eval("return (string.gsub('abc', 'x*', '-'))"), "-a-b-c-");
    }

    #[test]
    fn replacements_are_templates_or_looked_up_or_made() {
        assert_eq!(eval("return (string.gsub('abc', '(a)(b)', '%2%1%0%%'))"), "baab%c");
        assert_eq!(eval("return (string.gsub('abc', '%w', {a = 'x', b = false, c = 1}))"), "xb1");
        assert_eq!(eval("return (string.gsub('ab', '%w', setmetatable({}, {__index = {a = 'x'}})))"), "xb");
        assert_eq!(
            eval("return (string.gsub('ab', '%w', setmetatable({}, {__index = function(_, k) return k:upper() end})))"),
            "AB"
        );
        assert_eq!(
            eval("return (string.gsub('len', 'len', string))"),
            "error: user_script:1: invalid replacement value (a function)"
        );
        assert_eq!(
            eval("return string.gsub('a', 'a', setmetatable({}, {__index = 5}))"),
            "error: attempt to index a number value"
        );
        assert_eq!(eval("return (string.gsub('aaa', 'a', function() end, 2))"), "aaa");
    }

    #[test]
    fn what_calls_itself_without_end_fails() {
        assert_eq!(
            eval("local f f = function() return (string.gsub('a', 'a', f)) end return f()"),
            "error: C stack overflow"
        );
    }
}
