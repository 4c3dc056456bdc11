//! What a read of ctl returns: state and all counters as `key value` lines.
//!
//! In: the profiler. Out: text, into any sink. Runs in: ordinary code, also while sampling runs. The counters of a CPU
//! are consistent: the progress word of its handler is read before and after them, and they are read again if it has
//! changed.

use super::lines::CounterLines;
use crate::arch;
use crate::config::{Clock, CountedEvent};
use crate::errors::StreamName;
use crate::format::counter::{Counter, EventCounter, MetaCounter};
use crate::format::fact::Fact;
use crate::format::line::{Anchor, Range};
use crate::format::settings::{Keys, Setting};
use crate::live::State;
use crate::moment::CpuMoment;
use crate::names::Hex;
use crate::patience::Patience;
use crate::self_cost::Source;
use crate::shared::Shared;
use crate::slot::CpuSlot;
use crate::stream::copier::{Copier, Copies};
use crate::stream::meta::ClaimId;
use crate::stream::{OWNER_WAIT_US, Stream};
use core::fmt::{Arguments, Result, Write};
use core::sync::atomic::Ordering;

/// Writes state, settings and counters. If the control file `file` reads copies, the counters are the account of these
/// copies. Runs in: ordinary code.
pub(crate) fn write_status(shared: &Shared, file: ClaimId, out: &mut dyn Write) -> Result {
    match shared.claim() {
        0 => writeln!(out, "{} 0\n{} -", Fact::Protocol, Fact::Reader)?,
        _ => {
            let process = shared.claim_process.load(Ordering::Acquire);
            writeln!(out, "{} 1\n{} {process}", Fact::Protocol, Fact::Reader)?;
        }
    }
    let state = match shared.state() {
        State::Stopped => "stopped",
        // `Paused` lasts only for a change of mode.
        State::Running | State::Paused => "running",
        State::Frozen => "frozen",
    };
    writeln!(out, "{} {state}", Fact::State)?;
    // A reader reads this in every round, so only the values are formatted.
    each_setting(shared, &mut |key, value| {
        put_all(out, &[key.name(), " "])?;
        out.write_fmt(value)?;
        out.write_str("\n")
    })?;
    for (cpu, slot) in shared.slots().iter().enumerate().filter(|(_, slot)| slot.stream.ring.get().is_some()) {
        let copies = copies(shared, file, &slot.stream.copier);
        let mut lines = CounterLines::new(out, format_args!("cpu.{cpu}"))?;
        for_each_counter(shared, cpu, slot, copies, &mut |counter, value| lines.put(counter.name(), value))?;
    }
    if let Some(Stream { ring, copier, .. }) = shared.stream(StreamName::Meta) {
        let copies = copies(shared, file, copier);
        let mut lines = CounterLines::new(out, format_args!("meta"))?;
        for counter in MetaCounter::ALL {
            let value = match counter {
                MetaCounter::PositionIn => ring.head(),
                MetaCounter::PositionOut => copies.map_or(ring.tail(), |copies| copies.at.position),
                MetaCounter::Lost => shared.meta.lost() + copies.map_or(0, |copies| copies.overtaken),
                MetaCounter::Overwritten => shared.meta.overwritten(),
                MetaCounter::Kept => shared.meta.kept.load(Ordering::Relaxed),
            };
            lines.put(counter.name(), value)?;
        }
    }
    for cpu in 0..shared.slots().len() {
        let Some(Stream { ring, reader, copier, .. }) = shared.stream(StreamName::Event(cpu)) else { continue };
        let copies = copies(shared, file, copier);
        let mut lines = CounterLines::new(out, format_args!("event.{cpu}"))?;
        for counter in EventCounter::ALL {
            let value = match counter {
                EventCounter::PositionIn => Some(ring.head()),
                EventCounter::PositionOut => Some(copies.map_or(ring.tail(), |copies| copies.at.position)),
                EventCounter::RingWords => Some(ring.capacity()),
                EventCounter::Delivered => {
                    let ((delivered, ..), _) = reader.between_frees(ring);
                    Some(copies.map_or(delivered, |copies| copies.copied))
                }
                EventCounter::LostOvertaken => copies.map(|copies| copies.overtaken),
            };
            value.map_or(Ok(()), |value| lines.put(counter.name(), value))?;
        }
    }
    shared.extension().write_status(out)
}

fn put_all(out: &mut dyn Write, parts: &[&str]) -> Result {
    parts.iter().try_for_each(|part| out.write_str(part))
}

/// Passes each setting to `each`, in the order of docs/format.md. The serial form begins with the same settings.
pub(crate) fn each_setting(shared: &Shared, each: &mut dyn FnMut(Fact, Arguments<'_>) -> Result) -> Result {
    let choices = shared.live.choices();
    let Some(config) = shared.config() else { return Ok(()) };
    let included = match (choices.include_idle, choices.include_user) {
        (false, false) => "-",
        (true, false) => "idle",
        (false, true) => "user",
        (true, true) => "idle user",
    };
    let clock = if config.clock == Clock::Instructions { "instructions" } else { "tsc" };
    each(Fact::Boot, format_args!("{:x}", config.boot))?;
    each(Fact::TscHz, format_args!("{}", config.tsc_hz))?;
    if !config.machine.is_empty() {
        each(Fact::Machine, format_args!("{}", config.machine))?;
    }
    each(Fact::Arch, format_args!("{}", arch::NAME))?;
    each(Fact::Clock, format_args!("{clock}"))?;
    each(Fact::Precision, format_args!("{}", config.precision.name()))?;
    match Source::of(config) {
        Source::Clock => {}
        Source::Cycles => each(Fact::SelfCost, format_args!("cycles"))?,
        Source::Nothing => each(Fact::SelfCost, format_args!("-"))?,
    }
    each(Fact::Cpus, format_args!("{}", shared.slots().len()))?;
    match config.sampler_cpu {
        Some(cpu) => each(Fact::Sampler, format_args!("{cpu}"))?,
        None => each(Fact::Sampler, format_args!("-"))?,
    }
    each(Fact::Trigger, format_args!("{}", shared.trigger().name()))?;
    for setting in choices.each(Keys::TABLE) {
        let fact = setting.fact();
        match (setting, config.event) {
            (Setting::Hz(_), Some(CountedEvent { name, period })) => {
                each(Fact::Event, format_args!("{name} every {period}"))?;
            }
            (Setting::RandomInterval(true), _) => each(fact, format_args!("random 25"))?,
            // One line tells both.
            (Setting::IncludeIdle(_), _) => each(fact, format_args!("{included}"))?,
            // Nothing is told of what is not looked for.
            (Setting::IncludeUser(_) | Setting::Lockup(0), _) => {}
            _ => each(fact, format_args!("{}", setting.value()))?,
        }
        if matches!(setting, Setting::Hz(_)) && shared.live.halvings.load(Ordering::Relaxed) > 0 {
            each(Fact::HzNow, format_args!("{}", shared.live.hz_now()))?;
        }
    }
    each(Fact::BuildId, format_args!("{}", Hex(config.build_id)))?;
    each(Fact::Load, format_args!("{:x}", config.load))?;
    each(Fact::Text, format_args!("{}", Range(config.text.0, config.text.1)))?;
    let mut anchors = config.anchors.iter().map(|&(name, address)| Anchor { name, address });
    anchors.try_for_each(|anchor| each(Fact::Anchor, format_args!("{anchor}")))
}

/// How far the reader of copies has come in this stream, if `file` is its control file.
fn copies(shared: &Shared, file: ClaimId, copier: &Copier) -> Option<Copies> {
    if file == 0 || shared.copy_claim() != file {
        return None;
    }
    // Another thread of this process may be reading, which ends soon.
    let _lock = Patience::us(OWNER_WAIT_US, shared.tsc_hz()).lock(&copier.lock);
    Some(copier.copies())
}

/// All counters of one CPU, by their ctl names. With `copies` it is the account of the reader of copies, for which
/// samples are delivered when they are copied, and lost when they are overwritten before that.
pub(crate) fn for_each_counter(
    shared: &Shared,
    cpu: usize,
    slot: &CpuSlot,
    copies: Option<Copies>,
    each: &mut dyn FnMut(Counter, u64) -> Result,
) -> Result {
    let Some(ring) = slot.stream.ring.get() else { return Ok(()) };
    // Ticks that found the CPU halted never reached its handler: the sampler counted them.
    let halted = slot.sampler.halted.get();
    let moment = CpuMoment::of(slot, ring);
    each(Counter::Sent, moment.sent + halted)?;
    let overtaken = copies.map(|copies| copies.overtaken);
    // The counters by kind count every recorded sample. The kinds of the overtaken samples are not known, so these
    // counters are left out as soon as there are any.
    let is_known = |counter: &Counter| overtaken.unwrap_or(0) == 0 || !Counter::RECORDED_KINDS.contains(counter);
    let source = shared.config().map_or(Source::Nothing, Source::of);
    let is_shown = |counter: &Counter| is_known(counter) && slot.handler.self_cost.shows(source, *counter);
    moment.counters.into_iter().filter(|(counter, _)| is_shown(counter)).try_for_each(|(counter, value)| {
        let value = match counter {
            Counter::Taken | Counter::Idle => value + halted,
            Counter::Recorded => value.wrapping_sub(overtaken.unwrap_or(0)),
            // A sample that was overwritten before it was copied counts as overtaken. A sample that was copied first is
            // not lost.
            Counter::Overwritten if copies.is_some() => 0,
            _ => value,
        };
        each(counter, value)
    })?;
    overtaken.map_or(Ok(()), |overtaken| each(Counter::LostOvertaken, overtaken))?;
    each(Counter::Pending, moment.sent.saturating_sub(moment.seen))?;
    // After `spurious`, so that no spurious NMI is seen before the signal that caused it.
    each(Counter::Resent, slot.sampler.resent.get())?;
    each(Counter::Delivered, copies.map_or(moment.delivered, |copies| copies.copied))?;
    // All records since boot, minus those that have left the ring (for the reader of copies: minus those that it has
    // passed).
    let passed = copies.map_or(moment.removed, |copies| copies.at.index);
    each(Counter::InRing, moment.counter(Counter::Recorded).wrapping_sub(passed))?;
    // Counters of the sampler, the same for every CPU.
    each(Counter::SleepAsked, shared.sleeps.asked.get())?;
    each(Counter::SleepLate, shared.sleeps.late.get())?;
    each(Counter::RingWords, ring.capacity())?;
    each(Counter::PositionIn, moment.head)?;
    each(Counter::PositionOut, copies.map_or(moment.tail, |copies| copies.at.position))?;
    shared.extension().counters(cpu, each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::kernel::Outcome;
    use crate::quiet;

    fn shared(clock: Clock) -> &'static Shared {
        &quiet::instance(Config { tsc_hz: 1_000_000_000, clock, ..Config::new() }).shared
    }

    /// A value of the status, if the status has it.
    fn value(shared: &Shared, key: &str) -> Option<String> {
        let mut text = String::new();
        write_status(shared, 0, &mut text).unwrap();
        text.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(' ')?.to_owned()))
    }

    #[test]
    fn the_rate_now_is_shown_only_while_the_backoff_has_lowered_it() {
        let shared = shared(Clock::Tsc);
        assert_eq!((value(shared, "hz").as_deref(), value(shared, "hz-now")), (Some("1000"), None));
        shared.live.halvings.store(2, Ordering::Relaxed);
        assert_eq!(value(shared, "hz-now").as_deref(), Some("250"));
    }

    #[test]
    fn the_clock_is_named() {
        assert_eq!(value(shared(Clock::Tsc), "clock").as_deref(), Some("tsc"));
        assert_eq!(value(shared(Clock::Instructions), "clock").as_deref(), Some("instructions"));
    }

    #[test]
    fn ticks_of_a_halted_cpu_count_as_sent_taken_and_idle() {
        let shared = shared(Clock::Tsc);
        shared.slots()[1].sampler.halted.add(5);
        for counter in ["sent", "taken", "idle"] {
            assert_eq!(value(shared, &format!("cpu.1.{counter}")).as_deref(), Some("5"), "{counter}");
        }
        assert_eq!(value(shared, "cpu.1.user").as_deref(), Some("0"));
    }

    #[test]
    fn the_status_can_be_read_while_a_handler_never_ends() {
        let shared = shared(Clock::Tsc);
        let slot = &shared.slots()[1];
        slot.raise_tick();
        crate::handler::with_tick(slot, |_| {
            assert_eq!(value(shared, "cpu.1.sent").as_deref(), Some("1"));
            Outcome::Sampled
        });
    }
}
