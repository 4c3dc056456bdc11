//! The serial form: one line of the text form, numbered and checked, between other log lines.
//!
//! ```text
//! ~kprof <seq> <crc32> <line>
//!        │     │       └ a line of the text form, to the line feed
//!        │     └ CRC-32/ISO-HDLC over the bytes of <line>, 8 lower-case hex digits
//!        └ decimal, from 0, one more with each line: a gap says how many are missing
//! ```
//!
//! In: lines. Out: bytes for a serial port. Runs in: any, a panic hook too; no allocation. When a log is read, `~kprof`
//! may stand in the middle of a log line, after the output of other code. A line that does not match its checksum is
//! damaged; the other lines stay readable.

use super::checksum::Crc32;
use super::text::{decimal, parse_hex};
use core::fmt::Write;

/// The text by which a line of kprof is found in a log.
pub const MARK: &[u8] = b"~kprof ";

/// Writes one line (without its line feed) in the serial form, with a line feed.
///
/// # Errors
/// Those of the sink.
///
/// ```
/// let mut out = String::new();
/// kprof_format::serial::write(&mut out, 7, "# kprof-profile 1").unwrap();
/// assert_eq!(out, "~kprof 7 85f1a8ec # kprof-profile 1\n");
/// ```
pub fn write(out: &mut impl Write, sequence: u64, line: &str) -> core::fmt::Result {
    let crc = Crc32::default().with(line.as_bytes()).end();
    writeln!(out, "~kprof {sequence} {crc:08x} {line}")
}

/// A writer around a function that takes single bytes: a UART's data port, QEMU's debugcon.
///
/// ```
/// let mut port = Vec::new();
/// let mut sink = kprof_format::serial::Bytes(|byte| port.push(byte));
/// kprof_format::serial::write(&mut sink, 7, "# kprof-profile 1").unwrap();
/// assert_eq!(port, b"~kprof 7 85f1a8ec # kprof-profile 1\n");
/// ```
#[derive(Debug)]
pub struct Bytes<F: FnMut(u8)>(pub F);

impl<F: FnMut(u8)> Write for Bytes<F> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        text.bytes().for_each(&mut self.0);
        Ok(())
    }
}

/// A line found in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The number of the line.
    pub sequence: u64,
    /// The line of the text form.
    pub line: &'a [u8],
}

/// A line of kprof that does not match its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

/// Finds a line of kprof in a line of a log: none (`None`), a line, or a damaged one. A log line may contain the
/// beginning of a line of kprof that was cut off, and after it a complete one, so the last `~kprof` in it is used.
///
/// ```
/// use kprof_format::serial::{Damaged, read};
/// let line = b"[ 1.0] disk ~kprof 7 85f1a8ec # kprof-profile 1";
/// assert_eq!(read(line).unwrap().unwrap().sequence, 7);
/// assert_eq!(read(b"~kprof 7 85f1a8ec # kprof-profile 2"), Some(Err(Damaged)));
/// assert_eq!(read(b"hello"), None);
/// ```
pub fn read(log_line: &[u8]) -> Option<Result<Line<'_>, Damaged>> {
    let at = log_line.windows(MARK.len()).rposition(|window| window == MARK)?;
    Some(parse(&log_line[at + MARK.len()..]).ok_or(Damaged))
}

fn parse(rest: &[u8]) -> Option<Line<'_>> {
    let rest = rest.strip_suffix(b"\r").unwrap_or(rest);
    let mut parts = rest.splitn(3, |byte| *byte == b' ');
    let sequence = decimal(core::str::from_utf8(parts.next()?).ok()?)?;
    let crc = parts.next().filter(|digits| digits.len() == 8).and_then(parse_hex)?;
    let line = parts.next()?;
    (u64::from(Crc32::default().with(line).end()) == crc).then_some(Line { sequence, line })
}
