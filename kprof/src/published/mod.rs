//! The trigger `published`: each core publishes where it is at every entry, exit and switch, and the sampler CPU reads
//! it.
//!
//! In: one word ([`Published`]) at each entry and exit, which holds the address of the frame that the entry stub has
//! built anyway; and a task at each switch. Both are in one sequence lock per core. Out: samples in the rings of the
//! cores. The sampler CPU makes them, and is then the producer of every ring. Runs in: [`crate::Publisher`] on the core
//! concerned, interrupts off. The sampler CPU reads the frame, and the stack above it, by a copy that survives a fault.
//! No CPU is interrupted. A sample whose data changes while it is read is lost and counted as `torn`. A sample of this
//! trigger tells less than one from an interrupted instruction: the leaf is [`PUBLISHED_LEAF`] (`[running]`), the
//! caller is the entry, and only code that was interrupted inside the kernel has frames.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

pub(crate) mod cell;

use crate::arch::timestamp;
use crate::format::marker::{Facts, Marker, PUBLISHED_LEAF};
use crate::format::record::{Kind, SampleHeader};
use crate::handler;
use crate::kernel::{ForeignStacks, Kernel, Outcome, Published, Task, UnwindTable};
use crate::shared::Instance;
use crate::slot::CpuSlot;
use crate::unwind::{MAX_SCANNED, Memory, Stacks, Walk};
use core::cell::Cell;
use core::ops::Range;

/// The kernel as another CPU sees it: that CPU's stacks, read by [`ForeignStacks::read_foreign`], which must not fault.
struct Foreign<K: Kernel, S: ForeignStacks + 'static> {
    kernel: &'static K,
    stacks: &'static S,
    cpu: usize,
}

// SAFETY: `cpu` is the number of the sampled core, whose handler is entered while it is sampled, so only one sample of
// it is taken at a time. The stack ranges are those of `foreign_stack_range`: `ForeignMemory` reads them by
// `read_foreign` only, which is sound for them. `is_text` is the kernel's own, and the sampling returns within the call
// that started it.
unsafe impl<K: Kernel, S: ForeignStacks> Kernel for Foreign<K, S> {
    fn cpu(&self) -> usize {
        self.cpu
    }
    fn signal(&self, _cpus: &crate::CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        self.stacks.foreign_stack_range(self.cpu, address)
    }
    fn is_text(&self, address: u64) -> bool {
        self.kernel.is_text(address)
    }
    fn is_entry_code(&self, address: u64) -> bool {
        self.kernel.is_entry_code(address)
    }
    const MARKED_ENTRIES: bool = K::MARKED_ENTRIES;
    fn unwind_table(&self) -> Option<&UnwindTable> {
        self.kernel.unwind_table()
    }
    fn task(&self) -> Task {
        self.kernel.task()
    }
    fn sleep_ns(&self, _ns: u64) {}
}

struct ForeignMemory<'a, S> {
    stacks: &'a S,
    cpu: usize,
    /// A word could not be read: the stack was unmapped while it was read.
    torn: &'a Cell<bool>,
}

impl<S> Clone for ForeignMemory<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for ForeignMemory<'_, S> {}

impl<S: ForeignStacks> Memory for ForeignMemory<'_, S> {
    unsafe fn stack(&self, address: u64) -> u64 {
        // SAFETY: the caller's promise: an aligned word of a range that `Foreign::stack_range` has returned, which is
        // `foreign_stack_range` for this CPU.
        let word = unsafe { self.stacks.read_foreign(self.cpu, address) };
        self.torn.set(self.torn.get() | word.is_none());
        word.unwrap_or(0)
    }

    unsafe fn stack_unaligned(&self, address: u64) -> u64 {
        // SAFETY: the aligned word that contains the first byte lies in the same range. A published stack pointer is
        // never misaligned.
        unsafe { self.stack(address & !7) }
    }

    unsafe fn code(&self, address: u64) -> u64 {
        // SAFETY: passed on: the caller promises that this is kernel text, which is the same on every core.
        unsafe { crate::unwind::Direct.code(address) }
    }
}

impl<K: Kernel> Instance<K> {
    /// Samples one core, whose tick has been numbered. Runs in: the sampler CPU.
    pub(crate) fn sample_remote(
        &'static self,
        stacks: &'static impl ForeignStacks,
        cpu: usize,
        slot: &CpuSlot,
    ) -> Outcome {
        handler::with_tick(slot, |number| self.sample_remote_tick(stacks, cpu, slot, number))
    }

    fn sample_remote_tick(
        &'static self,
        stacks: &'static impl ForeignStacks,
        cpu: usize,
        slot: &CpuSlot,
        number: u64,
    ) -> Outcome {
        let counters = &slot.handler.counters;
        let torn = || {
            counters.lost_torn.add(1);
            Outcome::Lost
        };
        let Some(seen) = slot.published.cell.read() else { return torn() };
        let settings = self.shared.settings();
        let place = Published::from_word(seen.place);
        let (user, idle) = (place.is_user(), seen.is_idle && place == Published::THREAD);
        if user && !settings.include_user() || idle && !settings.include_idle() {
            let filtered = if user { &counters.user } else { &counters.idle };
            filtered.add(1);
            return Outcome::Filtered;
        }
        let Some(ring) = slot.stream.ring.get() else { return torn() };
        let (sink, overwritten) =
            if settings.overwrites() { ring.reserve_overwriting(settings.max_words()) } else { (ring.room(), 0) };
        counters.overwritten.add(overwritten);
        let (foreign, is_torn) = (Foreign { kernel: &self.kernel, stacks, cpu }, Cell::new(false));
        let mut walk = Walk {
            kernel: &foreign,
            memory: ForeignMemory { stacks, cpu, torn: &is_torn },
            text: self.shared.ready.text.get(),
            sink,
            frames_left: settings.depth().saturating_sub(1),
            scan_left: MAX_SCANNED,
            stacks: Stacks::new(),
            user_frames: false,
            in_interrupt: false,
        };
        let left = place.frame().filter(|_| user);
        let Some(leaf) = left.map_or(Some(PUBLISHED_LEAF), |frame| walk.user_pc_of(frame)) else { return torn() };
        let facts = Facts(Facts::PUBLISHED | (if seen.is_idle { Facts::IDLE } else { 0 }));
        let (position, tsc) = (ring.head(), timestamp::read());
        // Header with the leaf (in user code, the instruction that the last entry returned to), and facts. If the core
        // is in an entry, its marker and the interrupted frames follow.
        let header = SampleHeader { position, tick: number, tsc, task: seen.task, address: leaf };
        walk.sink.begin(&header.words());
        walk.sink.push(Marker::Facts(facts).encode());
        if let Some(frame) = place.frame().filter(|_| !place.is_user()) {
            walk.continue_after_entry(frame);
        }
        if walk.sink.is_full() {
            counters.lost_full.add(1);
            return Outcome::Lost;
        }
        if is_torn.get() || !slot.published.cell.still(seen.sequence) {
            return torn();
        }
        ring.publish(Kind::Sample, walk.sink.words());
        counters.recorded.add(1);
        let kind = match (user, walk.in_interrupt, idle) {
            (true, ..) => &counters.recorded_user,
            (_, true, _) => &counters.interrupt,
            (.., true) => &counters.recorded_idle,
            _ => counters.irq(0),
        };
        kind.add(1);
        Outcome::Sampled
    }
}
