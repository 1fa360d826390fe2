//! Matching Lua's patterns.
//!
//! Lua's own matcher calls itself where there is a choice. This one writes down what else it could have tried, so that
//! a pattern needs none of the C stack, and that it can be suspended in between however long it tries.

use super::output::{BYTES_A_STEP, find_byte};
use super::state::{Lua, Raise};

const ESCAPE: u8 = b'%';
const MAX_CAPTURES: usize = 32;
/// Choices that are remembered at a time. There is at most one for each item of the pattern.
const MAX_CHOICES: usize = 200_000;
/// Steps after which it is time to count them.
const STEPS_A_COUNT: usize = 1_000;

#[derive(Clone, Copy)]
enum Capture {
    Open { from: usize },
    Closed { from: usize, to: usize },
    Position(usize),
}

/// What else can be tried when what was chosen has come to nothing, or is to be undone then.
enum Choice {
    /// To go on here.
    Resume { at: usize, item: usize },
    /// To take one byte less than up to `at`.
    Fewer { from: usize, at: usize, item: usize },
    /// To take one byte more, if it matches the item.
    More { at: usize, item: usize, end: usize },
    /// A capture was opened.
    Opened,
    /// A capture was closed, which began there.
    Closed { index: usize, from: usize },
}

enum Step {
    Go { at: usize, item: usize },
    Fail,
    Done,
}

/// A pattern and what it is matched with. Both must stay on the stack.
pub struct Matcher<'s> {
    lua: Lua,
    subject: &'s [u8],
    /// As in C, a zero is the end of it.
    pattern: &'s [u8],
    /// Where its first item is.
    first: usize,
    /// Whether there was a `^` before that.
    is_anchored: bool,
    /// What a match begins with, if that is a certain byte.
    first_byte: Option<u8>,
    captures: Vec<Capture>,
    choices: Vec<Choice>,
    steps: usize,
}

impl<'s> Matcher<'s> {
    pub fn new(lua: Lua, subject: &'s [u8], pattern: &'s [u8]) -> Result<Matcher<'s>, Raise> {
        let end = find_byte(lua, 0, pattern)?.unwrap_or(pattern.len());
        let pattern = &pattern[..end];
        let first_byte = first_byte(pattern);
        Ok(Matcher {
            lua,
            subject,
            pattern,
            first: 0,
            is_anchored: false,
            first_byte,
            captures: Vec::new(),
            choices: Vec::new(),
            steps: 0,
        })
    }

    /// The same where a `^` at the beginning is an anchor.
    pub fn anchored(lua: Lua, subject: &'s [u8], pattern: &'s [u8]) -> Result<Matcher<'s>, Raise> {
        let mut matcher = Matcher::new(lua, subject, pattern)?;
        if let Some(b'^') = pattern.first() {
            matcher.is_anchored = true;
            matcher.first = 1;
        }
        Ok(matcher)
    }

    pub fn is_anchored(&self) -> bool {
        self.is_anchored
    }

    /// Where the first match begins, from this place on, and where it ends.
    pub fn search(&mut self, mut start: usize) -> Result<Option<(usize, usize)>, Raise> {
        while start <= self.subject.len() {
            if let Some(byte) = self.first_byte {
                let Some(skipped) = find_byte(self.lua, byte, &self.subject[start..])? else { break };
                start += skipped;
            }
            if let Some(end) = self.match_at(start)? {
                return Ok(Some((start, end)));
            }
            if self.is_anchored {
                break;
            }
            start += 1;
        }
        Ok(None)
    }

    /// Where a match ends that begins at this place.
    fn match_at(&mut self, start: usize) -> Result<Option<usize>, Raise> {
        self.captures.clear();
        self.choices.clear();
        let (mut at, mut item) = (start, self.first);
        loop {
            self.count(4)?;
            let mut step = self.step(at, item)?;
            while let Step::Fail = step {
                match self.choices.pop() {
                    Some(choice) => step = self.choose_again(choice)?,
                    None => return Ok(None),
                }
            }
            match step {
                Step::Go { at: next_at, item: next_item } => (at, item) = (next_at, next_item),
                Step::Done => return Ok(Some(at)),
                Step::Fail => return Ok(None),
            }
        }
    }

    fn step(&mut self, at: usize, item: usize) -> Result<Step, Raise> {
        if item >= self.pattern.len() {
            return Ok(Step::Done);
        }
        let next = self.pattern_byte(item + 1);
        match self.pattern[item] {
            b'(' => self.open_capture(at, item, next == b')'),
            b')' => self.close_capture(at, item),
            ESCAPE if next == b'b' => self.match_balanced(at, item),
            ESCAPE if next == b'f' => self.match_frontier(at, item),
            ESCAPE if next.is_ascii_digit() => self.match_captured(at, item, next),
            b'$' if item + 1 == self.pattern.len() => {
                Ok(if at == self.subject.len() { Step::Done } else { Step::Fail })
            }
            _ => self.match_item(at, item),
        }
    }

    fn match_item(&mut self, at: usize, item: usize) -> Result<Step, Raise> {
        let end = self.item_end(item)?;
        match self.pattern_byte(end) {
            b'?' => {
                if self.matches_one(at, item, end)? {
                    self.remember(Choice::Resume { at, item: end + 1 })?;
                    return Ok(Step::Go { at: at + 1, item: end + 1 });
                }
                Ok(Step::Go { at, item: end + 1 })
            }
            b'*' => self.match_longest(at, at, item, end),
            b'+' if self.matches_one(at, item, end)? => self.match_longest(at + 1, at + 1, item, end),
            b'+' => Ok(Step::Fail),
            b'-' => {
                self.remember(Choice::More { at, item, end })?;
                Ok(Step::Go { at, item: end + 1 })
            }
            _ if self.matches_one(at, item, end)? => Ok(Step::Go { at: at + 1, item: end }),
            _ => Ok(Step::Fail),
        }
    }

    fn match_longest(&mut self, from: usize, mut at: usize, item: usize, end: usize) -> Result<Step, Raise> {
        if self.pattern[item] == b'.' {
            at = self.subject.len();
        }
        while self.matches_one(at, item, end)? {
            at += 1;
            self.count(2)?;
        }
        if at > from {
            self.remember(Choice::Fewer { from, at, item: end + 1 })?;
        }
        Ok(Step::Go { at, item: end + 1 })
    }

    fn choose_again(&mut self, choice: Choice) -> Result<Step, Raise> {
        self.count(4)?;
        match choice {
            Choice::Resume { at, item } => return Ok(Step::Go { at, item }),
            Choice::Fewer { from, at, item } => {
                let at = at - 1;
                if at > from {
                    self.choices.push(Choice::Fewer { from, at, item });
                }
                return Ok(Step::Go { at, item });
            }
            Choice::More { at, item, end } => {
                if self.matches_one(at, item, end)? {
                    self.choices.push(Choice::More { at: at + 1, item, end });
                    return Ok(Step::Go { at: at + 1, item: end + 1 });
                }
            }
            Choice::Opened => {
                self.captures.pop();
            }
            Choice::Closed { index, from } => self.captures[index] = Capture::Open { from },
        }
        Ok(Step::Fail)
    }

    fn remember(&mut self, choice: Choice) -> Result<(), Raise> {
        if self.choices.len() >= MAX_CHOICES {
            return Err(self.lua.error("pattern too complex"));
        }
        self.choices.push(choice);
        Ok(())
    }

    /// The same for what has only to be undone, which is in vain where nothing else can be tried.
    fn remember_to_undo(&mut self, choice: Choice) -> Result<(), Raise> {
        if self.choices.is_empty() { Ok(()) } else { self.remember(choice) }
    }

    fn open_capture(&mut self, at: usize, item: usize, is_position: bool) -> Result<Step, Raise> {
        if self.captures.len() >= MAX_CAPTURES {
            return Err(self.lua.error("too many captures"));
        }
        self.captures.push(if is_position { Capture::Position(at) } else { Capture::Open { from: at } });
        self.remember_to_undo(Choice::Opened)?;
        Ok(Step::Go { at, item: item + if is_position { 2 } else { 1 } })
    }

    fn close_capture(&mut self, at: usize, item: usize) -> Result<Step, Raise> {
        let innermost = self.captures.iter().enumerate().rev().find_map(|(index, capture)| match capture {
            Capture::Open { from } => Some((index, *from)),
            _ => None,
        });
        let Some((index, from)) = innermost else { return Err(self.lua.error("invalid pattern capture")) };
        self.captures[index] = Capture::Closed { from, to: at };
        self.remember_to_undo(Choice::Closed { index, from })?;
        Ok(Step::Go { at, item: item + 1 })
    }

    /// `%1`: what a capture holds, once more.
    fn match_captured(&mut self, at: usize, item: usize, digit: u8) -> Result<Step, Raise> {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let held = match self.captures.get(index) {
            None | Some(Capture::Open { .. }) => return Err(self.lua.error("invalid capture index")),
            Some(Capture::Position(_)) => return Ok(Step::Fail),
            Some(Capture::Closed { from, to }) => &self.subject[*from..*to],
        };
        self.count(held.len() / BYTES_A_STEP)?;
        if self.subject[at..].starts_with(held) {
            return Ok(Step::Go { at: at + held.len(), item: item + 2 });
        }
        Ok(Step::Fail)
    }

    /// `%bxy`: from an x to the y that belongs to it.
    fn match_balanced(&mut self, at: usize, item: usize) -> Result<Step, Raise> {
        let (open, close) = (self.pattern_byte(item + 2), self.pattern_byte(item + 3));
        if open == 0 || close == 0 {
            return Err(self.lua.error("unbalanced pattern"));
        }
        if self.subject_byte(at) != open {
            return Ok(Step::Fail);
        }
        let mut depth = 1;
        for end in at + 1..self.subject.len() {
            self.count(1)?;
            let byte = self.subject[end];
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Step::Go { at: end + 1, item: item + 4 });
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(Step::Fail)
    }

    /// `%f[set]`: between a byte that is not in the set and one that is. Zeros stand around the subject.
    fn match_frontier(&mut self, at: usize, item: usize) -> Result<Step, Raise> {
        let set = item + 2;
        if self.pattern_byte(set) != b'[' {
            return Err(self.lua.error("missing '[' after '%f' in pattern"));
        }
        let end = self.item_end(set)?;
        let before = if at == 0 { 0 } else { self.subject[at - 1] };
        if self.is_in_set(before, set, end)? || !self.is_in_set(self.subject_byte(at), set, end)? {
            return Ok(Step::Fail);
        }
        Ok(Step::Go { at, item: end })
    }

    /// Where a byte, a class or a set ends that begins here.
    fn item_end(&mut self, item: usize) -> Result<usize, Raise> {
        match self.pattern[item] {
            ESCAPE if item + 1 == self.pattern.len() => Err(self.lua.error("malformed pattern (ends with '%')")),
            ESCAPE => Ok(item + 2),
            b'[' => self.set_end(item),
            _ => Ok(item + 1),
        }
    }

    fn set_end(&mut self, set: usize) -> Result<usize, Raise> {
        let mut place = set + 1;
        if self.pattern_byte(place) == b'^' {
            place += 1;
        }
        // What comes first is in the set, even if it is a `]`.
        loop {
            self.count(1)?;
            if place >= self.pattern.len() {
                return Err(self.lua.error("malformed pattern (missing ']')"));
            }
            let is_escape = self.pattern[place] == ESCAPE && place + 1 < self.pattern.len();
            place += if is_escape { 2 } else { 1 };
            if self.pattern_byte(place) == b']' {
                return Ok(place + 1);
            }
        }
    }

    #[inline]
    fn matches_one(&mut self, at: usize, item: usize, end: usize) -> Result<bool, Raise> {
        let Some(byte) = self.subject.get(at).copied() else { return Ok(false) };
        match self.pattern[item] {
            b'.' => Ok(true),
            ESCAPE => Ok(is_in_class(byte, self.pattern[item + 1])),
            b'[' => self.is_in_set(byte, item, end),
            literal => Ok(byte == literal),
        }
    }

    fn is_in_set(&mut self, byte: u8, set: usize, end: usize) -> Result<bool, Raise> {
        let last = end - 1;
        let is_negated = self.pattern[set + 1] == b'^';
        let mut place = set + 1 + usize::from(is_negated);
        while place < last {
            self.count(1)?;
            let member = self.pattern[place];
            let is_member = if member == ESCAPE {
                place += 1;
                is_in_class(byte, self.pattern[place])
            } else if self.pattern[place + 1] == b'-' && place + 2 < last {
                place += 2;
                (member..=self.pattern[place]).contains(&byte)
            } else {
                member == byte
            };
            if is_member {
                return Ok(!is_negated);
            }
            place += 1;
        }
        Ok(is_negated)
    }

    fn pattern_byte(&self, place: usize) -> u8 {
        self.pattern.get(place).copied().unwrap_or(0)
    }

    fn subject_byte(&self, at: usize) -> u8 {
        self.subject.get(at).copied().unwrap_or(0)
    }

    #[inline]
    fn count(&mut self, steps: usize) -> Result<(), Raise> {
        self.steps += steps;
        if self.steps < STEPS_A_COUNT { Ok(()) } else { self.lua.checkpoint(std::mem::take(&mut self.steps)) }
    }

    /// Pushes all captures, or else what was matched, if that is asked for; and how many values that is.
    pub fn push_captures(&self, matched: Option<&[u8]>) -> Result<i32, Raise> {
        let count = self.captures.len().max(usize::from(matched.is_some()));
        let values = i32::try_from(count).unwrap_or(i32::MAX);
        self.lua.ensure(values)?;
        for index in 0..count {
            self.push_capture(index, matched.unwrap_or_default())?;
        }
        Ok(values)
    }

    /// Pushes a capture. Where there are none, the first is all that was matched.
    pub fn push_capture(&self, index: usize, matched: &[u8]) -> Result<(), Raise> {
        match self.captures.get(index) {
            None if index == 0 => self.lua.push_bytes(matched),
            None => return Err(self.lua.error("invalid capture index")),
            Some(Capture::Open { .. }) => return Err(self.lua.error("unfinished capture")),
            Some(Capture::Position(at)) => self.lua.push_number((at + 1) as f64),
            Some(Capture::Closed { from, to }) => self.lua.push_bytes(&self.subject[*from..*to]),
        }
        Ok(())
    }
}

/// The byte with which whatever matches begins, if there is just one.
fn first_byte(pattern: &[u8]) -> Option<u8> {
    let (first, rest) = pattern.split_first()?;
    let is_optional = matches!(rest, [b'?' | b'*' | b'-', ..]);
    (!is_optional && !b"^$*+?.()[%-".contains(first)).then_some(*first)
}

/// Whether a byte is in the class that a letter stands for, or not in it if that is a capital; or is this very byte.
fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b'\t'..=b'\r' | b' '),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::super::trial::eval;

    #[test]
    fn patterns_match_what_they_match_in_lua() {
        for (call, result) in [
            ("string.match('  trim  ', '^%s*(.-)%s*$')", "trim"),
            ("string.match('THE (quick) fox', '%((%a+)%)')", "quick"),
            ("string.gsub('THE (quick) fox', '%f[%a]%a+', '_')", "_ (_) _"),
            ("string.match('f(a(b)c)d', '%b()')", "(a(b)c)"),
            ("string.match('say \"it\\'s\"', '([\"\\'])(.-)%1')", "\""),
            ("string.find('a]b', '[]]')", "2"),
            ("string.find('a-b', '[a%-]', 2)", "2"),
            ("string.find('abc', 'b()')", "2"),
            ("string.find('a\\0b', '%z')", "2"),
            ("string.match('aaab', '(a-)b$')", "aaa"),
            ("string.match('xaab', '(a?)(a?)ab')", "a"),
        ] {
            assert_eq!(eval(&format!("return ({call})")), result, "{call}");
        }
    }

    #[test]
    fn patterns_that_are_none_fail_where_that_shows() {
        for (pattern, error) in [
            ("%", "malformed pattern (ends with '%')"),
            ("[a", "malformed pattern (missing ']')"),
            ("%f", "missing '[' after '%f' in pattern"),
            ("%b(", "unbalanced pattern"),
            ("(", "unfinished capture"),
            (")", "invalid pattern capture"),
            ("%1", "invalid capture index"),
        ] {
            assert_eq!(
                eval(&format!("return string.match('x', '{pattern}')")),
                format!("error: user_script:1: {error}")
            );
            assert_eq!(eval(&format!("return string.match('x', 'y{pattern}')")), "nil");
        }
    }

    #[test]
    fn no_pattern_needs_the_stack() {
        let find = |subject: &str, pattern: &str| eval(&format!("return (string.find({subject}, {pattern}))"));
        assert_eq!(find("''", "('a?'):rep(1e5)"), "1");
        assert_eq!(find("'x'", "('x-'):rep(1e6)"), "error: user_script:1: pattern too complex");
        assert_eq!(find("'x'", "('('):rep(1e6)"), "error: user_script:1: too many captures");
    }
}
