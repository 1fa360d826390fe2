//! Where a value ends: passed over without being looked into, so that whoever has a file may hand its values on to those
//! who build them. What is passed over may still turn out to be nothing.

use super::read::Reader;
use super::{Error, Result, kind};

const ID_BYTES: usize = 16;

/// Passes over a value of this type, which stands before its key in a file.
pub fn value(reader: &mut Reader, of: u8) -> Result {
    match of {
        kind::STRING
        | kind::HASH_ZIPMAP
        | kind::LIST_ZIPLIST
        | kind::SET_INTSET
        | kind::SET_LISTPACK
        | kind::ZSET_ZIPLIST
        | kind::ZSET_LISTPACK
        | kind::HASH_ZIPLIST
        | kind::HASH_LISTPACK
        | kind::HASH_LISTPACK_EX_PRE_GA => reader.pass_text(),
        kind::HASH_LISTPACK_EX => reader.time_ms().and_then(|_| reader.pass_text()),
        kind::LIST | kind::SET | kind::LIST_QUICKLIST => each(reader, Reader::pass_text),
        kind::ZSET => each(reader, |reader| {
            reader.pass_text()?;
            reader.f64_in_decimal().map(drop)
        }),
        kind::ZSET_2 => each(reader, |reader| {
            reader.pass_text()?;
            reader.f64().map(drop)
        }),
        kind::ZSET_METADATA => {
            reader.time_ms()?;
            each(reader, |reader| {
                reader.len()?;
                reader.pass_text()?;
                reader.f64().map(drop)
            })
        }
        kind::HASH => each(reader, pass_texts::<2>),
        kind::HASH_OF_VALKEY => each(reader, |reader| {
            pass_texts::<2>(reader)?;
            reader.time_ms().map(drop)
        }),
        kind::LIST_QUICKLIST_2 | kind::HASH_METADATA_PRE_GA | kind::HASH_METADATA | kind::SET_METADATA => {
            if matches!(of, kind::HASH_METADATA | kind::SET_METADATA) {
                reader.time_ms()?;
            }
            each(reader, |reader| {
                reader.len()?;
                let is_pair = !matches!(of, kind::LIST_QUICKLIST_2 | kind::SET_METADATA);
                if is_pair { pass_texts::<2>(reader) } else { reader.pass_text() }
            })
        }
        kind::STREAM_LISTPACKS => stream(reader, 1),
        kind::STREAM_LISTPACKS_2 => stream(reader, 2),
        kind::STREAM_LISTPACKS_3 => stream(reader, 3),
        _ => Err(Error::Corrupt("a type of values")),
    }
}

/// As many times as the number that comes first says; it may say anything, so what is there has to last.
fn each<'a>(reader: &mut Reader<'a>, mut pass: impl FnMut(&mut Reader<'a>) -> Result) -> Result {
    (0..reader.len()?).try_for_each(|_| pass(reader))
}

fn pass_texts<const N: usize>(reader: &mut Reader) -> Result {
    (0..N).try_for_each(|_| reader.pass_text())
}

pub(super) fn pass_lens<const N: usize>(reader: &mut Reader) -> Result {
    (0..N).try_for_each(|_| reader.len().map(drop))
}

fn stream(reader: &mut Reader, version: u8) -> Result {
    each(reader, pass_texts::<2>)?;
    // How many there are, and the last ID; from version 2 on the first, the greatest deleted, and how many there were.
    pass_lens::<3>(reader)?;
    if version >= 2 {
        pass_lens::<5>(reader)?;
    }
    each(reader, |reader| {
        reader.pass_text()?;
        pass_lens::<2>(reader)?;
        if version >= 2 {
            reader.len()?;
        }
        each(reader, |reader| {
            reader.take(ID_BYTES)?;
            reader.time_ms()?;
            reader.len().map(drop)
        })?;
        each(reader, |reader| {
            reader.pass_text()?;
            reader.time_ms()?;
            if version >= 3 {
                reader.time_ms()?;
            }
            each(reader, |reader| reader.take(ID_BYTES).map(drop))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::model_test::{any_value, written};
    use super::*;

    #[test]
    fn what_was_written_is_passed_over_whole() {
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..if cfg!(miri) { 20 } else { 3_000 } {
            for bytes in written(&any_value(&mut rng)) {
                let mut behind = bytes.clone();
                behind.extend_from_slice(b"behind it");
                let mut reader = Reader::new(&behind[1..], usize::MAX);
                assert_eq!(value(&mut reader, bytes[0]), Ok(()), "{}", bytes.escape_ascii());
                assert_eq!(reader.take(9), Ok(&b"behind it"[..]), "{}", bytes.escape_ascii());
                for end in [1, bytes.len() / 2, bytes.len() - 1] {
                    let mut reader = Reader::new(&bytes[1..end.max(1)], usize::MAX);
                    assert!(end == bytes.len() || value(&mut reader, bytes[0]).is_err());
                }
            }
        }
    }
}
