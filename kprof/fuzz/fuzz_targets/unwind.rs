//! Fuzz: whatever the words of the stack and the registers are, the handler reads only inside the declared stack, ends,
//! and counts the tick once.
//!
//! `cargo +nightly fuzz run unwind -- -max_total_time=60`. The declared stack is an array with words made from the
//! fuzzer's bytes. AddressSanitizer reports every read outside of the array.
#![no_main]

use core::mem::MaybeUninit;
use core::ops::Range;
use kprof::format::record::{Header, Kind};
use kprof::{Config, Task, CpuSet, CpuSlot, Kernel, NmiToken, Outcome, Profiler, Registers, Setup};
use libfuzzer_sys::fuzz_target;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = 64;
static STACK: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
static TEXT: [u8; 512] = *include_bytes!("text.bin");

struct Machine;

fn stack() -> Range<u64> {
    let start = STACK.as_ptr() as u64;
    start..start + 8 * WORDS as u64
}

// SAFETY: one thread is the only CPU, with number 0. The declared stack and the text are statics. Nothing else is read.
unsafe impl Kernel for Machine {
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        stack().contains(&address).then(stack)
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 0, idle: false }
    }
    fn sleep_ns(&self, _ns: u64) {}
}

static PROFILER: Profiler<Machine> = Profiler::new(Machine);
/// The slots of the fuzzed CPU and of the sampler CPU, which does nothing here.
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];

fn memory() -> &'static mut [MaybeUninit<u64>] {
    Box::leak(vec![MaybeUninit::uninit(); 1024].into_boxed_slice())
}

/// Makes a word from three bytes of the fuzzer's input: the first chooses a base address, the others the distance from
/// it.
fn word(bytes: &[u8]) -> u64 {
    let distance = u64::from(u16::from_le_bytes([bytes[1], bytes[2]]));
    match bytes[0] & 7 {
        0 | 1 => stack().start + 8 * (distance % (WORDS as u64 + 2)),
        2 => stack().start.wrapping_sub(64) + distance % 1024,
        3 | 4 => TEXT.as_ptr() as u64 + distance % TEXT.len() as u64,
        5 => kprof::format::marker::MARKER_PAGE | distance & 0xfff,
        6 => distance,
        _ => distance.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

fuzz_target!(|bytes: &[u8]| {
    static SET_UP: Once = Once::new();
    SET_UP.call_once(|| {
        let text = TEXT.as_ptr() as u64;
        let text = (text, text + TEXT.len() as u64);
        let config = Config { tsc_hz: 1_000_000_000, text, sampler_cpu: Some(1), ..Config::new() };
        PROFILER.init(|| Setup { slots: &SLOTS, meta: memory(), config }).expect("a good setup");
        PROFILER.register(0, memory).expect("memory for a ring");
    });
    let mut words = bytes.chunks_exact(3).map(word);
    let mut next = || words.next().unwrap_or(0);
    let at = Registers {
        pc: next(),
        interrupts_on: next() & 1 << 9 != 0,
        sp: next(),
        fp: next(),
        ..Registers::default()
    };
    STACK.iter().for_each(|place| place.store(next(), Ordering::Relaxed));
    SLOTS[0].raise_tick();
    // SAFETY: nothing runs on the array.
    let outcome = PROFILER.on_nmi(&unsafe { NmiToken::new() }, &at);
    assert_eq!(outcome, Outcome::Sampled);
    let file = PROFILER.open_control(1);
    file.write(b"protocol 1").expect("nobody else claims");
    let mut buffer = [0; 8192];
    let length = PROFILER.open_stream(0, 1).expect("cpu 0 has a slot").read(&mut buffer).expect("a record");
    let first = u64::from_le_bytes(buffer[..8].try_into().expect("eight bytes"));
    let header = Header::decode(first).expect("a whole record");
    assert_eq!((header.kind, usize::from(header.words) * 8), (Kind::Sample, length));
    let end = u64::from_le_bytes(buffer[8..16].try_into().expect("eight bytes")) + u64::from(header.words);
    file.write(format!("ack 0 {end}").as_bytes()).expect("the end of the record");
});
