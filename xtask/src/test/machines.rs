//! The group `machines`: this repository on the machines that people have, and not only on this one.
//!
//! In: Debian's archive, of which this system's package lists name a mirror. Out: the counts of both README commands
//! with the newest stable Rust, in Debian 13 as a user who is not root, and in sid as root (`debian`); and those of the
//! groups that boot machines, with the QEMU of Debian 13 and of sid, which run here beside this system's own. A run of
//! the long groups takes one member, by the commit, but not sid itself: it changes every day, and on some days cannot
//! be installed. `--only machines` takes all, and `--filter` one by its name. What this system cannot do is skipped
//! with the reason. A group beside it makes a table of `kprof-qemu`: see [`table`].

mod debian;
pub mod table;

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use self::debian::{System, User};
use super::outcome::{Context, Outcome};
use crate::archive::Archive;
use crate::qemu::Version;
use crate::run::{self, Finished};

/// A machine that this one is not.
#[derive(Clone, Copy, Debug)]
enum Member {
    /// A system of its own, with its QEMU and the newest stable Rust.
    Debian(System),
    /// The QEMU of a suite of Debian.
    Qemu(&'static str),
}

const MEMBERS: [(&str, Member); 4] = [
    ("debian 13", Member::Debian(System { suite: "trixie", user: User::Newcomer })),
    ("qemu of trixie", Member::Qemu("trixie")),
    ("qemu of sid", Member::Qemu("sid")),
    ("debian sid", Member::Debian(System { suite: "sid", user: User::Root })),
];
/// As many of them, from the first on, take turns in the long groups.
const IN_TURN: usize = 3;

/// The groups whose result depends on QEMU.
const GROUPS_OF_QEMU: [&str; 4] = ["scenarios", "integration", "path", "outside"];
/// The time limit of a member's tests.
const LIMIT: Duration = Duration::from_secs(2700);

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let is_wanted = |(name, _): &&(&str, Member)| name.contains(&context.filter);
    let members = if context.is_in_turn { context.in_turn(&MEMBERS[..IN_TURN])? } else { &MEMBERS[..] };
    for (name, member) in members.iter().filter(is_wanted) {
        let ran = match member {
            Member::Debian(system) => debian::run(name, *system, context.install, &mut outcome),
            Member::Qemu(suite) => with_qemu(suite, context, &mut outcome),
        };
        if let Err(why) = ran {
            outcome.not_passed(&format!("{name}: {why:#}"), &why);
        }
    }
    Ok(outcome)
}

/// Runs the groups that boot machines with the QEMU of this suite.
fn with_qemu(suite: &str, context: &Context, outcome: &mut Outcome) -> Result<()> {
    let folder = Archive::find(context.install)?.qemu(suite)?;
    let version = Version::of(&folder.join("qemu-system-x86_64"))?;
    eprintln!("QEMU {} of Debian {suite}", version.text);
    let mut groups = Command::new(std::env::current_exe()?);
    groups.args(["test", "--jobs", "1", "--qemu"]).arg(&folder);
    groups.args(GROUPS_OF_QEMU.iter().flat_map(|group| ["--only", group]));
    groups.args((!context.install.0).then_some("--no-install"));
    add(outcome, &format!("QEMU {}", version.text), run::caught(&mut groups, LIMIT)?)
}

/// Adds what `cargo xtask test` has printed on a machine.
fn add(outcome: &mut Outcome, machine: &str, tests: Finished) -> Result<()> {
    let last = tests.text.lines().next_back().unwrap_or_default();
    let counts = last.strip_suffix(" failed").and_then(|line| line.split_once(" passed, "));
    let counts = counts.and_then(|(passed, failed)| Some((passed.parse::<usize>().ok()?, failed.parse().ok()?)));
    let Some((passed, failed)) = counts else {
        bail!("the tests have not come to their end:\n{}", tests.text);
    };
    println!("{}", tests.text);
    outcome.passed += passed;
    let mut failures = tests.text.lines().filter_map(|line| line.strip_prefix("FAILED "));
    let failure = |_| failures.next().unwrap_or("a test failed, see the log of this group").to_owned();
    outcome.failures.extend((0..failed).map(failure).map(|failure| format!("{machine}: {failure}")));
    let skipped = tests.text.lines().filter(|line| line.contains(": skipped: "));
    outcome.skipped.extend(skipped.map(|line| format!("{machine}: {line}")));
    if passed == 0 {
        bail!("{machine}: no test has passed");
    }
    Ok(())
}

/// Runs a command that is given as much time as a member's tests, and has to succeed.
fn must_succeed(command: &mut Command) -> Result<String> {
    run::must_succeed(command, LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::fetch;

    fn added(text: &str) -> (Result<()>, Outcome) {
        let mut outcome = Outcome::default();
        let result = add(&mut outcome, "QEMU 10", Finished { status: None, text: text.into() });
        (result, outcome)
    }

    #[test]
    fn what_passed_failed_and_was_skipped_there_counts_here() {
        let (result, outcome) = added("FAILED path: why\noutside: skipped: no plugin\n7 passed, 1 failed\n");
        assert!(result.is_ok());
        assert_eq!((outcome.passed, outcome.failures), (7, vec!["QEMU 10: path: why".to_owned()]));
        assert_eq!(outcome.skipped, ["QEMU 10: outside: skipped: no plugin"]);
    }

    #[test]
    fn tests_that_do_not_end_or_test_nothing_are_an_error() {
        for text in ["", "building\nkilled", "0 passed, 0 failed"] {
            assert!(added(text).0.is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_fetched_is_missing_and_no_fault() {
        let Err(why) = fetch(Command::new("sh").args(["-c", "echo no network; exit 1"])) else { panic!("it failed") };
        let mut outcome = Outcome::default();
        outcome.not_passed(&format!("{why:#}"), &why);
        assert!(outcome.failures.is_empty() && outcome.skipped[0].contains("no network"), "{:?}", outcome.skipped);
    }
}
