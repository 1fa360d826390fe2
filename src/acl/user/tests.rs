use super::*;
use crate::acl::{DEFAULT, Users};
use crate::command::spec::{Channels, Row};
use crate::command::{self, OwnedRequest, Run, Table};
use proptest::prelude::*;

/// The commands on data, two that take channels, and one that is told of keys with a prefix.
fn table() -> Table<Run> {
    fn nothing(_: &mut command::Ctx, _: Request) -> crate::resp::Result {
        Ok(())
    }
    let get = command::rows().find(|row| row.spec.name == "get").expect("a row").spec;
    let spec = |name, arity, flags| command::spec::Spec { name, arity, flags, keys: command::spec::Keys::NONE, ..get };
    let publish = Row::new(spec("publish", 3, command::spec::flag::PUBSUB), Run::Key(nothing));
    let psubscribe = Row::new(spec("psubscribe", -2, command::spec::flag::PUBSUB), Run::Key(nothing));
    let live = Row::new(spec("live", 2, command::spec::flag::READ), Run::Key(nothing));
    let auth = Row::new(spec("auth", -2, command::spec::flag::NO_AUTH), Run::Key(nothing));
    Table::new(command::rows().copied().chain([
        publish.on_channels(Channels::First),
        psubscribe.on_channels(Channels::Patterns),
        live,
        auth,
    ]))
}

struct World {
    table: Table<Run>,
    vocabulary: Vocabulary,
}

impl World {
    fn new() -> World {
        let table = table();
        World { vocabulary: Vocabulary::of(&table), table }
    }

    fn user(&self, rules: &str) -> User {
        self.try_user(rules).unwrap_or_else(|error| panic!("{rules}: {}", String::from_utf8_lossy(&error.text())))
    }

    fn try_user(&self, rules: &str) -> Result<User, ModifierError> {
        let mut user = User::new(&self.vocabulary, 1, b"anna", false);
        let words: Vec<&[u8]> = rules.split(' ').map(str::as_bytes).collect();
        user.modify(&self.vocabulary, &words, false)?;
        Ok(user)
    }

    fn check(&self, user: &User, line: &str) -> Result<(), Denied> {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        let command::Found::Command(command) = self.table.find(request.as_request()) else { panic!("{line}") };
        user.check(&self.vocabulary, command.id, request.as_request())
    }

    fn printed(&self, rules: &str) -> String {
        String::from_utf8(self.user(rules).line()).unwrap()
    }
}

#[test]
fn a_new_user_may_do_nothing() {
    let world = World::new();
    let user = world.user("");
    assert_eq!(world.check(&user, "get a"), Err(Denied::Command));
    assert_eq!(world.check(&user, "auth x"), Ok(()), "who may not do this cannot become somebody else");
    assert_eq!(user.log_in(b""), Login::Refused);
    assert_eq!(user.line(), b"user anna off resetchannels -@all");
    let all = User::everything(&world.vocabulary, 0, DEFAULT);
    assert!(all.is_unrestricted() && all.log_in(b"anything") == Login::Welcome);
    assert_eq!(all.line(), b"user default on nopass ~* &* +@all");
}

#[test]
fn users_are_written_as_redis_writes_them() {
    let world = World::new();
    for (rules, line) in [
        ("on nopass ~a %R~b %W~c %RW~d %wr~e &x +get", "on nopass ~a %R~b %W~c ~d ~e resetchannels &x -@all +get"),
        ("%R~a %W~a", "off ~a resetchannels -@all"),
        ("allkeys allchannels allcommands", "off ~* &* +@all"),
        ("+@all -@string +incr", "off resetchannels +@all -@string +incr"),
        ("+GET -get +Get", "off resetchannels -@all +get"),
        ("+get -get", "off resetchannels -@all"),
        ("+@all +object|freq", "off resetchannels +@all"),
        ("+@all -object|freq +object", "off resetchannels +@all"),
        ("%R %WR", "off ~ resetchannels -@all"),
        ("+object|freq +object", "off resetchannels -@all +object"),
        ("+object -object|freq", "off resetchannels -@all +object -object|freq"),
        ("+@read +get -@READ +set", "off resetchannels -@all +set"),
        ("+publish|A +publish|a", "off resetchannels -@all +publish|a"),
        (
            "+get (+set ~b) ( +del )",
            "off resetchannels -@all +get (~b resetchannels -@all +set) (resetchannels -@all +del)",
        ),
        ("on reset", "off sanitize-payload resetchannels -@all"),
        ("skip-sanitize-payload on", "on skip-sanitize-payload resetchannels -@all"),
        ("~a allkeys resetkeys ~b", "off ~b resetchannels -@all"),
        ("~ & %R~", "off ~ resetchannels & -@all"),
    ] {
        assert_eq!(world.printed(rules), format!("user anna {line}"), "{rules}");
    }
}

#[test]
fn what_is_wrong_changes_nothing() {
    let world = World::new();
    let error = |rules: &str| match world.try_user(rules) {
        Err(ModifierError::Rule { error, .. }) => error,
        other => panic!("{rules}: {other:?}"),
    };
    for rules in [
        "x",
        "%~x",
        "%x~a",
        "%R a",
        "%",
        "%RR~a",
        "%r~a\u{b}b",
        "~a\0",
        "&a\t",
        "+object|",
        "+",
        "(on)",
        "(+get (x))",
        "(~\"a)",
        ")",
        "resetkeys2",
        "+publish|a\nb",
    ] {
        let expected = if rules == "+" { RuleError::UnknownName } else { RuleError::Syntax };
        assert_eq!(error(rules), expected, "{rules:?}");
    }
    for rules in ["+nosuch", "-nosuch", "-publish|a", "+publish|a|b", "+@nosuch", "-@", "+nosuch|x", "+object|nosuch"] {
        assert_eq!(error(rules), RuleError::UnknownName, "{rules}");
    }
    assert_eq!(error("+object|freq|x"), RuleError::FirstArgOfSubcommand);
    assert_eq!(error("~* ~a"), RuleError::KeysAfterAll);
    assert_eq!(error("&* &a"), RuleError::ChannelsAfterAll);
    assert_eq!(error("<x"), RuleError::NoSuchPassword);
    assert_eq!(error("#x"), RuleError::BadHash);
    let mut user = world.user("on +get");
    let before = user.clone();
    assert!(user.modify(&world.vocabulary, &[b"off", b"+nosuch"], false).is_err());
    assert_eq!(user, before);
}

#[test]
fn passwords() {
    let world = World::new();
    let user = world.user("on >a >b");
    assert_eq!(
        [&b"a"[..], b"b", b"c", b""].map(|word| user.log_in(word) == Login::Welcome),
        [true, true, false, false]
    );
    assert_eq!(world.user("off nopass").log_in(b"a"), Login::Refused);
    assert_eq!(world.user("on >a nopass").log_in(b"x"), Login::Welcome);
    assert_eq!(world.user("on nopass >a").log_in(b"x"), Login::Refused);
    assert_eq!(world.user("on >a <a").log_in(b"a"), Login::Refused);
    let mut user = world.user("on >a");
    user.require(b"x");
    assert_eq!((user.log_in(b"a"), user.log_in(b"x")), (Login::Refused, Login::Welcome));
    user.require(b"");
    assert!(user.has_no_password());
}

#[test]
fn keys_need_their_letters() {
    let world = World::new();
    let user = world.user("+@all %R~r:* %W~w:* ~rw:* -get +getrange");
    for (line, expected) in [
        ("getrange r:1 0 1", Ok(())),
        ("getrange w:1 0 1", Err(Denied::Key(1))),
        ("get r:1", Err(Denied::Command)),
        ("set w:1 x", Ok(())),
        ("set w:1 x get", Err(Denied::Key(1))),
        ("set rw:1 x get", Ok(())),
        ("strlen w:1", Ok(())),
        ("strlen x", Err(Denied::Key(1))),
        ("copy r:1 w:1", Ok(())),
        ("copy w:1 w:2", Err(Denied::Key(1))),
        ("copy r:1 r:2", Err(Denied::Key(2))),
        ("mset w:1 x r:1 y", Err(Denied::Key(3))),
        ("msetex 2 w:1 x r:1 y", Err(Denied::Key(4))),
        ("bitfield r:1 get u8 0", Ok(())),
        ("bitfield r:1 set u8 0 1", Err(Denied::Key(1))),
        ("geosearchstore w:1 r:1 frommember a byradius 1 km", Ok(())),
        ("geosearchstore w:1 w:2 frommember a byradius 1 km", Err(Denied::Key(2))),
        ("georadius r:1 0 0 1 km store w:1 store r:2", Err(Denied::Key(9))),
        ("georadius r:1 0 0 1 km store w:1 storedist w:2", Ok(())),
        ("sort r:1 store w:1", Ok(())),
        ("sort r:1 store w:1 store r:2", Err(Denied::Key(5))),
        ("sort_ro w:1", Err(Denied::Key(1))),
        ("zunionstore w:1 2 r:1 w:2", Err(Denied::Key(4))),
        ("xreadgroup group g streams streams r:1 >", Ok(())),
        ("xreadgroup group g streams streams w:1 >", Err(Denied::Key(5))),
        ("xread count 1 block 0 streams r:1 w:1 0 0", Err(Denied::Key(7))),
        ("rename rw:1 w:1", Ok(())),
        ("rename w:1 w:1", Err(Denied::Key(1))),
        ("getfresh r:1 10", Ok(())),
    ] {
        if line.starts_with("getfresh") && !world.table.commands().any(|command| command.full_name == "getfresh") {
            continue;
        }
        assert_eq!(world.check(&user, line), expected, "{line}");
    }
}

#[test]
fn the_worst_of_all_selectors_is_told() {
    let world = World::new();
    let user = world.user("+publish &a (+get ~a) (+get ~b*) (+mget ~c)");
    assert_eq!(world.check(&user, "get a"), Ok(()));
    assert_eq!(world.check(&user, "get bb"), Ok(()));
    assert_eq!(world.check(&user, "get c"), Err(Denied::Key(1)));
    assert_eq!(world.check(&user, "mget c a"), Err(Denied::Key(2)));
    assert_eq!(world.check(&user, "set a b"), Err(Denied::Command));
    assert_eq!(world.check(&user, "publish b x"), Err(Denied::Channel(1)));
    let user = world.user("+psubscribe &a* (+psubscribe &b)");
    assert_eq!(world.check(&user, "psubscribe a*"), Ok(()), "literally");
    assert_eq!(world.check(&user, "psubscribe ab"), Err(Denied::Channel(1)));
    assert_eq!(world.check(&user, "psubscribe a* b"), Err(Denied::Channel(2)));
    assert!(user.hears(b"ab", false) && !user.hears(b"c", false) && user.hears(b"b", true));
}

#[test]
fn sort_reads_other_keys() {
    let world = World::new();
    let ask = |rules: &str, line: &str| {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        let command::Found::Command(command) = world.table.find(request.as_request()) else { panic!("{line}") };
        world.user(rules).check_patterns(&world.vocabulary, command.id, request.as_request())
    };
    let some = "+@all ~a";
    assert_eq!(ask(some, "sort a by w_*"), Err(SortPattern::By));
    assert_eq!(ask(some, "sort_ro a get #"), Err(SortPattern::Get));
    assert_eq!(ask(some, "sort a by nosort"), Ok(()));
    assert_eq!(ask(some, "sort a limit x y get #"), Ok(()), "the limit is wrong, which is told first");
    assert_eq!(ask(some, "sort a limit 0 1 get # by w_*"), Err(SortPattern::Get));
    assert_eq!(ask("+@all %R~*", "sort a by w_*"), Ok(()));
    assert_eq!(ask("+@all %W~* ~a", "sort a by w_*"), Err(SortPattern::By));
    assert_eq!(ask("+@all ~a (+get ~*)", "sort a by w_*"), Err(SortPattern::By), "the selector allows no SORT");
    assert_eq!(ask("+@all ~*", "sort a by w_*"), Ok(()));
}

#[test]
fn prefixes_are_read_by_whoever_reads_all_behind_them() {
    let world = World::new();
    let reads = |rules: &str, prefix: &str| {
        let (user, request) = (world.user(rules), OwnedRequest::from_args([b"live", prefix.as_bytes()].into_iter()));
        let command::Found::Command(command) = world.table.find(request.as_request()) else { panic!("LIVE") };
        let allows = |selector: &Selector| selector.reads_prefix(prefix.as_bytes());
        let may_ask = user.reaches(&world.vocabulary, command.id, request.as_request(), allows);
        assert_eq!(user.is_told_of(&world.vocabulary, b"live", prefix.as_bytes()), may_ask, "{rules}");
        may_ask
    };
    for (rules, prefix) in [("~*", ""), ("%R~*", ""), ("~a*", "ab"), ("~a*", "a")] {
        assert!(reads(&format!("+live {rules}"), prefix), "{rules}");
    }
    for rules in ["~a*", "%W~*", "~?*", "~a", "~[ab]*", "~*a*", ""] {
        assert!(!reads(&format!("+live {rules}"), ""), "{rules}");
    }
    assert!(!reads("+live ~ab*", "a"));
    for rules in ["+@all ~b* (+get %R~a*)", "~a* (+live ~b*)", "+@all -live ~a*"] {
        assert!(!reads(rules, "a"), "no selector allows both: {rules}");
    }
    assert!(reads("~b* +get (+live %R~a*)", "a"));
}

#[test]
fn configurations_and_files_make_users() {
    let world = World::new();
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let declared = |lines: &[&str], password: &str| {
        let lines: Vec<_> = lines.iter().map(|line| words(line)).collect();
        Users::declared(&world.vocabulary, &lines, password.as_bytes(), false)
    };
    let users = declared(&["anna on (+get ~a)", "berta"], "x").unwrap();
    assert_eq!(users.iter().count(), 3);
    assert!(!users.default_user().has_no_password() && users.default_user().is_unrestricted());
    assert_eq!(declared(&["default on"], "x").unwrap().default_user().line(), b"user default on resetchannels -@all");
    let told = users.declarations(&world.vocabulary, b"x");
    assert_eq!(told.len(), 2, "the default user is as its password says");
    assert_eq!(users.declarations(&world.vocabulary, b"y").len(), 3);
    assert!(declared(&["anna", "anna"], "").is_err());
    assert!(declared(&["anna +nosuch"], "").is_err() && declared(&["anna (+get"], "").is_err());
    let error = declared(&["anna <hunter2"], "").unwrap_err().to_string();
    assert!(!error.contains("hunter2"), "{error}");

    let file = users.file();
    let again = Users::from_file(&world.vocabulary, ("f", &file), &users, false).unwrap();
    assert!(users.iter().eq(again.iter()));
    let failed = |text: &str| {
        let error = Users::from_file(&world.vocabulary, ("f", text.as_bytes()), &users, false).unwrap_err();
        let text = error.to_string();
        text.strip_suffix("WARNING: ACL errors detected, no change to the previously active ACL rules was performed")
            .expect("the end")
            .to_owned()
    };
    assert_eq!(failed("nonsense"), "f:1 should start with user keyword followed by the username. ");
    assert_eq!(failed("\n\nuser a\nuser a"), "WARNING: Duplicate user 'a' found on line 4. ");
    assert_eq!(
        failed("user a on +x +y %x"),
        "f:1: Error in applying operation '+x': Unknown command or category name in ACL. \
         f:1: Error in applying operation '+y': Unknown command or category name in ACL. f:1: Syntax error. "
    );
    assert_eq!(failed("user a (+get"), "f:1: Unmatched parenthesis in selector definition.");
    assert_eq!(failed("user a\tb on"), "'f:1: username 'a\tb' contains invalid characters. ");
}

/// Rules as somebody may say them, right and wrong.
fn rule() -> impl Strategy<Value = Vec<u8>> {
    let word = prop::collection::vec(prop_oneof![4 => Just(b'a'), 1 => Just(b'*'), 1 => any::<u8>()], 0..5);
    let sign = prop::sample::select(
        &[
            "~",
            "%R~",
            "%W~",
            "%RW~",
            "%",
            "&",
            ">",
            "<",
            "#",
            "!",
            "+",
            "-",
            "+@",
            "-@",
            "(",
            "+publish|",
            "(~",
            "(&",
            "",
        ][..],
    );
    let known = prop::sample::select(
        &[
            "on",
            "off",
            "nopass",
            "reset",
            "allkeys",
            "resetkeys",
            "allchannels",
            "resetchannels",
            "+@all",
            "-@all",
            "+get",
            "-get",
            "+@read",
            "-@read",
            "+@string",
            "-@slow",
            "+object|freq",
            "-object|freq",
            "+object",
            "-object",
            "clearselectors",
            "resetpass",
            "sanitize-payload",
            "(+get ~a)",
            "(%R~b &c +@read)",
            "(~\\* +set)",
        ][..],
    );
    let free = (sign, word, any::<bool>()).prop_map(|(sign, word, closes)| {
        let mut rule = [sign.as_bytes(), &word].concat();
        rule.extend(closes.then_some(b')'));
        rule
    });
    prop_oneof![known.prop_map(|rule| rule.as_bytes().to_vec()), free]
}

thread_local! {
    static WORLD: World = World::new();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_written_makes_the_same_user(rules in prop::collection::vec(rule(), 0..12)) {
        WORLD.with(|world| {
            let mut user = User::new(&world.vocabulary, 1, b"anna", false);
            for rule in &rules {
                // Each for itself: many are refused.
                let before = user.clone();
                if user.modify(&world.vocabulary, &[rule], false).is_err() {
                    prop_assert_eq!(&user, &before);
                }
            }
            let line = user.line();
            let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let mut again = User::new(&world.vocabulary, 1, b"anna", false);
            prop_assert_eq!(again.modify(&world.vocabulary, &words[2..], false), Ok(()));
            // (Rules that come to nothing go one by one: the words may be fewer the second time.)
            let same = |user: &User| user.clone().without_words();
            prop_assert_eq!(same(&again), same(&user), "{}", String::from_utf8_lossy(&line));
            let users = Users::from_file(&world.vocabulary, ("f", &line), &Users::new(&world.vocabulary), false).unwrap();
            prop_assert_eq!(users.get(b"anna").unwrap().words(), again.words());
            Ok(())
        })?;
    }
}

/// A hundred thousand patterns were a hundred thousand times compared with each other.
#[test]
fn a_user_has_only_so_many_rules() {
    let world = World::new();
    let patterns: Vec<Vec<u8>> = (0..100_000).map(|n| format!("~{n}").into_bytes()).collect();
    let words: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
    let within = [&b"("[..], &words.join(&b' '), b")"].concat();
    let mut user = User::new(&world.vocabulary, 1, b"anna", false);
    for rules in [&words[..], &[&within[..]]] {
        let refused = user.modify(&world.vocabulary, rules, false);
        assert!(matches!(refused, Err(ModifierError::Rule { error: RuleError::TooMany, .. })), "{}", rules.len());
    }
    assert_eq!(user.modify(&world.vocabulary, &words[..RULES_MAX - 1], false), Ok(()));
    assert!(user.modify(&world.vocabulary, &[b"on", b">password"], false).is_err());
    assert_eq!(
        user.modify(&world.vocabulary, &[b"resetkeys", b"on", b">password"], false),
        Ok(()),
        "there is room again"
    );
}
