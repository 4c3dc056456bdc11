//! Writes samples as the bytes of a chunk.
//!
//! In: samples. Out: their bytes, in the caller's buffer. Runs in: any; the hot path of the daemon: a stack whose
//! callers have a number is found by a hash and compared word by word, so a wrong number is never written.

use super::table::Table;
use super::{
    LITERAL, MAX_STACK_WORDS, MAX_VARINT_BYTES, NEW_CALLERS, TICK_AND_TASK, Times, hash, is_same, varint, zigzag,
};
use crate::marker::MARKER_PAGE;
use core::convert::Infallible;

/// The greatest number of bytes of a sample: two bytes, TSC and address, four varints, and the callers, of which each
/// takes at most as many bytes as the longest varint.
pub const MAX_SAMPLE_BYTES: usize = 2 + 2 * 8 + 4 * MAX_VARINT_BYTES + MAX_STACK_WORDS * MAX_VARINT_BYTES;

/// Binary logarithm of the number of places.
const PLACE_BITS: u32 = 11;

/// The state of a chunk that is being written.
#[derive(Clone, Debug)]
pub struct Writer {
    times: Times,
    table: Table<[u8; 8]>,
    /// The number of the last callers with this hash, or with one that differs in the last bit. A number that is not
    /// right, because it is from an earlier chunk or of other callers, is noticed when the callers are compared.
    places: [u8; 1 << PLACE_BITS],
}

impl Default for Writer {
    fn default() -> Self {
        Self { times: Times::default(), table: Table::default(), places: [0; 1 << PLACE_BITS] }
    }
}

impl Writer {
    /// Begins a chunk.
    pub fn reset(&mut self) {
        self.times = Times::default();
        self.table.reset();
    }

    /// Writes a sample to the beginning of `room`: its first address, and its callers innermost first, each as 8 bytes,
    /// little endian. Returns the number of bytes.
    ///
    /// # Panics
    /// When there are [`MAX_STACK_WORDS`] callers or more; no record can hold such a stack.
    pub fn write(&mut self, times: Times, first: u64, callers: &[[u8; 8]], room: &mut [u8; MAX_SAMPLE_BYTES]) -> usize {
        let place = place_of(callers);
        self.write_known(times, first, callers, room).unwrap_or_else(|| {
            self.places.swap(place, place ^ 1);
            let known = self.write_known(times, first, callers, room);
            known.unwrap_or_else(|| self.write_new(times, first, callers, room))
        })
    }

    /// Writes a sample as [`Writer::write`] does, if its callers are known and were the last of their place. Otherwise
    /// nothing is changed.
    #[inline(always)]
    pub fn write_known(
        &mut self,
        times: Times,
        first: u64,
        callers: &[[u8; 8]],
        room: &mut [u8; MAX_SAMPLE_BYTES],
    ) -> Option<usize> {
        let number = self.places[place_of(callers)];
        let (reference, known) = self.table.stack_of(number, callers.len())?;
        if !is_same(callers, known) {
            return None;
        }
        let address = first.wrapping_sub(u64::from_le_bytes(*reference));
        *reference = first.to_le_bytes();
        room[1] = number;
        let length = self.put_numbers(times, address, 0, 2, room);
        self.table.follow(number);
        Some(length)
    }

    /// Writes the control byte and, from byte `at` on, the numbers that every sample has. Returns their end.
    #[inline(always)]
    fn put_numbers(
        &mut self,
        times: Times,
        address: u64,
        control: u8,
        at: usize,
        room: &mut [u8; MAX_SAMPLE_BYTES],
    ) -> usize {
        let Times { tick, tsc, task } = self.times;
        self.times = times;
        let (tsc, address) = (zigzag(times.tsc.wrapping_sub(tsc)), zigzag(address));
        let (tsc_bytes, address_bytes) = (bytes_less_one(tsc), bytes_less_one(address));
        room[0] = control | tsc_bytes as u8 | (address_bytes as u8) << 3;
        room[at..at + 8].copy_from_slice(&tsc.to_le_bytes());
        let at = at + tsc_bytes + 1;
        room[at..at + 8].copy_from_slice(&address.to_le_bytes());
        let end = at + address_bytes + 1;
        if times.tick == tick.wrapping_add(1) && times.task == task {
            return end;
        }
        room[0] |= TICK_AND_TASK;
        put_tick_and_task(times.tick.wrapping_sub(tick), times.task.wrapping_sub(task), Out { room, length: end })
    }

    /// Writes a sample and defines its callers.
    #[cold]
    fn write_new(&mut self, times: Times, first: u64, callers: &[[u8; 8]], room: &mut [u8; MAX_SAMPLE_BYTES]) -> usize {
        assert!(callers.len() < MAX_STACK_WORDS, "a stack of {} callers", callers.len());
        let address = first.wrapping_sub(u64::from_le_bytes(self.table.first()));
        let length = self.put_numbers(times, address, NEW_CALLERS, 1, room);
        self.table.make_room(callers.len());
        let last = self.table.last().get(1..).unwrap_or(&[]);
        let common = callers.iter().rev().zip(last.iter().rev()).take_while(|(new, old)| new == old).count();
        let mut out = Out { room, length };
        out.put(callers.len() as u64);
        out.put(common as u64);
        let mut reference = first;
        for word in callers[..callers.len() - common].iter().map(|bytes| u64::from_le_bytes(*bytes)) {
            let difference = zigzag(word.wrapping_sub(reference));
            if word >= MARKER_PAGE {
                out.put((word - MARKER_PAGE) << 1 | 1);
                continue;
            }
            if difference >> 63 == 0 {
                out.put(difference << 1);
            } else {
                out.put(LITERAL << 1 | 1);
                out.put_block(word.to_le_bytes(), 8);
            }
            reference = word;
        }
        let Ok(number) = self.table.add(callers.len(), common, |stack| {
            stack[0] = first.to_le_bytes();
            stack[1..].copy_from_slice(callers);
            Ok::<(), Infallible>(())
        });
        self.places[place_of(callers)] = number;
        self.table.follow(number);
        out.length
    }
}

/// Where the number of these callers is noted.
#[inline(always)]
fn place_of(callers: &[[u8; 8]]) -> usize {
    (hash(callers) >> (u64::BITS - PLACE_BITS)) as usize
}

/// The number of bytes of a number of fixed size, less one.
#[inline(always)]
const fn bytes_less_one(value: u64) -> usize {
    (u64::BITS - 1 - (value | 1).leading_zeros()) as usize / 8
}

/// Writes the differences of tick and task. Returns their end.
#[inline(never)]
fn put_tick_and_task(tick: u64, task: u64, mut out: Out<'_>) -> usize {
    out.put(zigzag(tick));
    out.put(zigzag(task));
    out.length
}

/// A sample that is being written.
struct Out<'a> {
    room: &'a mut [u8; MAX_SAMPLE_BYTES],
    length: usize,
}

impl Out<'_> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        let (block, length) = varint(value);
        self.put_block(block, length);
    }

    /// Writes the first `length` bytes of a block. The whole block is copied, because a copy of a fixed size takes few
    /// instructions; what is written next overwrites the rest.
    #[inline(always)]
    fn put_block<const BYTES: usize>(&mut self, block: [u8; BYTES], length: usize) {
        self.room[self.length..][..BYTES].copy_from_slice(&block);
        self.length += length;
    }
}
