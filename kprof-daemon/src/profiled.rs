//! `profiled`: a session that drains until it is told to stop.
//!
//! In: the parsed command line, signals. Out: the sample file; messages for the administrator, none if it is to be
//! quiet. Runs in: user process, started by init. It never loses a record that it has acknowledged.

use crate::drain_loop::{Session, Totals};
use crate::error::Error;
use crate::options::Profiled;
use crate::pace::Pace;
use crate::signals::Signals;
use crate::source::Source;
use crate::source::kprof_device::KprofDevice;
use crate::source::redox_device::RedoxDevice;
use crate::system::System;

/// Drains the source that is there: kprof's device files, or those of Redox's own profiler. `when_ready`
/// is called when the source and the file are open; what it returns is dropped after the session has ended.
///
/// # Errors
/// The error of the source, of the file, or of `when_ready`.
pub fn profiled<S: System, T>(
    system: &mut S,
    wanted: &Profiled,
    signals: Signals,
    when_ready: impl FnOnce() -> Result<T, Error>,
) -> Result<(), Error> {
    match KprofDevice::open(system, &wanted.scheme) {
        Err(Error::NotKprof { .. }) => {
            let source = RedoxDevice::open(system, &wanted.scheme)?;
            if !wanted.quiet {
                system.say(format_args!(
                    "profiled: this kernel speaks Redox's raw words: they are consumed when read, nothing is \
                     acknowledged"
                ));
            }
            drain(system, source, wanted, signals, when_ready)
        }
        source => drain(system, source?, wanted, signals, when_ready),
    }
}

fn drain<S: System, T>(
    system: &mut S,
    source: impl Source<S>,
    wanted: &Profiled,
    signals: Signals,
    when_ready: impl FnOnce() -> Result<T, Error>,
) -> Result<(), Error> {
    let from = source.path().display().to_string();
    let mut session = Session::open(system, source, wanted.options.clone(), signals)?;
    if !wanted.quiet {
        let output = wanted.options.output.display();
        session.system().say(format_args!("profiled: draining {from} to {output}"));
    }
    let _until_the_end = when_ready()?;
    let totals = session.run(|_, _| Some(Pace::LONGEST))?;
    if !wanted.quiet {
        summary(session.system(), &totals);
    }
    Ok(())
}

fn summary(system: &mut impl System, totals: &Totals) {
    system.say(format_args!("profiled: {} samples, {} bytes", totals.samples, totals.bytes));
    if totals.events > 0 {
        system.say(format_args!("profiled: {} recorded hits of points", totals.events));
    }
    if totals.reached_max {
        system.say(format_args!("profiled: the file has reached --max-size; the rest stays in the kernel"));
    }
    if totals.again > 0 {
        system.say(format_args!(
            "profiled: {} records were in the file already and were not written again",
            totals.again
        ));
    }
    if totals.corrupt > 0 {
        system.say(format_args!("profiled: {} damaged ranges were skipped; the file says where", totals.corrupt));
    }
    if totals.unknown > 0 {
        system.say(format_args!("profiled: {} records of unknown kinds were skipped", totals.unknown));
    }
}
