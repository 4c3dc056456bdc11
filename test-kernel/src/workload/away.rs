//! CPUs that do not answer the profiler, or have gone away for it: what a broken or a stopped CPU looks like from
//! outside.
//!
//! In: a CPU's number, written to `/kernel/deaf` (no NMI reaches it from now on; `all`: every CPU is reached again),
//! `/kernel/offline` (the profiler is told that it goes away; only a deaf one may, as no NMI must come then) or
//! `/kernel/online` (that it is back). Out: nothing. Runs in: a system call. The CPU itself goes on with its threads.

use core::sync::atomic::Ordering;

use crate::cpu::{self, CPUS, apic};
use crate::errno::{Errno, Result};
use crate::profiling::{self, PROFILER};

/// Keeps NMIs from a CPU, or from none.
pub fn deaf(text: &[u8]) -> Result<()> {
    let mask = if text == b"all" { 0 } else { 1_u64.checked_shl(apic_id(text)?).ok_or(Errno::EINVAL)? };
    apic::DEAF.store(mask, Ordering::Relaxed);
    Ok(())
}

/// Tells the profiler that a CPU goes away.
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

/// The number of a CPU that there is.
fn number(text: &[u8]) -> Result<usize> {
    let number = core::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| *number < cpu::count()).ok_or(Errno::EINVAL)
}
