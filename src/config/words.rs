//! Words as one run of bytes, as the log and snapshots keep them: with zero bytes between them. A zero byte within a word
//! stands there as a byte that no text has, so that files in which no word had one are read as ever.

/// What a zero byte within a word is written as: it is in no UTF-8.
const ZERO: u8 = 0xff;

pub fn join_words(words: &[impl AsRef<str>]) -> Vec<u8> {
    let mut joined = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            joined.push(0);
        }
        joined.extend(word.as_ref().bytes().map(|byte| if byte == 0 { ZERO } else { byte }));
    }
    joined
}

/// None where they are no texts.
pub fn split_words(joined: &[u8]) -> Option<Vec<String>> {
    let word = |bytes: &[u8]| {
        let bytes = bytes.iter().map(|byte| if *byte == ZERO { 0 } else { *byte });
        String::from_utf8(bytes.collect()).ok()
    };
    joined.split(|byte| *byte == 0).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_text_has_no_words() {
        assert_eq!(split_words(b"a\0\xc3"), None);
        assert_eq!(
            split_words(b"a\0\0b"),
            Some(["a", "", "b"].map(str::to_owned).to_vec()),
            "as files have it for long"
        );
    }

    proptest! {
        #[test]
        fn what_is_joined_is_split(words in prop::collection::vec("[a\0\u{ff}\u{7ff} ]{0,4}", 1..5)) {
            prop_assert_eq!(split_words(&join_words(&words)), Some(words));
        }
    }
}
