//! Fuzz: any bytes written to ctl are either carried out completely or refused with a line and a reason. The text of
//! ctl stays readable.
//!
//! `cargo +nightly fuzz run control -- -max_total_time=60`
#![no_main]

use core::mem::MaybeUninit;
use core::ops::Range;
use kprof::{Config, CpuSet, CpuSlot, Kernel, Profiler, Setup, Task};
use kprof_events::{EventKernel, EventSlot, Events};
use libfuzzer_sys::fuzz_target;
use std::sync::Once;

struct Machine;

// SAFETY: one thread is the only CPU, with number 0. No stack and no text is declared.
unsafe impl Kernel for Machine {
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {}
    fn stack_range(&self, _address: u64) -> Option<Range<u64>> {
        None
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 0, idle: false }
    }
    fn sleep_ns(&self, _ns: u64) {}
}

impl EventKernel for Machine {}

static PROFILER: Profiler<Machine> = Profiler::new(Machine);
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
static EVENTS: Events<Machine> = Events::new(&PROFILER);
static EVENT_SLOTS: [EventSlot; 2] = [const { EventSlot::new() }; 2];

fn memory() -> &'static mut [MaybeUninit<u64>] {
    Box::leak(vec![MaybeUninit::uninit(); 1024].into_boxed_slice())
}

fn text() -> String {
    let mut text = String::new();
    PROFILER.write_status(&mut text).expect("a string takes everything");
    text
}

fuzz_target!(|bytes: &[u8]| {
    static SET_UP: Once = Once::new();
    SET_UP.call_once(|| {
        let config = Config { tsc_hz: 1_000_000_000, text: (0x1000, 0x2000), ..Config::new() };
        let setup = || Setup { slots: &SLOTS, meta: memory(), config };
        EVENTS.init(|| &EVENT_SLOTS, setup).expect("a good setup");
        PROFILER.register(1, memory).expect("memory for a ring");
    });
    let before = text();
    let file = PROFILER.open_control(1);
    match file.write(bytes) {
        Ok(_) => {}
        Err(error) => {
            assert!(error.line >= 1);
            let same = |text: &str| {
                text.lines().filter(|line| !line.starts_with("error ")).map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(same(&before), same(&text()), "refused, and yet changed");
        }
    }
    assert!(text().lines().all(|line| line.contains(' ')));
});
