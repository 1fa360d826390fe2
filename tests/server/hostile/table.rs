//! What the server says of its commands: COMMAND DOCS, as trees of arguments.

use crate::common::{Client, Value};

/// A command or a subcommand.
pub struct Command {
    /// The words that a request begins with.
    pub words: Vec<Vec<u8>>,
    pub group: String,
    pub arguments: Vec<Argument>,
}

pub struct Argument {
    pub name: String,
    pub kind: Kind,
    pub token: Option<Vec<u8>>,
    pub optional: bool,
    pub multiple: bool,
    pub multiple_token: bool,
    /// The alternatives of a [`Kind::OneOf`], the parts of a [`Kind::Block`].
    pub children: Vec<Argument>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    String,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    PureToken,
    OneOf,
    Block,
}

/// Every command of the server; of containers their subcommands.
pub fn read(client: &mut Client) -> Vec<Command> {
    let mut commands = Vec::new();
    add_commands(&client.call("COMMAND DOCS"), &mut commands);
    assert!(commands.len() > 200, "the table is read");
    commands
}

fn add_commands(docs: &Value, commands: &mut Vec<Command>) {
    for pair in docs.items().chunks_exact(2) {
        match pair[1].field("subcommands") {
            Some(subcommands) => add_commands(&subcommands, commands),
            None => commands.push(Command {
                words: words_of(&pair[0].text()).iter().map(|word| word.to_uppercase().into_bytes()).collect(),
                group: pair[1].field("group").expect("every command has a group").text(),
                arguments: arguments(&pair[1]),
            }),
        }
    }
}

/// The words that a request of a command begins with that COMMAND has under this name.
pub fn words_of(name: &str) -> Vec<String> {
    // (Subcommands of EXPIRY GROUP are two words.)
    name.replace("expiry|group-", "expiry|group|").split('|').map(str::to_owned).collect()
}

fn arguments(of: &Value) -> Vec<Argument> {
    of.field("arguments").map_or_else(Vec::new, |list| list.items().iter().map(argument).collect())
}

fn argument(value: &Value) -> Argument {
    let text = |name| value.field(name).map(|field| field.text());
    let flags = value.field("flags");
    let has = |flag: &str| flags.as_ref().is_some_and(|flags| flags.items().iter().any(|item| item.text() == flag));
    let kind = match text("type").expect("every argument has a type").as_str() {
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "double" => Kind::Double,
        "key" => Kind::Key,
        "pattern" => Kind::Pattern,
        "unix-time" => Kind::UnixTime,
        "pure-token" => Kind::PureToken,
        "oneof" => Kind::OneOf,
        "block" => Kind::Block,
        other => panic!("an argument of type {other}"),
    };
    Argument {
        name: text("name").expect("every argument has a name"),
        kind,
        token: text("token").map(String::into_bytes),
        optional: has("optional"),
        multiple: has("multiple"),
        multiple_token: has("multiple_token"),
        children: arguments(value),
    }
}
