//! The screen: panels beside each other, or one alone where there is little room, and what keys do.

use crate::model::Model;
use crate::panels::{PANELS, Panel, header};
use crate::watch::Told;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph};
use std::time::Instant;

/// With less room than that, one panel is shown.
const GRID: (u16, u16) = (70, 20);
/// With fewer rows than that, a panel has no frame.
const FRAMED_ROWS: u16 = 4;
const PAGE: usize = 10;

const LEFT: [(Panel, u16); 3] = [(Panel::Lag, 4), (Panel::Deaths, 4), (Panel::Policies, 2)];
const RIGHT: [(Panel, u16); 4] = [(Panel::Rates, 3), (Panel::Shards, 3), (Panel::Memory, 3), (Panel::Clients, 3)];

const FOOTER: &str = "q quit  tab panel  ↑↓ scroll  enter zoom  space pause  ? help";
const HELP: &[&str] = &[
    "q, ctrl-c          quit",
    "tab, → and l       next panel",
    "shift-tab, ← and h panel before",
    "1 to 7             that panel",
    "↑ ↓, k and j       scroll, page up and down by more",
    "home, end          first and last line",
    "enter, z           this panel alone, and back",
    "space              pause: the server is watched on, and shown as it was",
    "?, esc             this help, and back",
    "",
    "Lag is how long after their deadlines keys are deleted and their events sent, since the",
    "server started; due now is how late the oldest dead key is that is still there. Nobody",
    "ever sees a key after its deadline. Rates are those since the look before.",
];

pub struct Screen {
    model: Model,
    /// What is shown in its place while paused, and since when.
    paused: Option<(Model, Instant)>,
    focus: usize,
    scrolled: [usize; PANELS.len()],
    is_alone: bool,
    is_help: bool,
}

impl Screen {
    pub fn new(model: Model) -> Screen {
        Screen { model, paused: None, focus: 0, scrolled: [0; PANELS.len()], is_alone: false, is_help: false }
    }

    pub fn hear(&mut self, told: Told) {
        self.model.hear(told);
    }

    /// Whether that ends the program.
    pub fn press(&mut self, key: KeyEvent, now: Instant) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let scrolled = &mut self.scrolled[self.focus];
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') => return true,
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.focus = (self.focus + 1) % PANELS.len(),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => {
                self.focus = (self.focus + PANELS.len() - 1) % PANELS.len();
            }
            KeyCode::Char(digit @ '1'..='7') => self.focus = digit as usize - '1' as usize,
            KeyCode::Up | KeyCode::Char('k') => *scrolled = scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => *scrolled = scrolled.saturating_add(1),
            KeyCode::PageUp => *scrolled = scrolled.saturating_sub(PAGE),
            KeyCode::PageDown => *scrolled = scrolled.saturating_add(PAGE),
            KeyCode::Home => *scrolled = 0,
            // (Drawing knows where that is.)
            KeyCode::End => *scrolled = usize::MAX,
            KeyCode::Enter | KeyCode::Char('z') => self.is_alone = !self.is_alone,
            KeyCode::Char(' ') => {
                self.paused = if self.paused.is_some() { None } else { Some((self.model.clone(), now)) };
            }
            KeyCode::Char('?') => self.is_help = !self.is_help,
            KeyCode::Esc if self.is_help => self.is_help = false,
            KeyCode::Esc => self.is_alone = false,
            _ => {}
        }
        false
    }

    pub fn draw(&mut self, frame: &mut Frame, now: Instant) {
        // What is shown is taken out for as long as positions are put right.
        let paused = self.paused.take();
        let (model, at) = paused.as_ref().map_or((&self.model, now), |(model, at)| (model, *at));
        let rows = Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(1)]);
        let [top, middle, bottom] = rows.areas(frame.area());
        frame.render_widget(header(model), top);
        // Without a frame a panel's name stands there.
        let title = if middle.height < FRAMED_ROWS { PANELS[self.focus].title() } else { "" };
        let state = if paused.is_some() { "PAUSED" } else { "" };
        let parts: Vec<&str> = [state, title, FOOTER].into_iter().filter(|part| !part.is_empty()).collect();
        frame.render_widget(Line::styled(parts.join("  "), Modifier::DIM), bottom);
        if self.is_help {
            let lines: Vec<Line> = HELP.iter().map(|&line| Line::raw(line)).collect();
            frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), middle);
        } else if self.is_alone || middle.width < GRID.0 || middle.height < GRID.1 {
            draw_panel(frame, middle, PANELS[self.focus], true, &mut self.scrolled[self.focus], model, at);
        } else {
            let [left, right] = Layout::horizontal([Constraint::Fill(1); 2]).areas(middle);
            for (column, area) in [(&LEFT[..], left), (&RIGHT[..], right)] {
                let shares = column.iter().map(|(_, share)| Constraint::Fill(*share));
                for ((panel, _), area) in column.iter().zip(Layout::vertical(shares).split(area).iter()) {
                    let number = PANELS.iter().position(|other| other == panel).unwrap_or(0);
                    let scrolled = &mut self.scrolled[number];
                    draw_panel(frame, *area, *panel, number == self.focus, scrolled, model, at);
                }
            }
        }
        self.paused = paused;
    }
}

fn draw_panel(
    frame: &mut Frame,
    area: Rect,
    panel: Panel,
    has_focus: bool,
    scrolled: &mut usize,
    model: &Model,
    now: Instant,
) {
    let framed = area.height >= FRAMED_ROWS;
    let inner = if framed { Block::bordered().inner(area) } else { area };
    let lines = panel.lines(model, now, inner.width.into());
    let rows = usize::from(inner.height);
    *scrolled = (*scrolled).min(lines.len().saturating_sub(rows));
    if framed {
        // The focus is not a matter of colours alone.
        let title = if has_focus { format!(" ▸ {} ", panel.title()) } else { format!(" {} ", panel.title()) };
        let mut block = Block::bordered().title(title);
        if has_focus {
            block = block.border_style(Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD));
        }
        if lines.len() > rows {
            let last = (*scrolled + rows).min(lines.len());
            block = block.title_bottom(Line::raw(format!(" {last}/{} ", lines.len())).right_aligned());
        }
        frame.render_widget(block, area);
    }
    let shown: Vec<Line> = lines.into_iter().skip(*scrolled).take(rows).collect();
    frame.render_widget(Paragraph::new(shown), inner);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::{facts, told};
    use crate::watch::{Death, Horizon};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    const EMBER: &[u8] = b"emberdb_version:0.1.0\r\nrole:master\r\nuptime_in_seconds:90061\r\nshards:2\r\n\
        server_time_usec:1000000\r\ntotal_commands_processed:100\r\nexpired_keys:10\r\nexpired_subkeys:1\r\n\
        expire_lag_promised_us:12000\r\nexpire_lag_p50_us:500\r\nexpire_lag_p99_us:1500\r\nexpire_lag_max_us:13000\r\n\
        expire_oldest_due_us:100\r\nused_memory:1048576\r\nmaxmemory:2097152\r\nmaxmemory_policy:allkeys-lru\r\n\
        connected_clients:3\r\nmaxclients:10000\r\ndb0:keys=1234,expires=1000,avg_ttl=5\r\n\
        shard0:keys=600,expires=500,bytes=4096,connections=2,commands=60,lag_p99_us=700,oldest_due_us=0\r\n\
        shard1:keys=634,expires=500,bytes=4096,connections=1,commands=40,lag_p99_us=900,oldest_due_us=0\r\n";

    fn screen(texts: &[&[u8]]) -> (Screen, Instant) {
        let (model, at) = told(texts);
        (Screen::new(model), at)
    }

    fn drawn(screen: &mut Screen, now: Instant, (width, height): (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame, now)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y) + "\n").collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE), Instant::now())
    }

    #[test]
    fn all_panels_beside_each_other() {
        let (mut screen, at) = screen(&[EMBER, EMBER]);
        screen.hear(Told::Deaths(Ok(vec![Death { key: "session:42".to_owned(), at_ms: 66_000 }])));
        screen.hear(Told::Forecast(Ok(vec![Horizon { within: "1m", keys: 12, bytes: 2048 }])));
        let shown = drawn(&mut screen, at, (120, 50));
        for text in [
            "127.0.0.1:6379  EmberDB 0.1.0  master  up 1d 01h  1,234 keys",
            "▸ Lag",
            "promised     12.0 ms",
            "p99           1.5 ms",
            "over the bound",
            "within 1m  12 keys, 2.0 KiB",
            "1m 05s  session:42",
            "used       1.0 MiB of 2.0 MiB, 50 %",
            "3 of 10,000",
            "634",
            "(nothing)",
            "q quit",
        ] {
            assert!(shown.contains(text), "{text} is not in\n{shown}");
        }
        for panel in PANELS {
            assert!(shown.contains(panel.title()), "{shown}");
        }
    }

    #[test]
    fn another_server_says_what_is_missing() {
        let (mut screen, at) = screen(&[b"redis_version:7.0.15\nexpired_keys:1\n".as_slice(); 2]);
        screen.hear(Told::Deaths(Err("this server has no live queries".to_owned())));
        let shown = drawn(&mut screen, at, (120, 50));
        for text in ["Redis 7.0.15", "does not tell how late keys die", "has no live queries", "has no shards"] {
            assert!(shown.contains(text), "{text} is not in\n{shown}");
        }
    }

    #[test]
    fn what_is_away_is_said_and_what_was_known_stays() {
        let (mut screen, at) = screen(&[EMBER, EMBER]);
        screen.hear(Told::Lost("connection refused".to_owned()));
        let shown = drawn(&mut screen, at, (120, 50));
        assert!(shown.contains("away: connection refused") && shown.contains("promised"), "{shown}");
        let mut unknown = Screen::new(Model::new("h:1".to_owned(), true));
        assert!(drawn(&mut unknown, at, (80, 24)).contains("nothing is told yet"));
    }

    #[test]
    fn keys_do_what_the_help_says() {
        let (mut screen, at) = screen(&[EMBER, EMBER]);
        let small = (60, 12);
        assert!(drawn(&mut screen, at, small).contains("▸ Lag"));
        assert!(!press(&mut screen, KeyCode::Tab));
        assert!(drawn(&mut screen, at, small).contains("▸ Rates"));
        press(&mut screen, KeyCode::Left);
        press(&mut screen, KeyCode::BackTab);
        assert!(drawn(&mut screen, at, small).contains("▸ Clients"));
        press(&mut screen, KeyCode::Char('4'));
        press(&mut screen, KeyCode::Enter);
        let alone = drawn(&mut screen, at, (120, 50));
        assert!(alone.contains("▸ Shards") && !alone.contains("Memory"), "{alone}");
        press(&mut screen, KeyCode::Esc);
        assert!(drawn(&mut screen, at, (120, 50)).contains("Memory"));
        press(&mut screen, KeyCode::Char('?'));
        assert!(drawn(&mut screen, at, (120, 50)).contains("shift-tab"));
        press(&mut screen, KeyCode::Esc);
        assert!(press(&mut screen, KeyCode::Char('q')));
        assert!(screen.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL), at));
        assert!(!press(&mut screen, KeyCode::Char('c')));
    }

    #[test]
    fn a_pause_shows_what_was() {
        let (mut screen, at) = screen(&[b"emberdb_version:1\ndb0:keys=1\n"]);
        press(&mut screen, KeyCode::Char(' '));
        screen.hear(facts(b"emberdb_version:1\ndb0:keys=2\n", at + Duration::from_secs(1)));
        let shown = drawn(&mut screen, at, (120, 50));
        assert!(shown.contains("PAUSED") && shown.contains("1 keys"), "{shown}");
        press(&mut screen, KeyCode::Char(' '));
        assert!(drawn(&mut screen, at, (120, 50)).contains("2 keys"));
    }

    #[test]
    fn long_lists_are_scrolled_as_far_as_they_go() {
        let (mut screen, at) = screen(&[EMBER, EMBER]);
        let death = |number| Death { key: format!("key:{number}"), at_ms: 2_000 };
        screen.hear(Told::Deaths(Ok((0..100).map(death).collect())));
        let small = (60, 12);
        press(&mut screen, KeyCode::Char('3'));
        assert!(!drawn(&mut screen, at, small).contains("key:99"));
        press(&mut screen, KeyCode::End);
        assert!(drawn(&mut screen, at, small).contains("key:99"));
        press(&mut screen, KeyCode::Up);
        let shown = drawn(&mut screen, at, small);
        assert!(!shown.contains("key:99") && shown.contains("key:98"), "{shown}");
        press(&mut screen, KeyCode::Home);
        assert!(drawn(&mut screen, at, small).contains("key:0"));
    }

    /// Whatever a server tells, and however small the terminal: nothing panics, and no control character is drawn.
    #[test]
    fn neither_a_hostile_server_nor_a_small_terminal_is_a_panic() {
        let mut texts: Vec<Vec<u8>> = vec![vec![], EMBER.to_vec(), b"\xff\xfe:\n:::\n\n".to_vec(), vec![b'\n'; 999]];
        let mut names: Vec<String> = String::from_utf8(EMBER.to_vec())
            .unwrap()
            .lines()
            .filter_map(|line| Some(line.trim().split_once(':')?.0.to_owned()))
            .collect();
        names.extend(["mem_fragmentation_ratio", "loading", "redis_version", "run_id"].map(str::to_owned));
        let worst =
            ["18446744073709551615", "-1", "9e307", "nan", "", "\x1b[2J\x07", "日本\u{202e}語", "keys=9e99,=,expires"];
        for value in worst {
            texts.push(names.iter().map(|name| format!("{name}:{value}\n")).collect::<String>().into_bytes());
        }
        let shard =
            "shard4294967295:keys=18446744073709551615,bytes=1e300,commands=-1,lag_p99_us=18446744073709551615\n";
        texts.push(format!("emberdb_version:{}\n{shard}", "9".repeat(100_000)).into_bytes());
        let sizes = [(120, 50), (80, 24), (70, 22), (20, 5), (20, 4), (5, 3), (1, 1), (0, 0), (300, 2), (2, 200)];
        for second in &texts {
            for first in [&texts[1], second] {
                let (mut screen, at) = screen(&[first, second]);
                screen.hear(Told::Deaths(Ok(vec![Death { key: "日".repeat(5_000), at_ms: i64::MIN }])));
                screen.hear(Told::Forecast(Ok(vec![Horizon { within: "1m", keys: u64::MAX, bytes: u64::MAX }])));
                for panel in '1'..='7' {
                    press(&mut screen, KeyCode::Char(panel));
                    press(&mut screen, KeyCode::End);
                    for size in sizes {
                        let shown = drawn(&mut screen, at, size);
                        let control = shown.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
                        assert_eq!(control, None, "{shown}");
                    }
                }
                let (text, json) = (crate::once::text(&screen.model, at), crate::once::json(&screen.model).to_string());
                assert!(!(text + &json).chars().any(|c| c.is_control() && c != '\n' || c == '\u{202e}'));
            }
        }
    }
}
