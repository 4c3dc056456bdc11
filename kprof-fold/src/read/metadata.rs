//! Turns the values of a parsed `#` line into those of a profile. Stage: read.
//!
//! In: the lines of [`kprof_format::line`], which borrow their text. Out: owned counters, marks and images. Values are
//! not checked here, because parsing has done it.

use crate::profile::{Counters, Image, Mark};
use kprof_format::line::{self, Batch, FIRST_TICK, Hex, LAST_TICK, Name};

/// The counters of a line.
pub fn counters(counters: line::Counters<'_>) -> Counters {
    counters.in_text().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The counters of a batch. The tick numbers are among them, because they grow from batch to batch too.
pub fn batch_counters(batch: &Batch<'_>) -> Counters {
    let ticks = [(FIRST_TICK, batch.first_tick), (LAST_TICK, batch.last_tick)];
    let ticks = ticks.into_iter().filter_map(|(name, tick)| Some((name.to_owned(), tick?)));
    counters(batch.counters).into_iter().chain(ticks).collect()
}

/// The bytes of a name.
pub fn bytes(name: Name<'_>) -> Vec<u8> {
    name.bytes().collect()
}

impl From<line::Mark<'_>> for Mark {
    fn from(line::Mark { tsc: Hex(tsc), name }: line::Mark<'_>) -> Self {
        Self { tsc, name: bytes(name) }
    }
}

impl From<line::Setting<'_>> for Mark {
    fn from(line::Setting { tsc: Hex(tsc), value }: line::Setting<'_>) -> Self {
        Self { tsc, name: bytes(value) }
    }
}

impl From<line::Image<'_>> for Image {
    fn from(image: line::Image<'_>) -> Self {
        let line::Image { tsc: Hex(tsc), load: Hex(load), text: line::Range(from, to), build_id, name } = image;
        Self { tsc, load, text: (from, to), build_id: build_id.to_string(), name: bytes(name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_numbers_of_a_batch_are_among_its_counters_and_its_positions_are_not() {
        let text = "cpu=1 from=10 to=20 first-tick=7 lost-full=3 snapshot=1";
        let expected = Counters::from([("first-tick".to_owned(), 7), ("lost-full".to_owned(), 3)]);
        assert_eq!(Batch::read(text).map(|batch| batch_counters(&batch)), Ok(expected));
    }
}
