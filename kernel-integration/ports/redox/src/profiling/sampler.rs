//! The sampler CPU: set-up of kprof, its loop, the switch that starts and stops sampling.
//!
//! In: the kernel's environment (`KPROF_HZ=`, `KPROF_START=1`, `KPROF_KEYS=1`) and the switch. Out:
//! NMIs to the other CPUs, and one line of the log per CPU when sampling ends. Runs in: the sampler
//! CPU, ordinary code. It sleeps between ticks.

use alloc::{string::String, vec::Vec};
use core::{
    arch::x86_64::_rdtsc,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use kprof::CpuSet;

use super::{
    cpu::{hand_over, rings},
    nmi::PROFILER,
    read::send_names,
    setup::{env, hz, setup, HZ},
};
use crate::{
    arch::{
        device::local_apic::the_local_apic,
        idt::Idt,
        profiling::{calibrate::calibrate, sampler_timer},
    },
    cpu_set::LogicalCpuId,
    percpu::ALL_PERCPU_BLOCKS,
    sync::CleanLockToken,
};

/// The boot CPU waits until the sampler has calibrated its clocks, and is sampled from there on.
pub(super) const EARLY_START: bool = false;
/// The counters that the log shows when sampling ends.
const SHOWN: [&str; 9] = [
    "sent",
    "taken",
    "coalesced",
    "user",
    "idle",
    "recorded",
    "lost-full",
    "lost-nested",
    "in-ring",
];

/// Whether sampling is wanted. The ctl file sets it, and the sampler CPU follows it.
pub static IS_PROFILING: AtomicBool = AtomicBool::new(false);
/// Whether sampling is on, as far as the sampler CPU knows.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
static IS_SET_UP: AtomicBool = AtomicBool::new(false);
/// Whether the sampler CPU is sampling or has logged that it cannot.
static IS_DECIDED: AtomicBool = AtomicBool::new(false);
/// The last sleep between ticks.
static INTERVAL_NS: AtomicU64 = AtomicU64::new(0);

pub(super) fn is_set_up() -> bool {
    IS_SET_UP.load(Ordering::SeqCst)
}

pub(super) fn wait_until_decided() {
    while !IS_DECIDED.load(Ordering::SeqCst) {
        core::hint::spin_loop();
    }
}

/// The CPU that samples: the last one, if there are at least two.
fn sampler() -> Option<LogicalCpuId> {
    let sampled = rings().len() as u32;
    (sampled > 0).then_some(LogicalCpuId::new(sampled))
}

/// Called for each CPU's table.
pub fn maybe_setup_timer(idt: &mut Idt, cpu_id: LogicalCpuId) {
    if sampler() == Some(cpu_id) {
        sampler_timer::set_gates(idt);
    }
}

/// Called on each CPU. It does not return on the sampler CPU.
pub fn maybe_run_profiling_helper_forever(cpu_id: LogicalCpuId) {
    if sampler() != Some(cpu_id) {
        return;
    }
    sampler_timer::take();
    // When the boot CPU is ready, there are clocks and (except with an early start) the environment.
    // This does not wait for any other CPU.
    while !rings()
        .first()
        .is_some_and(|ring| ring.is_ready.load(Ordering::SeqCst))
    {
        sampler_timer::sleep_roughly();
    }
    match calibrate() {
        Ok(clock) => set_up(cpu_id, clock.tsc_hz, clock.timer_hz),
        Err(error) => {
            error!("kprof: nothing is sampled: neither HPET nor PIT count: {error}");
            IS_DECIDED.store(true, Ordering::SeqCst);
        }
    }
    PROFILER.run_sampler(cpu_id.get() as usize);
    // This point is reached only if kprof could not be set up.
    loop {
        sampler_timer::sleep_roughly();
    }
}

fn set_up(sampler: LogicalCpuId, tsc_hz: u64, timer_hz: u64) {
    sampler_timer::set_hz(timer_hz);
    // The kernel's environment cannot be read yet at an early start.
    let hz = if EARLY_START { HZ } else { hz() };
    let starts_now = EARLY_START || env("KPROF_START") == Some("1");
    let then = if starts_now {
        "sampling starts now"
    } else {
        "`echo 1 > /scheme/debug/ctl-profiling` starts"
    };
    info!("kprof: {hz} Hz, TSC {tsc_hz} Hz, timer {timer_hz} Hz; {then}");
    if sampler_timer::is_sliced() && sampler.get() == 1 {
        warn!("kprof: QEMU -icount: a busy CPU 0 lets CPU 1 not run: use -smp 3 or more");
    }
    if let Err(error) = PROFILER.init(|| setup(Some(sampler), tsc_hz, hz)) {
        error!("kprof: nothing is sampled: {error}");
        // The boot CPU may be waiting for this.
        IS_DECIDED.store(true, Ordering::SeqCst);
        return;
    }
    // SAFETY: this CPU holds no lock.
    send_names(&mut unsafe { CleanLockToken::new() });
    IS_SET_UP.store(true, Ordering::SeqCst);
    for (cpu, ring) in rings().iter().enumerate() {
        hand_over(cpu, ring);
    }
    if starts_now {
        IS_PROFILING.store(true, Ordering::SeqCst);
    }
}

/// Called for keys of QEMU's window. Keys A and B start and stop sampling if `KPROF_KEYS=1` is set.
pub fn serio_command(index: usize, data: u8) {
    let wanted = match (index, data) {
        (0, 30) => true,
        (0, 48) => false,
        _ => return,
    };
    if env("KPROF_KEYS") == Some("1") {
        // A key has its effect also if ctl has started or stopped sampling since the last one.
        IS_RUNNING.store(!wanted, Ordering::SeqCst);
        IS_PROFILING.store(wanted, Ordering::SeqCst);
    }
}

/// Signals one CPU after the other, so that they are not interrupted at the same instant. The random
/// pauses in between take up to a quarter of the interval in total.
pub(super) fn signal(cpus: &CpuSet<'_>) {
    let longest = INTERVAL_NS.load(Ordering::Relaxed) / 4;
    let longest = longest.checked_div(rings().len() as u64).unwrap_or(0);
    for (number, cpu) in cpus.iter().enumerate() {
        if number > 0 && sampler_timer::can_sleep(longest) {
            // SAFETY: reads a counter.
            sampler_timer::sleep_ns(unsafe { _rdtsc() }.checked_rem(longest).unwrap_or(0).max(1));
        }
        let percpu = ALL_PERCPU_BLOCKS
            .get(cpu)
            .map(|block| block.load(Ordering::Acquire));
        // SAFETY: a ready CPU's block is never freed, and its APIC id was set before it was ready.
        let percpu = percpu.and_then(|block| unsafe { block.as_ref() });
        if let Some(id) = percpu.and_then(|percpu| percpu.misc_arch_info.apic_id_opt.get()) {
            // The id has the form of its register (in xAPIC mode in the top byte), as the command
            // needs it.
            let command = (u64::from(id.get()) << 32) | 0x4400;
            // SAFETY: this sends an NMI to a CPU that is ready for it.
            unsafe { the_local_apic().set_icr(command) };
        }
    }
}

pub(super) fn sleep_ns(ns: u64) {
    follow_switch();
    IS_DECIDED.store(true, Ordering::Release);
    INTERVAL_NS.store(ns, Ordering::Relaxed);
    sampler_timer::sleep_ns(ns);
}

/// Starts and stops sampling as written to ctl.
fn follow_switch() {
    let wanted = IS_PROFILING.load(Ordering::SeqCst);
    if IS_RUNNING.swap(wanted, Ordering::Relaxed) == wanted {
        return;
    }
    if let Err(error) = if wanted {
        PROFILER.start()
    } else {
        PROFILER.stop()
    } {
        error!("kprof: {error}");
    }
    if wanted {
        info!("kprof: sampling");
    } else {
        log_account();
    }
}

/// One line for each CPU: `kprof: cpu 0: sent 343 taken 340 ...`.
fn log_account() {
    let mut status = String::new();
    if PROFILER.write_status(&mut status).is_err() {
        return;
    }
    for cpu in 0..rings().len() {
        let prefix = alloc::format!("cpu.{cpu}.");
        let counters = status
            .lines()
            .filter_map(|line| line.strip_prefix(prefix.as_str()));
        let is_shown = |line: &&str| {
            SHOWN
                .iter()
                .any(|name| line.split(' ').next() == Some(name))
        };
        let account = counters.filter(is_shown).collect::<Vec<_>>().join(" ");
        info!("kprof: cpu {cpu}: {account}");
    }
}
