//! Simulates CPUs that do not answer the profiler, or that are offline for it.
//!
//! In: a CPU's number, written to one of three files. `/kernel/deaf`: no NMI is sent to this CPU from now on; `all`
//! sends NMIs to every CPU again. `/kernel/offline`: the profiler is told that the CPU goes offline; this is only
//! allowed for a deaf CPU, because no NMI may come then. `/kernel/online`: the profiler is told that the CPU is back.
//! Out: nothing. Runs in: a system call. The CPU itself continues to run its threads.

use core::sync::atomic::Ordering;

use crate::cpu::{self, CPUS, apic};
use crate::errno::{Errno, Result};
use crate::profiling::{self, PROFILER};

/// Sets the CPU to which no NMIs are sent, or none.
pub fn deaf(text: &[u8]) -> Result<()> {
    let mask = if text == b"all" { 0 } else { 1_u64.checked_shl(apic_id(text)?).ok_or(Errno::EINVAL)? };
    apic::DEAF.store(mask, Ordering::Relaxed);
    Ok(())
}

/// Tells the profiler that a CPU goes offline.
pub fn offline(text: &[u8]) -> Result<()> {
    if apic::DEAF.load(Ordering::Relaxed).checked_shr(apic_id(text)?).unwrap_or(0) & 1 == 0 {
        return Err(Errno::EBUSY);
    }
    PROFILER.offline(number(text)?);
    Ok(())
}

/// Tells the profiler that a CPU is back.
pub fn online(text: &[u8]) -> Result<()> {
    profiling::register(number(text)?);
    Ok(())
}

fn apic_id(text: &[u8]) -> Result<u32> {
    Ok(CPUS[number(text)?].apic_id.load(Ordering::Relaxed))
}

/// Parses the number of a CPU and checks that the CPU exists.
fn number(text: &[u8]) -> Result<usize> {
    let number = core::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number < cpu::count()).ok_or(Errno::EINVAL)
}
