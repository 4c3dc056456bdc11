//! ctl's read: state and all counters as `key value` lines.
//!
//! In: the profiler. Out: text, into any sink. Context: ordinary code, also while running. The counters of a CPU are read
//! between two looks at its handler, so that they belong together.

use crate::config::Clock;
use crate::format::text::Decimal;
use crate::kernel::Kernel;
use crate::meta::Hex;
use crate::profiler::Profiler;
use crate::settings::State;
use crate::slot::CpuSlot;
use core::fmt::{Arguments, Result, Write};
use core::sync::atomic::{Ordering, fence};

/// How often the counters of a CPU are read again because its handler ran meanwhile.
const MOST_TRIES: usize = 64;

impl<K: Kernel> Profiler<K> {
    /// Writes what a read of ctl shows. Context: ordinary code.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn write_control(&self, out: &mut dyn Write) -> Result {
        writeln!(out, "protocol {}", u8::from(self.control.claimed()))?;
        let state = match self.state() {
            State::Stopped => "stopped",
            State::Running => "running",
            State::Frozen => "frozen",
        };
        writeln!(out, "state {state}")?;
        self.each_setting(&mut |key, value| writeln!(out, "{key} {value}"))?;
        for (cpu, slot) in self.slots().iter().enumerate().filter(|(_, slot)| slot.ring.get().is_some()) {
            let cpu = Decimal::new(cpu as u64);
            for_each_counter(slot, &mut |name, value| {
                // Read several times a second by every reader: by hand, as `writeln!` takes four times as long.
                let value = Decimal::new(value);
                ["cpu.", cpu.as_str(), ".", name, " ", value.as_str(), "\n"]
                    .iter()
                    .try_for_each(|part| out.write_str(part))
            })?;
        }
        if let Some(ring) = self.meta.ring() {
            writeln!(out, "meta.position-in {}", ring.head())?;
            writeln!(out, "meta.position-out {}", ring.tail())?;
            writeln!(out, "meta.lost {}", self.meta.lost())?;
        }
        match self.control.error() {
            error if error.is_empty() => Ok(()),
            error => writeln!(out, "error {error}"),
        }
    }

    /// The settings, which are also the header of every file, in the order of the contract.
    pub(crate) fn each_setting(&self, each: &mut dyn FnMut(&str, Arguments<'_>) -> Result) -> Result {
        let (live, settings) = (&self.live, self.settings());
        let Some(config) = self.config() else { return Ok(()) };
        let keep = match (settings.keep_idle(), settings.keep_user()) {
            (false, false) => "-",
            (true, false) => "idle",
            (false, true) => "user",
            (true, true) => "idle user",
        };
        let clock = if config.clock == Clock::Instructions { "instructions" } else { "tsc" };
        let on_off = |on| if on { "on" } else { "off" };
        each("boot", format_args!("{:x}", config.boot))?;
        each("tsc-hz", format_args!("{}", config.tsc_hz))?;
        each("clock", format_args!("{clock}"))?;
        each("accel", format_args!("{}", if config.accel.is_empty() { "-" } else { config.accel }))?;
        each("cpus", format_args!("{}", self.slots().len()))?;
        match config.sampler_cpu {
            Some(cpu) => each("sampler", format_args!("{cpu}"))?,
            None => each("sampler", format_args!("-"))?,
        }
        each("way", format_args!("{}", self.way().name()))?;
        each("hz", format_args!("{}", live.hz.load(Ordering::Relaxed)))?;
        if live.halvings.load(Ordering::Relaxed) > 0 {
            each("hz-now", format_args!("{}", self.hz_now()))?;
        }
        let gaps = if live.random_gaps.load(Ordering::Relaxed) { "random 25" } else { "fixed" };
        each("gaps", format_args!("{gaps}"))?;
        each("seed", format_args!("{}", live.seed.load(Ordering::Relaxed)))?;
        each("keep", format_args!("{keep}"))?;
        each("backoff", format_args!("{}", on_off(live.backoff.load(Ordering::Relaxed))))?;
        each("depth", format_args!("{}", settings.depth()))?;
        each("mode", format_args!("{}", if settings.overwrites() { "overwrite" } else { "drop" }))?;
        each("build-id", format_args!("{}", Hex(config.build_id)))?;
        each("load", format_args!("{:x}", config.load))?;
        each("text", format_args!("{:x}-{:x}", config.text.0, config.text.1))?;
        config.anchors.iter().try_for_each(|(name, address)| each("anchor", format_args!("{name}={address:x}")))
    }
}

/// Everything that is counted on one CPU, by its ctl name.
pub(crate) fn for_each_counter(slot: &CpuSlot, each: &mut dyn FnMut(&str, u64) -> Result) -> Result {
    let Some(ring) = slot.ring.get() else { return Ok(()) };
    // What found the CPU halted never came to its handler: the sampler took it.
    let halted = slot.sampler.halted.get();
    let (sent, counters) = consistent(slot);
    each("sent", sent + halted)?;
    counters.into_iter().try_for_each(|(name, value)| {
        each(name, if matches!(name, "taken" | "idle") { value + halted } else { value })
    })?;
    each("delivered", slot.reader.delivered.get())?;
    each("in-ring", ring.count_all())?;
    each("ring-words", ring.capacity())?;
    each("position-in", ring.head())?;
    each("position-out", ring.tail())?;
    slot.events.totals().try_for_each(|(name, total)| each(name, total))
}

/// `sent` and the handler's counters at one moment between two ticks (or, if its handler never rests, nearly so).
fn consistent(slot: &CpuSlot) -> (u64, impl IntoIterator<Item = (&'static str, u64)> + use<>) {
    let mut counters = slot.handler.counters.read();
    for _ in 0..MOST_TRIES {
        let before = slot.handler.progress.moment();
        counters = slot.handler.counters.read();
        // Pairs with the handler's Release: a counter read above that is newer than `before` shows in `after`.
        fence(Ordering::Acquire);
        if before.is_some() && before == slot.handler.progress.moment() {
            break;
        }
        core::hint::spin_loop();
    }
    // Last: what has been taken was sent before.
    (slot.sampler.tick.load(Ordering::Acquire), counters)
}
