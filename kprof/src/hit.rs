//! Records a hit: something that ordinary code has done, with the stack of its caller.
//!
//! In: what a package above the profiler says of the hit; the frame pointer of the function that was called for it.
//! Out: a record of [`Kind::Event`] in a ring of that package. Runs in: any but NMI, with interrupts off, so that the
//! ring has one producer. The walk is that of a sample's kernel code: bounded, no lock, no allocation, no page fault.

use crate::arch::timestamp;
use crate::format::event::{Event, MAX_ARGUMENTS};
use crate::format::marker::{Marker, TruncationReason};
use crate::format::record::{EventHeader, Kind};
use crate::kernel::Kernel;
use crate::ring::Ring;
use crate::shared::Instance;
use crate::sync::{AtomicU64, Ordering};
use crate::unwind::{self, ENTRY_PLACES, MAX_SCANNED, Memory, ROUND, Stacks, Walk};

/// A hit that gets a record.
pub struct Hit<'a> {
    /// The number of the point that was hit.
    pub point: u64,
    /// How much it counts, in the point's unit.
    pub weight: u64,
    /// At most [`MAX_ARGUMENTS`].
    pub arguments: &'a [u64],
    /// The state of the point for which it is recorded, as a word.
    pub state: u64,
    /// The frame pointer of a function whose caller is the code that was hit.
    pub frame: u64,
}

/// The most words before the first address.
const HEADER_PLACES: usize = EventHeader::WORDS + MAX_ARGUMENTS;

impl Hit<'_> {
    /// Writes the record. `false` if there is no space.
    #[inline(always)]
    pub fn write<K: Kernel, M: Memory>(&self, instance: &Instance<K>, ring: &Ring, memory: M) -> bool {
        match self.on_fast_path(instance, ring, memory) {
            Some((place, words)) => {
                ring.publish_at(place, Kind::Event, words);
                true
            }
            None => self.on_slow_path(instance, ring, memory),
        }
    }

    /// Writes the words of an ordinary record: kernel code with frames, up to the root or to an entry from user code
    /// whose frames are not asked for, and contiguous space for the longest such walk. Returns the word at the head,
    /// and the number of words. `None`: the slow path writes all of them again.
    #[inline(always)]
    fn on_fast_path<'r, K: Kernel, M: Memory>(
        &self,
        instance: &Instance<K>,
        ring: &'r Ring,
        memory: M,
    ) -> Option<(&'r AtomicU64, usize)> {
        let more = instance.shared.live.fast_path_rounds.get();
        let (head, reservation) = ring.reserve::<HEADER_PLACES, ROUND>(more)?;
        let header = reservation.header();
        let EventHeader { position, point, tsc, task, weight, state } = EventHeader::places(header.first_chunk()?);
        position.store(head, Ordering::Relaxed);
        point.store(self.point_word(), Ordering::Relaxed);
        tsc.store(timestamp::read(), Ordering::Relaxed);
        task.store(instance.kernel.task().id, Ordering::Relaxed);
        weight.store(self.weight, Ordering::Relaxed);
        state.store(self.state, Ordering::Relaxed);
        let arguments = header.iter().skip(EventHeader::WORDS).zip(self.arguments);
        arguments.for_each(|(place, argument)| place.store(*argument, Ordering::Relaxed));
        let before = EventHeader::WORDS.wrapping_add(self.arguments.len());
        let text = &instance.shared.ready.text;
        let run = unwind::callers(&instance.kernel, memory, text, self.frame, reservation.rounds(before))?;
        let words = reservation.before(run.end);
        if words <= before {
            return None;
        }
        if run.at_root() {
            return Some((&header[0], words));
        }
        let settings = instance.shared.settings();
        let entry = run.cursor.user_entry(&instance.kernel, memory, run.bounds)?;
        settings.depth().checked_sub(words.wrapping_sub(before).wrapping_add(entry.frames()))?;
        if settings.include_user() {
            return None;
        }
        let (_, places) = ring.reserve_after::<ENTRY_PLACES>(words as u32)?;
        entry.write(places);
        Some((&header[0], words.wrapping_add(entry.words())))
    }

    /// Writes and publishes any record. `false` if there is no space.
    #[inline(never)]
    fn on_slow_path<K: Kernel, M: Memory>(&self, instance: &Instance<K>, ring: &Ring, memory: M) -> bool {
        let settings = instance.shared.settings();
        let mut walk = Walk {
            kernel: &instance.kernel,
            memory,
            text: instance.shared.ready.text.get(),
            sink: ring.room(),
            frames_left: settings.depth(),
            scan_left: MAX_SCANNED,
            stacks: Stacks::new(),
            user_frames: settings.include_user(),
            in_interrupt: false,
        };
        let (position, point, tsc) = (ring.head(), self.point_word(), timestamp::read());
        let (task, weight, state) = (instance.kernel.task().id, self.weight, self.state);
        walk.sink.begin(&EventHeader { position, point, tsc, task, weight, state }.words());
        self.arguments.iter().for_each(|argument| walk.sink.push(*argument));
        // Skips the walk if not even the header fits, which is the usual case in a full ring.
        if !walk.sink.is_full() {
            walk.callers_of(self.frame);
            if walk.sink.words() == EventHeader::WORDS.wrapping_add(self.arguments.len()) {
                // Without frame pointers there is nothing to walk; a record has at least one address.
                walk.sink.push(Marker::Truncated(Ok(TruncationReason::Range)).encode());
            }
        }
        let is_written = !walk.sink.is_full();
        if is_written {
            ring.publish(Kind::Event, walk.sink.words());
        }
        // For the next record: the reader may have freed space.
        ring.look_ahead();
        is_written
    }

    #[inline(always)]
    fn point_word(&self) -> u64 {
        Event::point_word(self.point, self.arguments)
    }
}
