//! The code of docs/porting*.md that is in no port. In: steps of a kernel. Out: what the profiler does then.

use super::array_kernel::text;
use super::{EVENT_SLOTS, EVENTS, PROFILER, Port, SLOTS, ring_memory};
use kprof::{Config, NmiToken, Profiler, Published, Setup};
use kprof_events::ProbeMemory;
use spin::Once;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A failed step ends the test.
macro_rules! log {
    ($($text:tt)*) => { panic!($($text)*) };
}

/// What a CPU knows of its stacks.
pub struct Cpu {
    pub current: AtomicUsize,
    pub next: AtomicUsize,
}

pub fn switch_to(cpu: &Cpu, old: usize, new: usize, switch: fn(usize, usize)) {
    cpu.next.store(new, Relaxed);
    switch(old, new);
    cpu.current.store(new, Relaxed);
}

fn kmain() {}

pub fn init() {
    static ANCHOR: Once<[(&str, u64); 1]> = Once::new();
    let anchors = ANCHOR.call_once(|| [("kmain", kmain as *const () as u64)]);
    let config = Config { anchors, running: true, tsc_hz: 1_000_000_000, text: (text(0), text(256)), ..Config::new() };
    begin_with_events(|| Setup { slots: &SLOTS, meta: ring_memory(0), config });
    PROFILER.register(1, || ring_memory(1)).unwrap();
}

fn begin_with_events(setup: impl FnOnce() -> Setup) {
    if let Err(error) = EVENTS.init(|| &EVENT_SLOTS, setup) {
        log!("kprof: nothing is sampled: {error}");
    }
}

pub fn begin(setup: impl FnOnce() -> Setup) {
    if let Err(error) = PROFILER.init(setup) {
        log!("kprof: nothing is sampled: {error}");
    }
}
/// Checks a port that was not set up.
pub fn check(cpu: usize) {
    static PROFILER: Profiler<Port> = Profiler::new(Port);
    if let Err(error) = PROFILER.check() {
        log!("kprof: cpu {cpu}: {error}");
    }
}

pub fn export(mut serial: String) -> String {
    if let Err(error) = PROFILER.stop() {
        log!("kprof: {error}");
    }
    if let Err(error) = PROFILER.export(&mut serial) {
        log!("kprof: {error}");
    }
    serial
}

pub fn export_bytes(send_byte: fn(u8)) -> Result<(), kprof::ExportError> {
    PROFILER.export(&mut kprof::Bytes(send_byte))
}

static PROBES: ProbeMemory<64, 512, 256> = ProbeMemory::new();

pub fn register_probes() -> Result<(), kprof::RegisterError> {
    EVENTS.register_probes(&PROBES)
}

pub fn on_timer(registers: kprof::Registers, start_timer: impl FnOnce(u64)) {
    // SAFETY: nothing runs on the stack that is "interrupted".
    let next = PROFILER.on_timer(&unsafe { NmiToken::new() }, &registers).next_ns;
    start_timer(next);
}

pub fn entry(publisher: &kprof::Publisher, frame: u64, to_user: bool) {
    let before = publisher.publish(Published::entry(frame));
    publisher.publish(if to_user { Published::user(frame) } else { before });
}
