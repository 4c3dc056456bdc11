//! Turns under counted instructions: how long QEMU lets one CPU run before the next one.
//!
//! With `-icount` QEMU runs all CPUs on one host thread, each until the next timer deadline of the machine, whoever's
//! it is, and then begins again with the first CPU: the next one has its turn only after an interrupt, which makes QEMU
//! go round. So the sampler is the first CPU, and between two ticks its timer interrupts it several times for each CPU.
//! It is a periodic timer, which makes deadlines also while the sampler waits for its own turn.
//!
//! A round gives every busy CPU one turn of the same length; CPUs that halt take none. Lengths vary, so that turns
//! never fall into step with the work, but the last round before a tick ends when the tick is due. So a CPU runs the
//! gap between two ticks, divided by the number of busy CPUs, and its samples are as far apart, and as random, as the
//! gaps are.
//!
//! A tick waits until all CPUs have served the NMI of the one before. Where the gap is so short that a CPU had no turn
//! long enough for that (another timer ended it early, or the stack took long to walk), the tick is late, and none is
//! merged.
//!
//! Only for that mode; on real hardware and with a thread per CPU nothing here is called.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use x86_64::instructions::interrupts;

use super::{CPUS, apic, clock, count, id};
use crate::random;

/// Rounds between two ticks, where turns are neither too short nor too long then.
const ROUNDS_PER_TICK: u64 = 4;
/// Turns are not made shorter than this to have several rounds: each round costs the sampler's CPU some 500 ns.
const SHORT_TURN_NS: u64 = 5_000;
/// Turns while a tick waits for a CPU that has not served the last one.
const LATE_TURN_NS: u64 = 2_300;
/// The last round before a tick may be as short as this; shorter than the timer's handler takes (some 400 ns), the
/// sampler's CPU would do nothing but handle it.
const SHORTEST_TURN_NS: u64 = 1_000;
const LONGEST_TURN_NS: u64 = 200_000;
/// A CPU that does not serve its NMI in so many rounds never will; its tick is merged then, or pending for ever.
const MOST_ROUNDS_LATE: usize = 64;

static COUNTED: AtomicBool = AtomicBool::new(false);
/// Whether the sampler's timer is in periodic mode.
static PERIODIC: AtomicBool = AtomicBool::new(false);
/// The gap between two ticks that is being slept through, and what was left of it at the last sleep.
static GAP_NS: AtomicU64 = AtomicU64::new(0);
static LEFT_NS: AtomicU64 = AtomicU64::new(0);

/// Says whether instructions are counted. Once, on the boot CPU.
pub fn init(counted: bool) {
    COUNTED.store(counted, Ordering::Relaxed);
}

/// Sleeps on the sampler's CPU: until the end of the gap, or for a round where instructions are counted.
pub fn sleep_ns(left_ns: u64) {
    if !COUNTED.load(Ordering::Relaxed) {
        return clock::sleep_once_ns(left_ns);
    }
    // More to sleep than was left the last time: a new gap. Its length says how long turns are, what is left does not.
    if left_ns > LEFT_NS.swap(left_ns, Ordering::Relaxed) {
        GAP_NS.store(left_ns, Ordering::Relaxed);
    }
    let end_ns = clock::now_ns() + left_ns;
    round(turn(left_ns, GAP_NS.load(Ordering::Relaxed), busy(), random::next()));
    let mut late = 0;
    // The end may also come on the way from here to the tick.
    while clock::now_ns() + SHORTEST_TURN_NS >= end_ns && is_any_nmi_pending() && late < MOST_ROUNDS_LATE {
        round(LATE_TURN_NS);
        late += 1;
    }
    if late > 0 {
        // Else work that takes longer to sample than a gap is would never go on.
        round(LATE_TURN_NS);
    }
}

/// One turn of this length for each CPU that is not this one.
fn round(turn_ns: u64) {
    interrupts::disable();
    let start_ns = clock::now_ns();
    // Each write to a register of the timer ends this CPU's turn: the mode is written once.
    if !PERIODIC.swap(true, Ordering::Relaxed) {
        apic::make_periodic();
    }
    apic::start_timer(clock::timer_count(turn_ns));
    // Where the round is over then, its interrupt waits here; a `hlt` would begin another round.
    if clock::now_ns() - start_ns < turn_ns {
        interrupts::enable_and_hlt();
    } else {
        interrupts::enable();
        x86_64::instructions::nop();
    }
}

/// Before an NMI is sent.
pub fn nmi_sent(apic_id: u32) {
    if COUNTED.load(Ordering::Relaxed) {
        let target = CPUS.iter().find(|cpu| cpu.apic_id.load(Ordering::Relaxed) == apic_id);
        target.inspect(|cpu| cpu.nmi_pending.store(true, Ordering::Relaxed));
    }
}

fn is_any_nmi_pending() -> bool {
    CPUS[..count()].iter().any(|cpu| cpu.nmi_pending.load(Ordering::Relaxed))
}

/// CPUs that will use a turn, at least one.
fn busy() -> u64 {
    let me = id();
    let is_busy = |cpu: usize| cpu != me && !CPUS[cpu].halted.load(Ordering::Relaxed);
    ((0..count()).filter(|cpu| is_busy(*cpu)).count() as u64).max(1)
}

/// How long the turns of the next round are.
fn turn(left_ns: u64, gap_ns: u64, busy: u64, chance: u64) -> u64 {
    let share_ns = left_ns / busy + 1;
    let middle_ns = (gap_ns / (ROUNDS_PER_TICK * busy)).clamp(SHORT_TURN_NS, LONGEST_TURN_NS);
    let rounds = (share_ns + middle_ns / 2) / middle_ns;
    if rounds <= 1 {
        return share_ns.clamp(SHORTEST_TURN_NS, LONGEST_TURN_NS);
    }
    // Uniform within ±25 %, as the gaps are.
    share_ns / rounds * (768 + chance % 513) / 1024
}
