//! ctl's read: state and all counters as `key value` lines.
//!
//! In: the profiler. Out: text, into any sink. Context: ordinary code, also while running. The counters of a CPU are read
//! between two looks at its handler, so that they belong together.

use crate::config::Clock;
use crate::hooks::Kernel;
use crate::meta::Hex;
use crate::profiler::{Profiler, State};
use crate::slot::CpuSlot;
use core::fmt::{Result, Write};
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
        self.write_settings(out)?;
        for (cpu, slot) in self.slots().iter().enumerate().filter(|(_, slot)| slot.ring.get().is_some()) {
            write_cpu(out, cpu, slot)?;
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

    /// The settings, which are also the header of every file.
    pub(crate) fn write_settings(&self, out: &mut dyn Write) -> Result {
        let (live, settings) = (&self.live, self.settings());
        let Some(config) = self.config() else { return Ok(()) };
        let state = match self.state() {
            State::Stopped => "stopped",
            State::Running => "running",
            State::Frozen => "frozen",
        };
        let keep = match (settings.keep_idle(), settings.keep_user()) {
            (false, false) => "-",
            (true, false) => "idle",
            (false, true) => "user",
            (true, true) => "idle user",
        };
        let clock = if config.clock == Clock::Instructions { "instructions" } else { "tsc" };
        let on_off = |on| if on { "on" } else { "off" };
        writeln!(out, "state {state}")?;
        writeln!(out, "boot {:x}", config.boot)?;
        writeln!(out, "tsc-hz {}", config.tsc_hz)?;
        writeln!(out, "clock {clock}")?;
        writeln!(out, "cpus {}", self.slots().len())?;
        match config.sampler_cpu {
            Some(cpu) => writeln!(out, "sampler {cpu}")?,
            None => writeln!(out, "sampler -")?,
        }
        writeln!(out, "way {}", self.way().name())?;
        writeln!(out, "hz {}", live.hz.load(Ordering::Relaxed))?;
        writeln!(out, "gaps {}", if live.random_gaps.load(Ordering::Relaxed) { "random 25" } else { "fixed" })?;
        writeln!(out, "seed {}", live.seed.load(Ordering::Relaxed))?;
        writeln!(out, "keep {keep}")?;
        writeln!(out, "backoff {}", on_off(live.backoff.load(Ordering::Relaxed)))?;
        writeln!(out, "depth {}", settings.depth())?;
        writeln!(out, "mode {}", if settings.overwrites() { "overwrite" } else { "drop" })?;
        writeln!(out, "build-id {}", Hex(config.build_id))?;
        writeln!(out, "load {:x}", config.load)?;
        writeln!(out, "text {:x}-{:x}", config.text.0, config.text.1)?;
        config.anchors.iter().try_for_each(|(name, address)| writeln!(out, "anchor {name}={address:x}"))
    }
}

/// The account of one CPU.
pub(crate) fn write_cpu(out: &mut dyn Write, cpu: usize, slot: &CpuSlot) -> Result {
    let Some(ring) = slot.ring.get() else { return Ok(()) };
    let (sent, counters) = consistent(slot);
    writeln!(out, "cpu.{cpu}.sent {sent}")?;
    for (name, value) in counters {
        writeln!(out, "cpu.{cpu}.{name} {value}")?;
    }
    writeln!(out, "cpu.{cpu}.delivered {}", slot.reader.delivered.get())?;
    writeln!(out, "cpu.{cpu}.in-ring {}", ring.count_all())?;
    writeln!(out, "cpu.{cpu}.ring-words {}", ring.capacity())?;
    writeln!(out, "cpu.{cpu}.position-in {}", ring.head())?;
    writeln!(out, "cpu.{cpu}.position-out {}", ring.tail())?;
    for (name, event) in ["context-switches", "page-faults", "interrupts"].into_iter().zip(&slot.events) {
        writeln!(out, "cpu.{cpu}.{name} {}", event.load(Ordering::Relaxed))?;
    }
    Ok(())
}

/// `sent` and the handler's counters at one moment between two ticks (or, if its handler never rests, nearly so).
fn consistent(slot: &CpuSlot) -> (u64, impl IntoIterator<Item = (&'static str, u64)> + use<>) {
    let mut counters = slot.handler.counters.read();
    for _ in 0..MOST_TRIES {
        let before = slot.handler.sequence.load(Ordering::Acquire);
        counters = slot.handler.counters.read();
        // Pairs with the handler's Release: a counter read above that is newer than `before` shows in `after`.
        fence(Ordering::Acquire);
        let after = slot.handler.sequence.load(Ordering::Relaxed);
        if before == after && before & 1 == 0 {
            break;
        }
        core::hint::spin_loop();
    }
    // Last: what has been taken was sent before.
    (slot.sampler.tick.load(Ordering::Acquire), counters)
}
