//! `kprof-record flight`: writes what the rings of a flight recorder hold.
//!
//! In: the device files of a kernel that samples in mode `overwrite`. Out: a sample file, and how many samples over
//! which time it has. Runs in: user process. The recorder is frozen while its rings are read, and continues afterwards,
//! also after an error; only a kill leaves it frozen.

use super::options::Record;
use crate::ctl::Ctl;
use crate::drain_loop::{Session, Totals};
use crate::error::Error;
use crate::signals::Signals;
use crate::source::Source;
use crate::source::kprof_device::KprofDevice;
use crate::source::told::{Told, WakeAt};
use crate::system::System;
use crate::write::sample_file::SampleFile;
use kprof_format::command::Command;
use kprof_format::fact::Fact;
use std::io::Write;

/// Freezes the recorder, writes the file, lets the recorder continue, and says to `talk` what the file has. A recorder
/// that was frozen before stays so.
///
/// # Errors
/// The kernel's reason, if it is no running flight recorder; otherwise the error of the source or of the file.
pub fn flight<S: System>(
    system: &mut S,
    wanted: &Record,
    signals: &Signals,
    talk: &mut impl Write,
) -> Result<(), Error> {
    let device = KprofDevice::open(system, &wanted.scheme)?;
    let mut source = Told::new(system, device, "kprof-record", wanted.verbose, WakeAt::default());
    let was_frozen = is_frozen(system, &mut source)?;
    let began = system.now();
    if !was_frozen && let Err(error) = source.command(system, &Command::Freeze.to_string()) {
        // A CPU that does not take its ticks is a reason to complain, but the recorder is frozen then.
        if !is_frozen(system, &mut source)? {
            return Err(with_hint(error));
        }
        system.say(format_args!("kprof-record: {error}"));
    }
    let written = write(system, source, wanted, signals);
    if !was_frozen {
        // The session has closed its files.
        let mut device = KprofDevice::open_counters(system, &wanted.scheme)?;
        let thawed = device.command(system, &Command::Thaw.to_string());
        // If both have failed, the first error is reported.
        if written.is_ok() {
            thawed?;
        }
    }
    let frozen = system.now().saturating_sub(began);
    let (totals, ctl) = written?;
    if !wanted.quiet {
        let _ = say(talk, wanted, &totals, &ctl, (!was_frozen).then_some(frozen.as_secs_f64()));
    }
    Ok(())
}

fn is_frozen<S: System>(system: &mut S, source: &mut impl Source<S>) -> Result<bool, Error> {
    let mut ctl = Ctl::default();
    source.observe(system, &mut ctl)?;
    Ok(ctl.fact(Fact::State) == Some("frozen"))
}

/// The kernel says that it is no running flight recorder; this adds how to make it one.
fn with_hint(error: Error) -> Error {
    match error {
        Error::Refused { path, command, reason } => {
            let at = path.display();
            let reason = format!("{reason}; write `stop`, `mode overwrite` and `start` to {at} and try again later");
            Error::Refused { path, command, reason }
        }
        other => other,
    }
}

/// Writes all that is in the rings.
fn write<S: System>(
    system: &mut S,
    source: impl Source<S>,
    wanted: &Record,
    signals: &Signals,
) -> Result<(Totals, Ctl), Error> {
    SampleFile::keep_older(system, &wanted.options.output)?;
    let mut session = Session::open(system, source, wanted.options.clone(), signals.clone())?;
    let totals = session.run(|_, _| false)?;
    Ok((totals, session.ctl().clone()))
}

fn say(talk: &mut impl Write, wanted: &Record, totals: &Totals, ctl: &Ctl, frozen: Option<f64>) -> std::io::Result<()> {
    let hz = ctl.fact(Fact::TscHz).and_then(|hz| hz.parse::<f64>().ok()).filter(|hz| *hz > 0.0);
    let time = match (totals.tsc, hz) {
        (Some((first, last)), Some(hz)) => format!(" over {:.3} s", (last - first) as f64 / hz),
        _ => String::new(),
    };
    let (samples, bytes, file) = (totals.samples, totals.bytes, wanted.options.output.display());
    write!(talk, "{samples} samples{time} to {file}, {bytes} bytes")?;
    match frozen {
        Some(seconds) => writeln!(talk, "; the recorder was frozen for {seconds:.3} s and goes on"),
        None => writeln!(talk, "; the recorder was frozen before and stays so: `thaw` lets it continue"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::options::tests::session;

    #[test]
    fn the_time_that_the_samples_cover_is_said_if_the_frequency_is_known() {
        let wanted = session(&["flight", "-o", "f"]);
        let totals = Totals { samples: 3, bytes: 90, tsc: Some((1000, 4000)), ..Totals::default() };
        for (hz, over) in [("tsc-hz 2000\n", " over 1.500 s"), ("tsc-hz 0\n", ""), ("", "")] {
            let mut talk = Vec::new();
            say(&mut talk, &wanted, &totals, &Ctl::parse(hz), Some(0.25)).unwrap();
            let expected = format!("3 samples{over} to f, 90 bytes; the recorder was frozen for 0.250 s and goes on\n");
            assert_eq!(String::from_utf8(talk).unwrap(), expected);
        }
    }
}
