//! Composes the `key value` lines of counters, which are most lines of ctl.
//!
//! In: what the counters are about (`cpu.1`), names and values. Out: whole lines, one call of the sink for each. Runs
//! in: ordinary code. A reader reads these lines in every round, and `writeln!` takes four times as many instructions,
//! so they are composed by hand, after a beginning that stays in the buffer. A line that is too long for the buffer is
//! written in parts; nothing of it is left out.

use crate::format::text::Decimal;
use core::fmt::{Arguments, Result, Write};

/// The length of the buffer, into which every line of a counter fits.
const BUFFER_BYTES: usize = 64;

/// Lines with the same beginning.
pub struct CounterLines<'a> {
    out: &'a mut dyn Write,
    buffer: heapless::String<BUFFER_BYTES>,
    /// The length of the beginning.
    begins: usize,
}

impl<'a> CounterLines<'a> {
    /// Lines whose keys begin with `about` and a dot.
    pub(super) fn new(out: &'a mut dyn Write, about: Arguments<'_>) -> core::result::Result<Self, core::fmt::Error> {
        let mut buffer = heapless::String::new();
        write!(buffer, "{about}.")?;
        let begins = buffer.len();
        Ok(Self { out, buffer, begins })
    }

    /// Writes the line of a counter.
    pub(super) fn put(&mut self, name: &str, value: u64) -> Result {
        self.buffer.truncate(self.begins);
        let value = Decimal::new(value);
        let parts = [name, " ", value.as_str(), "\n"];
        if parts.iter().all(|part| self.buffer.push_str(part).is_ok()) {
            return self.out.write_str(&self.buffer);
        }
        self.buffer.truncate(self.begins);
        self.out.write_str(&self.buffer)?;
        parts.iter().try_for_each(|part| self.out.write_str(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_length_are_written_whole() {
        let mut text = String::new();
        let mut lines = CounterLines::new(&mut text, format_args!("cpu.{}", 12)).unwrap();
        let (fits, longer) = ("n".repeat(54), "n".repeat(55));
        for (name, value) in [("sent", u64::MAX), (&fits, 7), (&longer, 7), ("user", 0)] {
            lines.put(name, value).unwrap();
        }
        let expected = format!("cpu.12.sent {}\ncpu.12.{fits} 7\ncpu.12.{longer} 7\ncpu.12.user 0\n", u64::MAX);
        assert_eq!(text, expected);
    }
}
