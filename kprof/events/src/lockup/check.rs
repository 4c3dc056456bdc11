//! Checks every CPU before each tick, and reports those that are locked up.
//!
//! In: what the handlers publish in any case: counters, and the records in the rings. Out: calls of
//! [`EventKernel::locked_up`], and records in the meta stream. Runs in: the sampler CPU, ordinary code. It only reads;
//! no other CPU executes an instruction for it. A record that is overwritten while it is read is discarded.
//!
//! What a tick without a record tells: user code and the idle task are counted as filtered before the ring is used. So
//! if both are filtered, a tick that is lost because the ring is full has found kernel code; that it was code of the
//! same task is known only if the kernel counts context switches. In any other case such a tick counts as progress,
//! because a lockup must never be reported wrongly.

#[cfg(test)]
mod tests;

use super::Lockup;
use super::report::Report;
use super::watch::{Counters, Found, Sample, Shown, Watch};
use crate::events::Events;
use crate::kernel::EventKernel;
use crate::slot::EventSlot;
use core::sync::atomic::Ordering;
use kprof::CpuSlot;
use kprof::config::Trigger;
use kprof::format::counter::Counter;
use kprof::format::marker::{Facts, Marker};
use kprof::format::record::{Kind, SampleHeader};
use kprof::internals::{Patience, Shared, timestamp};

/// How long to wait for the meta stream's lock, which a CPU that is locked up may hold, in microseconds.
const META_WAIT_US: u64 = 1000;
/// The words of a sample that are checked. In a deeper stack it is not seen where user code was left.
const WORDS: usize = SampleHeader::WORDS + 64;

/// Checks every CPU. `is_first`: no tick was sent since sampling was stopped.
pub(crate) fn check<K: EventKernel>(events: &Events<K>, me: usize, is_first: bool) {
    let (state, shared) = (&events.state, events.state.shared);
    let ms = u64::from(shared.live.choices().lockup_ms);
    let was_on = state.is_watching.swap(ms > 0, Ordering::Relaxed) && !is_first;
    if ms == 0 {
        return;
    }
    let (now, threshold) = (timestamp::read(), ms.saturating_mul(shared.tsc_hz() / 1000).max(4));
    for (cpu, slot) in shared.slots().iter().enumerate().filter(|(cpu, _)| *cpu != me) {
        let Some(own) = state.slots().get(cpu) else { continue };
        let is_kernel = |address| shared.is_kernel_code(address) || events.kernel().is_text(address);
        let Some(mut found) = look_at(shared, slot, own, (now, threshold), was_on, is_kernel) else { continue };
        found.holder = holder(own, found.task);
        let report = Report { state, cpu, found };
        // First the report that needs no lock.
        events.kernel().locked_up(&Lockup { report: &report });
        write(&report);
    }
}

/// Looks at one CPU; returns what was found if it is locked up.
fn look_at(
    shared: &Shared,
    slot: &CpuSlot,
    own: &EventSlot,
    (now, threshold): (u64, u64),
    was_on: bool,
    is_kernel: impl Fn(u64) -> bool,
) -> Option<Found> {
    let mut watch = own.watch.lock();
    let counters = counters(slot, own);
    if !was_on || !slot.takes_ticks() {
        watch.restart(now, counters, slot.stream.ring.head());
        return None;
    }
    watch.begin(now, threshold);
    let torn = !samples(slot, &mut watch, is_kernel);
    let before = core::mem::replace(&mut watch.before, counters);
    let pending = if shared.trigger() == Trigger::Published { 0 } else { slot.pending() };
    let shown = shown(shared, (&before, &counters), pending, torn);
    let reason = watch.end(now, &shown, threshold)?;
    Some(watch.found(reason, pending))
}

/// The lock that the task waits for on this CPU, and the CPU on which it was taken, if that is known.
fn holder(slot: &EventSlot, task: u64) -> Option<(u64, u64)> {
    #[cfg(feature = "locks")]
    return slot.waits_for.read().filter(|waiting| waiting.task == task).map(|waiting| (waiting.lock, waiting.holder));
    #[cfg(not(feature = "locks"))]
    {
        let _ = (slot, task);
        None
    }
}

/// Takes the records that are new in the CPU's ring. `false` if one was overwritten before it was read.
fn samples(slot: &CpuSlot, watch: &mut Watch, is_kernel: impl Fn(u64) -> bool) -> bool {
    loop {
        match slot.stream.ring.first_words::<WORDS>(watch.position) {
            Ok(None) => return true,
            Ok(Some((words, length))) => {
                watch.newest = Some(watch.position);
                watch.position += length;
                watch.sample(&sample(&words[..WORDS.min(length as usize)], &is_kernel));
            }
            Err(_) => {
                watch.position = slot.stream.ring.head();
                return false;
            }
        }
    }
}

/// What the first words of a record say.
fn sample(words: &[u64], is_kernel: impl Fn(u64) -> bool) -> Sample {
    let word = |index: usize| words.get(index).copied().unwrap_or(0);
    let SampleHeader { tsc, task, address, .. } = SampleHeader::read(word);
    let facts = match Marker::decode(word(SampleHeader::WORDS)) {
        Some(Marker::Facts(facts)) => facts.0,
        _ => 0,
    };
    // An interrupt handler that runs on an idle CPU is at work. Only with the trigger `published` its sample says idle,
    // and has the entry next to that.
    let is_entry = |word: &u64| matches!(Marker::decode(*word), Some(Marker::Interrupt(_) | Marker::Exception(_)));
    let is_idle = facts & Facts::IDLE != 0 && !words.iter().skip(SampleHeader::WORDS).any(is_entry);
    let is_user = |word: &u64| matches!(Marker::decode(*word), Some(Marker::User));
    Sample {
        tsc,
        task,
        address,
        interrupts_off: facts & Facts::INTERRUPTS_OFF != 0,
        is_at_work: is_kernel(address) && !is_idle,
        user_instruction: words.iter().skip(SampleHeader::WORDS).skip_while(|word| !is_user(word)).nth(1).copied(),
    }
}

/// The counters of a CPU now.
fn counters(slot: &CpuSlot, own: &EventSlot) -> Counters {
    let (counters, mut switches, mut interrupts) = (&slot.handler.counters, 0, 0);
    for (counter, total) in own.by_task.totals() {
        match counter {
            Counter::ContextSwitches => switches = total,
            Counter::Interrupts => interrupts = total,
            _ => {}
        }
    }
    Counters {
        seen: slot.handler.progress.seen(),
        filtered: counters.user.get() + counters.idle.get() + slot.sampler.halted.get(),
        lost_full: counters.lost_full.get(),
        lost_torn: counters.lost_torn.get(),
        switches,
        interrupts,
    }
}

/// What the counters show to have happened between two looks. `torn`: a record could not be read.
fn shown(shared: &Shared, (before, now): (&Counters, &Counters), pending: u64, torn: bool) -> Shown {
    let settings = shared.settings();
    let lost = now.lost_full.wrapping_sub(before.lost_full);
    let is_known = !settings.include_user() && !settings.include_idle() && now.switches > 0;
    let progress = (before.filtered, before.lost_torn, before.switches) != (now.filtered, now.lost_torn, now.switches);
    Shown {
        pending,
        answered: before.seen != now.seen,
        progress: progress || torn || lost > 0 && !is_known,
        interrupt: before.interrupts != now.interrupts,
        unknown: lost,
    }
}

/// Writes the records into the meta stream.
fn write(report: &Report<'_>) {
    let (shared, tsc) = (report.state.shared, report.found.tsc);
    let patience = || Patience::us(META_WAIT_US, shared.tsc_hz());
    let values = [report.found.task, report.cpu as u64, report.found.from];
    shared.meta.put_patiently(tsc, Kind::Lockup, values, &report.text(), patience());
    for stack in report.stacks() {
        shared.meta.put_patiently(tsc, Kind::LockupStack, [stack.task, stack.cpu, tsc], &stack.text, patience());
    }
}
