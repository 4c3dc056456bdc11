//! The same records through any sink, in the serial form: for kernels without user space, and for a panic.
//!
//! In: the rings as they are. Out: lines `~kprof <seq> <crc32> <line>` between whatever else the sink gets. Context:
//! [`Profiler::export`] in ordinary code, any time; [`Profiler::export_last`] also in a panic handler: it takes no lock,
//! waits for nobody and consumes nothing. The other CPUs are best stopped then; a record that is overwritten while it is
//! read is left out.

mod lines;

use crate::control::for_each_counter;
use crate::drain::alone;
use crate::format::record::{Header, Kind};
use crate::kernel::Kernel;
use crate::profiler::Profiler;
use crate::ring::Ring;
use crate::slot::CpuSlot;
use core::fmt::{self, Write};
use core::sync::atomic::Ordering;
use lines::{Lines, Names, Record};

impl<K: Kernel> Profiler<K> {
    /// Writes all samples and names that have not been written, and frees them: they count as delivered. `out`: a serial
    /// port, or [`crate::Bytes`] around what takes bytes. Call it again and again from a kernel thread, and at shutdown after
    /// `stop`. In overwrite mode nothing is freed.
    ///
    /// # Errors
    /// Those of the sink (what was not written whole is not freed), and an error when a reader has claimed the streams.
    pub fn export(&self, out: &mut dyn Write) -> fmt::Result {
        if self.control.claimed() {
            return Err(fmt::Error);
        }
        let frees = !self.settings().overwrites();
        let mut lines = self.lines(out);
        if self.export_sequence.load(Ordering::Relaxed) == 0 {
            self.export_header(&mut lines)?;
        }
        if let Some(ring) = self.meta.ring() {
            let (from, to) = (self.meta.reader.position.load(Ordering::Relaxed).max(ring.tail()), ring.head());
            if from < to {
                lines.meta(ring, from, to)?;
                self.meta.reader.position.store(to, Ordering::Relaxed);
            }
            // Names stay, so that later samples find them, until the stream is half full.
            if frees && to - ring.tail() > ring.capacity() / 2 {
                ring.release(to);
            }
        }
        for (cpu, slot) in self.slots().iter().enumerate() {
            let Some(ring) = slot.ring.get() else { continue };
            let exported = alone(&slot.reader, || {
                let to = ring.head();
                let samples = export_ring(&mut lines, cpu, slot, ring, ring.tail(), to);
                if let (Ok(samples), true) = (samples, frees) {
                    ring.release(to);
                    slot.reader.delivered.add(samples);
                }
                Ok(samples.map(|_| ()))
            });
            exported.unwrap_or(Err(fmt::Error))?;
            export_account(&mut lines, cpu, slot)?;
        }
        Ok(())
    }

    /// Writes the newest `last` samples of every CPU and the names there are. Frees nothing; takes no lock. Context: any,
    /// a panic handler too.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn export_last(&self, out: &mut dyn Write, last: usize) -> fmt::Result {
        let mut lines = self.lines(out);
        self.export_header(&mut lines)?;
        if let Some(ring) = self.meta.ring() {
            lines.meta(ring, ring.tail(), ring.head())?;
        }
        for (cpu, slot) in self.slots().iter().enumerate() {
            let Some(ring) = slot.ring.get() else { continue };
            let to = ring.head();
            let all = ring.count(ring.tail(), to).unwrap_or(0);
            let mut from = ring.tail();
            for _ in 0..all.saturating_sub(last as u64) {
                let Ok(Some(words)) = ring.record_at(from) else { break };
                from += words;
            }
            export_ring(&mut lines, cpu, slot, ring, from, to)?;
            export_account(&mut lines, cpu, slot)?;
        }
        Ok(())
    }

    fn lines<'a>(&'a self, out: &'a mut dyn Write) -> Lines<'a> {
        Lines { out, sequence: &self.export_sequence, names: Names::new(self.meta.ring()) }
    }

    fn export_header(&self, lines: &mut Lines<'_>) -> fmt::Result {
        lines.put(format_args!("# kprof-profile 1"))?;
        self.each_setting(&mut |key, value| lines.put(format_args!("# {key} {value}")))
    }
}

/// One batch: the records from `from` to `to`; how many there were.
fn export_ring(
    lines: &mut Lines<'_>,
    cpu: usize,
    slot: &CpuSlot,
    ring: &Ring,
    from: u64,
    to: u64,
) -> Result<u64, fmt::Error> {
    let mut ticks = None;
    each_record(ring, from, to, |at| {
        let tick = ring.word(at + 2);
        ticks = Some((ticks.map_or(tick, |(first, _)| first), tick));
        Ok(())
    })?;
    let Some((first, last)) = ticks else { return Ok(0) };
    let counters = lines::Batch { slot };
    lines.put_once(format_args!(
        "# batch cpu={cpu} from={from} to={to} first-tick={first} last-tick={last}{counters}"
    ))?;
    let mut samples = 0;
    each_record(ring, from, to, |at| {
        let Some(record) = Record::copy(ring, at) else { return Ok(()) };
        samples += 1;
        lines.sample(cpu, &record)
    })?;
    lines.put(format_args!("# end cpu={cpu} to={to} samples={samples}"))?;
    Ok(samples)
}

/// Every record of a stretch; ends early where a running recorder has overtaken it.
fn each_record(ring: &Ring, from: u64, to: u64, mut each: impl FnMut(u64) -> fmt::Result) -> fmt::Result {
    let mut at = from;
    while at < to {
        let Ok(Some(words)) = ring.record_at(at) else { break };
        if matches!(Header::decode(ring.word(at)), Ok(header) if header.kind == Kind::Sample) {
            each(at)?;
        }
        at += words;
    }
    Ok(())
}

fn export_account(lines: &mut Lines<'_>, cpu: usize, slot: &CpuSlot) -> fmt::Result {
    struct All<'a>(&'a CpuSlot);
    impl fmt::Display for All<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            for_each_counter(self.0, &mut |name, value| write!(f, " {name}={value}"))
        }
    }
    lines.put_once(format_args!("# account cpu={cpu}{}", All(slot)))
}
