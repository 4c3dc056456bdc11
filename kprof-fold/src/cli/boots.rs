//! `--boot N|last`: which boot of a file is read. Stage: command line, before read.
//!
//! In: the option, and a first pass over the file, which counts the boots. Out: the index of the boot; what is doubtful
//! if several boots are shown together. Each boot has its own clock, build and account.

use super::args::Input;
use super::args::boot::BootChoice;
use crate::error::Error;
use crate::profile::{Boot, Profile};
use crate::read::{self, Source};
use crate::tally::Nothing;
use kprof_format::fact::Fact;

/// The index of the chosen boot; `None` if all boots are read.
///
/// # Errors
/// If the file cannot be read twice, or has no such boot.
pub fn index(input: &Input) -> Result<Option<usize>, Error> {
    let Some(chosen) = input.boot else { return Ok(None) };
    if input.file == "-" {
        let todo = "--boot reads the profile twice; give a file instead of standard input";
        return Err(Error::Usage(todo.to_owned()));
    }
    let source = Source { file: &input.file, form: input.form, boot: None, progress: &mut |_| {} };
    let boots = read::read(source, Nothing)?.profile.boots.len();
    match chosen {
        BootChoice::Last => Ok(boots.checked_sub(1)),
        BootChoice::Number(number) if number <= boots => Ok(Some(number - 1)),
        BootChoice::Number(number) => {
            let has = if boots == 1 { "one boot".to_owned() } else { format!("{boots} boots") };
            Err(Error::Usage(format!("--boot {number}: {} has {has}", input.file)))
        }
    }
}

/// Why names may be wrong if boots of several builds are shown together.
pub fn doubt(profile: &Profile) -> Option<String> {
    let mut builds: Vec<&str> = profile.boots.iter().filter_map(|boot| boot.fact(Fact::BuildId)).collect();
    builds.retain(|id| *id != "-");
    builds.sort_unstable();
    builds.dedup();
    (builds.len() > 1).then(|| {
        format!(
            "the boots in this file are of different builds ({}), and one set of symbols has named them all: choose \
             one boot with --boot",
            builds.join(", ")
        )
    })
}

/// Whether the clocks of the boots differ by more than a part in a hundred, so that no time can be shown for all.
pub fn have_several_clocks(profile: &Profile) -> bool {
    let clocks = || profile.boots.iter().filter_map(Boot::tsc_hz);
    clocks().min().zip(clocks().max()).is_some_and(|(slowest, fastest)| fastest - slowest > slowest / 100)
}
