//! `table.sort`: the quicksort of Lua 5.1, step by step, so that what is equal comes out in the same order, and that an
//! order that is none fails in the same way.

use super::output::BYTES_A_STEP;
use super::proxies::check_writable;
use super::proxies::length;
use super::state::{Lua, Raise, Returned, Type};
use std::ffi::c_int;

/// Steps for a comparison, and for one with a call.
const COMPARE_STEPS: usize = 20;
const CALL_STEPS: usize = 100;

pub fn sort(lua: Lua) -> Returned {
    let len = length(lua)?;
    if !lua.is_none_or_nil(2) {
        lua.check(2, Type::Function, "function")?;
    }
    lua.set_top(2);
    if len > 1 {
        check_writable(lua, 1)?;
        sort_range(lua, 1, len)?;
    }
    Ok(0)
}

/// Sorts from `low` to `up`. It calls itself for the smaller part only: as often as `up` can be halved.
fn sort_range(lua: Lua, mut low: c_int, mut up: c_int) -> Result<(), Raise> {
    while low < up {
        // The first, the middle and the last are put in order.
        order(lua, low, up)?;
        if up - low == 1 {
            break;
        }
        let middle = low.wrapping_add(up) / 2;
        if !order(lua, low, middle)? {
            order(lua, middle, up)?;
        }
        if up - low == 2 {
            break;
        }
        let end = partition(lua, low, up, middle)?;
        let (smaller_low, smaller_up);
        if end - low < up - end {
            (smaller_low, smaller_up) = (low, end - 1);
            low = end + 1;
        } else {
            (smaller_low, smaller_up) = (end + 1, up);
            up = end - 1;
        }
        sort_range(lua, smaller_low, smaller_up)?;
    }
    Ok(())
}

/// Swaps two values if they stand in the wrong order; whether they did.
fn order(lua: Lua, low: c_int, up: c_int) -> Result<bool, Raise> {
    lua.raw_get_index(1, low);
    lua.raw_get_index(1, up);
    let is_wrong = is_less(lua, -1, -2)?;
    if is_wrong {
        set_two(lua, low, up);
    } else {
        lua.pop(2);
    }
    Ok(is_wrong)
}

/// Puts what is less than the middle before it, and the rest behind it. Where that is then.
fn partition(lua: Lua, low: c_int, up: c_int, middle: c_int) -> Result<c_int, Raise> {
    lua.raw_get_index(1, middle);
    lua.copy(-1);
    lua.raw_get_index(1, up - 1);
    set_two(lua, middle, up - 1);
    let (mut from_low, mut from_up) = (low, up - 1);
    loop {
        loop {
            from_low += 1;
            lua.raw_get_index(1, from_low);
            if !is_less(lua, -1, -2)? {
                break;
            }
            if from_low > up {
                return Err(lua.error("invalid order function for sorting"));
            }
            lua.pop(1);
        }
        loop {
            from_up -= 1;
            lua.raw_get_index(1, from_up);
            if !is_less(lua, -3, -1)? {
                break;
            }
            if from_up < low {
                return Err(lua.error("invalid order function for sorting"));
            }
            lua.pop(1);
        }
        if from_up < from_low {
            break;
        }
        set_two(lua, from_low, from_up);
    }
    lua.pop(3);
    lua.raw_get_index(1, up - 1);
    lua.raw_get_index(1, from_low);
    set_two(lua, up - 1, from_low);
    Ok(from_low)
}

/// Takes two values from the stack, the upper one first.
fn set_two(lua: Lua, upper: c_int, lower: c_int) {
    lua.raw_set_index(1, upper);
    lua.raw_set_index(1, lower);
}

/// Whether one value on the stack is less than another.
fn is_less(lua: Lua, one: c_int, other: c_int) -> Result<bool, Raise> {
    if lua.is(2, Type::Nil) {
        return is_less_by_itself(lua, one, other);
    }
    lua.copy(2);
    lua.copy(one - 1);
    lua.copy(other - 2);
    call_comparator(lua)
}

fn call_comparator(lua: Lua) -> Result<bool, Raise> {
    lua.call(2, 1)?;
    let is_less = lua.bool(-1);
    lua.pop(1);
    lua.checkpoint(CALL_STEPS)?;
    Ok(is_less)
}

/// What `<` says.
fn is_less_by_itself(lua: Lua, one: c_int, other: c_int) -> Result<bool, Raise> {
    if let (Some(one), Some(other)) = (lua.number(one), lua.number(other)) {
        lua.checkpoint(COMPARE_STEPS)?;
        return Ok(one < other);
    }
    if let (Some(one), Some(other)) = (lua.bytes(one), lua.bytes(other)) {
        lua.checkpoint(COMPARE_STEPS + one.len().min(other.len()) / BYTES_A_STEP)?;
        return Ok(one < other);
    }
    // Both have to have the same metamethod.
    if lua.type_of(one) == lua.type_of(other) && push_less(lua, one) {
        if push_less(lua, other - 1) {
            let is_same = lua.raw_equal(-1, -2);
            lua.pop(1);
            if is_same {
                lua.copy(one - 1);
                lua.copy(other - 2);
                return call_comparator(lua);
            }
        }
        lua.pop(1);
    }
    let (one, other) = (lua.type_name(one), lua.type_name(other));
    // Lua tells types apart by their third letter, when it says this.
    lua.push_bytes(if one.as_bytes()[2] == other.as_bytes()[2] {
        format!("attempt to compare two {one} values")
    } else {
        format!("attempt to compare {one} with {other}")
    });
    Err(Raise)
}

/// Pushes the metamethod, if the value has one.
fn push_less(lua: Lua, index: c_int) -> bool {
    if !lua.metatable(index) {
        return false;
    }
    lua.field(-1, "__lt");
    lua.remove(-2);
    let is_there = !lua.is(-1, Type::Nil);
    if !is_there {
        lua.pop(1);
    }
    is_there
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    fn sorted(values: &str) -> String {
        eval(&format!("local t = {{{values}}} table.sort(t) return table.concat(t, ' ')"))
    }

    #[test]
    fn values_are_sorted_as_they_compare() {
        assert_eq!(sorted("3, 1, 2, -5, 1e9, 0.5"), "-5 0.5 1 2 3 1000000000");
        assert_eq!(sorted("'b', 'a\\0c', 'a\\0b', ''"), " a\0b a\0c b");
        assert_eq!(sorted("1, 'x'"), "error: attempt to compare string with number");
        assert_eq!(sorted("{}, {}"), "error: attempt to compare two table values");
        let by_metamethod = "local m = {__lt = function(a, b) return a[1] < b[1] end}
            local t = {setmetatable({2}, m), setmetatable({1}, m)} table.sort(t) return t[1][1]";
        assert_eq!(eval(by_metamethod), "1");
    }

    #[test]
    fn an_order_that_is_none_fails() {
        assert_eq!(
            eval("table.sort({1, 2, 3, 4, 5}, function() return true end)"),
            "error: user_script:1: invalid order function for sorting"
        );
    }
}
