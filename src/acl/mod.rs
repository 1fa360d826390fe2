//! Users: which commands, keys and channels each of them may use, how rules say so, and what was refused.
//!
//! ```text
//!  ACL SETUSER ──┐ rules                             ┌── check     may this request run?
//!  user lines  ──┼───────► User (selectors) ──► Users┤
//!  ACL file    ──┘   all or nothing, on a copy       └── rules     ACL LIST, ACL SAVE, CONFIG REWRITE
//! ```
//!
//! Nothing here knows connections or shards. A [`Users`] is what is so at a moment; whoever changes one makes another, and
//! hands it out. Which commands there are, where their keys stand and what is done with them comes from the table of
//! commands ([`Vocabulary`]): the keys that are checked are those that the handler's row names, found by no other parser.
//!
//! | file | what |
//! |---|---|
//! | `lines.rs` | users as the configuration and the ACL file have them |
//! | `users.rs` | all users at a moment |
//! | `user.rs` | one user: its rules, its passwords, what it may do |
//! | `selector.rs` | which commands, keys and channels go together |
//! | `pattern.rs` | a pattern of keys or channels |
//! | `question.rs` | a request as selectors look at it |
//! | `vocabulary.rs` | the commands as rules name them |
//! | `rule.rs` | why a rule is refused; words and how they are written |
//! | `password.rs` | passwords, of which only a hash is kept |
//! | `log.rs` | what was refused (ACL LOG) |
//!
//! Invariant: the rules that a user writes ([`User::rules`]), applied to a new user, make the same user.

mod lines;
pub mod log;
mod password;
mod pattern;
mod question;
mod rule;
mod selector;
mod user;
mod users;
mod vocabulary;

pub use lines::{FileErrors, LineError};
pub use question::{Denied, Question};
pub use rule::{ModifierError, RuleError, is_name};
pub use selector::Selector;
pub use user::{Login, PatternOption, User};
pub use users::{DEFAULT, Users};
pub use vocabulary::Vocabulary;
