//! `--between T1 T2`: converts the user's times to time stamps. Stage: command line.
//!
//! In: two times as the user names them, and the profile's marks, which a first pass over the file collects. Out: a
//! range of TSC values. Times: seconds since time 0, which is that of the first sample or hit, `@` and seconds of the
//! TSC clock as `script` prints them, `0x` and a TSC, the name of a mark, `start`, `end`.

use super::args::Input;
use super::boots;
use crate::error::Error;
use crate::profile::{Boot, Profile};
use crate::read::hex::hex64;
use crate::read::{self, Source};
use crate::tally::Nothing;

/// The range of TSC values from one time up to, but not including, another.
///
/// # Errors
/// If a time cannot be parsed, or the file cannot be read twice.
pub fn resolve(input: &Input, from: &str, to: &str, tsc_hz: Option<f64>) -> Result<(u64, u64), Error> {
    if input.file == "-" {
        return Err(Error::Usage(
            "--between reads the profile twice; give a file instead of standard input".to_owned(),
        ));
    }
    let source = Source { file: &input.file, form: input.form, boot: boots::index(input)?, progress: &mut |_| {} };
    let profile = read::read(source, Nothing)?.profile;
    if profile.boots.len() > 1 {
        return Err(Error::Usage(format!(
            "--between: {} holds {} boots; each has its own clock: choose one with --boot",
            input.file,
            profile.boots.len()
        )));
    }
    let range = (time(&profile, from, tsc_hz)?, time(&profile, to, tsc_hz)?);
    if range.0 > range.1 {
        return Err(Error::Usage(format!("--between: {from} is later than {to}")));
    }
    Ok(range)
}

fn time(profile: &Profile, text: &str, tsc_hz: Option<f64>) -> Result<u64, Error> {
    let boot = &profile.boots[0];
    let first = boot.span().map_or(0, |span| span.0);
    let hz = || {
        let hz = boot.tsc_hz().map(|hz| hz as f64).or(tsc_hz);
        hz.ok_or_else(|| Error::Usage("--between: seconds need a clock; the header has none, so give GHZ".to_owned()))
    };
    let seconds =
        |text: &str| text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok().filter(|s| s.is_finite() && *s >= 0.0);
    match text {
        "start" => return Ok(first),
        "end" => return Ok(u64::MAX),
        _ => {}
    }
    if let Some(tsc) = text.strip_prefix("0x").and_then(|digits| hex64(digits.as_bytes()).ok()) {
        return Ok(tsc);
    }
    if let Some(seconds) = text.strip_prefix('@').and_then(seconds) {
        return Ok((seconds * hz()?).round() as u64);
    }
    if let Some(mark) = mark(boot, text) {
        return Ok(mark);
    }
    if let Some(seconds) = seconds(text) {
        return Ok(first.saturating_add((seconds * hz()?).round() as u64));
    }
    let names: Vec<String> = boot.marks.iter().map(|mark| String::from_utf8_lossy(&mark.name).into_owned()).collect();
    let known =
        if names.is_empty() { "the profile has no marks".to_owned() } else { format!("marks: {}", names.join(", ")) };
    Err(Error::Usage(format!("--between: `{text}` is no time (1.5, @12.5, 0xTSC, start, end) and no mark; {known}")))
}

fn mark(boot: &Boot, name: &str) -> Option<u64> {
    boot.marks.iter().find(|mark| mark.name == name.as_bytes()).map(|mark| mark.tsc)
}
