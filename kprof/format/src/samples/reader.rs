//! Reads the samples of a chunk.
//!
//! In: bytes. Out: samples, or why the bytes are none. Runs in: any. Never trusts a count or a number: whatever the
//! bytes are, a stack has at least one word and at most [`super::MAX_STACK_WORDS`].

use super::table::Table;
use super::{BadSample, LITERAL, MAX_STACK_WORDS, NEW_CALLERS, TICK_AND_TASK, Times, take_varint, unzigzag};
use crate::marker::MARKER_PAGE;

/// The state of a chunk that is being read.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    times: Times,
    table: Table<u64>,
}

impl Reader {
    /// Begins a chunk.
    pub fn reset(&mut self) {
        self.times = Times::default();
        self.table.reset();
    }

    /// The stack of the last sample read, innermost first.
    pub fn stack(&self) -> &[u64] {
        self.table.last()
    }

    /// Reads the sample at the beginning of `bytes` and moves `bytes` past it. `None` at the end of `bytes`.
    ///
    /// # Errors
    /// [`BadSample`]; nothing more can be read from this chunk then.
    pub fn read(&mut self, bytes: &mut &[u8]) -> Option<Result<Times, BadSample>> {
        (!bytes.is_empty()).then(|| self.read_one(bytes))
    }

    fn read_one(&mut self, bytes: &mut &[u8]) -> Result<Times, BadSample> {
        let control = take_byte(bytes)?;
        let number = if control & NEW_CALLERS == 0 { Some(take_byte(bytes)?) } else { None };
        let tsc = self.times.tsc.wrapping_add(take_difference(bytes, control & 7)?);
        let address = take_difference(bytes, control >> 3 & 7)?;
        let (mut tick, mut task) = (self.times.tick.wrapping_add(1), self.times.task);
        if control & TICK_AND_TASK != 0 {
            tick = self.times.tick.wrapping_add(unzigzag(take_varint(bytes)?));
            task = task.wrapping_add(unzigzag(take_varint(bytes)?));
        }
        let number = match number {
            Some(number) => {
                let (first, _) = self.table.stack(number).ok_or(BadSample::Words)?;
                *first = first.wrapping_add(address);
                number
            }
            None => self.define(self.table.first().wrapping_add(address), bytes)?,
        };
        self.table.follow(number);
        self.times = Times { tick, tsc, task };
        Ok(self.times)
    }

    /// Reads new callers. Returns their number.
    fn define(&mut self, first: u64, bytes: &mut &[u8]) -> Result<u8, BadSample> {
        let mut count = || usize::try_from(take_varint(bytes)?).map_err(|_| BadSample::Words);
        let (callers, common) = (count()?, count()?);
        if callers >= MAX_STACK_WORDS {
            return Err(BadSample::Words);
        }
        self.table.make_room(callers);
        if common > callers || common > self.table.last().len().saturating_sub(1) {
            return Err(BadSample::Words);
        }
        self.table.add(callers, common, |stack| {
            stack[0] = first;
            let mut reference = first;
            for place in &mut stack[1..1 + callers - common] {
                let value = take_varint(bytes)?;
                *place = match (value & 1, value >> 1) {
                    (0, difference) => reference.wrapping_add(unzigzag(difference)),
                    (_, marker) if marker < LITERAL => MARKER_PAGE + marker,
                    (_, LITERAL) => u64::from_le_bytes(*take_chunk(bytes)?),
                    _ => return Err(BadSample::Words),
                };
                if *place < MARKER_PAGE {
                    reference = *place;
                }
            }
            Ok(())
        })
    }
}

fn take_chunk<'a, const BYTES: usize>(bytes: &mut &'a [u8]) -> Result<&'a [u8; BYTES], BadSample> {
    let (chunk, rest) = bytes.split_first_chunk().ok_or(BadSample::End)?;
    *bytes = rest;
    Ok(chunk)
}

fn take_byte(bytes: &mut &[u8]) -> Result<u8, BadSample> {
    take_chunk(bytes).map(|[byte]| *byte)
}

/// Reads a difference of `more` bytes and one.
fn take_difference(bytes: &mut &[u8], more: u8) -> Result<u64, BadSample> {
    let (number, rest) = bytes.split_at_checked(usize::from(more) + 1).ok_or(BadSample::End)?;
    // Eight bytes are read at once where there are so many; those after the number are not part of it.
    let whole = bytes.first_chunk().map_or_else(
        || number.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        |eight| u64::from_le_bytes(*eight) & u64::MAX >> (56 - 8 * u32::from(more)),
    );
    *bytes = rest;
    Ok(unzigzag(whole))
}
