//! The library `bit`: Lua BitOp 1.0.2, which works on numbers as 32 bits with a sign (<http://bitop.luajit.org>).

use super::state::{Lua, Raise, Returned};

/// 2^52 + 2^51: added to a number it brings the number's integer part, rounded, to the lowest bits.
const TO_LOW_BITS: f64 = 6_755_399_441_055_744.0;

/// Pushes the library.
pub fn open(lua: Lua) {
    lua.new_table(0, 16);
    lua.set_function(-1, "tobit", |lua| Ok(push(lua, bits(lua, 1)?)));
    lua.set_function(-1, "bnot", |lua| Ok(push(lua, !bits(lua, 1)?)));
    lua.set_function(-1, "band", |lua| fold(lua, |all, one| all & one));
    lua.set_function(-1, "bor", |lua| fold(lua, |all, one| all | one));
    lua.set_function(-1, "bxor", |lua| fold(lua, |all, one| all ^ one));
    lua.set_function(-1, "lshift", |lua| shift(lua, |bits, by| bits << by));
    lua.set_function(-1, "rshift", |lua| shift(lua, |bits, by| bits >> by));
    lua.set_function(-1, "arshift", |lua| shift(lua, |bits, by| (bits.cast_signed() >> by).cast_unsigned()));
    lua.set_function(-1, "rol", |lua| shift(lua, u32::rotate_left));
    lua.set_function(-1, "ror", |lua| shift(lua, u32::rotate_right));
    lua.set_function(-1, "bswap", |lua| Ok(push(lua, bits(lua, 1)?.swap_bytes())));
    lua.set_function(-1, "tohex", to_hex);
}

/// An argument's lowest 32 bits. What is no finite number of less than 2^51 has some bits or other.
fn bits(lua: Lua, arg: i32) -> Result<u32, Raise> {
    Ok((lua.check_number(arg)? + TO_LOW_BITS).to_bits() as u32)
}

fn push(lua: Lua, bits: u32) -> i32 {
    lua.push_number(f64::from(bits.cast_signed()));
    1
}

/// The first argument is looked at first, then the others from the last on: this decides which of several that are wrong
/// the error is about.
fn fold(lua: Lua, with: impl Fn(u32, u32) -> u32) -> Returned {
    let mut all = bits(lua, 1)?;
    for arg in (2..=lua.top()).rev() {
        all = with(all, bits(lua, arg)?);
    }
    Ok(push(lua, all))
}

fn shift(lua: Lua, with: impl Fn(u32, u32) -> u32) -> Returned {
    let value = bits(lua, 1)?;
    let by = bits(lua, 2)? & 31;
    Ok(push(lua, with(value, by)))
}

/// The lowest digits, eight at most; a negative count asks for capitals.
fn to_hex(lua: Lua) -> Returned {
    let value = bits(lua, 1)?;
    let count = if lua.top() < 2 { 8 } else { bits(lua, 2)?.cast_signed() };
    let text = if count < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    // (The least count of all has no positive counterpart: Redis of this version crashes over it.)
    let digits = count.unsigned_abs().min(8) as usize;
    lua.push_bytes(&text[8 - digits..]);
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn bits_are_32_with_a_sign() {
        assert_eq!(
            eval("return bit.tobit(2^32 + 5) .. ' ' .. bit.bnot(0) .. ' ' .. bit.lshift(1, 31)"),
            "5 -1 -2147483648"
        );
        assert_eq!(
            eval("return bit.rshift(-1, 28) .. ' ' .. bit.arshift(-256, 4) .. ' ' .. bit.rol(-2147483647, 1)"),
            "15 -16 3"
        );
        assert_eq!(eval("return bit.band(7, 14, 6) .. ' ' .. bit.bor(1, 8) .. ' ' .. bit.bxor(5, 1, 8)"), "6 9 12");
    }

    #[test]
    fn digits_are_as_many_as_asked_for() {
        assert_eq!(eval("return bit.tohex(255) .. bit.tohex(255, -2) .. bit.tohex(255, 0)"), "000000ffFF");
        assert_eq!(eval("return bit.tohex(-1, -2147483648)"), "FFFFFFFF");
    }

    #[test]
    fn arguments_are_numbers() {
        let error = "error: user_script:1: bad argument #1 to 'band' (number expected, got no value)";
        assert_eq!(eval("return bit.band()"), error);
    }
}
