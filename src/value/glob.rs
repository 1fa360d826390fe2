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

/// Bytes from which on a class is remembered once it was read. A shorter one is read anew at each byte of the text, which
/// takes no memory.
const LONG_CLASS_BYTES: usize = 32;

/// Whether the whole of `text` matches `pattern`. With `ignore_case`, ASCII letters match in either
/// case.
///
/// Every part of a pattern but `*` eats exactly one byte, so when a byte fails to match only the
/// last `*` has to give way: what an earlier star could gain by eating more, the last one can gain
/// too. So each star is given up for good when the next is reached, and of the text each byte is at most once the place
/// where the pattern behind the star begins; from there on no more bytes are compared than that pattern has parts before
/// the next star, nor than the text has left. All stars together thus compare at most the bytes of the text times the
/// parts of the pattern (Redis up to 7.0.8 tried every star, CVE-2022-36021). Comparing a byte with a part takes at most
/// [`LONG_CLASS_BYTES`] steps and a search among the long classes, which are read whole only once.
pub fn glob_match(pattern: &[u8], text: &[u8], ignore_case: bool) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let mut pattern_rest = pattern;
    let mut text_rest = text;
    let mut last_star: Option<Star> = None;
    let mut classes = LongClasses::new(ignore_case);
    while let Some((&byte, text_tail)) = text_rest.split_first() {
        if let [b'*', tail @ ..] = pattern_rest {
            let after = skip_stars(tail);
            if after.is_empty() {
                return true;
            }
            last_star = Some(Star { after, literal: leading_literal(after, ignore_case), untried: text_rest });
        } else if let Some(pattern_tail) = match_one(pattern_rest, byte, &mut classes) {
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
fn match_one<'p>(pattern: &'p [u8], byte: u8, classes: &mut LongClasses) -> Option<&'p [u8]> {
    let (literal, tail) = match pattern {
        [] => return None,
        [b'?', tail @ ..] => return Some(tail),
        [b'[', class @ ..] => {
            let (matched, tail) =
                match_short_class(class, byte, classes.ignore_case).unwrap_or_else(|| classes.match_one(class, byte));
            return matched.then_some(tail);
        }
        [b'\\', escaped, tail @ ..] => (*escaped, tail),
        [literal, tail @ ..] => (*literal, tail),
    };
    same(literal, byte, classes.ignore_case).then_some(tail)
}

/// What a class is made of.
enum Item {
    Escaped(u8),
    Range(u8, u8),
    Literal(u8),
}

/// Whether a class is a complement, and its items; `class` begins behind the `[`.
fn open_class(class: &[u8]) -> (bool, &[u8]) {
    match class {
        [b'^', tail @ ..] => (true, tail),
        _ => (false, class),
    }
}

/// The first item of those of a class, and the others; where the class ends, the pattern behind it.
fn next_item(items: &[u8]) -> Result<(Item, &[u8]), &[u8]> {
    match items {
        [b'\\', escaped, tail @ ..] => Ok((Item::Escaped(*escaped), tail)),
        [b']', tail @ ..] => Err(tail),
        [] => Err(items),
        [start, b'-', end, tail @ ..] => Ok((Item::Range(*start, *end), tail)),
        [literal, tail @ ..] => Ok((Item::Literal(*literal), tail)),
    }
}

/// Matches one byte against a class; `class` begins behind the `[`. Returns the verdict and the
/// pattern behind the class, or `None` where the class is long.
fn match_short_class(class: &[u8], byte: u8, ignore_case: bool) -> Option<(bool, &[u8])> {
    let (negated, mut rest) = open_class(class);
    let mut matched = false;
    loop {
        match next_item(rest) {
            Ok((item, tail)) => {
                matched |= match item {
                    Item::Escaped(escaped) => escaped == byte,
                    Item::Range(start, end) => in_range(start, end, byte, ignore_case),
                    Item::Literal(literal) => same(literal, byte, ignore_case),
                };
                rest = tail;
            }
            Err(tail) => return Some((matched != negated, tail)),
        }
        if class.len() - rest.len() > LONG_CLASS_BYTES {
            return None;
        }
    }
}

/// The long classes of one pattern that were read during a match. While there is none, this takes no memory.
struct LongClasses {
    ignore_case: bool,
    /// In the order in which they stand in the pattern.
    known: Vec<LongClass>,
}

struct LongClass {
    /// Bytes of the pattern from where the class begins, which says which of the pattern's classes it is.
    from_begin: usize,
    /// Bytes of the pattern behind the class.
    behind: usize,
    /// A bit for each byte that it matches.
    matching: [u64; 4],
}

impl LongClasses {
    fn new(ignore_case: bool) -> LongClasses {
        LongClasses { ignore_case, known: Vec::new() }
    }

    /// As [`match_short_class`] does it.
    #[cold]
    fn match_one<'p>(&mut self, class: &'p [u8], byte: u8) -> (bool, &'p [u8]) {
        // A match comes to classes for the first time in the order of the pattern, so that each is put behind all others.
        let at = self.known.binary_search_by(|known| class.len().cmp(&known.from_begin)).unwrap_or_else(|at| {
            self.known.insert(at, LongClass::read(class, self.ignore_case));
            at
        });
        let known = &self.known[at];
        let matched = known.matching[usize::from(byte / 64)] & 1 << (byte % 64) != 0;
        (matched, &class[class.len() - known.behind..])
    }
}

impl LongClass {
    fn read(class: &[u8], ignore_case: bool) -> LongClass {
        let (negated, mut rest) = open_class(class);
        let mut singles = [false; 256];
        // How many more ranges begin than end at each place of signed bytes. (Marking all bytes of every range would
        // take hundreds of steps for three bytes of the pattern.)
        let mut changes = [0i64; 257];
        let behind = loop {
            let (item, tail) = match next_item(rest) {
                Ok(next) => next,
                Err(tail) => break tail.len(),
            };
            rest = tail;
            match item {
                Item::Escaped(escaped) => singles[usize::from(escaped)] = true,
                Item::Range(start, end) => {
                    let (low, high) = range_ends(start, end, ignore_case);
                    if low <= high {
                        changes[place(low)] += 1;
                        changes[place(high) + 1] -= 1;
                    }
                }
                Item::Literal(literal) if ignore_case => {
                    singles[usize::from(literal.to_ascii_lowercase())] = true;
                    singles[usize::from(literal.to_ascii_uppercase())] = true;
                }
                Item::Literal(literal) => singles[usize::from(literal)] = true,
            }
        };
        let mut open = 0;
        let in_ranges: [bool; 256] = std::array::from_fn(|place| {
            open += changes[place];
            open > 0
        });
        let mut matching = [0; 4];
        for byte in 0..=u8::MAX {
            let matched = singles[usize::from(byte)] || in_ranges[place(folded(byte, ignore_case))];
            matching[usize::from(byte / 64)] |= u64::from(matched != negated) << (byte % 64);
        }
        LongClass { from_begin: class.len(), behind, matching }
    }
}

/// The place of a signed byte among all.
fn place(byte: i8) -> usize {
    (i16::from(byte) - i16::from(i8::MIN)) as usize
}

/// A byte as ranges compare it: Redis compares C's `char`, which is signed on x86-64.
fn folded(byte: u8, ignore_case: bool) -> i8 {
    if ignore_case { byte.to_ascii_lowercase() as i8 } else { byte as i8 }
}

/// The ends of a range, which Redis turns over before it folds their case.
fn range_ends(start: u8, end: u8, ignore_case: bool) -> (i8, i8) {
    let (low, high) = if start as i8 > end as i8 { (end, start) } else { (start, end) };
    (folded(low, ignore_case), folded(high, ignore_case))
}

fn in_range(start: u8, end: u8, byte: u8, ignore_case: bool) -> bool {
    let (low, high) = range_ends(start, end, ignore_case);
    (low..=high).contains(&folded(byte, ignore_case))
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
            (_, [byte, text_tail @ ..]) => plain_match_one(pattern, *byte, ignore_case)
                .is_some_and(|tail| matches_by_definition(tail, text_tail, ignore_case)),
        }
    }

    /// One byte against the first part, every class read anew.
    fn plain_match_one(pattern: &[u8], byte: u8, ignore_case: bool) -> Option<&[u8]> {
        let [b'[', class @ ..] = pattern else {
            return match_one(pattern, byte, &mut LongClasses::new(ignore_case));
        };
        let (negated, mut rest) = match class {
            [b'^', tail @ ..] => (true, tail),
            _ => (false, class),
        };
        let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
        let mut matched = false;
        loop {
            rest = match rest {
                [b'\\', escaped, tail @ ..] => {
                    matched |= *escaped == byte;
                    tail
                }
                [b']', tail @ ..] => return (matched != negated).then_some(tail),
                [] => return (matched != negated).then_some(rest),
                [start, b'-', end, tail @ ..] => {
                    let (low, high) = ((*start as i8).min(*end as i8) as u8, (*start as i8).max(*end as i8) as u8);
                    matched |= fold(low) as i8 <= fold(byte) as i8 && fold(byte) as i8 <= fold(high) as i8;
                    tail
                }
                [literal, tail @ ..] => {
                    matched |= fold(*literal) == fold(byte);
                    tail
                }
            };
        }
    }

    #[test]
    fn long_classes_match_as_short_ones_do() {
        let mut rng = fastrand::Rng::with_seed(3);
        let (mut matched, mut long) = (0, 0);
        for _ in 0..100_000 {
            // A few of the bytes that mean something, among few others or among all.
            let few = rng.bool();
            let any = |rng: &mut fastrand::Rng| if few { b"aAbz-^]\\[\xff\x80"[rng.usize(..11)] } else { rng.u8(..) };
            let mut pattern = Vec::new();
            for _ in 0..rng.usize(1..4) {
                pattern.extend_from_slice([&b"*"[..], b"", b"?", b"a"][rng.usize(..4)]);
                pattern.extend_from_slice([&b"["[..], b"[^"][rng.usize(..2)]);
                for _ in 0..[rng.usize(..6), rng.usize(24..40), rng.usize(40..90)][rng.usize(..3)] {
                    match any(&mut rng) {
                        b']' if rng.u32(..8) > 0 => pattern.push(b'-'),
                        byte => pattern.push(byte),
                    }
                }
                pattern.extend_from_slice([&b"]"[..], b"]", b"]", b""][rng.usize(..4)]);
            }
            let text: Vec<u8> = (0..rng.usize(1..7)).map(|_| any(&mut rng)).collect();
            let ignore_case = rng.bool();
            let expected = matches_by_definition(&pattern, &text, ignore_case);
            matched += u32::from(expected);
            long += u32::from(match_short_class(&pattern[1..], b'a', ignore_case).is_none());
            assert_eq!(
                glob_match(&pattern, &text, ignore_case),
                expected,
                "{:?} on {:?}, ignore case {ignore_case}",
                pattern.escape_ascii().to_string(),
                text.escape_ascii().to_string(),
            );
        }
        assert!(matched > 5_000, "the generator must produce matches, got {matched}");
        assert!(long > 5_000, "the generator must produce long classes, got {long}");
    }

    // Read anew for each byte of the text, these classes would take hours.
    #[test]
    fn long_classes_are_read_once() {
        let text = b"a".repeat(1 << 20);
        for items in [b"z".repeat(1 << 20), b"b-z".repeat(1 << 18), b"\\z".repeat(1 << 19)] {
            assert!(!glob_match(&[b"*[^", &items[..], b"]b"].concat(), &text, false));
            assert!(!glob_match(&[b"*?[", &items[..], b"]"].concat(), &text, true));
            assert!(glob_match(&[b"*[^", &items[..]].concat(), &text, true));
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
