//! The snapshot that a primary sends: `$<length>` and its bytes, or `$EOF:<mark>`, bytes, and the mark.

use std::io::{self, BufRead, Write};

/// How long a mark is.
const MARK_BYTES: usize = 40;
/// No line before it is longer.
const LINE_BYTES: usize = 256;

/// Where a snapshot ends.
#[derive(Debug, PartialEq, Eq)]
pub enum Extent {
    Bytes(u64),
    Mark([u8; MARK_BYTES]),
}

/// Reads a line, without its end. Lines that say nothing, while a primary makes the snapshot, are `wait`s.
pub fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let end = memchr::memchr(b'\n', available);
        let taken = end.map_or(available.len(), |end| end + 1);
        line.extend_from_slice(&available[..taken]);
        reader.consume(taken);
        if line.len() > LINE_BYTES {
            return Err(io::Error::other("the primary sends a line without an end"));
        }
        if end.is_some() {
            return Ok(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        }
    }
}

/// What the line before a snapshot says of its end.
pub fn extent(line: &str) -> io::Result<Extent> {
    let refuse = || io::Error::other(format!("the primary sends '{}' instead of a snapshot", line.escape_debug()));
    if let Some(mark) = line.strip_prefix("$EOF:") {
        return mark.as_bytes().try_into().map(Extent::Mark).map_err(|_| refuse());
    }
    let bytes = line.strip_prefix('$').and_then(|bytes| bytes.parse().ok());
    bytes.map(Extent::Bytes).ok_or_else(refuse)
}

/// Copies a snapshot; `note` hears how many bytes have come.
pub fn copy(
    reader: &mut impl BufRead,
    extent: &Extent,
    out: &mut impl Write,
    mut note: impl FnMut(u64),
) -> io::Result<u64> {
    let mut copied = 0;
    // The last bytes, which may belong to the mark.
    let mut held: Vec<u8> = Vec::new();
    loop {
        if let Extent::Bytes(bytes) = extent
            && copied == *bytes
        {
            return Ok(copied);
        }
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match extent {
            Extent::Bytes(bytes) => {
                let taken = available.len().min(usize::try_from(bytes - copied).unwrap_or(usize::MAX));
                out.write_all(&available[..taken])?;
                copied += taken as u64;
                reader.consume(taken);
            }
            Extent::Mark(mark) => {
                // Behind the mark comes nothing before this server has said that it is there.
                let taken = available.len();
                held.extend_from_slice(available);
                reader.consume(taken);
                if held.ends_with(mark) {
                    let end = held.len() - MARK_BYTES;
                    out.write_all(&held[..end])?;
                    return Ok(copied + end as u64);
                }
                let certain = held.len().saturating_sub(MARK_BYTES);
                out.write_all(&held[..certain])?;
                copied += certain as u64;
                held.drain(..certain);
            }
        }
        note(copied);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn read(bytes: &[u8], size: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let mut reader = BufReader::with_capacity(size, bytes);
        let mut first = line(&mut reader)?;
        while first.is_empty() {
            first = line(&mut reader)?;
        }
        let mut out = Vec::new();
        copy(&mut reader, &extent(&first)?, &mut out, |_| ())?;
        let mut rest = Vec::new();
        io::Read::read_to_end(&mut reader, &mut rest)?;
        Ok((out, rest))
    }

    #[test]
    fn both_forms_in_pieces_of_any_size() {
        let mark = "0123456789abcdefghijABCDEFGHIJklmnopqrst".to_owned();
        // (What looks like the begin of the mark is none.)
        let body = format!("REDIS{}x{}", &mark[..39], &mark[..20]);
        for size in 1..100 {
            let with_length = format!("\n\n${}\r\n{body}behind", body.len());
            let read_all = read(with_length.as_bytes(), size).expect("a snapshot");
            assert_eq!(read_all, (body.clone().into_bytes(), b"behind".to_vec()), "{size}");
            let with_mark = format!("\n$EOF:{mark}\r\n{body}{mark}");
            assert_eq!(
                read(with_mark.as_bytes(), size).expect("a snapshot"),
                (body.clone().into_bytes(), vec![]),
                "{size}"
            );
        }
    }

    #[test]
    fn what_is_cut_or_no_snapshot_is_refused() {
        let mark = "0123456789".repeat(4);
        for bad in
            ["", "\n", "$5\r\nabcd", "$x\r\n", "$-1\r\n", "+OK\r\n", "$EOF:short\r\nx", "$18446744073709551616\r\n"]
        {
            assert!(read(bad.as_bytes(), 16).is_err(), "{bad}");
        }
        assert!(read(format!("$EOF:{mark}\r\nabc{}", &mark[..39]).as_bytes(), 16).is_err());
        assert!(read("x".repeat(1000).as_bytes(), 16).is_err());
    }
}
