//! `emberdb-top`: what a server does, on a terminal. It asks with INFO, LIVE NEXT, EXPIRY and CLIENT LIST, and shows of any other
//! RESP server what INFO tells.
//!
//! ```text
//!  main       flags -> a screen, or once     terminal   where it is shown, and left as it was found
//!  screen     panels' places, keys           once       the same as plain text or JSON
//!  panels     what is shown, as lines        model      what is known, rates
//!  watch      who asks, and what             link       a connection that expects anything
//!  info       the fields of INFO             text       names and numbers as people read them
//!  flags      as redis-cli names them
//!  said       what is printed
//! ```
//!
//! Connections are those of `emberdb::measure`, and nothing else of the library is used. What a server sends is escaped where
//! it is read, so that nothing behind `watch` and `info` has to think of it.

mod flags;
mod info;
mod link;
mod model;
mod once;
mod panels;
mod said;
mod screen;
mod terminal;
mod text;
mod watch;

use clap::{CommandFactory, Parser};
use flags::Flags;
use model::Model;
use screen::Screen;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            said::complain(failure);
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), String> {
    if let Some(what) = flags.generate {
        said::say(what.text(Flags::command()).trim_end());
        return Ok(());
    }
    let login = flags.login();
    let address = text::escaped(login.target.address.to_string().as_bytes());
    let mut model = Model::new(address, !flags.no_walks);
    let told = watch::start(login, flags.interval(), (!flags.no_walks).then(|| flags.prefix.clone()));
    if !flags.once {
        return terminal::run(Screen::new(model), &told);
    }
    once::gather(flags, &mut model, &told)?;
    match flags.json {
        true => said::say(format_args!("{:#}", once::json(&model))),
        false => said::say(once::text(&model, Instant::now())),
    }
    Ok(())
}
