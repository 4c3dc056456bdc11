//! Time: TSC and APIC timer. Both are calibrated against the ACPI PM timer by sleeping, never by polling.
//!
//! Sleeping until a timer interrupt also works if QEMU counts instructions (`-icount`). In that mode, reading device
//! registers in a loop takes much time on the host. The PM timer runs at 3.579545 MHz (ACPI specification, 4.8.2.1).

use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::instructions::interrupts;
use x86_64::instructions::port::PortReadOnly;

use super::{apic, turns};
use crate::log;

const PM_TIMER_HZ: u64 = 3_579_545;
const ROUNDS: usize = 3;
const SHORT_COUNT: u32 = 5_000_000;
const LONG_COUNT: u32 = 20_000_000;

static TSC_HZ: AtomicU64 = AtomicU64::new(1_000_000_000);
/// Nanoseconds in 2^32 TSC ticks, so that a look at the clock is a multiplication and not a division.
static NS_PER_2_POW_32: AtomicU64 = AtomicU64::new(1 << 32);
static TIMER_HZ: AtomicU64 = AtomicU64::new(1_000_000_000);
static BOOT_TSC: AtomicU64 = AtomicU64::new(0);

/// The time stamp counter.
#[inline(always)]
pub fn tsc() -> u64 {
    // SAFETY: reads a counter, no other effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// TSC ticks in a second.
pub fn tsc_hz() -> u64 {
    TSC_HZ.load(Ordering::Relaxed)
}

/// Sets a frequency that was measured elsewhere. It is used until `calibrate`.
pub fn set_tsc_hz(hz: u64) {
    store_tsc_hz(round(hz));
}

fn store_tsc_hz(hz: u64) {
    TSC_HZ.store(hz, Ordering::Relaxed);
    NS_PER_2_POW_32.store(((1_000_000_000_u128 << 32) / u128::from(hz.max(1))) as u64, Ordering::Relaxed);
}

/// Nanoseconds since `calibrate`.
pub fn now_ns() -> u64 {
    let ticks = tsc().wrapping_sub(BOOT_TSC.load(Ordering::Relaxed));
    let ns = u128::from(ticks) * u128::from(NS_PER_2_POW_32.load(Ordering::Relaxed));
    (ns >> 32) as u64
}

/// Measures TSC and APIC timer. In: the PM timer's port. Interrupts off; the APIC is on; boot CPU only.
#[inline(never)]
pub fn calibrate(pm_timer_port: u16) {
    let mut pm = PortReadOnly::<u32>::new(pm_timer_port);
    // SAFETY: the FADT says that the PM timer is at this port; reading has no effect.
    let mut pm_timer = || unsafe { pm.read() } & 0xff_ffff;
    let (first_pm, first_tsc) = (pm_timer(), tsc());
    // Waking up takes extra time. In the quickest of several rounds it is the same for both lengths, so the difference
    // of the two is exact.
    let quickest = |count: u32| (0..ROUNDS).map(|_| sleep_ticks(count)).min().unwrap_or(1);
    let timer_ticks = quickest(LONG_COUNT).saturating_sub(quickest(SHORT_COUNT)).max(1);
    let (last_tsc, pm_ticks) = (tsc(), (pm_timer().wrapping_sub(first_pm) & 0xff_ffff).max(1) as u64);
    let tsc_hz = (last_tsc - first_tsc) as u128 * PM_TIMER_HZ as u128 / pm_ticks as u128;
    let timer_hz = (LONG_COUNT - SHORT_COUNT) as u128 * tsc_hz / timer_ticks as u128;
    store_tsc_hz(round(tsc_hz as u64));
    TIMER_HZ.store(round(timer_hz as u64), Ordering::Relaxed);
    BOOT_TSC.store(first_tsc, Ordering::Relaxed);
    log!("clock: TSC {} Hz, APIC timer {} Hz", self::tsc_hz(), TIMER_HZ.load(Ordering::Relaxed));
}

/// Sleeps until the timer has counted down from `count`. Returns how many TSC ticks that took.
fn sleep_ticks(count: u32) -> u64 {
    let before = tsc();
    apic::start_timer(count);
    while apic::timer_left() != 0 {
        turns::wait_for_interrupt();
        interrupts::disable();
    }
    tsc() - before
}

/// Rounds a frequency within 0.1 % of a multiple of 100 MHz to that multiple, because the PM timer is not more exact.
fn round(hz: u64) -> u64 {
    let whole = (hz + 50_000_000) / 100_000_000 * 100_000_000;
    if whole != 0 && hz.abs_diff(whole) < whole / 1000 { whole } else { hz }
}

/// Makes the one-shot timer of this CPU fire in about `ns` nanoseconds (at once for 0).
pub fn start_timer_ns(ns: u64) {
    apic::start_timer(timer_count(ns));
}

/// Ticks of the APIC timer in `ns` nanoseconds, at least one.
pub fn timer_count(ns: u64) -> u32 {
    let count = ns as u128 * TIMER_HZ.load(Ordering::Relaxed) as u128 / 1_000_000_000;
    count.clamp(1, u32::MAX as u128) as u32
}

/// Sleeps in `hlt` until the timer fires after about `ns` nanoseconds, or something else wakes the CPU. Same use as
/// [`wait_ns`].
pub fn sleep_once_ns(ns: u64) {
    interrupts::disable();
    start_timer_ns(ns);
    interrupts::enable_and_hlt();
}

/// Sleeps until `ns` nanoseconds have passed. No other code may use this CPU's timer, so this is only called while CPUs
/// start, and on the sampler CPU. Works with interrupts on or off, and does not change the flag.
#[inline(never)]
pub fn wait_ns(ns: u64) {
    let were_on = interrupts::are_enabled();
    interrupts::disable();
    let end = tsc() + (ns as u128 * tsc_hz() as u128 / 1_000_000_000) as u64;
    loop {
        let now = tsc();
        if now >= end {
            break;
        }
        start_timer_ns(((end - now) as u128 * 1_000_000_000 / tsc_hz() as u128) as u64);
        turns::wait_for_interrupt();
        interrupts::disable();
    }
    if were_on {
        interrupts::enable();
    }
}
