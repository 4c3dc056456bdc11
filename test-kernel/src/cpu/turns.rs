//! Turns under `-icount`: how long QEMU lets one CPU run before the next one.
//!
//! With `-icount` QEMU runs all CPUs on one host thread. Each CPU runs until the next timer deadline of any CPU or
//! device. Then QEMU starts again with the first CPU, and the next CPU gets its turn only after an interrupt. So the
//! sampler is the first CPU, and between two ticks its timer interrupts it several times for each other CPU. The timer
//! is periodic, because a periodic timer also makes deadlines while the sampler waits for its own turn.
//!
//! A round gives every busy CPU one turn of the same length; halted CPUs get none. Lengths vary, so that turns are
//! never in step with the work, but the last round before a tick ends when the tick is due. So between two ticks a CPU
//! runs for the interval divided by the number of busy CPUs, and its samples are as random as the intervals are.
//!
//! QEMU 8.1 and newer (`turns=shared`) divide the time to the next deadline by the number of CPUs, and give each of
//! them that much in turn until the deadline is there: the CPUs that run share a round. So the timer is set to the sum
//! of the turns. It must leave the sampler, which gets a share like all others, enough to handle its own interrupt:
//! with less it would do nothing else.
//!
//! A tick waits until all CPUs have handled the NMI of the tick before. The interval may be so short that a CPU had no
//! turn that was long enough for this, because another timer ended it early or the stack took long to walk. Then the
//! tick is late, but no tick is coalesced.
//!
//! The sampler never halts under `-icount`, but waits in a loop. While all CPUs are halted, QEMU's main thread moves
//! the clock to the next deadline. If that thread is awake for another reason in the moment in which the last CPU
//! executes `hlt`, it does not know yet how many instructions that CPU has executed, and moves the clock too far by
//! these. Then this run is not the same as another one.
//!
//! The lengths below are numbers of instructions. With `-icount shift=0` an instruction takes a nanosecond; with
//! another shift the command line says how many (`instruction-ns=8`).
//!
//! This is only for `-icount`. On real hardware, and in QEMU with a thread per CPU, only the plain sleep is used.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use x86_64::instructions::interrupts;

use super::{CPUS, Cpu, apic, clock, count, id};
use crate::random;

/// Number of rounds between two ticks, unless turns would become too short or too long.
const ROUNDS_PER_TICK: u64 = 4;
/// If turns would be shorter than this there are fewer rounds, because each round costs the sampler CPU about 500.
const SHORT_TURN: u64 = 5_000;
/// Length of turns while a tick waits for a CPU that has not handled the NMI of the last one.
const LATE_TURN: u64 = 2_300;
/// Minimum length of a turn in the last round before a tick. The timer's handler takes about 400; with shorter turns
/// the sampler CPU would do nothing but handle its timer.
const SHORTEST_TURN: u64 = 1_000;
const LONGEST_TURN: u64 = 200_000;
/// A CPU that has not handled its NMI after this many rounds is no longer waited for. Its tick is then coalesced, or
/// stays pending.
const MAX_ROUNDS_LATE: usize = 64;

/// How often the sampler looks for its interrupt before it ends its turn, if no other CPU has work.
const LOOPS_ALONE: usize = 200;

/// How many nanoseconds an instruction takes; 0 if QEMU does not count instructions.
static INSTRUCTION_NS: AtomicU64 = AtomicU64::new(0);
/// Whether QEMU shares the time to the next deadline between all CPUs, instead of giving each of them all of it.
static IS_SHARED: AtomicBool = AtomicBool::new(false);
/// Whether the sampler's timer is in periodic mode.
static PERIODIC: AtomicBool = AtomicBool::new(false);
/// The current interval between two ticks, and how much of it was left at the last sleep.
static GAP_NS: AtomicU64 = AtomicU64::new(0);
static LEFT_NS: AtomicU64 = AtomicU64::new(0);

/// Sets how many nanoseconds an instruction takes, or `None` if QEMU does not count them, and whether QEMU shares a
/// round between all CPUs. Called once, on the boot CPU.
pub fn init(instruction_ns: Option<u64>, is_shared: bool) {
    INSTRUCTION_NS.store(instruction_ns.unwrap_or(0), Ordering::Relaxed);
    IS_SHARED.store(is_shared, Ordering::Relaxed);
}

/// Whether QEMU shares a round between all CPUs.
pub fn is_shared() -> bool {
    IS_SHARED.load(Ordering::Relaxed)
}

/// Sleeps on the sampler CPU until the end of the interval, or under `-icount` for one round.
pub fn sleep_ns(left_ns: u64) {
    let instruction_ns = INSTRUCTION_NS.load(Ordering::Relaxed);
    if instruction_ns == 0 {
        return clock::sleep_once_ns(left_ns);
    }
    // If more is left than the last time, a new interval has begun. Its whole length determines the length of turns.
    if left_ns > LEFT_NS.swap(left_ns, Ordering::Relaxed) {
        GAP_NS.store(left_ns, Ordering::Relaxed);
    }
    let end_ns = clock::now_ns() + left_ns;
    let (left, gap) = (left_ns / instruction_ns, GAP_NS.load(Ordering::Relaxed) / instruction_ns);
    let (busy, others) = (busy(), (count() as u64).saturating_sub(1));
    round(turn(left, gap, busy, random::next()), busy, instruction_ns);
    let mut late = 0;
    // The interval may also end between here and the tick.
    while clock::now_ns() + SHORTEST_TURN * instruction_ns >= end_ns && is_any_nmi_pending() && late < MAX_ROUNDS_LATE {
        round(LATE_TURN, others, instruction_ns);
        late += 1;
    }
    if late > 0 {
        // Without this round, work whose sampling takes longer than an interval would never progress.
        round(LATE_TURN, others, instruction_ns);
    }
}

/// Waits for the next interrupt of this CPU, which is the boot CPU or the sampler. Interrupts are off before, and on
/// afterwards.
pub fn wait_for_interrupt() {
    if INSTRUCTION_NS.load(Ordering::Relaxed) == 0 {
        return interrupts::enable_and_hlt();
    }
    let halted = &super::this().halted;
    halted.store(true, Ordering::Relaxed);
    interrupts::enable();
    while halted.load(Ordering::Relaxed) {
        core::hint::spin_loop();
        pass_time(halted);
    }
}

/// Waits while no other CPU has work: its instructions are the time that passes.
fn pass_time(halted: &AtomicBool) {
    while !is_any_working() {
        // With a turn for each look, the host would need very long.
        for _ in 0..LOOPS_ALONE {
            if !halted.load(Ordering::Relaxed) {
                return;
            }
        }
        core::hint::spin_loop();
    }
}

/// Gives each of the CPUs that take part one turn of this many instructions.
fn round(turn: u64, takers: u64, instruction_ns: u64) {
    let length = if is_shared() { (turn * takers).max(SHORTEST_TURN * count() as u64) } else { turn };
    let length_ns = length * instruction_ns;
    interrupts::disable();
    let start_ns = clock::now_ns();
    // Each write to a register of the timer ends this CPU's turn, so the mode is written only once.
    if !PERIODIC.swap(true, Ordering::Relaxed) {
        apic::make_periodic();
    }
    apic::start_timer(clock::timer_count(length_ns));
    // If the round is already over, its interrupt is pending. Waiting would begin another round.
    if clock::now_ns() - start_ns < length_ns {
        wait_for_interrupt();
    } else {
        interrupts::enable();
        x86_64::instructions::nop();
    }
}

/// Called before an NMI is sent.
pub fn nmi_sent(apic_id: u32) {
    if INSTRUCTION_NS.load(Ordering::Relaxed) > 0 {
        let target = CPUS.iter().find(|cpu| cpu.apic_id.load(Ordering::Relaxed) == apic_id);
        target.inspect(|cpu| cpu.nmi_pending.store(true, Ordering::Relaxed));
    }
}

fn is_any_nmi_pending() -> bool {
    CPUS[..count()].iter().any(|cpu| cpu.nmi_pending.load(Ordering::Relaxed))
}

/// Whether another CPU runs a thread. One that starts only waits.
#[inline(always)]
fn is_any_working() -> bool {
    let is_working = |cpu: &Cpu| cpu.schedules.load(Ordering::Relaxed) && !cpu.halted.load(Ordering::Relaxed);
    CPUS[..count()].iter().any(is_working)
}

/// The number of CPUs that will use a turn; at least one.
fn busy() -> u64 {
    let me = id();
    let is_busy = |cpu: usize| cpu != me && !CPUS[cpu].halted.load(Ordering::Relaxed);
    ((0..count()).filter(|cpu| is_busy(*cpu)).count() as u64).max(1)
}

/// The length of the turns of the next round, in instructions, as `left` and `gap` are.
fn turn(left: u64, gap: u64, busy: u64, chance: u64) -> u64 {
    let share = left / busy + 1;
    let middle = (gap / (ROUNDS_PER_TICK * busy)).clamp(SHORT_TURN, LONGEST_TURN);
    let rounds = (share + middle / 2) / middle;
    if rounds <= 1 {
        return share.clamp(SHORTEST_TURN, LONGEST_TURN);
    }
    // Uniform within ±25 %, as the intervals between ticks.
    share / rounds * (768 + chance % 513) / 1024
}
