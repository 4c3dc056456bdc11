//! Measures the cost of the profiler's handler. A kernel thread calls it at a known depth and reads the TSC before and
//! after. Under `-icount` the difference is the number of instructions.
//!
//! Sampling must be stopped. The log gets one line for each depth: `handler: 16 frames, 280.5 instructions`.

use core::hint::black_box;
use core::sync::atomic::{AtomicBool, Ordering};

use alloc::sync::Arc;
use alloc::vec;

use kprof::format::record::RawHeader;

use crate::cpu::entry::TrapFrame;
use crate::task::thread;
use crate::wait::{Reason, WaitQueue};
use crate::{cpu, log, profiling};

/// The number of callers in addition to the thread's own ones, for each line. The last ones have as many frames as
/// whole rounds of the fast path hold, and more, up to the depth.
const DEPTHS: [u32; 8] = [2, 12, 24, 40, 43, 44, 45, 59];

/// The sums of the measurements at one depth.
struct Sum {
    ticks: u64,
    spent: u64,
    frames: u64,
}

/// Measures `rounds` ticks at each depth.
pub fn measure(rounds: u64) {
    let done = Arc::new((AtomicBool::new(false), WaitQueue::new(Reason::Workload)));
    let finished = done.clone();
    thread::spawn_kernel("handler", move || {
        for depth in DEPTHS {
            let mut sum = Sum { ticks: 0, spent: 0, frames: 0 };
            (0..rounds).for_each(|_| deeper(depth, &mut sum));
            let tenths = sum.spent * 10 / sum.ticks.max(1);
            log!("handler: {} frames, {}.{} instructions", sum.frames / sum.ticks.max(1), tenths / 10, tenths % 10);
        }
        finished.0.store(true, Ordering::Release);
        finished.1.wake();
    });
    done.1.wait(|| done.0.load(Ordering::Acquire));
}

#[inline(never)]
fn deeper(left: u32, sum: &mut Sum) {
    if left == 0 {
        x86_64::instructions::interrupts::without_interrupts(|| tick(sum));
    } else {
        deeper(left - 1, black_box(sum));
        // This prevents a tail call, so that each level has a frame.
        black_box(left);
    }
}

/// One tick, as if an NMI had interrupted this function after its first instructions.
#[inline(never)]
fn tick(sum: &mut Sum) {
    let rbp: u64;
    // SAFETY: this only reads a register.
    unsafe { core::arch::asm!("mov {}, rbp", out(reg) rbp, options(nomem, nostack)) };
    // The lowest words of the stack must not look like a caller: what is left below them of earlier calls may, and the
    // slow path would look at it, in some builds of the kernel more often than in others.
    let quiet = [0u64; 2];
    let mut rsp = black_box(&quiet).as_ptr() as u64;
    let mut here = tick as *const () as u64 + 16;
    if cfg!(feature = "tables") {
        // An unwind table says what is on the stack at this instruction, and not at another one.
        // SAFETY: this only reads registers.
        unsafe {
            core::arch::asm!("lea {}, [rip]", "mov {}, rsp", out(reg) here, out(reg) rsp, options(nomem, nostack));
        }
    }
    let frame = TrapFrame { rip: here, cs: 8, rflags: 0x202, rsp, rbp, ..TrapFrame::default() };
    profiling::PROFILER.raise_tick(cpu::id());
    // SAFETY: RDTSC has no effect.
    let look = || unsafe { core::arch::x86_64::_rdtsc() };
    // The cost of the call itself is measured with an empty function, and subtracted.
    let start = look();
    no_handler(black_box(&frame));
    let begun = look();
    profiling::on_nmi(black_box(&frame));
    let end = look();
    sum.spent += (end - begun) - (begun - start);
    sum.ticks += 1;
    // A raw record has its length in the low byte of the first word. The words of its header are not callers.
    let mut record = vec![0; 4096];
    let bytes = profiling::PROFILER.open_stream(cpu::id(), 0).and_then(|stream| stream.read(&mut record)).unwrap_or(0);
    sum.frames += if bytes > 0 { u64::from(record[0]) - RawHeader::WORDS as u64 } else { 0 };
}

#[inline(never)]
fn no_handler(_frame: &TrapFrame) {
    black_box(());
}
