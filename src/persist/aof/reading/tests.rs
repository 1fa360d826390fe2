//! Logs that are whole, torn and damaged.

use super::*;
use proptest::prelude::*;
use std::fs;

const LIMITS: Limits = Limits { bulk_bytes: 1 << 20, authenticated: true };

fn command(number: usize) -> Vec<u8> {
    let value = format!("value{number}");
    format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len()).into_bytes()
}

/// Where a batch stands: its file, its start in the file, its position in the log, and what it says was synced.
type Place = (usize, usize, u64, u64);

/// A log of batches in so many files, and the place of each.
fn write(batches: usize, files: usize, synced_by: usize) -> (Vec<Vec<u8>>, Vec<Place>) {
    let (mut all, mut places, mut position) = (vec![Vec::new(); files], Vec::new(), 0);
    for number in 0..batches {
        let file = number * files / batches;
        let commands = command(number);
        let synced = number
            .checked_sub(synced_by)
            .map_or(0, |earlier: usize| places.get(earlier).map_or(0, |(_, _, position, _)| *position));
        places.push((file, all[file].len(), position, synced));
        let head = batch::head(&commands, position, synced);
        position += (head.len() + commands.len()) as u64;
        all[file].extend_from_slice(&head);
        all[file].extend_from_slice(&commands);
    }
    (all, places)
}

fn read_all(files: &[Vec<u8>], position: Option<u64>, torn: bool) -> (Vec<u8>, Result<Read, LogError>) {
    read_with(files, position, Tolerance { torn, damaged_bytes: 0 })
}

fn read_with(files: &[Vec<u8>], position: Option<u64>, tolerance: Tolerance) -> (Vec<u8>, Result<Read, LogError>) {
    let folder = tempfile::tempdir().expect("a folder");
    let paths: Vec<(PathBuf, u64)> = (0..files.len()).map(|file| (folder.path().join(file.to_string()), 0)).collect();
    files.iter().zip(&paths).for_each(|(bytes, (path, _))| fs::write(path, bytes).expect("a file"));
    let mut all = Vec::new();
    let mut send = |item| {
        if let Item::Commands(bytes) = item {
            all.extend_from_slice(&bytes);
        }
        Ok(())
    };
    let read = read(&paths, position, LIMITS, tolerance, &Progress::default(), &mut send);
    (all, read)
}

fn commands(count: usize) -> Vec<u8> {
    (0..count).flat_map(command).collect()
}

/// Whatever is left of a log says where in the stream it ends, or that nobody knows.
#[test]
fn what_is_left_of_a_log_is_known_or_not() {
    let known_as = |position| Some(KnownAs { id: "a".repeat(40), position, db: 1, is_old: position == 30 });
    let (mut log, mut ends) = (Vec::new(), Vec::new());
    let whole = |known_as: Option<KnownAs>, commands: &[u8], log: &mut Vec<u8>| {
        let head = batch::head_of(commands, log.len() as u64, 0, known_as.as_ref());
        log.extend_from_slice(&[&head, commands].concat());
    };
    for (of, commands) in [(Some(10), command(1)), (None, command(2)), (Some(30), command(3)), (Some(44), vec![])] {
        whole(of.and_then(known_as), &commands, &mut log);
        ends.push((log.len(), of.and_then(known_as)));
    }
    // A note of another kind changes nothing.
    log.extend_from_slice(&batch::note(&["POLICY", "x"], log.len() as u64, 0).expect("short"));
    ends.push((log.len(), known_as(44)));
    for cut in 0..=log.len() {
        let read = read_all(&[log[..cut].to_vec()], Some(0), true).1.expect("it is torn at most");
        let expected = ends.iter().rfind(|(end, _)| *end <= cut);
        let found = (read.has_changes, read.known_as);
        assert_eq!(found, (expected.is_some(), expected.and_then(|(_, known_as)| known_as.clone())), "{cut}");
    }
    // What redis-server has written behind it is in no stream.
    let read = read_all(&[log.clone(), command(4)], Some(0), true).1.expect("a log");
    assert_eq!((read.has_changes, read.known_as), (true, None));
    assert_eq!(read_all(&[vec![]], None, true).1.expect("a log").known_as, None);
}

#[derive(Clone, Debug)]
enum Damage {
    Cut,
    Flip(u8),
    Zeros(usize),
    Lost(usize),
    Twice(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        Just(Damage::Cut),
        (0_u8..8).prop_map(Damage::Flip),
        (1_usize..200).prop_map(Damage::Zeros),
        (1_usize..200).prop_map(Damage::Lost),
        // (A whole command might have been added by redis-server.)
        (1_usize..25).prop_map(Damage::Twice),
    ]
}

proptest! {
    /// What is read is a whole number of batches from the start, and nothing that was on the disk is skipped in silence.
    #[test]
    fn damage_is_noticed(
        batches in 1_usize..30, files in 1_usize..4, synced_by in 1_usize..5,
        at in any::<prop::sample::Index>(), how in damage(),
    ) {
        let files = files.min(batches);
        let (mut all, places) = write(batches, files, synced_by);
        let file = at.index(files);
        let at = at.index(all[file].len());
        let len = all[file].len();
        let before = all[file].clone();
        match how {
            Damage::Cut => all[file].truncate(at),
            Damage::Flip(bit) => all[file][at] ^= 1 << bit,
            Damage::Zeros(count) => all[file][at..(at + count).min(len)].fill(0),
            Damage::Lost(count) => drop(all[file].drain(at..(at + count).min(len))),
            Damage::Twice(count) => {
                let again = all[file][at..(at + count).min(len)].to_vec();
                all[file].splice(at..at, again);
            }
        }
        let (found, read) = read_all(&all, Some(0), true);
        prop_assert!(commands(batches).starts_with(&found));
        let whole = (0..=batches).find(|count| commands(*count) == found);
        let whole = whole.expect("whole batches");
        match read {
            Ok(Read { position, cut, .. }) => {
                // Nobody behind it has said that it was on the disk.
                if let Some((_, _, lost, _)) = places.get(whole) {
                    prop_assert!(cut.is_some() || before == all[file] || matches!(how, Damage::Cut | Damage::Lost(_)));
                    prop_assert_eq!(position, *lost);
                    let is_whole = |(of, start, _, _): &Place| {
                        *of != file || start + 200 < at && !matches!(how, Damage::Lost(_))
                    };
                    let vouched = places[whole..].iter().filter(|place| is_whole(place)).any(|(_, _, _, synced)| synced > lost);
                    prop_assert!(!vouched, "{:?}", places);
                } else {
                    prop_assert!(cut.is_none() || matches!(how, Damage::Twice(_) | Damage::Flip(_)));
                }
            }
            Err(LogError::Damaged { .. } | LogError::Format { .. } | LogError::Truncated { .. }) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn anything_is_read_without_a_panic(bytes in any::<Vec<u8>>(), marks in 0_usize..3) {
        let bytes = [&batch::MARK.repeat(marks)[..], &bytes].concat();
        let _ = read_all(&[bytes], None, true);
    }

    #[test]
    fn what_redis_writes_may_end_anywhere(count in 1_usize..10, end in any::<prop::sample::Index>()) {
        let all = [&b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"[..], &commands(count)].concat();
        let end = end.index(all.len() + 1);
        let (found, read) = read_all(&[all[..end].to_vec()], None, true);
        prop_assert!(all.starts_with(&found));
        let cut = read.expect("no damage").cut;
        prop_assert_eq!(cut.map_or(end as u64, |cut| cut.at), found.len() as u64);
    }
}

/// Each was handed on alone, and whoever replays them had as much work with that as with what they say.
#[test]
fn small_batches_are_handed_on_together_and_in_their_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let (files, _) = write(1_000, 1, 1);
    let mut log = files[0].clone();
    log.extend_from_slice(&batch::note(&["POLICY", "p:", "1s"], log.len() as u64, 0).expect("a note"));
    let rest = command(1_000);
    log.extend_from_slice(&batch::head(&rest, log.len() as u64, 0));
    log.extend_from_slice(&rest);
    fs::write(&path, &log).expect("a file");
    let mut items = Vec::new();
    let mut send = |item| {
        items.push(item);
        Ok(())
    };
    let files = [(path, 0)];
    read(&files, Some(0), LIMITS, Tolerance::default(), &Progress::default(), &mut send).expect("a log");
    let note = Item::Note(b"POLICY\0p:\x001s".to_vec());
    assert_eq!(items, [Item::Commands(commands(1_000)), note, Item::Commands(rest)]);
}

#[test]
fn a_transaction_without_an_end_is_cut() {
    let set = String::from_utf8(command(1)).expect("text");
    let text = format!("{set}*1\r\n$5\r\nMULTI\r\n{set}");
    let (found, read) = read_all(&[text.clone().into_bytes()], None, true);
    assert_eq!(found, set.as_bytes());
    assert_eq!(read.expect("no damage").cut.map(|cut| cut.at), Some(set.len() as u64));
    let (_, read) = read_all(&[text.into_bytes()], None, false);
    assert!(matches!(read, Err(LogError::Truncated { .. })));
}

#[test]
fn what_redis_would_refuse_is_refused() {
    for text in ["PING\r\n", "*1\r\n+4\r\n", "*x\r\n", "*1\r\n$4\r\nPING\r\nrubbish", "\x00\x00x"] {
        let (_, read) = read_all(&[text.as_bytes().to_vec()], None, true);
        assert!(matches!(read, Err(LogError::Format { .. })), "{text:?}: {read:?}");
    }
}

/// A log of which nobody says that any of it was on the disk, as under `no`, with something wrong in the middle.
fn middle(change: impl FnOnce(&mut Vec<u8>, &[usize])) -> Result<Read, LogError> {
    let (mut all, places) = write(40, 1, usize::MAX);
    let starts: Vec<usize> = places.iter().map(|place| place.1).collect();
    change(&mut all[0], &starts);
    read_all(&all, Some(0), true).1
}

#[test]
fn damage_in_the_middle_is_no_torn_end() {
    for at in [0, 12, 60, 75] {
        let read = middle(|bytes, starts| bytes[starts[10] + at] ^= 1);
        assert!(matches!(read, Err(LogError::Damaged { .. })), "a bit at {at}: {read:?}");
        let read = middle(|bytes, starts| drop(bytes.drain(starts[10] + at..starts[10] + at + 7)));
        assert!(read.is_err(), "less at {at}: {read:?}");
        let read = middle(|bytes, starts| drop(bytes.splice(starts[10] + at..starts[10] + at, [b'x'; 7])));
        assert!(read.is_err(), "more at {at}: {read:?}");
    }
    // Blocks that were never written are what a crash leaves, and so is a file that is too short.
    for read in [
        middle(|bytes, starts| drop(bytes.splice(starts[10] + 9..starts[10] + 9, [0; 2_000]))),
        // (Before that place the block was written once before.)
        middle(|bytes, starts| bytes[starts[10]..starts[10].next_multiple_of(512)].fill(0)),
        middle(|bytes, starts| bytes.truncate(starts[10] + 30)),
        middle(|bytes, starts| bytes[starts[39] + 45] ^= 1),
    ] {
        assert!(read.as_ref().is_ok_and(|read| read.cut.is_some()), "{read:?}");
    }
}

/// The end of a file, or all of it, may never have been written although that of the next one was.
#[test]
fn zeros_up_to_the_end_of_a_file_are_a_torn_end() {
    for from in [0, 2, 30] {
        for vouched in [false, true] {
            let (mut all, places) = write(30, 3, if vouched { 1 } else { usize::MAX });
            let first = places.iter().position(|place| place.0 == 1).expect("a second file");
            let start = places[first].1;
            all[1][start + from..].fill(0);
            let (found, read) = read_all(&all, Some(0), true);
            let cut = read.map(|read| read.cut.map(|cut| (cut.index, cut.at)));
            match vouched {
                false => assert_eq!(cut.expect("a crash"), Some((1, start as u64)), "from {from}"),
                true => assert!(cut.is_err(), "from {from}: {cut:?}"),
            }
            assert_eq!(found, commands(first), "from {from}");
        }
    }
}

/// A value may hold anything, pieces of a log among it: those do not stand behind the batch that they are in.
#[test]
fn what_a_value_holds_is_no_batch() {
    let (mut all, places) = write(10, 1, usize::MAX);
    let position = places[9].2;
    let inner = [batch::head(b"", position + 100, 0), batch::head(b"", position + 10_000, 0)].concat();
    let commands = [&inner[..], &[b'x'; 300]].concat();
    let torn = [batch::head(&commands, position, 0), commands].concat();
    all[0].truncate(places[9].1);
    all[0].extend_from_slice(&torn[..torn.len() - 1]);
    let (_, read) = read_all(&all, Some(0), true);
    assert_eq!(read.expect("a torn end").cut.map(|cut| cut.at), Some(places[9].1 as u64));
}

/// Marks that claim to be long are not summed up again and again.
#[test]
fn looking_on_takes_no_longer_than_what_is_looked_through() {
    let mut bytes = batch::head(&[b'x'; 10], 0, 0);
    for number in 0..40_000 {
        bytes.extend(format!("#EMBERDB 00000000 1000000 {} 0\r\n", 1_000 + number).bytes());
    }
    let began = std::time::Instant::now();
    let (_, read) = read_all(&[bytes], Some(0), true);
    assert!(read.expect("a torn end").cut.is_some());
    // (It would be 40 GB to sum up.)
    assert!(began.elapsed() < std::time::Duration::from_secs(10), "{:?}", began.elapsed());
}

/// What could not be cut off the end of a file is not in the way of the next, which says the same place.
#[test]
fn the_next_file_goes_on_where_this_one_is_whole() {
    let (mut all, places) = write(10, 2, usize::MAX);
    let part = all[1][..40].to_vec();
    all[0].extend_from_slice(&part);
    let (found, read) = read_all(&all, Some(0), true);
    assert_eq!((found, read.expect("no damage").cut), (commands(10), None));
    assert_eq!(places[5].0, 1);
}

/// A server was killed behind a log that redis-server wrote: while it made room, and while it wrote its first batch.
#[test]
fn what_stands_behind_a_log_of_redis_may_be_torn() {
    let foreign = commands(5);
    let batch = [batch::head(&command(6), 0, 0), command(6)].concat();
    for (behind, what) in [(vec![0; 700], "room"), (batch[..10].to_vec(), "a head"), (batch[..45].to_vec(), "a batch")]
    {
        let (found, read) = read_all(&[[&foreign[..], &behind].concat()], None, true);
        let read = read.expect(what);
        assert_eq!((found, read.cut.map(|cut| cut.at)), (foreign.clone(), Some(foreign.len() as u64)), "{what}");
        assert!(read.is_foreign);
        let (found, read) = read_all(&[foreign.clone(), behind], None, true);
        let read = read.expect(what);
        assert_eq!((found, read.cut.map(|cut| (cut.index, cut.at))), (foreign.clone(), Some((1, 0))), "{what}");
    }
}

/// So many bytes may be lost, and no more.
#[test]
fn a_damaged_end_is_cut_where_it_is_short_enough() {
    let (mut all, places) = write(10, 2, 1);
    let (file, start, position, _) = places[4];
    all[file][start + 60] ^= 1;
    let lost_bytes = (all[0].len() - start + all[1].len()) as u64;
    let (found, read) = read_with(&all, Some(0), Tolerance { torn: true, damaged_bytes: lost_bytes - 1 });
    assert_eq!((file, found), (0, commands(4)));
    let text = read.expect_err("it is longer").to_string();
    assert!(text.contains(&format!("'aof-load-corrupt-tail-max-size' {lost_bytes}")), "{text}");
    let (found, read) = read_with(&all, Some(0), Tolerance { torn: false, damaged_bytes: lost_bytes });
    let Read { position: end, cut: Some(cut), .. } = read.expect("it is not longer") else { panic!("it is cut") };
    assert_eq!((found, end, cut.index, cut.at, cut.lost_bytes), (commands(4), position, 0, start as u64, lost_bytes));
    assert!(cut.damage.is_some());
    // What redis-server has written: a transaction goes as a whole.
    let text = format!("{}*1\r\n$5\r\nMULTI\r\n{}rubbish", "*1\r\n$4\r\nPING\r\n", "*1\r\n$4\r\nPING\r\n");
    let (found, read) = read_with(&[text.into()], None, Tolerance { torn: false, damaged_bytes: 100 });
    let cut = read.expect("it is short").cut.expect("it is cut");
    assert_eq!((&found[..], cut.at, cut.lost_bytes), (&b"*1\r\n$4\r\nPING\r\n"[..], 14, 36));
}

/// Behind a base of commands, too, whose last line says where in the log it stands.
#[test]
fn what_the_base_has_is_passed_over() {
    let (first, second) = (command(1), command(2));
    let base = [&command(0)[..], &batch::note(&[batch::BASE, "500"], 0, 0).expect("a note")].concat();
    let head = batch::head(&first, 400, 0);
    let before = [batch::before_base(500, 400, 0), head, first].concat();
    let counted = before.len() as u64 - batch::before_base(500, 400, 0).len() as u64;
    let behind = |at: u64| [batch::head(&second, at, 0), second.clone()].concat();
    // All of it is there, and only a part is.
    let position = 400 + counted;
    let base = String::from_utf8(base).expect("text").replace("500", &position.to_string());
    let base_line = batch::note(&[batch::BASE, &position.to_string()], 0, 0).expect("a note");
    let base = [&base.as_bytes()[..command(0).len()], &base_line].concat();
    let mark = batch::before_base(position, 400, 0);
    let rest = before[batch::before_base(500, 400, 0).len()..].to_vec();
    for (increment, found) in [
        (
            [&mark[..], &rest, &behind(position)].concat(),
            commands(1).into_iter().chain(command(2)).collect::<Vec<u8>>(),
        ),
        ([&mark[..], &behind(position)].concat(), [command(0), command(2)].concat()),
        ([&mark[..], &rest].concat(), command(0)),
        (mark.clone(), command(0)),
    ] {
        let (text, read) = read_all(&[base.clone(), increment.clone()], None, true);
        let read = read.expect("no damage");
        assert_eq!(text, found);
        assert!(read.cut.is_none() && read.position >= position, "{read:?}");
        // (The base of a snapshot says where it stands in another way.)
        let (text, _) = read_all(&[increment], Some(position), true);
        assert_eq!([command(0), text].concat(), found);
    }
}
