//! The readable fields of a `# batch` or `# end` line that is damaged.
//!
//! In: the text of the line. Out: each field that can still be parsed. Runs in: any. Never guesses: a field that cannot
//! be parsed is missing.

use super::field::{Counters, Fields};
use super::value::Stream;

/// What can be read of a damaged line.
#[derive(Clone, Copy, Debug)]
pub struct Torn<'a> {
    /// The stream.
    pub cpu: Option<Stream>,
    /// Position of the first record in words.
    pub from: Option<u64>,
    /// Position after the last record.
    pub to: Option<u64>,
    /// How many samples the batch has.
    pub samples: Option<u64>,
    /// The other decimal numbers.
    pub counters: Counters<'a>,
}

impl<'a> Torn<'a> {
    /// Parses the readable fields of a line.
    pub fn read(text: &'a str) -> Self {
        const KNOWN: &[&str] = &["cpu", "from", "to", "samples"];
        let fields = Fields(text);
        Self {
            cpu: fields.value("cpu").ok(),
            from: fields.value("from").ok(),
            to: fields.value("to").ok(),
            samples: fields.value("samples").ok(),
            counters: Counters::Text { fields, known: KNOWN },
        }
    }
}
