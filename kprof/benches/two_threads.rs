//! What a reader on another CPU costs the handler: TSC ticks per sample, alone and beside a thread that asks after each
//! sample whether a reader is due.
//!
//! `cargo bench -p kprof --features profiling --bench two_threads`. The other thread waits for each sample in all three
//! rows, so the rows differ only by what it does then. In the last row the other thread makes the check after each
//! sample. A real sampler makes it at most 1000 times a second, and only while a reader waits, so the last row is an
//! upper bound.

#[path = "../tests/array_kernel/mod.rs"]
mod array_kernel;

use array_kernel::*;
use kprof::{Config, CpuSlot, Profiler, Setup, Trigger};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Samples of a batch; between batches the ring is read.
const SAMPLES: u64 = 2000;
const BATCHES: usize = 300;
const RING_WORDS: usize = 1 << 17;

#[repr(align(128))]
struct Line<T>(T);
static SAMPLE: Line<AtomicU64> = Line(AtomicU64::new(0));
static END: Line<AtomicBool> = Line(AtomicBool::new(false));

/// What the other thread does after each sample.
type Work = fn(&Profiler<ArrayKernel>);

fn main() {
    let profiler: &'static Profiler<ArrayKernel> = Box::leak(Box::new(Profiler::new(ArrayKernel)));
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let (text, trigger) = ((text(0), text(256)), Trigger::Timer);
    let config = Config { tsc_hz: 1_000_000_000, text, trigger, sampler_cpu: None, running: true, ..Config::new() };
    profiler.init(|| Setup { slots, meta: memory(1024), config }).expect("the setup is right");
    profiler.register(1, || memory(RING_WORDS)).expect("the ring is right");
    let rows: [(&str, Work); 3] = [
        ("nothing", |_| ()),
        ("reads the status", |profiler| {
            let mut length = Length(0);
            profiler.write_status(&mut length).expect("counting cannot fail");
            black_box(length.0);
        }),
        ("asks whether a reader is due", |profiler| {
            black_box(profiler.reader_due());
        }),
    ];
    println!("TSC ticks per sample   the other thread, after each sample");
    for (name, work) in rows {
        END.0.store(false, Ordering::Relaxed);
        let median = std::thread::scope(|scope| {
            scope.spawn(|| other(profiler, work));
            samples(profiler)
        });
        println!("{median:20.0}   {name}");
    }
}

struct Length(usize);

impl std::fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

/// The median over all batches.
fn samples(profiler: &'static Profiler<ArrayKernel>) -> f64 {
    let stream = profiler.open_stream(1, 1).expect("CPU 1 has registered");
    let (mut buffer, mut times) = (vec![0; RING_WORDS * 8], Vec::new());
    let registers = registers();
    for _ in 0..BATCHES {
        let mut spent = 0;
        for _ in 0..SAMPLES {
            profiler.raise_tick(1);
            // SAFETY: RDTSC has no precondition.
            let start = unsafe { core::arch::x86_64::_rdtsc() };
            black_box(profiler.on_nmi(&token(), black_box(&registers)));
            // SAFETY: as above.
            spent += unsafe { core::arch::x86_64::_rdtsc() } - start;
            SAMPLE.0.fetch_add(1, Ordering::Relaxed);
            // Time for the other thread to have done its work.
            (0..200).for_each(|_| spin_loop());
        }
        times.push(spent as f64 / SAMPLES as f64);
        while stream.read(&mut buffer).expect("nobody else reads") > 0 {}
    }
    END.0.store(true, Ordering::Relaxed);
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn other(profiler: &'static Profiler<ArrayKernel>, work: impl Fn(&Profiler<ArrayKernel>)) {
    let mut seen = 0;
    while !END.0.load(Ordering::Relaxed) {
        let sample = SAMPLE.0.load(Ordering::Relaxed);
        if sample == seen {
            spin_loop();
        } else {
            seen = sample;
            work(profiler);
        }
    }
}
