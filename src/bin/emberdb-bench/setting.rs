//! A directive of the server that is changed for a while and put back on every way out: at the end, on failure, and
//! when the process is asked to end.

use crate::failure::{Failure, Result};
use crate::said::complain;
use emberdb::measure::client::{Client, Login};
use emberdb::measure::resp::Value;
use emberdb::measure::target::Target;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, iterator::Signals, low_level};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};

/// What is changed now; whoever takes it out puts it back.
static CHANGED: Mutex<Option<Before>> = Mutex::new(None);

struct Before {
    target: Target,
    login: Login,
    name: &'static str,
    value: Vec<u8>,
}

/// As long as it lives a directive has another value. One at a time.
pub struct Setting(());

impl Setting {
    /// Changes a directive of a server.
    pub fn change(target: &Target, login: &Login, name: &'static str, value: &[u8]) -> Result<Setting> {
        let mut client = Client::open(target, login)?;
        let before = match client.call(&[b"CONFIG", b"GET", name.as_bytes()])? {
            Value::List(pair) => pair.get(1).and_then(Value::text).unwrap_or_default().to_vec(),
            _ => Vec::new(),
        };
        let before = Before { target: target.clone(), login: login.clone(), name, value: before };
        // Known before it is changed: a signal may come at any moment.
        assert!(changed().replace(before).is_none(), "one at a time");
        let setting = Setting(());
        client.call(&[b"CONFIG", b"SET", name.as_bytes(), value])?;
        Ok(setting)
    }

    /// Puts it back, and tells if that fails.
    pub fn restore(self) -> Result<()> {
        put_back(&mut changed())
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        if let Err(failure) = put_back(&mut changed()) {
            complain(failure);
        }
    }
}

/// From now on SIGINT and SIGTERM end the process when what is changed has been put back; a second one ends it at once.
pub fn restore_on_signals() -> Result<()> {
    let asked = Arc::new(AtomicBool::new(false));
    let watch = || {
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, asked.clone())?;
            flag::register(signal, asked.clone())?;
        }
        Signals::new([SIGINT, SIGTERM])
    };
    let mut signals = watch().map_err(|error| Failure::Unfit(format!("cannot watch for signals: {error}")))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            // Held until the end, so that nothing is changed anew.
            let mut changed = changed();
            if let Err(failure) = put_back(&mut changed) {
                complain(failure);
            }
            // The way it would have ended without us.
            low_level::emulate_default_handler(signal).expect("a signal with a default");
        }
    });
    Ok(())
}

fn changed() -> MutexGuard<'static, Option<Before>> {
    CHANGED.lock().expect("nobody panics with it")
}

/// Over a connection of its own: the one that failed may be in the middle of something.
fn put_back(changed: &mut Option<Before>) -> Result<()> {
    let Some(Before { target, login, name, value }) = changed.take() else {
        return Ok(());
    };
    Client::open(&target, &login)?.call(&[b"CONFIG", b"SET", name.as_bytes(), &value])?;
    Ok(())
}
