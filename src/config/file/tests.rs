use super::super::values::quote;
use super::*;

fn split_words(line: &[u8]) -> Result<Vec<String>, Reason> {
    split_bytes(line).and_then(texts)
}

fn words(line: &str) -> Vec<String> {
    split_words(line.as_bytes()).unwrap()
}

fn run(args: &[&str]) -> Config {
    match try_run(args) {
        Ok(Start::Run(config)) => *config,
        other => panic!("{args:?}: {other:?}"),
    }
}

fn refused(args: &[&str]) -> String {
    try_run(args).unwrap_err().to_string()
}

fn try_run(args: &[&str]) -> Result<Start, StartError> {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
    load(&args)
}

/// A file under a name of its own, gone when the test is over.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, text: &str) -> TempFile {
        let name = format!("emberdb-config-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        TempFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn words_and_quotes() {
    assert_eq!(words("port 6379"), ["port", "6379"]);
    assert_eq!(words(" bind\t127.0.0.1   ::1 "), ["bind", "127.0.0.1", "::1"]);
    assert_eq!(words(r#"save """#), ["save", ""]);
    assert_eq!(words(r#"a "b c" 'd e'"#), ["a", "b c", "d e"]);
    assert_eq!(words(r#"a "\n\r\t\a\b\"\\\x41\q""#), ["a", "\n\r\t\x07\x08\"\\Aq"]);
    assert_eq!(words(r#"a "\xzz" "\x4""#), ["a", "xzz", "x4"]);
    assert_eq!(words(r"a '\' \n'"), ["a", r"' \n"]);
    assert_eq!(words(r#"a pre"fix""#), ["a", "prefix"]);
    assert_eq!(words(r#"a "\xc3\xa9" é"#), ["a", "é", "é"]);
    assert_eq!(words(""), Vec::<String>::new());
}

#[test]
fn unbalanced_quotes() {
    for line in [r#"a "b"#, r#"a "b\"#, r#"a "b\""#, "a 'b", r"a 'b\'", r#"a "b"c"#, "a 'b'c", "\"", "'"] {
        assert!(matches!(split_words(line.as_bytes()), Err(Reason::Quotes)), "{line}");
    }
    assert!(matches!(split_words(br#"a "\xff""#), Err(Reason::NotUtf8)));
    assert!(matches!(split_words(b"a \xff"), Err(Reason::NotUtf8)));
}

#[test]
fn quoting_is_undone_by_reading() {
    let nasty: String = (0..=0x2ff).filter_map(char::from_u32).collect();
    for text in ["", "a", "a b", "'", "\"", "\\", "\\x41", "# no comment", nasty.as_str()] {
        assert_eq!(words(&quote(text)), [text]);
    }
}

#[test]
fn without_arguments_it_runs_with_the_defaults() {
    let config = run(&[]);
    assert_eq!(config.get(|_| true), Config::default().get(|_| true));
    assert_eq!(config.file(), None);
    assert!(!config.is_explicit("port"));
}

#[test]
fn a_file_then_options() {
    let file = TempFile::new(
        "both",
        "# comment\r\n\n  PORT 7000\r\nport 7001\nrequirepass \"a b\"\nloglevel VERBOSE\nsave\nbind 127.0.0.1 -::1",
    );
    let config = run(&[file.path(), "--port", "7002", "--notify-keyspace-events", "Ex"]);
    assert_eq!(config.port, 7002);
    assert_eq!(config.requirepass, "a b");
    assert_eq!(config.loglevel, crate::config::LogLevel::Verbose);
    assert_eq!(config.bind, ["127.0.0.1", "-::1"]);
    assert_eq!(config.file(), Some(file.0.as_path()));
    assert!(config.is_explicit("loglevel") && config.is_explicit("notify-keyspace-events"));
    assert!(!config.is_explicit("hz"));
}

#[test]
fn options_take_values_until_the_next() {
    let config = run(&["--bind", "*", "-::*", "--save", "--dir", "a b", "--hz 20", "--save", ""]);
    assert_eq!(config.bind, ["*", "-::*"]);
    assert_eq!(config.dir, "a b");
    assert_eq!(config.hz, 20);
    assert_eq!(run(&["--bind", "127.0.0.1 ::1"]).bind, ["127.0.0.1", "::1"]);
    assert!(run(&["--bind", ""]).bind.is_empty());
}

#[test]
fn the_order_of_effort_and_what_it_governs_does_not_matter() {
    let effort = ["--active-expire-effort", "10"];
    let sample = ["--active-expire-sample-size", "20"];
    for args in [[effort, sample].concat(), [sample, effort].concat()] {
        let config = run(&args);
        assert_eq!(config.active_expire_sample_size, 20);
        assert_eq!(config.active_expire_cpu_percent, 43);
    }
}

#[test]
fn help_and_version() {
    for args in [&["-h"][..], &["--help"], &["--port", "1", "--help"]] {
        assert!(matches!(try_run(args), Ok(Start::Help(text)) if text.contains("--port")));
    }
    for args in [&["-v"][..], &["--version"]] {
        let of_redis = |text: &str| text.contains(" v=7.4.0)");
        assert!(matches!(try_run(args), Ok(Start::Version(text)) if text.starts_with("EmberDB ") && of_redis(&text)));
    }
    assert!(matches!(try_run(&["--requirepass", "-h"]), Ok(Start::Run(_))));
}

/// So Redis's own tests start it.
#[test]
fn the_first_option_behind_a_file_needs_no_dashes() {
    let file = TempFile::new("first", "port 7000\n");
    let config =
        run(&[file.path(), "loglevel", "verbose", "--maxmemory '700mb'", "--maxmemory-policy \"volatile-lru\""]);
    assert_eq!((config.port, config.maxmemory.of(0)), (7000, 700 << 20));
    assert!(refused(&[file.path(), "nosuch", "1"]).contains("Options begin with '--'"));
}

#[test]
fn a_wrong_name_is_told_the_nearest() {
    let file = TempFile::new("name", "port 7000\n\nmaxclient 4\n");
    assert_eq!(
        refused(&[file.path()]),
        format!(
            "*** FATAL CONFIG FILE ERROR (EmberDB {VERSION}) ***\n\
             Reading the configuration file, at line 3\n\
             >>> 'maxclient 4'\n\
             Unknown directive 'maxclient'\n\
             Did you mean 'maxclients'?"
        )
    );
    assert_eq!(
        refused(&["--prot", "7000"]),
        format!(
            "*** FATAL CONFIG FILE ERROR (EmberDB {VERSION}) ***\n\
             Reading the command line options\n\
             >>> '--prot 7000'\n\
             Unknown directive 'prot'\n\
             Did you mean 'port'?"
        )
    );
    assert!(refused(&["--no-such-thing", "yes"]).ends_with("All directives: emberdb --help"));
    assert!(refused(&["--hz=20"]).ends_with("Did you mean 'hz 20'?"));
    assert!(refused(&["-p", "7000"]).contains("Options begin with '--'"));
    assert!(refused(&["-port", "7000"]).ends_with("Did you mean '--port'?"));
    assert!(refused(&["port", "7000"]).ends_with("Did you mean '--port'?"));
    assert!(refused(&["--", "7000"]).contains("Unknown directive ''"));
}

/// Whoever reads the journal is told no password that stands in a line that is wrong.
#[test]
fn passwords_are_left_out_of_what_is_wrong() {
    for line in [
        "requirepass hunter2 extra",
        "requirepass \"hunter2",
        "masterauth hunter2 extra",
        "tls-key-file-pass hunter2 extra",
        "reqirepass hunter2",
        "user x on >hunter2 \"unfinished",
        "usr x on >hunter2",
    ] {
        let file = TempFile::new("secret", line);
        let told = refused(&[file.path()]);
        assert!(told.contains("(redacted)") && !told.contains("hunter2"), "{told}");
    }
    let told = refused(&["--requirepass=hunter2"]);
    assert!(told.ends_with("Did you mean 'requirepass (redacted)'?") && !told.contains("hunter2"), "{told}");
}

#[test]
fn a_wrong_value_is_told_what_is_valid() {
    for (args, end) in [
        (&["--hz", "600"][..], "argument must be between 1 and 500 inclusive\nValid: 1 to 500."),
        (
            &["--active-expire-interval-ms", "soon"],
            "argument couldn't be parsed into an integer\nValid: 0 to 60000 ms.",
        ),
        (
            &["--loglevel", "verbos"],
            "argument(s) must be one of the following: debug, verbose, notice, warning, nothing\n\
             Did you mean 'verbose'?",
        ),
        (&["--protected-mode", "yess"], "argument must be 'yes' or 'no'\nDid you mean 'yes'?"),
        (
            &["--hz", "1", "2"],
            "wrong number of arguments\nIt takes exactly one value; quote a value that contains spaces.",
        ),
        (&["--bind"], "wrong number of arguments"),
        (
            &["--client-query-buffer-limit", "1x"],
            "argument must be a memory value\n\
             Valid: 1mb to 2gb; units are b, k, kb, m, mb, g, gb (1k = 1000, 1kb = 1024).",
        ),
        (&["--cluster-enabled", "yes"], "cluster is not available yet: only cluster-enabled no is accepted"),
        (&["--port", "70000"], "argument must be between 0 and 65535 inclusive\nValid: 0 to 65535."),
    ] {
        let text = refused(args);
        assert!(text.ends_with(&format!("'\n{end}")), "{text}");
    }

    let file = TempFile::new("comment", "port 7000 # ours\n");
    assert!(refused(&[file.path()]).ends_with("A comment needs a line of its own."));
    let file = TempFile::new("quotes", "requirepass \"open\\\"\n");
    assert!(refused(&[file.path()]).ends_with("Unbalanced quotes in configuration line"));
}

#[test]
fn a_file_that_is_not_there() {
    let text = refused(&["/nowhere/redis.conf"]);
    assert!(text.contains("Can't open the configuration file '/nowhere/redis.conf': No such file"));
    assert!(refused(&["/"]).contains("Can't open the configuration file '/'"));
    assert!(refused(&[""]).contains("Can't open"));
}

#[test]
fn a_file_without_end_is_refused() {
    assert!(refused(&["/dev/zero"]).contains("larger than 16mb"));
}

#[test]
fn includes() {
    let inner = TempFile::new("inner", "hz 50\ntimeout 5\n");
    let outer = TempFile::new("outer", &format!("hz 20\ninclude {}\ntimeout 9\n", inner.path()));
    let config = run(&[outer.path()]);
    assert_eq!((config.hz, config.timeout_s), (50, 9));
    assert_eq!(config.file(), Some(outer.0.as_path()));

    let bad = TempFile::new("bad", "\nhz 0\n");
    let outer = TempFile::new("outer2", &format!("include '{}'\n", bad.path()));
    let text = refused(&[outer.path()]);
    assert!(text.contains(&format!("Reading the included file '{}', at line 2", bad.path())));

    let outer = TempFile::new("outer3", "\ninclude /nowhere/x.conf\n");
    let text = refused(&[outer.path()]);
    assert!(text.contains("at line 2\n>>> 'include /nowhere/x.conf'\nCan't open the included file"));

    let folder = inner.0.with_extension("d");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in
        [("b.conf", "hz 60\n"), ("a.conf", "hz 70\ntimeout 3\n"), ("c.txt", "hz 80\n"), (".d.conf", "hz 90\n")]
    {
        std::fs::write(folder.join(name), text).unwrap();
    }
    std::fs::create_dir_all(folder.join("e.conf")).unwrap();
    let several = TempFile::new("several", &format!("include {0}/*.conf\ninclude {0}/*.none\n", folder.display()));
    let config = run(&[several.path()]);
    assert_eq!((config.hz, config.timeout_s), (60, 3), "in the order of their names");
    std::fs::remove_dir_all(&folder).unwrap();

    assert!(refused(&["--include"]).contains("include takes exactly one path"));
}

#[test]
fn a_file_that_includes_itself_is_refused() {
    let file = TempFile::new("self", "");
    std::fs::write(&file.0, format!("include {}\n", file.path())).unwrap();
    assert!(refused(&[file.path()]).contains("more than 16 deep"));
}

/// What stands in the file that Debian ships, comments aside, in its order.
const OF_DEBIAN: &str = r#"
bind 127.0.0.1 -::1
protected-mode yes
port 6379
tcp-backlog 511
timeout 0
tcp-keepalive 300
pidfile /run/redis/redis-server.pid
loglevel notice
logfile /var/log/redis/redis-server.log
databases 16
always-show-logo no
set-proc-title yes
proc-title-template "{title} {listen-addr} {server-mode}"
stop-writes-on-bgsave-error yes
rdbcompression yes
rdbchecksum yes
dbfilename dump.rdb
rdb-del-sync-files no
dir /var/lib/redis
replica-serve-stale-data yes
replica-read-only yes
repl-diskless-sync yes
repl-diskless-sync-delay 5
repl-diskless-sync-max-replicas 0
repl-diskless-load disabled
repl-disable-tcp-nodelay no
replica-priority 100
acllog-max-len 128
lazyfree-lazy-eviction no
lazyfree-lazy-expire no
lazyfree-lazy-server-del no
replica-lazy-flush no
lazyfree-lazy-user-del no
lazyfree-lazy-user-flush no
oom-score-adj no
oom-score-adj-values 0 200 800
disable-thp yes
appendonly no
appendfilename "appendonly.aof"
appenddirname "appendonlydir"
appendfsync everysec
no-appendfsync-on-rewrite no
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
aof-load-truncated yes
aof-use-rdb-preamble yes
aof-timestamp-enabled no
slowlog-max-len 128
latency-monitor-threshold 0
notify-keyspace-events ""
hash-max-listpack-entries 512
hash-max-listpack-value 64
list-max-listpack-size -2
list-compress-depth 0
set-max-intset-entries 512
zset-max-listpack-entries 128
zset-max-listpack-value 64
hll-sparse-max-bytes 3000
stream-node-max-bytes 4096
stream-node-max-entries 100
activerehashing yes
client-output-buffer-limit normal 0 0 0
client-output-buffer-limit replica 256mb 64mb 60
client-output-buffer-limit pubsub 32mb 8mb 60
hz 10
dynamic-hz yes
aof-rewrite-incremental-fsync yes
rdb-save-incremental-fsync yes
jemalloc-bg-thread yes
user default on nopass sanitize-payload ~* &* +@all
"#;

#[test]
fn a_file_of_redis_fails_only_where_it_asks_for_what_is_not_there() {
    let file = TempFile::new("debian", OF_DEBIAN);
    let config = run(&[file.path()]);
    let without_effect = ["lazyfree-lazy-eviction", "lazyfree-lazy-expire", "lazyfree-lazy-server-del"];
    assert!(without_effect.iter().all(|name| config.without_effect().contains(name)));
    assert!(!config.without_effect().contains(&"appendfsync"), "as it is by default");
    let own = [
        ("rename-command CONFIG \"\"", "renaming and disabling commands is not available yet"),
        ("loadmodule /usr/lib/x.so", "modules are not available"),
    ];
    for (line, reason) in own {
        let file = TempFile::new("debian-own", &format!("{OF_DEBIAN}{line}\n"));
        let error = refused(&[file.path()]);
        assert!(error.contains(&format!(">>> '{line}'\n")) && error.contains(reason), "{line}: {error}");
    }
}
