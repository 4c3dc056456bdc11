//! The trigger `timer`: one CPU alone has nobody who sends it ticks, so it samples itself by its own timer. In: the
//! timer's interrupts. Out: samples, and when the next interrupt comes. Code that masks interrupts has no samples. Runs
//! in: the timer's interrupt, with interrupts masked.

use crate::machine;
use crate::memory::number;
use crate::profiling::{PROFILER, Saved};
use core::arch::asm;
use kprof::{CountedEvent, Interrupted, NmiToken};

/// The timer's interrupt.
pub fn tick(saved: &Saved) {
    // SAFETY: called by entry stubs only, with what they interrupted, interrupts masked.
    let tick = PROFILER.on_timer(&unsafe { NmiToken::new() }, &saved.registers());
    start(tick.next_ns);
}

/// What ticks are caused by, if not by time.
pub fn event() -> Option<CountedEvent> {
    let period = number(b"event=").filter(|_| cfg!(target_arch = "riscv64"))?;
    Some(CountedEvent { name: "dtlb-load-misses", period })
}

/// Begins the ticks of this CPU: by time, or by the events that were chosen.
pub fn begin() {
    #[cfg(target_arch = "riscv64")]
    if let Some(event) = event() {
        crate::counter::start(event.period);
        let why = "the overflow of a counter cannot interrupt this CPU (bit 13 of sie stays 0): there will be no tick";
        return crate::tell(crate::counter::can_interrupt().then_some(()).ok_or(why));
    }
    start(1);
}

/// Makes the timer interrupt this CPU once, and takes back an interrupt that has been due.
pub fn start(ns: u64) {
    let ticks = (u128::from(ns) * u128::from(machine::hz()) / 1_000_000_000).clamp(1, 0x7fff_ffff) as u64;
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the virtual timer, whose interrupt the vectors handle.
    unsafe {
        asm!("msr cntv_tval_el0, {}", "msr cntv_ctl_el0, {}", "isb", in(reg) ticks, in(reg) 1_u64, options(nostack));
    }
    #[cfg(target_arch = "riscv64")]
    // SAFETY: the supervisor's timer, whose interrupt the stub handles.
    unsafe {
        asm!("rdtime {}", "add {0}, {0}, {}", "csrw stimecmp, {0}", out(reg) _, in(reg) ticks, options(nostack));
    }
}
