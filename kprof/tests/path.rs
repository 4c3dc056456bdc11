//! The whole path on a host: a kernel of two CPUs made of arrays; ticks by `self`, drain, acknowledgement, account.
#![cfg(feature = "profiling")]

use core::mem::MaybeUninit;
use core::ops::Range;
use kprof::format::record::{Header, Kind, SAMPLE_HEADER_WORDS};
use kprof::{Config, Context, CpuSet, CpuSlot, Kernel, NmiToken, Outcome, Profiler, Registers, Setup};
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A kernel whose one stack and text are arrays.
struct ArrayKernel;

static TEXT: [u8; 64] = [0x90; 64];
static STACK: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn text(offset: u64) -> u64 {
    TEXT.as_ptr() as u64 + offset
}

fn stack(word: u64) -> u64 {
    STACK.as_ptr() as u64 + 8 * word
}

impl Kernel for ArrayKernel {
    fn cpu(&self) -> usize {
        1
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        (stack(0)..stack(16)).contains(&address).then(|| stack(0)..stack(16))
    }
    fn context(&self) -> Context {
        Context { id: 7, idle: false }
    }
    fn sleep_ns(&self, _ns: u64) {}
}

fn memory(words: usize) -> &'static mut [MaybeUninit<u64>] {
    Box::leak(vec![MaybeUninit::uninit(); words].into_boxed_slice())
}

fn account(profiler: &Profiler<ArrayKernel>) -> HashMap<String, u64> {
    let mut text = String::new();
    profiler.write_control(&mut text).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("cpu.1.")?.split_once(' '));
    lines.map(|(key, value)| (key.to_owned(), value.parse().unwrap())).collect()
}

#[test]
fn a_tick_becomes_a_record_that_is_read_again_until_it_is_acknowledged() {
    static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
    static SLOTS: OnceLock<Vec<CpuSlot>> = OnceLock::new();
    PROFILER.init(|| Setup {
        slots: SLOTS.get_or_init(|| vec![CpuSlot::new(), CpuSlot::new()]),
        meta: memory(1024),
        config: Config { tsc_hz: 1_000_000_000, text: (text(0), text(64)), ..Config::new() },
    });
    PROFILER.register(1, || memory(1024));

    // main calls f, f calls g, g is running: two frames, then the root.
    STACK[4].store(stack(8), Ordering::Relaxed);
    STACK[5].store(text(20), Ordering::Relaxed);
    STACK[8].store(0, Ordering::Relaxed);
    STACK[9].store(text(40), Ordering::Relaxed);
    let at = Registers { rip: text(30), cs: 8, rflags: 1 << 9, rsp: stack(2), rbp: stack(4), rcx: 0 };
    // SAFETY: no code of this test runs while the "handler" does; the stack is this array.
    let token = unsafe { NmiToken::new() };
    assert_eq!(PROFILER.on_nmi(&token, &at), Outcome::Foreign);
    PROFILER.start();
    while PROFILER.on_timer(&token, &at).outcome != Outcome::Sampled {
        core::hint::spin_loop();
    }
    PROFILER.stop().unwrap();

    let mut buffer = [0; 4096];
    PROFILER.control(1, b"protocol 1").unwrap();
    assert!(PROFILER.control(2, b"protocol 1").is_err(), "one claim at a time");
    for _ in 0..2 {
        let bytes = PROFILER.read_stream(1, &mut buffer).unwrap();
        let words: Vec<u64> =
            buffer[..bytes].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert_eq!(Header::decode(words[0]), Ok(Header { kind: Kind::Sample, words: 8 }));
        assert_eq!(words[SAMPLE_HEADER_WORDS..], [text(30), text(20), text(40)]);
        assert_eq!(PROFILER.read_stream(1, &mut buffer), Ok(0));
        // The reader goes away without an acknowledgement; the next one gets the record again.
        PROFILER.close_control(1);
        PROFILER.control(1, b"protocol 1").unwrap();
    }
    assert!(PROFILER.control(1, b"ack 1 8").is_err(), "not read under this claim");
    assert_eq!(PROFILER.read_stream(1, &mut buffer), Ok(64));
    assert!(PROFILER.control(1, b"ack 1 7").is_err(), "not the end of a record");
    PROFILER.control(1, b"ack 1 8").unwrap();

    let account = account(&PROFILER);
    assert_eq!(account["sent"], 1);
    assert_eq!(account["taken"], 1);
    assert_eq!(account["recorded"], 1);
    assert_eq!(account["irq-on"], 1);
    assert_eq!(account["delivered"], 1);
    assert_eq!(account["in-ring"], 0);
    assert_eq!(account["repeat"], 1);
}
