//! A row of the table: what a directive is, and how it is shown, written and read.

use super::Config;
use super::values::{Kind, ValueError};

/// One row.
#[derive(Clone, Copy)]
pub struct Directive {
    pub name: &'static str,
    pub group: Group,
    /// As in a configuration file; empty is the empty string.
    pub default: &'static str,
    pub kind: Kind,
    /// Whether `CONFIG SET` may change it.
    pub mutable: bool,
    pub help: &'static str,
    pub(super) field: Field,
}

/// The chapters of `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Network,
    General,
    Security,
    Limits,
    Events,
    Observation,
    Scripts,
    Expiry,
    Packing,
    Snapshots,
    Log,
    Persistence,
    Eviction,
    Replication,
    Cluster,
    Tls,
    /// What makes the server slow where a test wants to look at it.
    Testing,
    /// Other features that are not there.
    Later,
    /// What would change how fast something is done, or how it looks, and no more.
    Hint,
}

impl Group {
    pub fn title(self) -> &'static str {
        match self {
            Group::Network => "Network",
            Group::General => "General",
            Group::Security => "Security",
            Group::Limits => "Limits",
            Group::Events => "Events",
            Group::Observation => "Observation",
            Group::Scripts => "Scripts",
            Group::Expiry => "Expiry",
            Group::Packing => "Small collections",
            Group::Snapshots => "Snapshots",
            Group::Log => "Append-only log",
            Group::Persistence => "Persistence",
            Group::Eviction => "Eviction",
            Group::Replication => "Replication",
            Group::Cluster => "Cluster",
            Group::Tls => "TLS",
            Group::Testing => "Testing",
            Group::Later => "Other features",
            Group::Hint => "Hints",
        }
    }

    /// Why what its directives say has no effect; none where it has.
    pub fn absence(self) -> Option<&'static str> {
        match self {
            Group::Persistence | Group::Cluster | Group::Later => {
                Some("Not available yet: what would turn it on is refused, the rest is kept without effect.")
            }
            Group::Hint => Some("Nothing here corresponds: any value is kept, without effect."),
            _ => None,
        }
    }
}

impl Directive {
    /// Whether CONFIG GET shows it only to who knows its name.
    pub fn is_hidden(&self) -> bool {
        self.group == Group::Testing
    }

    /// Whether what it says changes anything.
    pub fn acts(&self) -> bool {
        !matches!(self.field, Field::Kept)
    }

    /// Whether a command of its own changes it, and not CONFIG SET.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.kind, Kind::ExpiryPolicy | Kind::Primary)
    }

    pub(super) fn show(&self, config: &Config) -> String {
        match &self.field {
            Field::Own { show, .. } => show(config),
            Field::Kept => config.kept.get(self.name).cloned().unwrap_or_default(),
        }
    }

    /// The line of a configuration file that sets it to what it is.
    pub(super) fn line(&self, config: &Config) -> String {
        let value = match &self.field {
            Field::Own { line, .. } => line(config, &self.kind),
            Field::Kept => self.kind.kept_line(&self.show(config)),
        };
        format!("{} {value}", self.name)
    }

    pub(super) fn read(&self, config: &mut Config, args: &[&str]) -> Result<(), ValueError> {
        match &self.field {
            Field::Own { read, .. } => read(config, &self.kind, args),
            Field::Kept => {
                config.kept.insert(self.name, self.kind.keep(args)?);
                Ok(())
            }
        }
    }

    /// The one string of `CONFIG SET` as the words of a file's line. Redis splits lists at every single space.
    pub(super) fn split<'a>(&self, value: &'a str) -> Vec<&'a str> {
        match value {
            "" if self.kind.is_list() => Vec::new(),
            _ if self.kind.is_list() => value.split(' ').collect(),
            _ => vec![value],
        }
    }
}

/// The row's place in `Config`.
#[derive(Clone, Copy)]
pub(super) enum Field {
    Own {
        show: fn(&Config) -> String,
        line: fn(&Config, &Kind) -> String,
        read: fn(&mut Config, &Kind, &[&str]) -> Result<(), ValueError>,
    },
    /// None: the value is kept by the row's name, as it is shown.
    Kept,
}

/// The field of that name in `Config`.
macro_rules! field {
    ($($name:tt).+) => {
        $crate::config::directive::Field::Own {
            show: |config| $crate::config::values::Setting::show(&config.$($name).+),
            line: |config, kind| $crate::config::values::Setting::line(&config.$($name).+, kind),
            read: |config, kind, args| $crate::config::values::Setting::read(&mut config.$($name).+, kind, args),
        }
    };
}
pub(super) use field;
