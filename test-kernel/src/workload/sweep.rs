//! Work with an NMI at each of its instructions, one run after the other: `cargo xtask sweep`.
//!
//! `/kernel/sweep` takes `tree` (the call tree), `vectors` (every interrupt vector that does nothing), `handler` (an NMI's own
//! handler, by a second NMI, and by a third), `measured` (the same with ticks that are measured; `measure
//! on` and `off`: for all that follows), `dice ROUNDS` (NMIs in NMIs on stacks thrown by dice), `drain on`
//! and `off` (the records are read here, and given up), or one to three numbers: an NMI so many instructions from now on, another so many after it, whatever is
//! run then. Sampling must be stopped. The samples are records like all others; what the last of several NMIs has
//! interrupted goes to the log with `report`: `nested: ADDRESS HITS`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::hint::{black_box, spin_loop};
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use x86_64::instructions::interrupts::without_interrupts;

use super::{chains, dice, tree, vectors};
use crate::cpu::{self, alarm};
use crate::lock::Lock;
use crate::log;
use crate::profiling::PROFILER;
use crate::random;
use crate::syscall::errno::{Errno, Result};
use crate::task::preempt;

/// Hits of nested NMIs that are not in the log yet.
static HITS: Lock<BTreeMap<u64, u64>> = Lock::new(BTreeMap::new());

/// Whether records are read here, and given up; and where to.
static DRAINS: AtomicBool = AtomicBool::new(false);
static RECORDS: Lock<Vec<u8>> = Lock::new(Vec::new());
const RECORDS_BYTES: usize = 64 * 1024;

/// One command.
pub fn run(text: &[u8]) -> Result<()> {
    let text = core::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    match text {
        "tree" => at_every_instruction(alarm::after, tree::climb),
        "vectors" => all_vectors(),
        "handler" => handler(),
        "measured" => measured(),
        "measure on" => alarm::set_measured(true),
        "measure off" => alarm::set_measured(false),
        "drain on" => DRAINS.store(true, Ordering::Relaxed),
        "drain off" => DRAINS.store(false, Ordering::Relaxed),
        "report" => report(),
        _ if let Some(rounds) = text.strip_prefix("dice ") => dice(rounds.parse().map_err(|_| Errno::EINVAL)?),
        _ => return from_here_on(text),
    }
    Ok(())
}

/// Runs `work` with an NMI after one instruction, after two, and so on until it comes after the work.
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

/// Interrupts of each vector that has nothing behind it.
fn all_vectors() {
    // Twice: under QEMU now and then an NMI comes an instruction late.
    for vector in vectors::quiet().chain(vectors::quiet()) {
        at_every_instruction(alarm::after, || vectors::interrupt(vector));
    }
}

/// An alarm that the caller's next instructions run into.
fn from_here_on(text: &str) -> Result<()> {
    let mut numbers = [0; 3];
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        *numbers.get_mut(index).ok_or(Errno::EINVAL)? = word.parse().map_err(|_| Errno::EINVAL)?;
    }
    let [first, delays @ ..] = numbers;
    wait();
    keep_last();
    alarm::nested_after(first.max(1), delays);
    Ok(())
}

/// Where the first NMI comes: in the call tree, in an interrupt's stubs, in code that spins.
const IN_TREE: (Range<u32>, usize) = (10..210, 6);
const IN_STUBS: (Range<u32>, usize) = (10..230, 6);
const IN_SPIN: u32 = 2_500;
/// How long code spins.
const SPINS: u64 = 3_000;
/// Plain frames of the longest chain that is built.
const LONGEST: usize = 18;
/// Where a second NMI comes that a third one is to find its end of.
const SECONDS: (Range<u32>, usize) = (140..500, 20);

/// The handler of an NMI with another NMI at each of its instructions, above stacks of each kind.
fn handler() {
    let places = |(range, step): (Range<u32>, usize)| range.step_by(step);
    for first in places(IN_TREE) {
        at_every_instruction_of_handler(|last| alarm::nested_after(first, [last, 0]), |_| tree::climb());
    }
    for first in places(IN_STUBS) {
        let vector = vectors::quiet().next().unwrap_or_default();
        let work = |_| vectors::interrupt(vector);
        at_every_instruction_of_handler(|last| alarm::nested_after(first, [last, 0]), work);
    }
    let stacks = (1..=LONGEST).flat_map(|depth| (0..dice::PLAIN_ENDS).map(move |end| (depth, end, 0)));
    let ends = (dice::PLAIN_ENDS..dice::ENDS).map(|end| (2, end, 0));
    let tops = (1..dice::TOPS).map(|top| (1, 0, top));
    for (depth, end, top) in stacks.chain(ends).chain(tops) {
        let work = |last| dice::build(depth, end, top, || alarm::nested_after(IN_THROW, [last, 0]));
        at_every_instruction_of_handler(|_| {}, work);
    }
    for kind in 0..chains::KINDS {
        let work = |round: u32| chains::spin_one(kind, round.into(), SPINS);
        at_every_instruction_of_handler(|last| alarm::nested_after(IN_SPIN, [last, 0]), work);
    }
    for second in places(SECONDS) {
        let work = |_| chains::spin_one(1, 1, SPINS);
        at_every_instruction_of_handler(|last| alarm::nested_after(IN_SPIN, [second, last]), work);
    }
}

/// Where the first NMI comes while a thrown stack is spun on, and how long the handlers run that further NMIs come in.
const IN_THROW: u32 = 150;
const HANDLER: u64 = 1000;

/// NMIs inside NMIs on stacks that are thrown by dice, at places that are.
fn dice(rounds: u64) {
    for round in 0..rounds {
        alarm::set_measured(round % 4 == 0);
        preempt::disable();
        let idle = cpu::this().idle.swap(round % 8 == 1, Ordering::Relaxed);
        without_interrupts(|| {
            let somewhere = || 1 + (random::next() % HANDLER) as u32;
            let third = if round % 4 == 2 { somewhere() } else { 0 };
            dice::throw(|| alarm::nested_after(IN_THROW, [somewhere(), third]));
            wait();
        });
        cpu::this().idle.store(idle, Ordering::Relaxed);
        preempt::enable();
        keep_last();
    }
    alarm::set_measured(false);
}

/// Runs `work` with an NMI somewhere in it, and a last one after one instruction, two, and so on, until the last one comes
/// after the handlers of those before it.
fn at_every_instruction_of_handler(arm: impl Fn(u32), work: impl Fn(u32)) {
    preempt::disable();
    for last in 1.. {
        without_interrupts(|| {
            arm(last);
            let before = black_box(checksum(last));
            work(last);
            assert_eq!(before, checksum(last), "an NMI has changed the work around it");
            wait();
        });
        keep_last();
        if !alarm::was_nested() {
            break;
        }
    }
    preempt::enable();
}

/// The same with ticks whose cost is measured.
fn measured() {
    alarm::set_measured(true);
    handler();
    alarm::set_measured(false);
}

/// Some result that goes through all registers.
fn checksum(seed: u32) -> u64 {
    (0..16).fold(u64::from(seed), |sum, index| sum.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index)
}

/// Counts what the last NMI has interrupted, and gives up the records where nobody else reads them.
fn keep_last() {
    if DRAINS.load(Ordering::Relaxed) {
        let mut records = RECORDS.lock();
        records.resize(RECORDS_BYTES, 0);
        while PROFILER.read_stream(cpu::id(), &mut records).is_ok_and(|bytes| bytes > 0) {}
    }
    if let Some(address) = alarm::last_at() {
        *HITS.lock().entry(address).or_insert(0) += 1;
    }
}

/// What nested NMIs have interrupted, to the log.
fn report() {
    for (address, hits) in core::mem::take(&mut *HITS.lock()) {
        log!("nested: {address:x} {hits}");
    }
}
