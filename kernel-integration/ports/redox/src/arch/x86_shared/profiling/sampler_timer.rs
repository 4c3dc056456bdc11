//! The sampler CPU's timer, which ends each sleep.
//!
//! In: a count or nanoseconds. Out: `hlt` until the timer's interrupt, or until any other. Runs in:
//! the sampler CPU, ordinary code.
//!
//! Under QEMU's `-icount` all CPUs take turns on one thread. A turn ends when the next timer of the
//! machine is due, and an interrupt does not end the turn of another CPU. There the timer is
//! periodic, and a sleep is only a slice of the time that was asked for: the timer that has woken
//! this CPU is due again soon, and so ends the turn of the CPU that runs.

use core::{
    arch::{asm, naked_asm, x86_64::__cpuid},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use crate::{
    arch::{device::local_apic::the_local_apic, idt::Idt, interrupt},
    ipi::IpiKind,
};

const VECTOR: u8 = 32;
const PERIODIC: u32 = 1 << 17;
/// The first count for the timer. The slowest known timer takes 50 ms for it, the fastest 1 ms.
pub const ROUGH_COUNT: u32 = 1_200_000;
/// Slices of a sleep, and their limits: a periodic timer that is faster than its handler would keep
/// the CPU there for ever, and no turn of another CPU is longer than the longest slice.
const SLICES: u64 = 8;
const SLICE_NS: core::ops::RangeInclusive<u64> = 2_500..=100_000;

static HZ: AtomicU64 = AtomicU64::new(0);
/// Whether instructions are counted, so that sleeps are sliced.
static IS_SLICED: AtomicBool = AtomicBool::new(false);

/// Sets the sampler CPU's gates. The gate for TLB shootdowns stays. All other interrupts are for
/// CPUs that run contexts; here they only wake the CPU.
pub fn set_gates(idt: &mut Idt) {
    for vector in (33..255).filter(|vector| *vector != IpiKind::Tlb as usize) {
        if let Some(entry) = idt.entries.get_mut(vector) {
            entry.set_func(interrupt::ipi::wakeup);
        }
    }
    if let Some(entry) = idt.entries.get_mut(usize::from(VECTOR)) {
        entry.set_func(timer_entry);
    }
    idt.set_reserved_mut(VECTOR, true);
}

/// The timer's entry, only on the sampler CPU, which never leaves the kernel.
#[unsafe(naked)]
unsafe extern "C" fn timer_entry() {
    unsafe extern "C" fn acknowledge() {
        // SAFETY: in the handler of an interrupt that the local APIC has delivered.
        unsafe { the_local_apic().eoi() };
    }
    naked_asm!(
        "push rax; push rcx; push rdx; push rsi; push rdi; push r8; push r9; push r10; push r11",
        "cld; call {acknowledge}",
        "pop r11; pop r10; pop r9; pop r8; pop rdi; pop rsi; pop rdx; pop rcx; pop rax; iretq",
        acknowledge = sym acknowledge,
    )
}

/// Takes this CPU's timer. Its frequency is not known yet.
pub fn take() {
    let is_sliced = is_counted();
    IS_SLICED.store(is_sliced, Ordering::Relaxed);
    set_mode(is_sliced);
    // SAFETY: no other code uses this CPU's timer.
    unsafe { the_local_apic().set_div_conf(0b1011) };
}

/// Whether the TSC counts instructions. Only QEMU's emulation with `-icount` does that: there the
/// same instructions always take the same number of ticks.
fn is_counted() -> bool {
    let name = __cpuid(0x4000_0000);
    let is_emulated = [name.ebx, name.ecx, name.edx]
        .map(u32::to_le_bytes)
        .concat()
        == *b"TCGTCGTCGTCG";
    // A turn may end between two reads. The next try then fits into one turn.
    is_emulated && (0..8).any(|_| is_even(&reads()))
}

/// The lower half of the TSC, read repeatedly by the same few instructions.
fn reads() -> [u32; 32] {
    let mut reads = [0; 32];
    // SAFETY: writes the words of the array, one after the other, and nothing else.
    unsafe {
        asm!(
            "2: rdtsc; mov [{place}], eax; add {place}, 4; cmp {place}, {end}; jne 2b",
            place = inout(reg) reads.as_mut_ptr() => _,
            end = in(reg) reads.as_mut_ptr_range().end,
            out("eax") _, out("edx") _,
            options(nostack)
        );
    }
    reads
}

/// Whether the time between any two consecutive reads is the same.
pub fn is_even(reads: &[u32]) -> bool {
    let later = reads.iter().skip(1);
    let mut steps = reads
        .iter()
        .zip(later)
        .map(|(read, next)| next.wrapping_sub(*read));
    matches!(steps.next(), Some(first) if first != 0 && steps.all(|step| step == first))
}

/// A short sleep before the frequency is known.
pub fn sleep_roughly() {
    sleep(ROUGH_COUNT);
}

/// Sleeps for `ns`, or for a slice of it, or until another interrupt comes.
pub fn sleep_ns(ns: u64) {
    let ns = if is_sliced() { slice_ns(ns) } else { ns };
    sleep(count(ns, HZ.load(Ordering::Relaxed)));
}

/// Whether a sleep of `ns` ends about when it should, and is not too short for an interrupt.
pub fn can_sleep(ns: u64) -> bool {
    ns > 20_000 && !is_sliced()
}

/// The part of a sleep after which the sampler looks at the time again.
pub fn slice_ns(left_ns: u64) -> u64 {
    (left_ns / SLICES).clamp(*SLICE_NS.start(), *SLICE_NS.end())
}

/// Nanoseconds as a count: at least 1, because 0 stops the timer, and at most what it can hold.
pub fn count(ns: u64, hz: u64) -> u32 {
    let count = u128::from(ns).saturating_mul(u128::from(hz)) / 1_000_000_000;
    count.clamp(1, u128::from(u32::MAX)) as u32
}

fn sleep(count: u32) {
    // SAFETY: no other code uses this CPU's timer.
    unsafe { the_local_apic().set_init_count(count) };
    halt();
}

fn halt() {
    // SAFETY: the sampler CPU has handlers for all interrupts that may come.
    unsafe {
        interrupt::enable_and_halt();
        interrupt::disable();
    }
}

/// Sleeps until the timer has counted down from `count`, whatever wakes this CPU before.
pub fn sleep_to_the_end(count: u32) {
    set_mode(false);
    sleep(count);
    // SAFETY: this only reads a register of this CPU's APIC.
    while unsafe { the_local_apic().cur_count() } != 0 {
        halt();
    }
    set_mode(is_sliced());
}

/// A periodic timer begins again at its end.
fn set_mode(is_periodic: bool) {
    let mode = if is_periodic { PERIODIC } else { 0 };
    // SAFETY: no other code uses this CPU's timer.
    unsafe { the_local_apic().set_lvt_timer(u32::from(VECTOR) | mode) };
}

/// Whether instructions are counted.
pub fn is_sliced() -> bool {
    IS_SLICED.load(Ordering::Relaxed)
}

/// What the timer counts in a second, as measured.
pub fn set_hz(hz: u64) {
    HZ.store(hz, Ordering::Relaxed);
}
