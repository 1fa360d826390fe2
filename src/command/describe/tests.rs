//! Tests of what commands say of themselves.

use super::uses::*;
use super::*;
use crate::command::{OwnedRequest, Run, rows};
use crate::resp::Proto;

fn row(name: &str) -> &'static Row<Run> {
    rows().find(|row| row.spec.name == name).unwrap()
}

fn sub(container: &str, name: &str) -> &'static Row<Run> {
    row(container).subcommands.iter().find(|row| row.spec.name == name).unwrap()
}

/// A reply with its line ends as spaces, lengths of bulk strings left out.
fn written(proto: Proto, write: impl FnOnce(&mut Reply)) -> String {
    let mut out = Vec::new();
    write(&mut Reply::new(&mut out, proto));
    let text = String::from_utf8(out).unwrap();
    text.split_terminator("\r\n").filter(|line| !line.starts_with('$')).collect::<Vec<_>>().join(" ")
}

fn every_spec() -> impl Iterator<Item = (&'static Spec, Option<&'static str>)> {
    rows().flat_map(|row| {
        let subcommands = row.subcommands.iter().map(|subcommand| (&subcommand.spec, Some(row.spec.name)));
        std::iter::once((&row.spec, None)).chain(subcommands)
    })
}

#[test]
fn info_in_both_protocols() {
    let get = |proto| written(proto, |reply| info(reply, row("get"), None));
    assert_eq!(
        get(Proto::Resp2),
        "*10 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string +@fast *0 *1 *6 flags *2 +RO +access \
         begin_search *4 type index spec *2 index :1 \
         find_keys *4 type range spec *6 lastkey :0 keystep :1 limit :0 *0"
    );
    assert_eq!(
        get(Proto::Resp3),
        "*10 get :2 ~2 +readonly +fast :1 :1 :1 ~3 +@read +@string +@fast ~0 ~1 %3 flags ~2 +RO +access \
         begin_search %2 type index spec %1 index :1 \
         find_keys %2 type range spec %3 lastkey :0 keystep :1 limit :0 ~0"
    );
}

#[test]
fn info_of_a_container_holds_its_subcommands() {
    let text = written(Proto::Resp3, |reply| info(reply, row("object"), None));
    let count = row("object").subcommands.len() + 1;
    assert!(text.starts_with(&format!("*10 object :-2 ~0 :0 :0 :0 ~1 +@slow ~0 ~0 *{count} *10 object|")), "{text}");
    let encoding = written(Proto::Resp3, |reply| info(reply, sub("object", "encoding"), Some("object")));
    assert!(text.contains(&encoding));
    assert_eq!(
        encoding,
        "*10 object|encoding :3 ~1 +readonly :2 :2 :1 ~3 +@keyspace +@read +@slow ~1 nondeterministic_output ~1 %3 flags ~1 +RO \
         begin_search %2 type index spec %1 index :2 \
         find_keys %2 type range spec %3 lastkey :0 keystep :1 limit :0 ~0"
    );
}

#[test]
fn keys_that_are_used_alike_share_a_specification() {
    let places = |name: &str| key_places(&row(name).spec, None).collect::<Vec<_>>();
    assert_eq!(places("lcs"), [(READ, Place::Run(Keys::TWO))]);
    assert_eq!(places("mset"), [(OVERWRITE, Place::Run(Keys::PAIRS))]);
    assert_eq!(places("rename"), [(TAKE, Place::Run(Keys::ONE)), (OVERWRITE, Place::Run(Keys::SECOND))]);
    let sources = Place::Run(Keys { first: 3, ..Keys::ALL });
    assert_eq!(places("bitop"), [(OVERWRITE, Place::Run(Keys::SECOND)), (READ, sources)]);
    assert_eq!(places("scan"), []);
    let counted = Place::Run(Keys::DESTINATION_AND_COUNTED);
    assert_eq!(places("zunionstore"), [(OVERWRITE, Place::Run(Keys::ONE)), (READ, counted)]);
    let behind = |word| (OVERWRITE, Place::Behind(word, 6));
    assert_eq!(places("georadius"), [(READ, Place::Run(Keys::ONE)), behind("STORE"), behind("STOREDIST")]);
}

#[test]
fn docs_in_both_protocols() {
    let docs = |name: &str, proto| {
        let text = written(proto, |reply| docs(reply, row(name), None));
        let spec = &row(name).spec;
        text.replace(spec.summary, "S").replace(spec.complexity, "C")
    };
    assert_eq!(docs("dbsize", Proto::Resp2), "dbsize *8 summary S since 1.0.0 group server complexity C");
    assert_eq!(
        docs("copy", Proto::Resp3),
        "copy %5 summary S since 6.2.0 group generic complexity C arguments *4 \
         %3 name source type key key_spec_index :0 %3 name destination type key key_spec_index :1 \
         %4 name destination-db type integer token DB flags ~1 +optional \
         %4 name replace type pure-token token REPLACE flags ~1 +optional"
    );
    assert_eq!(
        docs("expire", Proto::Resp2),
        "expire *10 summary S since 1.0.0 group generic complexity C arguments *3 \
         *6 name key type key key_spec_index :0 *4 name seconds type integer \
         *8 name condition type oneof flags *1 +optional arguments *4 \
         *6 name nx type pure-token token NX *6 name xx type pure-token token XX \
         *6 name gt type pure-token token GT *6 name lt type pure-token token LT"
    );
    let lcs = docs("lcs", Proto::Resp3);
    assert!(lcs.contains("name key2 type key key_spec_index :0"), "both keys are in one specification: {lcs}");
    let object = docs("object", Proto::Resp3);
    let count = row("object").subcommands.len() + 1;
    assert!(object.contains(&format!("complexity C subcommands %{count} object|")), "{object}");
}

#[test]
fn help_names_every_subcommand() {
    let mut out = Vec::new();
    help(&mut Reply::new(&mut out, Proto::Resp2), row("object"));
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.split_terminator("\r\n").collect();
    assert_eq!(lines[0], format!("*{}", lines.len() - 1));
    assert_eq!(lines[1], "+OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    assert_eq!(lines[2], "+ENCODING key");
    assert_eq!(lines[3], "+    Returns how the value under a key is kept.");
    assert_eq!(lines[lines.len() - 2..], ["+HELP", "+    Prints this help."]);
    assert_eq!(lines.iter().filter(|line| **line == "+HELP").count(), 1);
    assert!(lines.iter().all(|line| line.len() <= COLUMNS + 1));
}

#[test]
fn long_help_is_broken_between_words() {
    let mut lines = Vec::new();
    push_indented(&mut lines, &"word ".repeat(20));
    assert_eq!(lines, [format!("   {}", " word".repeat(15)), format!("   {}", " word".repeat(5))]);
    lines.clear();
    push_indented(&mut lines, &"x".repeat(100));
    assert_eq!(lines, [format!("    {}", "x".repeat(100))]);
}

#[test]
fn keys_of_requests() {
    let ask = |row: &Row<Run>, line: &str, flags: Option<Option<&str>>| {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        let mut result = Ok(());
        let text = written(Proto::Resp3, |reply| {
            result = match flags {
                None => keys(reply, &AskedAbout { row, container: None, request: request.as_request() }, None),
                Some(container) => {
                    keys_and_flags(reply, &AskedAbout { row, container, request: request.as_request() }, None)
                }
            };
        });
        result.map(|()| text)
    };
    let names = |row, line| ask(row, line, None);
    assert_eq!(names(row("get"), "get a"), Ok("*1 a".into()));
    assert_eq!(names(row("mset"), "mset a 1 b 2"), Ok("*2 a b".into()));
    assert_eq!(names(row("mset"), "mset a 1 b"), Ok("*2 a b".into()), "as Redis, which does not look at pairs");
    assert_eq!(names(row("bitop"), "bitop and a b c"), Ok("*3 a b c".into()));
    assert_eq!(names(row("sort"), "sort a"), Ok("*1 a".into()));
    assert_eq!(names(row("sort"), "sort a get store by store limit store 1 store b store c"), Ok("*2 a c".into()));
    assert_eq!(names(row("sort"), "sort a desc store"), Ok("*1 a".into()));
    assert_eq!(names(sub("object", "freq"), "object freq a"), Ok("*1 a".into()));
    assert_eq!(names(row("zunionstore"), "zunionstore d 2 a b weights 1 2"), Ok("*3 d a b".into()));
    assert!(names(row("zunionstore"), "zunionstore d 3 a b").is_err(), "there are too few");
    let radius = "georadius a 1 2 3 km store b count 1 StoreDist c asc";
    assert_eq!(names(row("georadius"), radius), Ok("*3 a b c".into()), "whichever counts");
    assert_eq!(names(row("sort_ro"), "sort_ro a store b"), Ok("*1 a".into()));
    assert_eq!(names(row("xread"), "xread count streams a 0"), Ok("*1 a".into()), "as Redis, which knows no COUNT");
    assert_eq!(names(row("xread"), "xread streams a b 0"), Ok("*1 a".into()));
    assert!(names(row("xread"), "xread count 1 2").is_err());
    assert_eq!(names(row("georadius"), "georadius a 1 2 3 km store"), Ok("*1 a".into()));
    assert_eq!(names(row("get"), "get a b"), Err(WRONG_NUMBER_OF_ARGUMENTS));
    assert_eq!(names(row("dbsize"), "dbsize a"), Err(NO_KEYS));

    let used = |name: &str, line| ask(row(name), line, Some(None));
    assert_eq!(used("rename", "rename a b"), Ok("*2 *2 a ~3 +RW +access +delete *2 b ~2 +OW +update".into()));
    assert_eq!(used("del", "del a b"), Ok("*2 *2 a ~2 +RM +delete *2 b ~2 +RM +delete".into()));
    assert_eq!(used("set", "set a b ex 10"), Ok("*1 *2 a ~2 +OW +update".into()));
    assert_eq!(used("set", "set a b Get"), Ok("*1 *2 a ~3 +RW +access +update".into()));
    assert_eq!(used("bitfield", "bitfield a overflow sat get u8 0"), Ok("*1 *2 a ~2 +RO +access".into()));
    assert_eq!(used("bitfield", "bitfield a set u8 0 1"), Ok("*1 *2 a ~3 +RW +access +update".into()));
    assert_eq!(used("sort", "sort a store b"), Ok("*2 *2 a ~2 +RO +access *2 b ~2 +OW +update".into()));
    assert_eq!(used("scan", "scan 0"), Err(NO_KEYS));
    assert!(names(row("zunion"), "zunion 0 a").is_err(), "it has to name one");
    let encoding = ask(sub("object", "encoding"), "object encoding a", Some(Some("object")));
    assert_eq!(encoding, Ok("*1 *2 a ~1 +RO".into()));
}

#[test]
fn categories_follow_from_what_a_command_does() {
    let of = |name: &str| acl_categories(&row(name).spec, None).join(" ");
    assert_eq!(of("set"), "@write @string @slow");
    assert_eq!(of("del"), "@keyspace @write @slow");
    assert_eq!(of("ttl"), "@keyspace @read @fast");
    assert_eq!(of("dbsize"), "@keyspace @read @fast");
    assert_eq!(of("keys"), "@keyspace @read @slow @dangerous");
    assert_eq!(of("flushall"), "@keyspace @write @slow @dangerous");
    assert_eq!(of("object"), "@slow");

    use crate::command::spec::Group;
    let spec = |name, flags, group| Spec { name, flags, group, keys: Keys::NONE, ..row("get").spec };
    let of = |spec: Spec, container| acl_categories(&spec, container).join(" ");
    use flag::{ADMIN, FAST, LOADING, PUBSUB};
    assert_eq!(of(spec("ping", FAST, Group::Connection), None), "@fast @connection");
    assert_eq!(of(spec("publish", PUBSUB | FAST, Group::PubSub), None), "@pubsub @fast");
    assert_eq!(of(spec("help", LOADING, Group::PubSub), Some("pubsub")), "@slow");
    assert_eq!(of(spec("get", ADMIN, Group::Server), Some("config")), "@admin @slow @dangerous");
    assert_eq!(of(spec("list", ADMIN, Group::Connection), Some("client")), "@admin @slow @dangerous @connection");
    assert_eq!(of(spec("info", LOADING, Group::Server), None), "@slow @dangerous");
    assert_eq!(of(spec("info", LOADING, Group::Connection), Some("client")), "@slow @connection");
    assert_eq!(of(spec("docs", LOADING, Group::Server), Some("command")), "@slow @connection");
    assert_eq!(of(spec("wait", LOADING, Group::Generic), None), "@slow @connection");
    assert_eq!(of(spec("asking", FAST, Group::Cluster), None), "@fast @connection");
    assert_eq!(of(spec("nodes", LOADING, Group::Cluster), Some("cluster")), "@slow");
    assert_eq!(of(spec("lolwut", flag::READ | FAST, Group::Server), None), "@read @fast");
    assert_eq!(of(spec("time", FAST | LOADING, Group::Server), None), "@fast");
}

#[test]
fn lists() {
    let listed = |line: &str| {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        let filter = Filter::parse(request.as_request())?;
        Ok(written(Proto::Resp3, |reply| list(reply, rows(), filter)))
    };
    let all = every_spec().count() + rows().filter(|row| !row.subcommands.is_empty()).count();
    assert!(listed("command list").unwrap().starts_with(&format!("*{all} ")));
    assert_eq!(listed("command list filterby module json"), Ok("*0".into()));
    assert_eq!(listed("command list FILTERBY pattern GETD*"), Ok("*1 getdel".into()));
    assert_eq!(listed("command list filterby pattern object|e*"), Ok("*1 object|encoding".into()));
    assert_eq!(listed("command list filterby aclcat nosuch"), Ok("*0".into()));
    assert_eq!(listed("command list filterby aclcat @string"), Ok("*0".into()));
    let dangerous = listed("command list filterby AclCat Dangerous").unwrap();
    assert!(dangerous.contains(" flushall") && !dangerous.contains(" get"), "{dangerous}");
    for wrong in
        ["command list filterby", "command list filterby aclcat", "command list x y z", "command list filterby x y"]
    {
        assert_eq!(listed(wrong), Err(Error::Syntax), "{wrong}");
    }
}

#[test]
fn every_row_keeps_the_notation() {
    for (spec, container) in every_spec() {
        let name = full_name(spec, container);
        if let Err(error) = syntax::parse(spec.syntax) {
            panic!("{name}: {error}");
        }
    }
}

/// A row's arity and its syntax say the same twice.
#[test]
fn arity_follows_from_syntax() {
    /// How many words it takes at least, and whether it can take more.
    fn words(argument: &Argument) -> (i32, bool) {
        let token = i32::from(argument.token.is_some());
        let parts: Vec<(i32, bool)> = argument.children.iter().map(words).collect();
        let (least, open) = match argument.kind {
            Kind::PureToken => (0, false),
            Kind::Block => (parts.iter().map(|part| part.0).sum(), parts.iter().any(|part| part.1)),
            Kind::OneOf => {
                let least = parts.iter().map(|part| part.0).min().unwrap_or(0);
                (least, parts.iter().any(|part| *part != (least, false)))
            }
            _ => (1, false),
        };
        if argument.optional { (0, true) } else { (token + least, open || argument.multiple) }
    }
    for (spec, container) in every_spec() {
        // What has no flags only groups others. No notation says that a polygon has three vertices.
        if spec.flags == 0 || spec.name.starts_with("geosearch") {
            continue;
        }
        let parts: Vec<(i32, bool)> = syntax::parse(spec.syntax).unwrap().iter().map(words).collect();
        let least = 1 + i32::from(container.is_some()) + parts.iter().map(|part| part.0).sum::<i32>();
        let arity = if parts.iter().any(|part| part.1) { -least } else { least };
        assert_eq!(spec.arity, arity, "{}", full_name(spec, container));
    }
}

#[test]
fn tables_name_each_command_once_in_order() {
    assert!(GROUP_CATEGORIES.is_sorted_by(|a, b| a.0 < b.0));
    assert!(KEY_USES.is_sorted_by(|a, b| a.0 < b.0));
    assert!(GROUP_CATEGORIES.iter().all(|(_, all)| all.iter().all(|category| CATEGORIES.contains(category))));
    assert!(KEY_USES.iter().all(|(_, uses)| !uses.is_empty()));
}
