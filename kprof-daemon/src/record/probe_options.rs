//! The command line of `kprof-record probe`.
//!
//! In: the arguments after the verb. Out: what to put probes on and what to run, or that the probes are to be shown.
//! Runs in: user process. The command comes after `--`, because patterns come before it.

use super::options::{Record, Wanted, What};
use super::probe::Probing;
use crate::drain_loop::Options;
use crate::error::Error;
use crate::options::{Place, duration};
use crate::write::found::Maker;
use clap::Args;
use kprof_format::command::{ArgumentTypes, Condition, EXPECTED_CONDITION, MAX_CONDITIONS};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What comes after the options in the help.
pub const NOTES: &str = "\
Every call on the machine is counted, kprof-record's own too. A quantile is known up to a power of two, and the greatest
value that it can have is printed. The kernel needs memory for probes (`register_probes`). The probes are removed at the
end, by the kernel if kprof-record is killed. A function that had a probe before keeps it, and its calls are counted.

Arguments are the registers in which a function gets them: arg1 is rdi, then rsi, rdx, rcx, r8, r9. A slice takes two of
them, address and length; a returned value that is larger than two registers takes the first one, as an address.

Examples:
  kprof-fold probes kernel.elf -o places.txt                              # on the host
  kprof-record probe --places places.txt 'kernel::fs::*::read' -- cp /bin/sh /tmp/sh
  kprof-record probe --places places.txt fs::read --if 'arg3 >= 4096' --args u64,u64,u64 -o reads.txt -- cp /a /b
  kprof-fold script --event probe.fs::read reads.txt --syms kernel.elf    # on the host: each call";

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
    /// Records each call with its stack in FILE, which becomes FILE.old if it exists
    #[arg(short, long, value_name = "FILE", conflicts_with = "list")]
    output: Option<PathBuf>,
    /// Records the first arguments, by their types: u8, u16, u32, u64, i8, i16, i32, i64
    #[arg(long, value_name = "TYPE,...", value_parser = arguments, requires = "output")]
    args: Option<String>,
    /// Only calls that meet this: argN OP VALUE or argN:TYPE OP VALUE; OP == != < <= > >= &; up to 4
    #[arg(long = "if", value_name = "CONDITION", value_parser = condition, conflicts_with = "list")]
    conditions: Vec<String>,
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
    ///
    /// # Errors
    /// [`Error::Usage`] if there are too many conditions.
    pub(super) fn wanted(self) -> Result<Wanted, Error> {
        let Place { scheme, quiet } = self.place;
        if self.list {
            return Ok(Wanted::Probes { places: self.places, force: self.force, scheme });
        }
        if self.conditions.len() > MAX_CONDITIONS {
            return Err(Error::Usage(format!("--if: at most {MAX_CONDITIONS} conditions")));
        }
        let arguments = self.args.map(|types| format!(" args {types}"));
        let conditions = self.conditions.iter().map(|condition| format!(" if {condition}"));
        let probing = Probing {
            places: self.places.unwrap_or_default(),
            patterns: self.patterns,
            force: self.force,
            asked: arguments.into_iter().chain(conditions).collect(),
            is_recording: self.output.is_some(),
        };
        let output = self.output.unwrap_or_else(|| "/dev/null".into());
        let (duration, maker) = (self.duration, Maker::Record);
        let options = Options { maker, duration, is_recording: true, ..Options::new(output) };
        let what = What::Probe(probing);
        Ok(Wanted::Session(Box::new(Record { what, options, scheme, command: self.command, quiet })))
    }
}

/// Types of arguments, as the kernel reads them.
fn arguments(text: &str) -> Result<String, String> {
    let types = ArgumentTypes::parse(text).map(|types| types.to_string());
    types.ok_or_else(|| "up to six of u8, u16, u32, u64, i8, i16, i32, i64, with commas between".into())
}

/// A condition, as the kernel reads it.
fn condition(text: &str) -> Result<String, String> {
    Condition::parse(text).map(|condition| condition.to_string()).ok_or_else(|| EXPECTED_CONDITION.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::options::tests::{session, wanted};

    #[test]
    fn probe_has_places_patterns_and_a_command_after_two_dashes() {
        let record = session(&["probe", "--places", "p.txt", "fs::*", "mm::map", "--", "cp", "-r", "a"]);
        let patterns = vec!["fs::*".into(), "mm::map".into()];
        let plain = |places: &str| Probing { places: places.into(), ..Probing::default() };
        assert_eq!(record.what, What::Probe(Probing { patterns, ..plain("p.txt") }));
        assert_eq!((record.options.output.to_str(), record.what.writes_a_file()), (Some("/dev/null"), false));
        assert_eq!(record.command, ["cp", "-r", "a"]);
        assert_eq!((record.options.is_recording, record.options.commands.len()), (true, 0));
        let record = session(&["probe", "--force", "--duration", "1s", "--places", "p.txt"]);
        assert_eq!(record.options.duration, Some(Duration::from_secs(1)));
        let forced = Probing { force: true, ..plain("p.txt") };
        assert_eq!((&record.what, record.command.len()), (&What::Probe(forced), 0));
        let words = ["probe", "--places", "p", "-o", "f", "--args", "u64,i8", "--if", "arg2<7", "--if", "arg1:i8 & 2"];
        let record = session(&words);
        let asked = " args u64,i8 if arg2 < 7 if arg1:i8 & 2".to_owned();
        assert_eq!(record.what, What::Probe(Probing { asked, is_recording: true, ..plain("p") }));
        assert_eq!((record.options.output.to_str(), record.what.writes_a_file()), (Some("f"), true));
        assert_eq!(record.options.maker, Maker::Record);
        let listed = wanted(&["probe", "--list", "--places", "p.txt"]).unwrap();
        assert!(matches!(listed, Wanted::Probes { places: Some(_), force: false, .. }));
        let most = session(&[&["probe", "--places", "p"][..], &["--if", "arg1 > 1"].repeat(MAX_CONDITIONS)].concat());
        let asked = " if arg1 > 1".repeat(MAX_CONDITIONS);
        assert_eq!(most.what, What::Probe(Probing { asked, ..plain("p") }));
        for (words, said) in [
            (&["probe", "read"][..], "--places <FILE>"),
            (&["probe", "--list", "read"], "cannot be used with"),
            (&["probe", "--places", "p", "--args", "u64"], "--output <FILE>"),
            (&["probe", "--places", "p", "-o", "f", "--args", "u64,f32"], "u8, u16, u32"),
            (&["probe", "--places", "p", "--if", "arg1 < 0"], "some values of TYPE"),
            (&[&["probe", "--places", "p"][..], &["--if", "arg1 > 1"].repeat(5)].concat(), "at most 4"),
        ] {
            let error = wanted(words).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(said), "{words:?}: {error}");
        }
    }
}
