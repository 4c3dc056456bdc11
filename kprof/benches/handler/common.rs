//! What the benches share: a stack of a given depth in an array, a kernel with constant answers, and the three
//! handlers.
//!
//! `ours`: the crate's handler with everything on. `reference`: the algorithm of the profiler from which this one
//! descends, compiled as in a kernel, without SSE: zero 32 words (`rep stosq`), fill them by walking the stack, read
//! the TSC, copy them into the ring (`rep movsq`). `minimal`: walk the stack directly into the ring and read the TSC
//! once; there is no account, and the only check is that of the stack's range.

use core::arch::asm;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use kprof::{
    Config, CpuSet, CpuSlot, Interrupted, Kernel, NmiToken, Outcome, Profiler, Registers, Setup, StreamFile, Task,
    Trigger,
};

use std::hint::black_box;

/// Words of each ring; all handlers use rings of this size.
const RING_WORDS: usize = 32 * 1024;
/// Words between two frames of the stack.
const FRAME_WORDS: usize = 6;
const STACK_WORDS: usize = 65536;
const STACK_BYTES: u64 = 8 * STACK_WORDS as u64;

/// A stack, aligned to its size.
#[repr(align(524288))]
struct Stack([u64; STACK_WORDS]);

/// What an entry stub of x86_64 has saved.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Saved {
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub rbp: u64,
    pub rcx: u64,
}

impl Interrupted for Saved {
    #[inline(always)]
    fn registers(&self) -> Registers {
        let &Self { rip, cs, ref rflags, rsp, rbp, rcx } = self;
        // Bit 9. SAFETY: a byte of the word.
        let flags = unsafe { (&raw const *rflags).cast::<u8>().add(1).read() };
        let (from_user, interrupts_on) = (cs & 3 != 0, flags & 1 << 1 != 0);
        Registers { pc: rip, sp: rsp, fp: rbp, link: rcx, from_user, interrupts_on }
    }

    #[inline(always)]
    fn is_from_user(&self) -> bool {
        self.cs & 3 != 0
    }

    #[inline(always)]
    fn interrupts_off(&self) -> u64 {
        !self.rflags / (1 << 9)
    }
}

/// The stack, and the text that contains its return addresses.
pub struct World {
    stack: Box<Stack>,
    #[allow(dead_code, reason = "one bench makes several at once")]
    pub registers: Saved,
}

static TEXT: [u8; 4096] = [0x90; 4096];

pub fn text() -> (u64, u64) {
    let start = TEXT.as_ptr() as u64;
    (start, start + TEXT.len() as u64)
}

/// The address of the current stack, and the id of the running task; the kernel's functions return them.
static STACK: AtomicU64 = AtomicU64::new(0);
static TASK: AtomicU64 = AtomicU64::new(7);

impl World {
    /// A stack of `frames` return addresses below the root.
    #[allow(dead_code, reason = "one bench makes several at once")]
    pub fn new(frames: usize) -> Self {
        Self::changing(frames, 1).0
    }

    /// A stack with `count` separate chains of `frames` return addresses each, and the registers at the beginning of
    /// each chain.
    pub fn changing(frames: usize, count: usize) -> (Self, Vec<Saved>) {
        let mut stack = Self::memory();
        let base = stack.0.as_ptr() as u64;
        let chain = |number: usize| 8 + number * (frames * FRAME_WORDS + 8);
        for first in (0..count).map(chain) {
            for frame in 0..frames {
                let at = first + frame * FRAME_WORDS;
                let next = at + FRAME_WORDS;
                stack.0[at] = if frame + 1 == frames { 0 } else { base + 8 * next as u64 };
                stack.0[at + 1] = text().0 + 100 + 16 * frame as u64;
            }
        }
        STACK.store(base, Ordering::Relaxed);
        TASK.store(black_box(7), Ordering::Relaxed);
        let registers = |number| {
            let rbp = base + 8 * chain(number) as u64;
            Saved { rip: text().0 + 50, cs: 8, rflags: 1 << 9, rsp: rbp - 48, rbp, rcx: 0 }
        };
        (Self { stack, registers: registers(0) }, (0..count).map(registers).collect())
    }

    /// The memory of a stack, allocated without a copy on the stack of the bench itself.
    fn memory() -> Box<Stack> {
        let mut stack = Box::<Stack>::new_uninit();
        // SAFETY: a stack is an array of integers, and each byte of it is written here.
        unsafe {
            stack.as_mut_ptr().write_bytes(1, 1);
            stack.assume_init()
        }
    }

    /// Replaces the root frame by a system call entry: the marker, then the five words of the user's hardware frame.
    #[allow(dead_code, reason = "one of the benches counts it")]
    pub fn end_in_syscall(&mut self, frames: usize) {
        let at = 8 + frames * FRAME_WORDS;
        let stack = &mut self.stack.0;
        stack[at - FRAME_WORDS] = stack.as_ptr() as u64 + 8 * at as u64;
        stack[at] = 0x7fff_0000;
        stack[at + 1] = kprof::format::marker::Marker::Syscall.encode();
        stack[at + 2..at + 7].copy_from_slice(&[0x40_0000, 0x33, 0x202, 0x7fff_0000, 0x2b]);
    }

    /// The interrupted code is a program, and the chain of frames is its stack.
    #[allow(dead_code, reason = "one of the benches counts it")]
    pub fn in_user_code(&mut self) {
        self.registers.cs = 0x33;
    }

    /// As [`end_in_syscall`](Self::end_in_syscall), and the program has `callers` frames.
    #[allow(dead_code, reason = "one of the benches counts it")]
    pub fn end_in_syscall_of(&mut self, frames: usize, callers: usize) {
        self.end_in_syscall(frames);
        let (at, base) = (8 + frames * FRAME_WORDS, self.stack.0.as_ptr() as u64);
        let first = at + 8;
        self.stack.0[at] = base + 8 * first as u64;
        for caller in 0..callers {
            let frame = first + 2 * caller;
            let next = if caller + 1 == callers { 0 } else { base + 8 * (frame as u64 + 2) };
            self.stack.0[frame..frame + 2].copy_from_slice(&[next, 0x40_0100 + caller as u64]);
        }
    }

    /// Keeps the stack alive and its contents unknown to the compiler.
    pub fn touch(&mut self) {
        black_box(&mut self.stack);
    }
}

/// A kernel whose functions cost as much as in a real kernel: one or two loads.
pub struct BenchKernel;

// SAFETY: one thread is the only CPU, with number 0. The declared stack is the array that `World` keeps, and the text
// is a static. Nothing else is read.
unsafe impl Kernel for BenchKernel {
    #[inline]
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {}
    #[inline]
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        // Stacks are aligned to their size.
        let base = address & !(STACK_BYTES - 1);
        (base == STACK.load(Ordering::Relaxed)).then_some(base..base.wrapping_add(STACK_BYTES))
    }
    #[inline]
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    #[inline]
    fn task(&self) -> Task {
        let id = TASK.load(Ordering::Relaxed);
        Task { id, idle: id == 0 }
    }
    #[inline]
    fn read_user(&self, address: u64) -> Option<u64> {
        let is_on_stack = address.wrapping_sub(STACK.load(Ordering::Relaxed)) < STACK_BYTES;
        // SAFETY: the caller asks for aligned words only, and this one lies in the array that `World` keeps.
        is_on_stack.then(|| unsafe { (address as *const u64).read_volatile() })
    }
    fn sleep_ns(&self, _ns: u64) {}
}

static PROFILER: Profiler<BenchKernel> = Profiler::new(BenchKernel);
static SLOTS: [CpuSlot; 1] = [const { CpuSlot::new() }];

/// The crate's handler.
pub struct Ours {
    token: NmiToken,
    stream: StreamFile,
    buffer: Vec<u8>,
}

fn memory(words: usize) -> &'static mut [MaybeUninit<u64>] {
    Box::leak(vec![MaybeUninit::uninit(); words].into_boxed_slice())
}

impl Ours {
    /// `include_user`: samples of user code count, and user frames are recorded.
    pub fn new(include_user: bool) -> Self {
        PROFILER
            .init(|| Setup {
                slots: &SLOTS,
                meta: memory(1024),
                config: Config {
                    trigger: Trigger::Timer,
                    sampler_cpu: None,
                    tsc_hz: 2_000_000_000,
                    text: text(),
                    include_user,
                    ..Config::new()
                },
            })
            .expect("a good setup");
        PROFILER.register(0, || memory(RING_WORDS)).expect("memory for a ring");
        // SAFETY: the "interrupted" stack is an array that nothing runs on.
        let token = unsafe { NmiToken::new() };
        let stream = PROFILER.open_stream(0, 0).expect("cpu 0 has a slot");
        Self { token, stream, buffer: vec![0; 8 * RING_WORDS] }
    }

    /// One tick: the sampler's part, which numbers it, and the handler.
    #[inline(always)]
    pub fn tick(&mut self, registers: &Saved) {
        SLOTS[0].raise_tick();
        assert!(self.handler(registers) == Outcome::Sampled);
    }

    /// The whole handler.
    #[inline(never)]
    fn handler(&mut self, registers: &Saved) -> Outcome {
        PROFILER.on_nmi(&self.token, registers)
    }

    /// Empties the ring as a reader does. This is not measured.
    pub fn drain(&mut self) {
        while self.stream.read(&mut self.buffer).expect("a ring of whole records") > 0 {}
    }
}

/// The ring of the two other handlers: one producer, one consumer, losses are not counted.
pub struct PlainRing {
    words: Box<[u64]>,
    head: AtomicUsize,
    tail: AtomicUsize,
    pub samples: AtomicUsize,
}

impl PlainRing {
    pub fn new() -> Self {
        let zero = || AtomicUsize::new(0);
        Self { words: vec![0; RING_WORDS].into_boxed_slice(), head: zero(), tail: zero(), samples: zero() }
    }

    pub fn drain(&self) {
        self.head.store(self.tail.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Copies `from` into the free space, in one or two pieces. Words that do not fit are dropped.
    #[inline(always)]
    fn extend(&mut self, mut from: &[u64]) {
        let head = self.head.load(Ordering::Acquire) % RING_WORDS;
        let tail = self.tail.load(Ordering::Acquire) % RING_WORDS;
        let (first, second) = if head <= tail { (tail..RING_WORDS, 0..head) } else { (tail..head, 0..0) };
        let mut copied = 0;
        for piece in [first, second] {
            let count = piece.len().min(from.len());
            // SAFETY: `count` words can be read from `from` and written inside `words`.
            unsafe {
                let to = self.words.as_mut_ptr().add(piece.start);
                asm!("rep movsq", inout("rcx") count => _, inout("rsi") from.as_ptr() => _, inout("rdi") to => _,
                    options(nostack, preserves_flags));
            }
            from = &from[count..];
            copied += count;
        }
        self.tail.store(self.tail.load(Ordering::Relaxed).wrapping_add(copied), Ordering::Release);
    }
}

/// The reference follows every frame pointer within this range.
const WINDOW: Range<u64> = 1 << 20..(1 << 20) + (1 << 47);

/// The reference's stack walk: zeroes and fills the array, and returns the number of words in it.
#[inline(always)]
fn walk(registers: &Saved, buffer: &mut MaybeUninit<[u64; 32]>) -> usize {
    // SAFETY: 32 words of the array are written.
    unsafe {
        asm!("rep stosq", inout("rcx") 32 => _, inout("rdi") buffer.as_mut_ptr() => _, in("rax") 0,
            options(nostack, preserves_flags));
    }
    // SAFETY: all 32 words were written above.
    let buffer = unsafe { buffer.assume_init_mut() };
    buffer[0] = registers.rip;
    // In a kernel these are linker symbols, whose values the compiler does not know.
    let (text_start, text_end) = black_box(text());
    // In a kernel these constants are too large for an immediate operand.
    let window = black_box(WINDOW);
    let mut frame = registers.rbp;
    let mut length = 2;
    #[allow(clippy::needless_range_loop, reason = "as it is written there")]
    for index in 2..32 {
        if frame < window.start || frame.saturating_add(16) >= window.end {
            break;
        }
        // SAFETY: the bench's stack is a valid chain of frames that ends with 0.
        let (next, address) =
            unsafe { ((frame as *const u64).read_volatile(), (frame as *const u64).add(1).read_volatile()) };
        if address < text_start || address >= text_end {
            break;
        }
        frame = next;
        buffer[index] = address;
        length = index + 1;
    }
    length
}

/// The reference's walk, alone.
#[inline(never)]
#[allow(dead_code, reason = "not every bench times it")]
pub fn walk_alone(registers: &Saved, buffer: &mut MaybeUninit<[u64; 32]>) -> usize {
    walk(registers, buffer)
}

/// The reference's handler.
#[inline(never)]
pub fn reference(registers: &Saved, ring: &mut PlainRing) {
    if registers.cs & 3 == 3 {
        return;
    }
    ring.samples.store(ring.samples.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let mut buffer = MaybeUninit::uninit();
    let length = walk(registers, &mut buffer);
    // SAFETY: `walk` has written all of it.
    let buffer = unsafe { buffer.assume_init_mut() };
    // SAFETY: RDTSC has no preconditions on x86_64.
    buffer[1] = unsafe { core::arch::x86_64::_rdtsc() };
    ring.extend(&buffer[..length.min(32)]);
}

/// The handler `minimal`.
#[inline(never)]
#[allow(dead_code, reason = "not every bench times it")]
pub fn minimal(registers: &Saved, ring: &mut PlainRing) {
    let base = STACK.load(Ordering::Relaxed);
    let range = base..base + STACK_BYTES;
    let at = ring.tail.load(Ordering::Relaxed) % RING_WORDS;
    let Some(words) = ring.words.get_mut(at..at + 66) else {
        ring.tail.store(ring.tail.load(Ordering::Relaxed).next_multiple_of(RING_WORDS), Ordering::Release);
        return;
    };
    // SAFETY: RDTSC has no preconditions on x86_64.
    (words[0], words[1]) = (registers.rip, unsafe { core::arch::x86_64::_rdtsc() });
    let (mut frame, mut length) = (registers.rbp, 2);
    while range.contains(&frame) && length < 66 {
        // SAFETY: the bench's stack is a valid chain of frames that ends with 0.
        unsafe {
            words[length] = (frame as *const u64).add(1).read_volatile();
            frame = (frame as *const u64).read_volatile();
        }
        length += 1;
    }
    ring.tail.store(ring.tail.load(Ordering::Relaxed) + length, Ordering::Release);
}
