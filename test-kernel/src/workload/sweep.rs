//! Runs work repeatedly, with an NMI at one more instruction each time, for `cargo xtask sweep`.
//!
//! In: orders, each written to `/kernel/sweep`. Sampling must be stopped.
//!
//! | order | what is done |
//! |---|---|
//! | `tree`, `vectors` | an NMI at each instruction of the call tree, or of the interrupts that do nothing and of a breakpoint |
//! | `handler` | an NMI with an `int3` in its handler, and a second one at each of the handler's instructions |
//! | `stacks`, `frameless`, `unknown` | an NMI on stacks of each kind; an NMI that reports an instruction at which the unwinder looks for the innermost caller; an NMI on a CPU that the profiler does not know |
//! | `dice N`, `registers N` | N times NMIs on random stacks, or with random registers |
//! | `steps on`, `off` | whether the last NMI's handler is single-stepped, with an NMI at each instruction that had none (`cpu::steps`) |
//! | `measure on`, `off` | whether ticks are ones whose cost the profiler measures |
//! | `foreign on`, `off` | whether NMIs after the first one have no tick |
//! | `latched` | two ticks; the second one's NMI comes while the first one's handler runs |
//! | `drain on`, `off` | whether the records are read here and dropped |
//! | `N`, `N M`, `N M O` | an NMI after the next N instructions, a second one M instructions later, a third one O instructions later |
//! | `report` | writes the hits of nested NMIs to the log: `nested: ADDRESS HITS` |
//!
//! Out: samples, as usual records.

use alloc::vec::Vec;
use core::hint::{black_box, spin_loop};
use core::ops::{Range, RangeInclusive};
use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::instructions::interrupts::without_interrupts;

use super::{built, dice, registers, tree, vectors};
use crate::cpu::{self, MAX_CPUS, alarm, gdt, steps};
use crate::errno::{Errno, Result};
use crate::lock::Lock;
use crate::preempt;
use crate::profiling::PROFILER;
use crate::random;

/// Whether records are read here and dropped, and the buffer for this.
static DRAINS: AtomicBool = AtomicBool::new(false);
static RECORDS: Lock<Vec<u8>> = Lock::new(Vec::new());
const RECORDS_BYTES: usize = 64 * 1024;

/// Carries out one order.
pub fn run(text: &[u8]) -> Result<()> {
    steps::init();
    static STACKS: spin::Once = spin::Once::new();
    STACKS.call_once(dice::add_stacks);
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    match text {
        "tree" => at_every_instruction(alarm::after, tree::climb),
        "vectors" => all_vectors(),
        "handler" => handler(),
        "stacks" => stacks(),
        "frameless" => (0..registers::frameless_cases())
            .for_each(|case| once(false, || registers::frameless(case, || alarm::after(IN_THROW)))),
        "unknown" => unknown(),
        "measure on" => alarm::set_measured(true),
        "measure off" => alarm::set_measured(false),
        "steps on" => steps::set_wanted(true),
        "steps off" => steps::set_wanted(false),
        "drain on" => DRAINS.store(true, Ordering::Relaxed),
        "drain off" => DRAINS.store(false, Ordering::Relaxed),
        "foreign on" => alarm::set_foreign(true),
        "foreign off" => alarm::set_foreign(false),
        "latched" => alarm::latched(),
        "report" => steps::report(),
        _ if let Some(rounds) = text.strip_prefix("dice ") => dice(rounds.parse().map_err(|_| Errno::EINVAL)?),
        _ if let Some(rounds) = text.strip_prefix("registers ") => {
            registers(rounds.parse().map_err(|_| Errno::EINVAL)?)
        }
        _ => return from_here_on(text),
    }
    Ok(())
}

/// Runs `work` with an NMI after one instruction, after two, and so on, until the NMI comes after the work.
fn at_every_instruction(arm: impl Fn(u32), work: impl Fn()) {
    preempt::disable();
    without_interrupts(|| {
        let mut over = false;
        let mut count = 1;
        while !over {
            arm(count);
            work();
            over = alarm::is_due();
            wait();
            count += 1;
        }
    });
    preempt::enable();
}

fn wait() {
    while alarm::is_due() {
        spin_loop();
    }
}

/// Interrupts of each vector whose handler does nothing.
fn all_vectors() {
    // Each vector is used twice, because in QEMU an NMI is sometimes an instruction late.
    for vector in vectors::quiet().chain(vectors::quiet()) {
        at_every_instruction(alarm::after, || vectors::interrupt(vector));
    }
    // The stub of breakpoints does more in kernel code than in user code.
    for _ in 0..2 {
        at_every_instruction(alarm::after, x86_64::instructions::interrupts::int3);
    }
}

/// Orders NMIs that come in the code that runs after this.
fn from_here_on(text: &str) -> Result<()> {
    let mut numbers = [0; 3];
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        *numbers.get_mut(index).ok_or(Errno::EINVAL)? = word.parse().map_err(|_| Errno::EINVAL)?;
    }
    let [first, delays @ ..] = numbers;
    wait();
    drain();
    alarm::nested_after(first.max(1), delays);
    Ok(())
}

/// At which instructions the first NMI comes: in the call tree, and in an interrupt's stub.
const IN_TREE: (Range<u32>, usize) = (10..210, 40);
const IN_STUBS: (Range<u32>, usize) = (10..230, 40);
/// `IN_THROW` is the instruction of the first NMI while code spins on a random stack. `HANDLER` is the number of
/// instructions of a handler in which further NMIs come.
const IN_THROW: u32 = 150;
const HANDLER: u64 = 1000;
/// How often work is tried, because QEMU's NMIs do not always come at the ordered instruction.
const MAX_TRIES: usize = 4;
/// Numbers of plain frames: up to more than a round of the fast path; and up to more than two rounds, where a walk at
/// depth 20 has frames too many.
const LENGTHS: [RangeInclusive<usize>; 2] = [0..=18, 30..=34];

/// Runs the handler of an NMI with an `int3` in it, and with another NMI at each of its instructions.
fn handler() {
    let places = |(range, step): (Range<u32>, usize)| range.step_by(step);
    for first in places(IN_TREE) {
        at_every_instruction_of_handler(|last| alarm::nested_after(first, [last, 0]), tree::climb);
    }
    for first in places(IN_STUBS) {
        let vector = vectors::quiet().next().unwrap_or_default();
        at_every_instruction_of_handler(|last| alarm::nested_after(first, [last, 0]), || vectors::interrupt(vector));
    }
}

/// Sends an NMI while code spins on a call chain from `built`: of each length, each way its walk can end, and each
/// lowest word of the stack.
fn stacks() {
    let lengths = LENGTHS.into_iter().flatten();
    let lengths = lengths.flat_map(|depth| (0..built::PLAIN_ENDS).map(move |end| (depth, end, 0)));
    let ends = (built::PLAIN_ENDS..built::ENDS).map(|end| (2, end, 0));
    let tops = (1..built::TOPS).map(|top| (1, 0, top));
    for (depth, end, top) in lengths.chain(ends).chain(tops) {
        once(false, || built::build(depth, end, top, || alarm::after(IN_THROW)));
    }
}

/// An NMI on a CPU that was not registered with the profiler.
fn unknown() {
    for _ in 0..MAX_TRIES {
        preempt::disable();
        without_interrupts(|| {
            gdt::as_cpu(MAX_CPUS - 1, || {
                dice::spin_here(|| alarm::after(IN_THROW));
                wait();
            });
        });
        preempt::enable();
    }
}

/// Nested NMIs on random stacks, at random instructions.
fn dice(rounds: u64) {
    thrown(rounds, |round| {
        let somewhere = || 1 + (random::next() % HANDLER) as u32;
        let third = if round % 4 == 2 { somewhere() } else { 0 };
        dice::throw(|| alarm::nested_after(IN_THROW, [somewhere(), third]));
    });
}

/// NMIs that report random registers.
fn registers(rounds: u64) {
    thrown(rounds, |_| registers::throw(|| alarm::after(IN_THROW)));
}

/// Does `rounds` rounds of work, some of them in the idle task, and some with a tick whose cost is measured. If the
/// handler is single-stepped, it continues until `rounds` rounds in a row have hit no new instruction.
fn thrown(rounds: u64, work: impl Fn(u64)) {
    let (mut round, mut end) = (0, rounds);
    while round < end {
        alarm::set_measured(round % 4 == 0);
        once(round % 8 == 1, || work(round));
        round += 1;
        if steps::has_news() && steps::is_wanted() {
            end = round + rounds;
        }
    }
    alarm::set_measured(false);
}

/// Does work in which NMIs come, in the idle task or not. Repeats it, at most `MAX_TRIES` times in all, if an NMI that
/// single-stepping ordered has missed an instruction without hits (`steps::has_missed`).
fn once(idle: bool, work: impl Fn()) {
    let state = random::state();
    for _ in 0..MAX_TRIES {
        random::repeat(state);
        once_only(idle, &work);
        if !steps::has_missed() {
            break;
        }
    }
}

fn once_only(idle: bool, work: impl Fn()) {
    preempt::disable();
    let was_idle = cpu::this().idle.swap(idle, Ordering::Relaxed);
    without_interrupts(|| {
        let seed = random::next() as u32;
        let before = black_box(checksum(seed));
        work();
        assert_eq!(before, checksum(seed), "an NMI has changed the work around it");
        wait();
    });
    cpu::this().idle.store(was_idle, Ordering::Relaxed);
    preempt::enable();
    drain();
}

/// Runs `work` with an NMI in it, and with a last NMI after one instruction of the handler, two, and so on, until the
/// last NMI comes after the handlers of those before it.
fn at_every_instruction_of_handler(arm: impl Fn(u32), work: impl Fn()) {
    preempt::disable();
    for last in 1.. {
        without_interrupts(|| {
            arm(last);
            let before = black_box(checksum(last));
            work();
            assert_eq!(before, checksum(last), "an NMI has changed the work around it");
            wait();
        });
        drain();
        if !alarm::was_nested() {
            break;
        }
    }
    preempt::enable();
}

/// A computation whose result depends on all registers.
fn checksum(seed: u32) -> u64 {
    (0..16).fold(u64::from(seed), |sum, index| sum.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index)
}

/// Reads and drops the records, if this was ordered.
fn drain() {
    if DRAINS.load(Ordering::Relaxed) {
        let mut records = RECORDS.lock();
        records.resize(RECORDS_BYTES, 0);
        if let Ok(stream) = PROFILER.open_stream(cpu::id(), 0) {
            while stream.read(&mut records).is_ok_and(|bytes| bytes > 0) {}
        }
    }
}
