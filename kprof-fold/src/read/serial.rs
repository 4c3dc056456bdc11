//! The serial form: lines of the text form among other output, with a number and a checksum. Stage: read.
//!
//! In: a log as it came over a serial line. Out: the undamaged lines, to the [`Ingest`]. Of a damaged line only that
//! line is lost. A gap in the numbers says how many lines are missing. Number 0 means that the machine was started
//! again.

use super::blocks::{Block, Blocks};
use super::consumer::Consumer;
use super::ingest::Ingest;
use super::lines::Lines;
use crate::problems::Kind;
use kprof_format::serial;
use std::io::{self, Read};

/// Reads a whole log.
///
/// # Errors
/// Errors of the reader.
pub fn read<C: Consumer>(
    ingest: &mut Ingest<C>,
    blocks: &mut Blocks<impl Read>,
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let mut log = Log { line: 0, next: 0 };
    loop {
        match blocks.next_block()? {
            Block::Lines(lines) => Lines::of(lines).for_each(|line| log.line(ingest, line)),
            Block::Unfinished(line) => log.line(ingest, line),
            Block::TooLong(_) => log.line += 1,
            Block::End => break,
        }
        progress(blocks.read_bytes());
    }
    ingest.line = log.line;
    Ok(())
}

struct Log {
    /// Number of lines of the log so far.
    line: u64,
    /// The number that the next line should have.
    next: u64,
}

impl Log {
    fn line<C: Consumer>(&mut self, ingest: &mut Ingest<C>, log_line: &[u8]) {
        self.line += 1;
        let number = self.line;
        match serial::read(log_line) {
            None => {}
            Some(Err(serial::Damaged)) => {
                let file = &ingest.file;
                ingest.problems.add(Kind::Serial, || format!("{file}:{number}: damaged ~kprof line skipped"));
                self.next += 1;
            }
            Some(Ok(found)) => {
                // A damaged line may have been two lines, so missing lines are counted by the number of the next good
                // one.
                if found.sequence > self.next {
                    let missing = found.sequence - self.next;
                    let file = &ingest.file;
                    ingest
                        .problems
                        .add(Kind::Serial, || format!("{file}:{number}: {missing} ~kprof lines are missing before"));
                }
                self.next = found.sequence + 1;
                ingest.line = number - 1;
                ingest.line(found.line);
            }
        }
    }
}
