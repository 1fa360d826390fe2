//! Why a rule is refused, and the words of rules.

/// Rules, patterns and passwords of one user. Each new one is compared with those that are there, while nobody else can change
/// anything: without a bound that is a way to hold everybody up. (Redis has none.)
pub const RULES_MAX: usize = 4096;

/// Why a rule is refused, in the words of Redis, but for what it does not refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("Unknown command or category name in ACL")]
    UnknownName,
    #[error("Syntax error")]
    Syntax,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
         'resetkeys' to start with an empty list of patterns"
    )]
    KeysAfterAll,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try \
         'resetchannels' to start with an empty list of channels"
    )]
    ChannelsAfterAll,
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    #[error("The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters")]
    BadHash,
    #[error("A user has at most {RULES_MAX} rules and passwords")]
    TooMany,
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgOfSubcommand,
}

/// Which of several rules is refused, and why. Nothing of the others has taken effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModifierError {
    /// A bracket is not closed: the argument that opens it.
    Unmatched(Vec<u8>),
    Rule {
        rule: Vec<u8>,
        error: RuleError,
    },
}

impl ModifierError {
    /// As ACL SETUSER answers it, without `ERR `.
    pub fn text(&self) -> Vec<u8> {
        match self {
            ModifierError::Unmatched(start) => {
                [b"Unmatched parenthesis in acl selector starting at '", &start[..], b"'."].concat()
            }
            ModifierError::Rule { rule, error } => {
                [b"Error in ACL SETUSER modifier '", &rule[..], b"': ", error.to_string().as_bytes()].concat()
            }
        }
    }

    /// For a log, which no password goes to.
    pub fn for_log(&self) -> String {
        // (A word without a sign may be a password that lacks one.)
        let shown = |rule: &[u8]| match rule.first() {
            Some(b'+' | b'-' | b'~' | b'%' | b'&' | b'@') => String::from_utf8_lossy(rule).into_owned(),
            Some(sign @ (b'>' | b'<' | b'#' | b'!' | b'(')) => format!("{}(redacted)", char::from(*sign)),
            _ => "(redacted)".to_owned(),
        };
        match self {
            ModifierError::Unmatched(start) => format!("'{}': Unmatched parenthesis", shown(start)),
            ModifierError::Rule { rule, error } => format!("'{}': {error}", shown(rule)),
        }
    }
}

/// What C calls a space, and the NUL byte.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0)
}

/// Whether these bytes may be a name or a pattern: rules are separated by spaces.
pub fn is_name(bytes: &[u8]) -> bool {
    !bytes.iter().any(|byte| is_blank(*byte))
}

/// Arguments with those between brackets joined by spaces: a selector is one rule.
pub fn join_selectors(args: &[&[u8]]) -> Result<Vec<Vec<u8>>, ModifierError> {
    let mut rules = Vec::with_capacity(args.len());
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (index, arg) in args.iter().enumerate() {
        match &mut open {
            Some((_, rule)) => {
                rule.push(b' ');
                rule.extend_from_slice(arg);
                if arg.ends_with(b")") {
                    rules.extend(open.take().map(|(_, rule)| rule));
                }
            }
            None if arg.starts_with(b"(") && !arg.ends_with(b")") => open = Some((index, arg.to_vec())),
            None => rules.push(arg.to_vec()),
        }
    }
    match open {
        Some((index, _)) => Err(ModifierError::Unmatched(args[index].to_vec())),
        None => Ok(rules),
    }
}

/// A rule as a word within the brackets of a selector, whose words may be quoted.
pub fn write_within_brackets(rule: &[u8], out: &mut Vec<u8>) {
    let is_plain = !rule.iter().any(|byte| matches!(byte, b'"' | b'\'' | b'\\')) && !rule.ends_with(b")");
    if is_plain {
        out.extend_from_slice(rule);
        return;
    }
    out.push(b'"');
    for byte in rule {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(line: &str) -> Result<Vec<String>, ModifierError> {
        let args: Vec<&[u8]> = line.split('|').map(str::as_bytes).collect();
        let rules = join_selectors(&args)?;
        Ok(rules.into_iter().map(|rule| String::from_utf8(rule).unwrap()).collect())
    }

    #[test]
    fn brackets_join_arguments() {
        assert_eq!(joined("on|(+get|~a)|(+set ~b)|off").unwrap(), ["on", "(+get ~a)", "(+set ~b)", "off"]);
        assert_eq!(joined("(|+get|)").unwrap(), ["( +get )"]);
        assert_eq!(joined(")|x)").unwrap(), [")", "x)"], "nothing was open");
        assert_eq!(joined("a|(b|(c"), Err(ModifierError::Unmatched(b"(b".to_vec())));
        assert_eq!(joined("("), Err(ModifierError::Unmatched(b"(".to_vec())));
        assert_eq!(joined("").unwrap(), [""]);
    }

    #[test]
    fn logs_have_no_passwords() {
        let error = |rule: &str| ModifierError::Rule { rule: rule.into(), error: RuleError::Syntax }.for_log();
        assert!(!error("<hunter2").contains("hunter2"));
        assert!(error("+nosuch").contains("+nosuch"));
    }
}
