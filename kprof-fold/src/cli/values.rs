//! Values of options: parts of a whole, clocks, images. Stage: command line.
//!
//! In: text from the command line. Out: numbers, or a message that says what is accepted.

use super::talk::Talk;
use crate::error::Error;
use crate::profile::{Boot, Profile};
use crate::select::Cpus;

/// Symbols of an image other than the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// Its name in the profile.
    pub name: String,
    /// Its ELF file, or the output of nm for it.
    pub file: String,
}

/// The form that the extension of an output stands for; the first one without an extension.
///
/// # Errors
/// If the extension is not in the list: output of another form than its name says would be taken for damaged.
pub fn form_of_file<F: Copy + Default>(output: Option<&str>, known: &[(&str, F)]) -> Result<F, Error> {
    let name = output.unwrap_or_default().rsplit('/').next().unwrap_or_default();
    let has = |end: &str| name.strip_suffix(end).is_some_and(|front| front.len() > 1 && front.ends_with('.'));
    if let Some((_, form)) = known.iter().find(|(end, _)| has(end)) {
        return Ok(*form);
    }
    match name.rsplit_once('.') {
        Some((front, end)) if !front.is_empty() => {
            let known: Vec<String> = known.iter().map(|(end, _)| format!(".{end}")).collect();
            Err(Error::Usage(format!("-o {name}: .{end} is none of the forms {}", known.join(", "))))
        }
        _ => Ok(F::default()),
    }
}

/// A CPU, or a range of them: `7`, `0-3`.
///
/// # Errors
/// A message for the user.
pub fn cpus(text: &str) -> Result<Cpus, String> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u32>().ok();
    let range = number(from).zip(number(to)).filter(|(from, to)| from <= to);
    range.map(|(from, to)| from..=to).ok_or_else(|| format!("`{text}` is neither a CPU nor a range such as 0-3"))
}

/// A part of a whole, `1%`, as a number from 0 to 1. Without the `%` nobody could tell 1 % from all of it.
///
/// # Errors
/// A message for the user.
pub fn part(text: &str) -> Result<f64, String> {
    let Some(number) = text.strip_suffix('%') else {
        return Err(format!("`{text}` has no %: 1% is a hundredth, 100% is all"));
    };
    let value: f64 = number.trim().parse().map_err(|_| format!("`{text}` is not a part such as 1%"))?;
    let value = value / 100.0;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(format!("`{text}` is not between 0% and 100%")) }
}

/// Parses a clock in GHz; returns TSC ticks per second.
///
/// # Errors
/// A message for the user.
pub fn ghz(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("`{text}` is not a clock in GHz such as 2.2"))?;
    if value.is_finite() && value > 0.0 && value < 1000.0 {
        Ok(value * 1e9)
    } else {
        Err(format!("a clock of {text} GHz cannot be: give the TSC clock in GHz, such as 2.2"))
    }
}

/// The clock of a profile: that of its header, otherwise the one that was given. A header has the clock with which the
/// times in the file were taken, so another one would only be wrong.
pub fn clock(given: Option<f64>, profile: &Profile, talk: Talk) -> Option<f64> {
    let told = profile.boots.iter().find_map(Boot::tsc_hz).map(|hz| hz as f64);
    if let (Some(given), Some(told)) = (given, told)
        && (given - told).abs() > told / 100.0
    {
        let [given, told] = [given, told].map(|hz| hz / 1e9);
        talk.say(format_args!("the header has a TSC clock of {told:.3} GHz, so the {given} GHz given are not used"));
    }
    told.or(given)
}

/// `NAME=FILE`: the symbols of an image.
///
/// # Errors
/// A message for the user.
pub fn image(text: &str) -> Result<ImageFile, String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok(ImageFile { name: name.to_owned(), file: file.to_owned() })
        }
        _ => Err(format!("`{text}` is not NAME=FILE, such as init=target/init")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_clocks_are_read_or_explained() {
        assert_eq!(part("1%"), Ok(0.01));
        assert_eq!(part("0.5%"), Ok(0.005));
        assert!(part("1").unwrap_err().contains("has no %"));
        for bad in ["x", "x%", "101%", "-1%", "NaN%", "2", "0.5"] {
            assert!(part(bad).is_err(), "{bad}");
        }
        assert_eq!(ghz("2.2"), Ok(2.2e9));
        for bad in ["0", "-1", "NaN", "inf", "x", "2200000000"] {
            assert!(ghz(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn images_have_a_name_and_a_file() {
        assert_eq!(image("a=b=c"), Ok(ImageFile { name: "a".to_owned(), file: "b=c".to_owned() }));
        for bad in ["a", "a=", "=b", ""] {
            assert!(image(bad).unwrap_err().contains("NAME=FILE"), "{bad}");
        }
    }
}
