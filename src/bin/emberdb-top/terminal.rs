//! The terminal, which is left as it was found, however the program ends.

use crate::screen::Screen;
use crate::watch::Told;
use ratatui::DefaultTerminal;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level};
use std::io::{self, IsTerminal};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// How long keys are waited for, and with that how late news is shown.
const TICK: Duration = Duration::from_millis(50);
/// Without news the screen is drawn so often, since the time that keys have left is shown.
const REDRAW: Duration = Duration::from_millis(200);

/// Shows the screen until somebody quits. Signals end it, too, and then the process, as they would have without it.
///
/// # Errors
/// There is no terminal, or it went away.
pub fn run(mut screen: Screen, told: &Receiver<Told>) -> Result<(), String> {
    if !io::stdout().is_terminal() {
        return Err("standard output is no terminal: --once prints one screen".to_owned());
    }
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        flag::register_usize(number, signal.clone(), number as usize).map_err(|error| error.to_string())?;
    }
    // A panic restores the terminal, too, before it says anything; ratatui sees to all but the cursor.
    let say = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        show_cursor();
        say(panic);
    }));
    let mut terminal =
        ratatui::try_init().inspect_err(|_| restore()).map_err(|error| format!("no terminal: {error}"))?;
    let shown = show(&mut terminal, &mut screen, told, &signal);
    restore();
    match signal.load(Ordering::Relaxed) {
        0 => shown.map_err(|error| format!("the terminal is gone: {error}")),
        number => low_level::emulate_default_handler(number as i32).map_err(|error| error.to_string()),
    }
}

/// (Where the terminal is gone there is nothing to restore.)
fn restore() {
    let _ = ratatui::try_restore();
    show_cursor();
}

fn show_cursor() {
    let _ = execute!(io::stdout(), Show);
}

fn show(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    told: &Receiver<Told>,
    signal: &AtomicUsize,
) -> io::Result<()> {
    let mut drawn: Option<Instant> = None;
    let mut has_news = true;
    while signal.load(Ordering::Relaxed) == 0 {
        loop {
            match told.try_recv() {
                Ok(news) => {
                    screen.hear(news);
                    has_news = true;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(io::Error::other("nobody asks the server any more")),
            }
        }
        let now = Instant::now();
        if has_news || drawn.is_none_or(|drawn| now.duration_since(drawn) >= REDRAW) {
            terminal.draw(|frame| screen.draw(frame, now))?;
            (drawn, has_news) = (Some(now), false);
        }
        // All keys that wait already, then the screen.
        let mut patience = TICK;
        while event::poll(patience)? {
            match event::read()? {
                Event::Key(key) if screen.press(key, Instant::now()) => return Ok(()),
                _ => has_news = true,
            }
            patience = Duration::ZERO;
        }
    }
    Ok(())
}
