//! Counts the hits of points, and writes the counts into the meta stream.
//!
//! In: one call for each hit; the ctl command `event`; the calls that write the counts: the sampler's once a second,
//! and those of `stop` and `flush`. Out: records of [`Kind::PointAccount`]. Runs in: hits in any but NMI, with locks
//! held too; the rest in ordinary code. A hit takes no lock, except a point's first one, which takes one with
//! interrupts off for as long as it takes to compare its name with at most sixteen choices.

use crate::errors::RegisterError;
use crate::format::point::{BUCKET_PREFIX, PointCounter};
use crate::format::record::{Kind, NO_CPU};
use crate::kernel::Kernel;
use crate::parts;
use crate::patience::Patience;
use crate::state::meta::MAX_TEXT;
use crate::state::points::{POINTS, Point, PointCounts, Taken};
use crate::state::stream::OWNER_WAIT_US;
use crate::state::{Instance, Shared};
use core::fmt::Write;

/// The longest counter in the text of a record: a space, a name of at most nine bytes, `=`, twenty digits.
const MAX_COUNTER: usize = 31;

/// Handles a hit of a point that is on, or that is hit for the first time. Inlined, because a call would cost a fifth
/// of it.
#[inline(always)]
pub(crate) fn hit<K: Kernel>(instance: &'static Instance<K>, point: &'static Point, weight: u64) {
    match place(instance, point) {
        Some(place) => place.count(weight),
        None => rare_hit(instance, point, weight),
    }
}

/// Where this CPU counts the hits of a point.
#[inline(always)]
fn place<K: Kernel>(instance: &Instance<K>, point: &Point) -> Option<&'static PointCounts> {
    instance.shared.ready.slot(instance.kernel.cpu())?.sampler.points.get(point.offset())
}

/// Handles the first hit of a point, and hits for which there is no memory.
#[cold]
#[inline(never)]
fn rare_hit<K: Kernel>(instance: &'static Instance<K>, point: &'static Point, weight: u64) {
    if point.is_unlisted() {
        POINTS.list(point);
        if !point.is_on() {
            return;
        }
    }
    match place(instance, point) {
        Some(place) => place.count(weight),
        None => point.lose(weight),
    }
}

/// Gives a CPU the memory for its counts.
pub(crate) fn register(
    shared: &'static Shared,
    cpu: usize,
    memory: impl FnOnce() -> &'static [PointCounts],
) -> Result<(), RegisterError> {
    let slot = shared.slots().get(cpu).ok_or(RegisterError::NoSlot(cpu))?;
    // Held so that two callers cannot set the memory of one CPU.
    let _only_taker = shared.points_taker.lock();
    if slot.sampler.points.is_set() {
        return Err(RegisterError::Twice(cpu));
    }
    let memory = memory();
    if !memory.iter().all(|place| place.take_memory()) {
        return Err(RegisterError::PointsTaken(cpu));
    }
    slot.sampler.points.set(memory);
    Ok(())
}

impl Shared {
    /// Writes what the points have counted into the meta stream. What does not fit is kept. If another CPU is writing
    /// the counts, this function waits for it and then writes again.
    pub(crate) fn write_points(&self) {
        if !parts::POINTS {
            return;
        }
        let mut patience = Patience::us(OWNER_WAIT_US, self.tsc_hz());
        let _only_taker = loop {
            match self.points_taker.try_lock() {
                Some(taker) => break taker,
                None if patience.go_on() => {}
                // The counts stay, and the sampler writes them within a second.
                None => return,
            }
        };
        for point in POINTS.iter() {
            let offset = point.offset();
            for (cpu, slot) in self.slots().iter().enumerate() {
                let Some(place) = slot.sampler.points.get(offset) else { continue };
                let mut taken = place.take();
                while !taken.is_empty() && self.write_account(point, offset.number(), cpu as u64, &mut taken) {}
                place.put_back(&taken);
            }
            let (hits, weight) = point.take_lost();
            let mut taken = Taken::lost(hits, weight);
            if !taken.is_empty() && !self.write_account(point, offset.number(), NO_CPU, &mut taken) {
                point.put_back_lost((hits, weight));
            }
        }
    }

    /// Writes one record with as many of these counts as fit into it, and removes them. `false` if there is no room.
    fn write_account(&self, point: &Point, id: usize, cpu: u64, taken: &mut Taken) -> bool {
        let mut rest = *taken;
        let mut text = heapless::String::<MAX_TEXT>::new();
        // Nothing here can overflow: a name has at most 64 bytes, and there is room for two more counters after the
        // last bucket.
        let _ = write!(text, "{} {}", point.unit, point.name);
        let mut filtered = 0;
        for (bucket, count) in rest.buckets.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            if text.len() + 3 * MAX_COUNTER > MAX_TEXT {
                break;
            }
            filtered += *count;
            let _ = write!(text, " {BUCKET_PREFIX}{bucket}={}", core::mem::take(count));
        }
        for (counter, count) in
            [(PointCounter::Filtered, filtered), (PointCounter::Lost, core::mem::take(&mut rest.lost))]
        {
            if count > 0 {
                let _ = write!(text, " {counter}={count}");
            }
        }
        let weight = core::mem::take(&mut rest.weight);
        let is_written = self.meta.put(Kind::PointAccount, [id as u64, cpu, weight], &text);
        if is_written {
            *taken = rest;
        }
        is_written
    }
}
