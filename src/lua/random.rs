//! Lua's random numbers, as Redis has them: the same ones on every machine.

use super::state::{Lua, Returned, upvalue};

/// The generator is that of C's `lrand48`: 48 bits of state, whose upper 31 are the number.
const FACTOR: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const STATE_BITS: u32 = 48;
const NUMBER_BITS: u32 = 31;
/// What stands below the seed.
const BELOW_SEED: u64 = 0x330E;
const FIRST_STATE: u64 = 0x1234_ABCD_330E;
const MAX: u64 = i32::MAX as u64;

/// Replaces functions of the library, which is on top of the stack.
pub fn open(lua: Lua) {
    let library = lua.top();
    // The state is a table that both functions share, with a number of 48 bits in it, for which a double has room.
    lua.new_table(1, 0);
    lua.copy(-1);
    set_state(lua, -1, FIRST_STATE);
    lua.push_closure(random, 1);
    lua.set_field(library, "random");
    lua.push_closure(random_seed, 1);
    lua.set_field(library, "randomseed");
}

fn set_state(lua: Lua, table: i32, state: u64) {
    let table = lua.absolute(table);
    lua.push_number(state as f64);
    lua.raw_set_index(table, 1);
}

/// A number below one.
fn next(lua: Lua) -> f64 {
    lua.raw_get_index(upvalue(1), 1);
    let state = lua.number(-1).map_or(FIRST_STATE, |state| state as u64);
    lua.pop(1);
    let state = state.wrapping_mul(FACTOR).wrapping_add(INCREMENT) & ((1 << STATE_BITS) - 1);
    set_state(lua, upvalue(1), state);
    ((state >> (STATE_BITS - NUMBER_BITS)) % MAX) as f64 / MAX as f64
}

fn random(lua: Lua) -> Returned {
    let fraction = next(lua);
    let (least, most) = match lua.top() {
        0 => {
            lua.push_number(fraction);
            return Ok(1);
        }
        1 => (1, lua.check_integer(1)? as i32),
        2 => (lua.check_integer(1)? as i32, lua.check_integer(2)? as i32),
        _ => return Err(lua.error("wrong number of arguments")),
    };
    if least > most {
        return Err(lua.arg_error(lua.top(), "interval is empty"));
    }
    // C's integers wrap around where the interval is wider than they are.
    let width = most.wrapping_sub(least).wrapping_add(1);
    lua.push_number((fraction * f64::from(width)).floor() + f64::from(least));
    Ok(1)
}

fn random_seed(lua: Lua) -> Returned {
    let seed = lua.check_integer(1)? as u32;
    set_state(lua, upvalue(1), u64::from(seed) << 16 | BELOW_SEED);
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn numbers_are_those_of_redis() {
        assert_eq!(eval("return math.random()"), "0.39646477363839");
        assert_eq!(
            eval("math.randomseed(7) return math.random() .. ' ' .. math.random(10) .. ' ' .. math.random(5, 9)"),
            "0.26644419658298 7 6"
        );
        assert_eq!(eval("return math.random(-2^31, 2^31 - 1)"), "-2147483648");
        assert_eq!(
            eval("return math.random(0)"),
            "error: user_script:1: bad argument #1 to 'random' (interval is empty)"
        );
    }
}
