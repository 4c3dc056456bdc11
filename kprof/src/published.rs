//! The way `published`: each core says where it is at every entry, exit and switch; the sampler core looks.
//!
//! In: [`Published`] from the cores, in a sequence lock each. Out: samples in the rings of the cores, made by the sampler
//! core, which is the producer of every ring then. Context: [`Profiler::publish`] in entry stubs and the scheduler, with
//! interrupts off, on the core concerned; the look on the sampler core. Nobody is interrupted. What changes during a look
//! is `torn`. The claim is smaller than that of a sampled instruction: the leaf is [`PUBLISHED_LEAF`] (`[running]`), the
//! caller is the entry, and only what was interrupted inside the kernel has frames.

use crate::format::marker::{Facts, Marker, PUBLISHED_LEAF};
use crate::format::record::Kind;
use crate::handler::leave;
use crate::hooks::{Context, Kernel, Outcome, Published, Registers};
use crate::profiler::Profiler;
use crate::ring::Full;
use crate::slot::CpuSlot;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::unwind::{Memory, Stacks, Walk};
use crate::x86_64::tsc;
use core::cell::Cell;
use core::ops::Range;

/// What one core has published, as words behind a sequence number that is odd while they change.
pub(crate) struct PublishedCell {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

const WORDS: usize = 8;
/// Bits of the word that holds flags and marker.
const IDLE: u64 = 1 << 32;
const ENTERED: u64 = 1 << 33;
const USER: u64 = 1 << 34;

impl PublishedCell {
    pub(crate) const fn new() -> Self {
        Self { sequence: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
    }

    fn write(&self, now: &Published) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // Whoever sees one of the words below sees the odd number too.
        fence(Ordering::Release);
        let entry = now.entry.map_or(0, |marker| ENTERED | marker.encode() & 0xfff);
        let flags = entry | (u64::from(now.context.idle) * IDLE) | (u64::from(now.user) * USER);
        let at = &now.interrupted;
        let words = [flags, now.context.id, at.rip, at.cs, at.rflags, at.rsp, at.rbp, at.rcx];
        self.words.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// What stands there and its sequence number; `None` while it changes.
    fn read(&self) -> Option<(Published, u64)> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let words = [0, 1, 2, 3, 4, 5, 6, 7].map(|word: usize| self.words[word].load(Ordering::Relaxed));
        if sequence & 1 == 1 || !self.still(sequence) {
            return None;
        }
        let [flags, id, rip, cs, rflags, rsp, rbp, rcx] = words;
        let entry = (flags & ENTERED != 0)
            .then(|| Marker::decode(crate::format::marker::MARKER_PAGE | flags & 0xfff))
            .flatten();
        let context = Context { id, idle: flags & IDLE != 0 };
        let interrupted = Registers { rip, cs, rflags, rsp, rbp, rcx };
        Some((Published { entry, user: flags & USER != 0, context, interrupted }, sequence))
    }

    fn still(&self, sequence: u64) -> bool {
        // Pairs with the fence in `write`.
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }
}

/// Another core's stacks, read by the kernel's hook that survives a fault.
struct Foreign<K: Kernel> {
    kernel: &'static K,
    cpu: usize,
}

impl<K: Kernel> Kernel for Foreign<K> {
    fn cpu(&self) -> usize {
        self.cpu
    }
    fn signal(&self, _cpus: &crate::CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        self.kernel.foreign_stack_range(self.cpu, address)
    }
    fn is_text(&self, address: u64) -> bool {
        self.kernel.is_text(address)
    }
    fn context(&self) -> Context {
        self.kernel.context()
    }
    fn sleep_ns(&self, _ns: u64) {}
}

struct ForeignMemory<'a, K: Kernel> {
    foreign: &'a Foreign<K>,
    /// A word could not be read: the stack went away under the look.
    torn: &'a Cell<bool>,
}

impl<K: Kernel> Clone for ForeignMemory<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: Kernel> Copy for ForeignMemory<'_, K> {}

impl<K: Kernel> Memory for ForeignMemory<'_, K> {
    unsafe fn stack(&self, address: u64) -> u64 {
        let word = self.foreign.kernel.read_foreign(self.foreign.cpu, address);
        self.torn.set(self.torn.get() | word.is_none());
        word.unwrap_or(0)
    }

    unsafe fn stack_unaligned(&self, address: u64) -> u64 {
        // SAFETY: the aligned word before it lies in the same range. What is published has no misaligned stack pointer.
        unsafe { self.stack(address & !7) }
    }

    unsafe fn code(&self, address: u64) -> u64 {
        // SAFETY: passed on: the caller vouches for kernel text, which is the same on every core.
        unsafe { crate::x86_64::memory::Direct.code(address) }
    }
}

impl<K: Kernel> Profiler<K> {
    /// Publishes where this core is now, and returns what it published before, which the stub publishes again when it
    /// leaves (and the scheduler keeps for the context it switches from).
    ///
    /// Context: entry stubs and the scheduler, on `cpu` itself, interrupts off.
    pub fn publish(&self, cpu: usize, now: &Published) -> Published {
        let Some(slot) = self.slots().get(cpu) else { return *now };
        // Only this core writes, and nothing interrupts it: the read succeeds.
        let before = slot.published.read().map_or(*now, |(before, _)| before);
        slot.published.write(now);
        before
    }

    /// Looks at one core, whose tick has been numbered. Context: the sampler core.
    pub(crate) fn look(&'static self, cpu: usize, slot: &CpuSlot) -> Outcome {
        match self.begin(cpu) {
            Ok(_) => leave(slot, self.look_inside(cpu, slot)),
            Err(outcome) => outcome,
        }
    }

    fn look_inside(&'static self, cpu: usize, slot: &CpuSlot) -> Outcome {
        let counters = &slot.handler.counters;
        let number = slot.sampler.tick.load(Ordering::Relaxed);
        counters.taken.add(1);
        counters.merged.add(number - slot.handler.seen.get() - 1);
        slot.handler.seen.set(number);
        let torn = || {
            counters.lost_torn.add(1);
            Outcome::Lost
        };
        let Some((now, sequence)) = slot.published.read() else { return torn() };
        let settings = self.settings();
        let idle = now.context.idle && !now.user && !now.in_interrupt();
        if now.user && !settings.keep_user() || idle && !settings.keep_idle() {
            let left_out = if now.user { &counters.user } else { &counters.idle };
            left_out.add(1);
            return Outcome::LeftOut;
        }
        let Some(ring) = slot.ring.get() else { return torn() };
        let (sink, overwritten) =
            if settings.overwrites() { ring.room_by_force(settings.most_words()) } else { (ring.room(), 0) };
        counters.overwritten.add(overwritten);
        let (foreign, is_torn) = (Foreign { kernel: self.kernel(), cpu }, Cell::new(false));
        let mut walk = Walk {
            kernel: &foreign,
            memory: ForeignMemory { foreign: &foreign, torn: &is_torn },
            text: self.ready.text.get(),
            sink,
            frames_left: settings.depth() - 1,
            stacks: Stacks::new(),
            user_frames: false,
            in_interrupt: false,
        };
        let header = [0, ring.head(), number, tsc::read(), now.context.id];
        if walk_published(&mut walk, &header, &now).is_err() {
            counters.lost_full.add(1);
            return Outcome::Lost;
        }
        if is_torn.get() || !slot.published.still(sequence) {
            return torn();
        }
        ring.publish(Kind::Sample, walk.sink.words());
        counters.recorded.add(1);
        let kind = match (now.user, now.in_interrupt() || walk.in_interrupt, idle) {
            (true, ..) => &counters.kept_user,
            (_, true, _) => &counters.interrupt,
            (.., true) => &counters.kept_idle,
            _ => &counters.irq[0],
        };
        kind.add(1);
        Outcome::Sampled
    }
}

/// Header, leaf, facts, entry, and what was interrupted.
fn walk_published<K: Kernel, M: Memory>(
    walk: &mut Walk<'_, '_, K, M>,
    header: &[u64; 5],
    now: &Published,
) -> Result<(), Full> {
    let leaf = if now.user { now.interrupted.rip } else { PUBLISHED_LEAF };
    let facts = Facts(Facts::PUBLISHED | (u8::from(now.context.idle) * Facts::IDLE));
    let words = header.iter().copied().chain([leaf, Marker::Facts(facts).encode()]);
    words.into_iter().try_for_each(|word| walk.sink.push(word))?;
    match now.entry {
        Some(marker) if !now.user => walk.behind(marker, &now.interrupted),
        _ => Ok(()),
    }
}
