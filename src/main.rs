//! `emberdb`: reads its configuration, starts one executor a shard, serves until it is told to stop.

use emberdb::clock::{Clock, Sequence};
use emberdb::config::{self, Config, PinShards, Start, summary};
use emberdb::executor::{self, Queue, Shares};
use emberdb::keyspace::{Hasher, Keyspace};
use emberdb::net::tls::{Tls, client_config, reload};
use emberdb::net::{Bell, Chosen, Listener, choose, watch_over};
use emberdb::observe::memory::{self, Counting, Jemalloc};
use emberdb::observe::{log, supervisor};
use emberdb::persist::aof::seed;
use emberdb::server::{
    self, Global, KnownUsers, Table, listen, make_room_for, pages, table, users_at_start, watch_signals,
};
use emberdb::shard::{Ceiling, PREEMPT, Shard, Shared, UnderWay, links};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fmt::Display;
use std::io::Write;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::available_parallelism;

#[path = "main/check.rs"]
mod check;
#[path = "main/daemon.rs"]
mod daemon;
#[path = "main/health.rs"]
mod health;

#[global_allocator]
static ALLOCATOR: Counting<Jemalloc> = Counting(Jemalloc);

/// jemalloc's options: threads of its own give free pages back to the system, a second after they became free, so
/// that no shard stops for it and none has to be active. (Where pages are large: [`memory::keep_large_pages`].)
#[allow(non_upper_case_globals)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static malloc_conf: &[u8] = b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

fn main() -> ExitCode {
    let args = health::of_container(std::env::args().skip(1).collect());
    let config = match config::load(&args) {
        Ok(Start::Run(config)) if daemon::is_wanted(&config) => {
            let started = daemon::start(&config).map(|()| String::new());
            return answer(started.map_err(|error| format!("Can't go into the background: {error}")));
        }
        Ok(Start::Run(config)) => *config,
        Ok(Start::Check(config)) => return answer(check::run(*config)),
        Ok(Start::Healthcheck(config)) => return answer(health::ask(&config)),
        Ok(Start::Help(text) | Start::Version(text)) => {
            say(std::io::stdout(), text);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            say(std::io::stderr(), error);
            return ExitCode::FAILURE;
        }
    };
    match start(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            log::warning(format_args!("{reason}"));
            log::flush();
            say(std::io::stderr(), format_args!("emberdb: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// What was asked, and not a server.
fn answer(answer: Result<String, String>) -> ExitCode {
    match answer {
        Ok(text) => {
            if !text.is_empty() {
                say(std::io::stdout(), text);
            }
            ExitCode::SUCCESS
        }
        Err(reason) => {
            say(std::io::stderr(), format_args!("emberdb: {reason}"));
            ExitCode::FAILURE
        }
    }
}

/// Tells whoever started the program. That he has stopped listening (`| head`) is no reason to panic.
fn say(mut to: impl Write, text: impl Display) {
    let _ = writeln!(to, "{text}").and_then(|()| to.flush());
}

fn start(mut config: Config) -> Result<(), String> {
    config.input = None;
    log::open(&config).map_err(|error| format!("Can't open the log file '{}': {error}", config.logfile))?;
    daemon::settle(&config)?;
    if config.dir != "." {
        std::env::set_current_dir(&config.dir).map_err(|error| format!("Can't chdir to '{}': {error}", config.dir))?;
    }
    if let Ok(dir) = std::env::current_dir() {
        config.dir = dir.display().to_string();
    }
    let idle = config.without_effect();
    if !idle.is_empty() {
        log::notice(format_args!("Without effect here (emberdb --help says why): {}", idle.join(", ")));
    }
    end_on_panic();
    memory::keep_large_pages();
    if config.disable_thp {
        refuse_huge_pages();
    }
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let shards = shards_of(&config, &cores);
    let table = Arc::new(table());
    let users = users_at_start(&config, &table)?;
    let network = choose(config.network, shards)?;
    fit_clients(&mut config, shards)?;
    let serves_tls = config.tls.port > 0 || config.metrics_port > 0 && config.metrics_tls;
    let tls = if serves_tls { Some(Tls::new(&config.tls)) } else { None };
    let tls = tls.transpose().map_err(|error| format!("Failed to configure TLS: {error}"))?;
    if config.tls.replication {
        client_config(&config.tls).map_err(|error| format!("Failed to configure TLS: {error}"))?;
    }
    let listeners = listen::open(&config).map_err(|error| error.to_string())?;
    write_pid(&mut config);
    keep_others_out();
    serve(config, (shards, network), &cores, (listeners, tls), (table, users))
}

/// In the background there is a file in any case. As in Redis, a file that cannot be written is no reason to refuse the start.
fn write_pid(config: &mut Config) {
    if config.pidfile.is_empty() {
        if !daemon::goes(config) {
            return;
        }
        config.pidfile = daemon::PID_FILE.to_owned();
    }
    if let Err(error) = std::fs::write(&config.pidfile, format!("{}\n", std::process::id())) {
        log::warning(format_args!("Failed to write PID file: {}: {error}", config.pidfile));
        config.pidfile.clear();
    }
}

/// As many shards as there are cores, unless another number is wanted. A container may have a share of the cores' time and see
/// all of them: then the share counts.
fn shards_of(config: &Config, cores: &[core_affinity::CoreId]) -> usize {
    let share = available_parallelism().map_or(usize::MAX, NonZero::get);
    if config.shards == 0 { cores.len().clamp(1, share) } else { config.shards }
}

/// The seed of the log that is about to be loaded.
fn seed_of(config: &Config) -> Option<u64> {
    if config.appendonly { seed::of_log(&config.log_folder(), &config.appendfilename) } else { None }
}

/// Starts a thread for each shard and waits for them; they end with the process.
fn serve(
    config: Config,
    (shards, network): (usize, Chosen),
    cores: &[core_affinity::CoreId],
    (listeners, tls): (Vec<Listener>, Option<Arc<Tls>>),
    (table, users): (Arc<Table>, KnownUsers),
) -> Result<(), String> {
    let (version, id) = (env!("CARGO_PKG_VERSION"), std::process::id());
    log::notice(format_args!("EmberDB {version} is starting, PID: {id}"));
    let bells = Bell::for_all(shards).map_err(|error| format!("Can't start the shards: {error}"))?;
    let signals = signal_thread(&bells).map_err(|error| format!("Can't handle signals: {error}"))?;
    let accepted = listen::accept(&listeners, tls.as_ref(), &bells);
    let accepted = accepted.map_err(|error| format!("Can't accept connections: {error}"))?;
    if let Some(tls) = &tls {
        reload(tls).map_err(|error| format!("Can't watch over the files of TLS: {error}"))?;
    }
    let hasher = Hasher::new(seed_of(&config).unwrap_or_else(|| fastrand::u64(..)), shards);
    let global = Arc::new(Global::new(config.clone(), bells.clone(), (listeners, tls), users));
    supervisor::begin(config.supervised, {
        let global = global.clone();
        move || global.loaded_bytes()
    });
    let questions = pages::serve(&global).map_err(|error| format!("Can't serve metrics: {error}"))?;
    let (sequence, under_way) = (Arc::new(Sequence::new(shards)), UnderWay::new(shards));
    let shared = Shared { sequence, ceiling: Ceiling::new(shards), under_way };
    let port = if config.port > 0 { config.port } else { config.tls.port };
    let config = Arc::new(config);
    let mut first = Some((accepted, signals, questions));
    let mut threads = Vec::new();
    let pinned = match config.pin_shards {
        PinShards::Auto => shards > 1 && shards == cores.len(),
        PinShards::Yes => !cores.is_empty(),
        PinShards::No => false,
    };
    if network == Chosen::Sockets {
        watch_over(bells.clone()).map_err(|error| format!("Can't watch over the shards: {error}"))?;
    }
    for (index, links) in links(shards).into_iter().enumerate() {
        let core = pinned.then(|| cores[index % cores.len()].id);
        let (hasher, global, table, bells) = (hasher.clone(), global.clone(), table.clone(), bells.clone());
        let (config, shared) = (config.clone(), shared.clone());
        let seed = fastrand::u64(..);
        let first = if index == 0 { first.take() } else { None };
        let run = move || async move {
            let transport = network.open(index, bells);
            let transport = transport.unwrap_or_else(|error| panic!("no network for shard {index}: {error}"));
            let mut keyspace = Keyspace::new(config.databases, hasher);
            for (prefix, policy) in &*config.expiry_policies.lock() {
                keyspace.set_policy(prefix.as_bytes(), Some(policy.clone()));
            }
            let clock = Clock::of_shard(shared.sequence.clone());
            let shard = Shard::new(index, keyspace, clock, shared, table.specs(), seed, config);
            let name = transport.name();
            let server = server::make(shard.clone(), global, table, transport.clone());
            // Ring and epoll yield where they should; over glommio's sockets tasks have to be interrupted.
            let preempt = (network == Chosen::Sockets).then_some(PREEMPT);
            let queue = Queue::new("serving", Shares::Always(1000), preempt);
            let serving = async move {
                shard.start(links, transport);
                server::start(&server);
                if let Some((accepted, signals, questions)) = first {
                    watch_signals(&server, signals);
                    executor::spawn(pages::answer(server.clone(), questions));
                    // Nobody is served until all shards are there: what is used before that says little.
                    server.shard.call_all(|_| ()).await;
                    listen::start(&server, accepted);
                    memory::note_startup();
                    // Redis says so here; its own tests wait for that.
                    log::notice(format_args!("Server initialized"));
                    server::load_at_start(&server).await;
                    server::follow_at_start(&server).await;
                    log::notice(format_args!("{}", summary(&server.shard.config(), shards, network.name())));
                    supervisor::ready("Ready to accept connections");
                    log::notice(format_args!(
                        "Ready to accept connections: port {port}, {shards} shards, {name} network"
                    ));
                }
            };
            executor::spawn_into(queue, serving);
            std::future::pending::<()>().await;
        };
        let thread = executor::start(network.executor(), &format!("shard-{index}"), core, run);
        let thread = thread.map_err(|error| format!("Can't start shard {index}: {error}"))?;
        threads.push(thread);
    }
    for (index, thread) in threads.into_iter().enumerate() {
        thread.join().map_err(|error| format!("Shard {index}: {error}"))?;
    }
    Ok(())
}

/// A panic in one task would end its executor while the others go on half alive: it ends the process.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        say(
            std::io::stderr(),
            "emberdb: this is a defect; the process ends so that no shard is left without the others",
        );
        std::process::abort();
    }));
}

/// Snapshots and the log are for this user and their group, whatever else the umask leaves: they hold what clients have to
/// log in for.
fn keep_others_out() {
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask | rustix::fs::Mode::from_raw_mode(0o027));
}

/// A fault that clears a huge page stops a shard for milliseconds; small pages cost a little more at each access
/// (bench-results, growth).
fn refuse_huge_pages() {
    // SAFETY: sets a flag of this process; what is not supported is not changed.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) };
}

/// No more clients than there are open files for.
fn fit_clients(config: &mut Config, shards: usize) -> Result<(), String> {
    let wanted = config.maxclients;
    match make_room_for(wanted, shards, config) {
        Ok(()) => Ok(()),
        Err(0) => {
            Err(format!("The limit of open files leaves none for clients beside {shards} shards: raise it (ulimit -n)"))
        }
        Err(possible) => {
            log::warning(format_args!(
                "The limit of open files is too low for maxclients {wanted}: maxclients has been reduced to {possible}. \
                 If you need higher maxclients increase 'ulimit -n'."
            ));
            config.maxclients = possible;
            Ok(())
        }
    }
}

/// A thread that sends signals to the first shard, whose bell rings for each.
fn signal_thread(bells: &Arc<[Bell]>) -> std::io::Result<Receiver<i32>> {
    let (sender, receiver) = mpsc::channel();
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let bells = bells.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            // A closed terminal does not end a server.
            if signal != SIGHUP {
                if sender.send(signal).is_err() {
                    return;
                }
                bells[0].ring_from_outside();
            }
        }
    })?;
    Ok(receiver)
}
