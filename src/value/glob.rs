//! Glob patterns as Redis 7.0.15 matches them (`stringmatchlen` in its `util.c`), in a time bounded
//! by the length of the pattern times that of the text.
//!
//! | pattern   | matches                                                            |
//! |-----------|--------------------------------------------------------------------|
//! | `*`       | any run of bytes, the empty one too                                |
//! | `?`       | any one byte                                                       |
//! | `[abc]`   | one byte of the class; `[a-z]` a range, `[^...]` the complement    |
//! | `\x`      | the byte `x` itself                                                |
//! | all else  | itself                                                             |
//!
//! Habits of Redis that clients can see, and which are kept:
//! - a class that is never closed ends with the pattern; `[` and `[]` match nothing, `[^` and `[^]`
//!   any byte;
//! - `]` as the upper end of a range is taken as such: `[a-]` is the range from `]` to `a`, not
//!   closed;
//! - a range upside down is turned over, and its ends are compared as signed bytes;
//! - an escaped byte in a class is compared with case even where case is ignored;
//! - a lone `\` at the end is itself;
//! - against an empty text only the empty pattern matches, not even `*`. KEYS and SCAN never ask:
//!   they take the pattern `*` alone to mean every key.

use memchr::memchr;

/// Whether the whole of `text` matches `pattern`. With `ignore_case`, ASCII letters match in either
/// case.
///
/// Every part of a pattern but `*` eats exactly one byte, so when a byte fails to match only the
/// last `*` has to give way: what an earlier star could gain by eating more, the last one can gain
/// too. That bounds the work by the product of the two lengths (Redis up to 7.0.8 tried every star,
/// CVE-2022-36021).
pub fn glob_match(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let mut pattern_rest = pattern;
    let mut text_rest = text;
    let mut last_star: Option<Star> = None;
    while let Some((&byte, text_tail)) = text_rest.split_first() {
        if let [b'*', tail @ ..] = pattern_rest {
            let after = skip_stars(tail);
            if after.is_empty() {
                return true;
            }
            last_star = Some(Star { after, literal: leading_literal(after, ignore_case), untried: text_rest });
        } else if let Some(pattern_tail) = match_one(pattern_rest, byte, ignore_case) {
            pattern_rest = pattern_tail;
            text_rest = text_tail;
            continue;
        }
        let Some(star) = &mut last_star else {
            return false;
        };
        let Some(begin) = star.next_begin() else {
            return false;
        };
        pattern_rest = star.after;
        text_rest = begin;
    }
    // The text has run out; a star that eats more would leave even less of it.
    skip_stars(pattern_rest).is_empty()
}

/// A `*` that may have to eat more.
struct Star<'p, 't> {
    /// The pattern behind it, not empty and not beginning with a star.
    after: &'p [u8],
    /// The byte `after` must begin with, where that is one certain byte.
    literal: Option<u8>,
    /// The text from the first byte at which `after` has not been tried yet.
    untried: &'t [u8],
}

impl<'t> Star<'_, 't> {
    /// The text from the next place where `after` may begin; `None` when there is none left.
    fn next_begin(&mut self) -> Option<&'t [u8]> {
        let eaten = match self.literal {
            Some(literal) => memchr(literal, self.untried)?,
            None => 0,
        };
        let begin = &self.untried[eaten..];
        self.untried = begin.split_first()?.1;
        Some(begin)
    }
}

/// The one byte a match of `pattern` must begin with, if `pattern` begins with a literal.
fn leading_literal(pattern: &[u8], ignore_case: bool) -> Option<u8> {
    let literal = match pattern {
        [b'*' | b'?' | b'[', ..] | [] => return None,
        [b'\\', escaped, ..] => *escaped,
        [literal, ..] => *literal,
    };
    (!ignore_case || !literal.is_ascii_alphabetic()).then_some(literal)
}

fn skip_stars(mut pattern: &[u8]) -> &[u8] {
    while let [b'*', tail @ ..] = pattern {
        pattern = tail;
    }
    pattern
}

/// Matches one byte against the first part of `pattern`, which is not a star. Returns the pattern
/// behind that part, or `None` when the byte does not match or the pattern is empty.
fn match_one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<&[u8]> {
    let (literal, tail) = match pattern {
        [] => return None,
        [b'?', tail @ ..] => return Some(tail),
        [b'[', class @ ..] => {
            let (matched, tail) = match_class(class, byte, ignore_case);
            return matched.then_some(tail);
        }
        [b'\\', escaped, tail @ ..] => (*escaped, tail),
        [literal, tail @ ..] => (*literal, tail),
    };
    same(literal, byte, ignore_case).then_some(tail)
}

/// Matches one byte against a class; `class` begins behind the `[`. Returns the verdict and the
/// pattern behind the class.
fn match_class(class: &[u8], byte: u8, ignore_case: bool) -> (bool, &[u8]) {
    let (negated, mut rest) = match class {
        [b'^', tail @ ..] => (true, tail),
        _ => (false, class),
    };
    let mut matched = false;
    loop {
        rest = match rest {
            [b'\\', escaped, tail @ ..] => {
                matched |= *escaped == byte;
                tail
            }
            [b']', tail @ ..] => return (matched != negated, tail),
            [] => return (matched != negated, rest),
            [start, b'-', end, tail @ ..] => {
                matched |= in_range(*start, *end, byte, ignore_case);
                tail
            }
            [literal, tail @ ..] => {
                matched |= same(*literal, byte, ignore_case);
                tail
            }
        };
    }
}

/// Whether `byte` lies in the range. Redis compares C's `char`, which is signed on x86-64, and
/// turns the ends over before it folds their case.
fn in_range(start: u8, end: u8, byte: u8, ignore_case: bool) -> bool {
    let (low, high) = if start as i8 > end as i8 { (end, start) } else { (start, end) };
    let fold = |byte: u8| {
        if ignore_case { byte.to_ascii_lowercase() as i8 } else { byte as i8 }
    };
    (fold(low)..=fold(high)).contains(&fold(byte))
}

fn same(a: u8, b: u8, ignore_case: bool) -> bool {
    a == b || ignore_case && a.eq_ignore_ascii_case(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Each line is what Redis 7.0.15 replied to KEYS; the first, which KEYS takes for every key, to
    // PSUBSCRIBE and PUBLISH.
    #[test]
    fn patterns_match_as_in_redis() {
        let cases: &[(&[u8], &[u8], bool)] = &[
            (b"*", b"", false),
            (b"", b"a", false),
            (b"", b"", true),
            (b"**", b"", false),
            (b"***", b"a", true),
            (b"*", b"a", true),
            (b"a*", b"a", true),
            (b"a**", b"a", true),
            (b"*a", b"a", true),
            (b"*a*", b"ba", true),
            (b"?", b"a", true),
            (b"?", b"ab", false),
            (b"*?", b"a", true),
            (b"*??", b"a", false),
            (b"?*?", b"ab", true),
            (b"a?c", b"abc", true),
            (b"h[ae]llo", b"hallo", true),
            (b"h[ae]llo", b"hillo", false),
            (b"h[^e]llo", b"hello", false),
            (b"h[^e]llo", b"hallo", true),
            (b"h[a-b]llo", b"hbllo", true),
            (b"[", b"[", false),
            (b"[", b"a", false),
            (b"[]", b"]", false),
            (b"[]", b"a", false),
            (b"[]]", b"]", false),
            (b"[]a]", b"]", false),
            (b"[^", b"a", true),
            (b"[^", b"^", true),
            (b"[^]", b"a", true),
            (b"[^]", b"]", true),
            (b"[^]a", b"ba", true),
            (b"[^^]", b"^", false),
            (b"[^^]", b"a", true),
            (b"[a^]", b"^", true),
            (b"[a", b"a", true),
            (b"[ab", b"b", true),
            (b"[ab", b"c", false),
            (b"x[ab", b"xb", true),
            (b"[a-", b"a", true),
            (b"[a-", b"-", true),
            (b"[a-]", b"a", true),
            (b"[a-]", b"-", false),
            (b"[a-]", b"]", true),
            (b"[a-]", b"_", true),
            (b"[a-]]", b"a", true),
            (b"[-a]", b"-", true),
            (b"[a-c-e]", b"-", true),
            (b"[a-c-e]", b"d", false),
            (b"[a-c-e]", b"e", true),
            (b"[z-a]", b"m", true),
            (b"[b-a]", b"b", true),
            (b"[^z-a]", b"m", false),
            (b"[a-\\]", b"a", true),
            (b"[a-\\]", b"]", true),
            (b"[a-\\]", b"\\", true),
            (b"[\\]]", b"]", true),
            (b"[\\]", b"]", true),
            (b"[\\]", b"\\", false),
            (b"[\\", b"\\", true),
            (b"[\\a", b"a", true),
            (b"[\\-a]", b"-", true),
            (b"[\\a-c]", b"b", false),
            (b"[\\a-c]", b"-", true),
            (b"[*]", b"*", true),
            (b"[*]", b"a", false),
            (b"[?]", b"a", false),
            (b"[[]", b"[", true),
            (b"[^[]", b"[", false),
            (b"\\", b"\\", true),
            (b"\\\\", b"\\", true),
            (b"a\\", b"a\\", true),
            (b"a\\", b"a", false),
            (b"\\*", b"*", true),
            (b"\\*", b"a", false),
            (b"\\?", b"a", false),
            (b"\\a", b"a", true),
            (b"\\[a]", b"[a]", true),
            (b"*\\", b"a\\", true),
            (b"*\\*", b"b*", true),
            (b"*\\*", b"ba", false),
            (b"*\\**", b"a*b", true),
            (b"*[ab]*[ab]", b"xaxb", true),
            (b"*[ab", b"xb", true),
            (b"*[^", b"ab", true),
            (b"*a*b", b"aab", true),
            (b"*a*b", b"aba", false),
            (b"a*b*c", b"axbxbxc", true),
            (b"*ab*ab", b"abxab", true),
            (b"*aab", b"aaaab", true),
            (b"*a?b", b"aaaxb", true),
            (b"A", b"a", false),
            (b"[\x80-\xff]", b"\xc8", true),
            (b"[a-\xff]", b"b", false),
            (b"[a-\xff]", b"A", true),
            (b"[\x00-\x01]", b"\x01", true),
            (b"[^\xff]", b"\xff", false),
            (b"a\x00*b", b"a\x00cb", true),
        ];
        for &(pattern, text, expected) in cases {
            assert_eq!(
                glob_match(pattern, text, false),
                expected,
                "{:?} on {:?}",
                String::from_utf8_lossy(pattern),
                String::from_utf8_lossy(text),
            );
        }
    }

    /// The definition: every star tries every length. Exponential, and only for short inputs.
    fn matches_by_definition(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
        match (pattern, text) {
            ([b'*', tail @ ..], _) => {
                (0..=text.len()).any(|eaten| matches_by_definition(tail, &text[eaten..], ignore_case))
            }
            (_, []) => pattern.is_empty(),
            (_, [byte, text_tail @ ..]) => match_one(pattern, *byte, ignore_case)
                .is_some_and(|tail| matches_by_definition(tail, text_tail, ignore_case)),
        }
    }

    #[test]
    fn last_star_backtracking_equals_the_definition() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut matched = 0;
        for _ in 0..200_000 {
            let pattern: Vec<u8> = (0..rng.usize(..9)).map(|_| b"aabbB[]^-**?\\"[rng.usize(..13)]).collect();
            let text: Vec<u8> = (0..rng.usize(1..8)).map(|_| b"aaabbB]-^"[rng.usize(..9)]).collect();
            let ignore_case = rng.bool();
            let expected = matches_by_definition(&pattern, &text, ignore_case);
            matched += u32::from(expected);
            assert_eq!(
                glob_match(&pattern, &text, ignore_case),
                expected,
                "{:?} on {:?}, ignore case {ignore_case}",
                String::from_utf8_lossy(&pattern),
                String::from_utf8_lossy(&text),
            );
        }
        assert!(matched > 5_000, "the generator must produce matches, got {matched}");
    }

    #[test]
    fn any_bytes_are_taken_without_a_panic() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..100_000 {
            let pattern: Vec<u8> = (0..rng.usize(..12)).map(|_| rng.u8(..)).collect();
            let text: Vec<u8> = (0..rng.usize(..12)).map(|_| rng.u8(..)).collect();
            glob_match(&pattern, &text, rng.bool());
            glob_match(&[b"*[", &pattern[..]].concat(), &text, rng.bool());
        }
    }

    // Before the fix of CVE-2022-36021 this pattern kept a server busy for longer than anyone has
    // waited.
    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = [&b"a*".repeat(200)[..], b"b"].concat();
        let text = b"a".repeat(20_000);
        assert!(!glob_match(&pattern, &text, false));
        assert!(!glob_match(&pattern, &text, true));
        let classes = [&b"*[ab]".repeat(100)[..], b"[c]"].concat();
        assert!(!glob_match(&classes, &text, false));
    }

    #[test]
    fn case_is_ignored_where_asked() {
        assert!(glob_match(b"MAXmemory*", b"maxMEMORY-policy", true));
        assert!(!glob_match(b"MAXmemory*", b"maxmemory", false));
        assert!(glob_match(b"[A-C]\\D", b"bd", true));
        assert!(!glob_match(b"[\\A]", b"a", true), "an escape in a class keeps its case");
        assert!(glob_match(b"*Z", b"xyz", true));
    }

    #[test]
    fn range_ends_are_signed_bytes() {
        assert!(glob_match(b"[a-\xff]", b"A", false));
        assert!(!glob_match(b"[a-\xff]", b"b", false));
        assert!(glob_match(b"[\x80-\xff]", b"\xc3", false));
    }
}
