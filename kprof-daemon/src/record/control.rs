//! `kprof-record status`, `list`, `start` and `stop`: the kernel's state, shown and changed without reading a sample.
//!
//! In: the device files. Out: a table on standard output, or one command to the kernel. Runs in: user process, beside
//! any reader. What `start` begins goes on after this program has ended.

use super::account::Account;
use crate::ctl::Ctl;
use crate::error::Error;
use crate::source::Source;
use crate::source::kprof_device::KprofDevice;
use crate::system::System;
use kprof_format::command::Command;
use kprof_format::fact::Fact;
use std::io::Write;
use std::path::Path;

/// What to do with the kernel's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Show it.
    Status,
    /// Show the points.
    List,
    /// Start sampling.
    Start,
    /// Stop sampling.
    Stop,
}

/// Carries out this action on the device files in `scheme`.
///
/// # Errors
/// The error of the device files, or the kernel's reason to refuse.
pub fn control<S: System>(system: &mut S, scheme: &Path, wanted: Control, out: &mut impl Write) -> Result<(), Error> {
    let mut device = KprofDevice::open_counters(system, scheme)?;
    match wanted {
        Control::Start => device.command(system, &Command::Start.to_string()),
        Control::Stop => device.command(system, &Command::Stop.to_string()),
        Control::List => {
            let mut ctl = Ctl::default();
            device.observe(system, &mut ctl)?;
            let _ = write_points(&ctl, out);
            Ok(())
        }
        Control::Status => {
            let mut ctl = Ctl::default();
            device.observe(system, &mut ctl)?;
            // A closed pipe is no error of the kernel.
            let _ = write_status(&ctl, out);
            Ok(())
        }
    }
}

/// Writes a table of the points: state, unit, name.
fn write_points(ctl: &Ctl, out: &mut impl Write) -> std::io::Result<()> {
    let mut points: Vec<_> = ctl.points().collect();
    points.sort_unstable();
    if points.is_empty() {
        return writeln!(out, "no point was hit since boot");
    }
    writeln!(out, "{:<8}{:<8}point", "state", "unit")?;
    points.into_iter().try_for_each(|(name, unit, state)| writeln!(out, "{state:<8}{unit:<8}{name}"))
}

/// Writes the state in one line, and a table of the CPUs' counters since boot.
fn write_status(ctl: &Ctl, out: &mut impl Write) -> std::io::Result<()> {
    let fact = |fact| ctl.fact(fact).unwrap_or("?");
    let reader = if ctl.fact(Fact::Protocol) == Some("1") { "a reader has the streams" } else { "no reader" };
    writeln!(
        out,
        "{}, trigger {}, {} Hz, mode {}, include {}; {reader}",
        fact(Fact::State),
        fact(Fact::Trigger),
        ctl.fact(Fact::HzNow).unwrap_or(fact(Fact::Hz)),
        fact(Fact::Mode),
        fact(Fact::Include)
    )?;
    Account(ctl).write_table(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> String {
        let (mut ctl, mut out) = (Ctl::default(), Vec::new());
        ctl.update(text);
        write_points(&ctl, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn points_are_listed_by_name_with_unit_and_state() {
        let listed = table("state stopped\npoint.page.fault ns count\npoint.block.read bytes off\nmeta.lost 0\n");
        let expected = "state   unit    point\noff     bytes   block.read\ncount   ns      page.fault\n";
        assert_eq!(listed, expected);
        assert_eq!(table("state stopped\n"), "no point was hit since boot\n");
    }
}
