//! The command line of `kprof-record probe`.
//!
//! In: the arguments after the verb. Out: what to put probes on and what to run, or that the probes are to be shown.
//! Runs in: user process. The command comes after `--`, because patterns come before it.

use super::options::{Record, Wanted, What};
use super::probe::Probing;
use crate::drain_loop::Options;
use crate::options::{Place, duration};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What comes after the options in the help.
pub const NOTES: &str = "\
Every call on the machine is counted, kprof-record's own too. A quantile is known up to a power of two, and the greatest
value that it can have is printed. The kernel needs the cargo feature `probes`. All probes are removed at the end, those
of others too; the kernel removes them if kprof-record is killed.

Example:
  kprof-fold probes kernel.elf -o places.txt                              # on the host
  kprof-record probe --places places.txt 'kernel::fs::*::read' -- cp /bin/sh /tmp/sh";

/// The arguments of `probe`.
#[derive(Args, Debug)]
pub(super) struct Probe {
    /// What `kprof-fold probes KERNEL` has written on the host, of the kernel that runs
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    places: Option<PathBuf>,
    /// Uses FILE although it cannot be known to be of this kernel: a build id is missing
    #[arg(long)]
    force: bool,
    /// Shows the functions that have a probe, by name if FILE is given
    #[arg(long, conflicts_with_all = ["patterns", "command", "duration"])]
    list: bool,
    /// Ends after TIME (90, 1.5s, 200ms, 10m, 2h)
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    place: Place,
    /// Only these functions: a name, the end of its path, or any part; `*` for anything [default: all of FILE]
    #[arg(value_name = "PATTERN")]
    patterns: Vec<String>,
    /// The program and its arguments
    #[arg(last = true)]
    command: Vec<OsString>,
}

impl Probe {
    /// What they ask for.
    pub(super) fn wanted(self) -> Wanted {
        let Place { scheme, quiet, verbose } = self.place;
        if self.list {
            return Wanted::Probes { places: self.places, force: self.force, scheme };
        }
        let places = self.places.unwrap_or_default();
        let what = What::Probe(Probing { places, patterns: self.patterns, force: self.force });
        let options = Options { duration: self.duration, is_recording: true, ..Options::new("/dev/null") };
        Wanted::Session(Box::new(Record { what, options, scheme, command: self.command, quiet, verbose }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::options::tests::{session, wanted};

    #[test]
    fn probe_has_places_patterns_and_a_command_after_two_dashes() {
        let record = session(&["probe", "--places", "p.txt", "fs::*", "mm::map", "--", "cp", "-r", "a"]);
        let patterns = vec!["fs::*".into(), "mm::map".into()];
        assert_eq!(record.what, What::Probe(Probing { places: "p.txt".into(), patterns, force: false }));
        assert_eq!(record.command, ["cp", "-r", "a"]);
        assert_eq!((record.options.is_recording, record.options.commands.len()), (true, 0));
        let record = session(&["probe", "--force", "--duration", "1s", "--places", "p.txt"]);
        assert_eq!(record.options.duration, Some(Duration::from_secs(1)));
        assert_eq!(
            (&record.what, record.command.len()),
            (&What::Probe(Probing { places: "p.txt".into(), patterns: vec![], force: true }), 0)
        );
        let listed = wanted(&["probe", "--list", "--places", "p.txt"]).unwrap();
        assert!(matches!(listed, Wanted::Probes { places: Some(_), force: false, .. }));
        for (words, said) in
            [(&["probe", "read"][..], "--places <FILE>"), (&["probe", "--list", "read"], "cannot be used with")]
        {
            let error = wanted(words).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(said), "{words:?}: {error}");
        }
    }
}
