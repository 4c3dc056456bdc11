//! Records a hit of a point: with the stack of its caller, in the event ring of its CPU.
//!
//! In: a hit of a point whose state records; the frame pointer of the function that was called for it. Out: a record of
//! [`kprof::format::record::Kind::Event`] and a count, or only a count. Runs in: any but NMI, with interrupts off for
//! the time of one walk, which is bounded like that of a sample. So each ring has one producer. No lock, no allocation,
//! no page fault. A hit inside another hit of this CPU, and one for which the ring has no memory or no space, is lost,
//! and counted as lost.

use crate::events::Events;
use crate::kernel::EventKernel;
use crate::points::{Became, Point, PointCounts, Role, Writing};
use crate::state::State;
use core::mem::MaybeUninit;
use kprof::RegisterError;
use kprof::format::point::PointState;
use kprof::internals::{Hit, Memory, interrupts};

const RECORD: u64 = PointState::Record.encode();

impl<K: EventKernel> Events<K> {
    /// Counts a hit, and records it if it is chosen. `true` if it has a record. Not inlined, and with its arguments in
    /// registers: this is most of what a record costs beside the walk. There is one for each number of arguments of a
    /// hit (`[u64; N]`): a number that is only known at run time (`[u64]`) takes a register in the walk, and would cost
    /// a hit without arguments forty instructions.
    #[inline(never)]
    pub(crate) fn record<M: Memory, A: AsRef<[u64]> + ?Sized>(
        &self,
        point: &'static Point,
        weight: u64,
        arguments: &A,
        state: u64,
        frame: u64,
        memory: M,
    ) -> bool {
        let arguments = arguments.as_ref();
        let interrupts = interrupts::off();
        let is_recorded =
            self.count_and_record(point, &Hit { point: point.number(), weight, arguments, state, frame }, memory);
        interrupts::restore(interrupts);
        is_recorded
    }

    /// Counts a hit whose record is lost before it is written.
    pub(crate) fn lose_record(&self, point: &'static Point, weight: u64) {
        let slot = self.slot();
        let Some(place) = slot.and_then(|slot| slot.points.get(point.offset())) else {
            return point.lose(weight);
        };
        place.count_asked(weight);
        place.asked.became(Became::Lost, weight);
    }

    #[inline(always)]
    fn count_and_record<M: Memory>(&self, point: &'static Point, hit: &Hit<'_>, memory: M) -> bool {
        let slot = self.slot();
        let place = slot.and_then(|slot| Some((slot, slot.points.get(point.offset())?)));
        let Some((slot, place)) = place else {
            point.lose(hit.weight);
            return false;
        };
        place.count_asked(hit.weight);
        let became = match slot.records.begin() {
            None => Became::Lost,
            // No closure: the compiler would not put the walk into this function.
            Some(writing) => match (hit.state == RECORD || is_chosen(point, hit, place, &writing), writing.ring()) {
                (false, _) => Became::Unsampled,
                (true, Some(ring)) if hit.write(self.instance, ring, memory) => Became::Recorded,
                (true, _) => Became::Lost,
            },
        };
        place.asked.became(became, hit.weight);
        became == Became::Recorded
    }
}

/// Whether a hit is chosen, in a state that does not record all of them.
#[cold]
#[inline(never)]
fn is_chosen(point: &Point, hit: &Hit<'_>, place: &PointCounts, writing: &Writing<'_>) -> bool {
    if point.role == Role::Free {
        // Chosen when it was allocated.
        return true;
    }
    let state = PointState::decode(hit.state).unwrap_or(PointState::Off);
    place.asked.is_chosen(state, hit.weight, || writing.random())
}

/// Gives a CPU its event ring.
pub(crate) fn register(
    state: &'static State,
    cpu: usize,
    memory: impl FnOnce() -> &'static mut [MaybeUninit<u64>],
) -> Result<(), RegisterError> {
    let slot = state.slots().get(cpu).ok_or(RegisterError::NoSlot(cpu))?;
    let seed = state.config().map_or(0, |config| config.seed).wrapping_add(cpu as u64);
    match slot.records.install(seed, memory) {
        Some(installed) => installed.map_err(RegisterError::Memory),
        None => Err(RegisterError::Twice(cpu)),
    }
}

#[cfg(test)]
mod tests;
