//! Lua's table library, where its own could take for ever, or differs from Redis's.

use super::output::{BYTES_A_STEP, Output};
use super::proxies::length;
use super::proxies::{check_writable, push_hidden};
use super::sorting;
use super::state::{GLOBALS, Lua, Raise, Returned, Type, upvalue};

/// Steps for a value that is read and written elsewhere.
const MOVE_STEPS: usize = 20;
/// Steps for a call, of which the function's own are not counted.
const CALL_STEPS: usize = 100;

/// Replaces functions of the library, which is on top of the stack.
pub fn open(lua: Lua) {
    let library = lua.top();
    lua.set_function(library, "concat", concat);
    lua.set_function(library, "insert", insert);
    lua.set_function(library, "remove", remove);
    lua.set_function(library, "sort", sorting::sort);
    lua.set_function(library, "maxn", max_n);
    lua.set_function(library, "foreachi", for_each_index);
    lua.set_function(library, "getn", get_n);
    lua.set_function(library, "setn", set_n);
    // Lua's own `next`, which raises where there is no such key.
    lua.field(GLOBALS, "next");
    lua.push_closure(for_each, 1);
    lua.set_field(library, "foreach");
}

/// The first argument is a table that is only read: it becomes the one behind it where it is a proxy.
fn look_behind(lua: Lua) -> Result<(), Raise> {
    lua.check(1, Type::Table, "table")?;
    if push_hidden(lua, 1) {
        lua.replace(1);
    }
    Ok(())
}

fn concat(lua: Lua) -> Returned {
    let separator = if lua.is_none_or_nil(2) { b"" } else { lua.check_bytes(2)? };
    look_behind(lua)?;
    let first = lua.check_integer_or(3, 1)? as i32;
    let last = if lua.is_none_or_nil(4) { length(lua)? } else { lua.check_integer(4)? as i32 };
    let mut output = Output::new(lua);
    for index in first..=last {
        lua.raw_get_index(1, index);
        let Some(bytes) = lua.to_bytes(-1) else {
            let name = lua.type_name(-1);
            return Err(lua.error(format!("invalid value ({name}) at index {index} in table for 'concat'")));
        };
        output.add(bytes)?;
        lua.pop(1);
        if index < last {
            output.add(separator)?;
        }
        lua.checkpoint(MOVE_STEPS + (bytes.len() + separator.len()) / BYTES_A_STEP)?;
    }
    output.push()
}

fn insert(lua: Lua) -> Returned {
    let mut end = length(lua)?.wrapping_add(1);
    let place = match lua.top() {
        2 => end,
        3 => lua.check_integer(2)? as i32,
        _ => return Err(lua.error("wrong number of arguments to 'insert'")),
    };
    check_writable(lua, 1)?;
    while end > place {
        lua.raw_get_index(1, end - 1);
        lua.raw_set_index(1, end);
        end -= 1;
        lua.checkpoint(MOVE_STEPS)?;
    }
    lua.raw_set_index(1, place);
    Ok(0)
}

fn remove(lua: Lua) -> Returned {
    let len = length(lua)?;
    let place = lua.check_integer_or(2, i64::from(len))? as i32;
    if !(1..=len).contains(&place) {
        return Ok(0);
    }
    check_writable(lua, 1)?;
    lua.raw_get_index(1, place);
    for index in place..len {
        lua.raw_get_index(1, index + 1);
        lua.raw_set_index(1, index);
        lua.checkpoint(MOVE_STEPS)?;
    }
    lua.push_nil();
    lua.raw_set_index(1, len);
    Ok(1)
}

fn max_n(lua: Lua) -> Returned {
    look_behind(lua)?;
    let mut max = 0.0_f64;
    lua.push_nil();
    while lua.next(1) {
        lua.pop(1);
        if let Some(key) = lua.number(-1) {
            max = max.max(key);
        }
        lua.checkpoint(MOVE_STEPS)?;
    }
    lua.push_number(max);
    Ok(1)
}

fn get_n(lua: Lua) -> Returned {
    lua.push_number(f64::from(length(lua)?));
    Ok(1)
}

fn set_n(lua: Lua) -> Returned {
    lua.check(1, Type::Table, "table")?;
    Err(lua.error("'setn' is obsolete"))
}

fn for_each_index(lua: Lua) -> Returned {
    look_behind(lua)?;
    let len = length(lua)?;
    lua.check(2, Type::Function, "function")?;
    for index in 1..=len {
        lua.copy(2);
        lua.push_number(f64::from(index));
        lua.raw_get_index(1, index);
        lua.call(2, 1)?;
        if !lua.is(-1, Type::Nil) {
            return Ok(1);
        }
        lua.pop(1);
        lua.checkpoint(CALL_STEPS)?;
    }
    Ok(0)
}

fn for_each(lua: Lua) -> Returned {
    look_behind(lua)?;
    lua.check(2, Type::Function, "function")?;
    lua.set_top(2);
    lua.push_nil();
    while next(lua)? {
        lua.copy(2);
        lua.copy(3);
        lua.copy(4);
        lua.call(2, 1)?;
        if !lua.is(-1, Type::Nil) {
            return Ok(1);
        }
        lua.set_top(3);
        lua.checkpoint(CALL_STEPS)?;
    }
    Ok(0)
}

/// The next pair of the first argument, whose key is on top of the stack. That may have been removed meanwhile: whether
/// it can be found still is asked under a protected call.
fn next(lua: Lua) -> Result<bool, Raise> {
    lua.copy(3);
    lua.raw_get(1);
    let is_there = !lua.is(-1, Type::Nil) || lua.is(3, Type::Nil);
    lua.pop(1);
    if is_there {
        return Ok(lua.next(1));
    }
    lua.copy(upvalue(1));
    lua.copy(1);
    lua.copy(3);
    lua.call(2, 2)?;
    lua.remove(3);
    Ok(!lua.is(3, Type::Nil))
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn values_move_up_and_down() {
        let after = |code: &str| eval(&format!("local t = {{1, 2, 3}} {code} return table.concat(t, ' ')"));
        assert_eq!(after("table.insert(t, 4)"), "1 2 3 4");
        assert_eq!(after("table.insert(t, 1, 0)"), "0 1 2 3");
        assert_eq!(
            eval("local t = {1, 2} table.insert(t, -1, 0) return t[-1] .. t[2] .. t[3] .. tostring(t[1])"),
            "012nil"
        );
        assert_eq!(after("table.remove(t)"), "1 2");
        assert_eq!(after("table.remove(t, 1)"), "2 3");
        assert_eq!(after("table.remove(t, 4)"), "1 2 3");
        assert_eq!(after("table.insert(string, 1)"), "error: Attempt to modify a readonly table");
    }

    #[test]
    fn tables_are_joined() {
        assert_eq!(eval("return table.concat({1, 2.5, 'x'}, ', ', 2, 3)"), "2.5, x");
        assert_eq!(
            eval("return table.concat({1, {}})"),
            "error: user_script:1: invalid value (table) at index 2 in table for 'concat'"
        );
    }

    #[test]
    fn a_table_can_be_emptied_on_the_way() {
        assert_eq!(
            eval(
                "local t, n = {a = 1, b = 2, c = 3}, 0 table.foreach(t, function(k) t[k] = nil n = n + 1 end) return n"
            ),
            "3"
        );
        assert_eq!(eval("return table.foreachi({5, 6, 7}, function(i, v) if i == 2 then return v end end)"), "6");
        assert_eq!(eval("return table.maxn({1, [2.5] = 1, [-3] = 1}) .. table.getn({1, 2})"), "2.52");
    }
}
