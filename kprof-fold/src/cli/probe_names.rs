//! Names of the points of probes: `probe.ADDRESS` becomes `probe.FUNCTION`. Stage: command line, after read.
//!
//! In: a profile and the kernel's symbols. Out: the profile with these points by the name of the function, and for the
//! name of a function the name of its point in the file. A point whose address is not the start of a function keeps its
//! name. Two functions of the same name are not mixed: `@` and the address in the symbols come after the name.

use super::args::Input;
use super::placing;
use super::talk::Talk;
use crate::error::Error;
use crate::problems::Problems;
use crate::profile::{Boot, Profile};
use crate::read::{self, Source};
use crate::relocations::{NOWHERE, is_in_lower_half};
use crate::select::Pattern;
use crate::symbols::Symbols;
use crate::tally::Nothing;
use kprof_format::probe::{POINT_PREFIX, address_of_point};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// The names that are shown, by the names in the file.
#[derive(Debug, Default)]
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// Finds the functions of all probes of a profile. The symbols are those of the first boot's addresses.
    pub fn of(profile: &Profile, symbols: &Symbols) -> Self {
        let first = profile.boots.iter().find_map(Boot::load);
        let moved = |boot: &Boot| first.zip(boot.load()).map_or(0, |(first, here)| here.wrapping_sub(first));
        let mut found = BTreeMap::<String, (String, u64)>::new();
        for boot in &profile.boots {
            let named = boot.points.keys().filter_map(|name| Some((name, address_of_point(name)?)));
            for (name, address) in named {
                // The kernel's own words for code in the lower half.
                let is_low = boot.text().is_some_and(|(from, _)| is_in_lower_half(from));
                let address = if is_low { address | NOWHERE } else { address }.wrapping_sub(moved(boot));
                if let Some(number) = symbols.find(address).filter(|number| symbols.start(*number) == address) {
                    found.insert(name.clone(), (symbols.function(number).into_owned(), address - symbols.slide));
                }
            }
        }
        let mut places = BTreeMap::<&str, BTreeSet<u64>>::new();
        for (function, place) in found.values() {
            places.entry(function).or_default().insert(*place);
        }
        let shown = |(function, place): &(String, u64)| match places[&function[..]].len() {
            1 => format!("{POINT_PREFIX}{function}"),
            _ => format!("{POINT_PREFIX}{function}@{place:x}"),
        };
        Self(found.iter().map(|(name, function)| (name.clone(), shown(function))).collect())
    }

    /// The name that is shown for a point.
    pub fn shown<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.get(name).map_or(name, String::as_str)
    }

    /// Gives the points of a profile these names.
    pub fn rename(&self, profile: &mut Profile) {
        for boot in profile.boots.iter_mut().filter(|_| !self.0.is_empty()) {
            for (name, point) in std::mem::take(&mut boot.points) {
                boot.points.entry(self.shown(&name).to_owned()).or_default().add(&point);
            }
        }
    }

    /// The points that a name means, by their names in the file: those of this name, otherwise those of the functions
    /// that fit most closely.
    fn meant(&self, name: &str) -> Vec<&str> {
        let exact = self.0.iter().filter(|(_, shown)| *shown == name).map(|(raw, _)| &raw[..]);
        let exact: Vec<&str> = exact.collect();
        let function = |shown: &str| shown[POINT_PREFIX.len()..].split('@').next().unwrap_or_default().to_owned();
        let Some(Ok(pattern)) = name.strip_prefix(POINT_PREFIX).map(str::parse::<Pattern>) else { return exact };
        let meant = pattern.among(self.0.values().map(|shown| function(shown)));
        let fits = self.0.iter().filter(|(_, shown)| meant.is(&function(shown))).map(|(raw, _)| &raw[..]);
        if exact.is_empty() { fits.collect() } else { exact }
    }
}

/// The name in the file of the point that the user names, such as `probe.fs::read`. Other names are as they are.
///
/// # Errors
/// If several points are meant, or the file cannot be read twice.
pub fn in_file<'a>(input: &Input, name: &'a str) -> Result<Cow<'a, str>, Error> {
    if !name.starts_with(POINT_PREFIX) || address_of_point(name).is_some() {
        return Ok(Cow::Borrowed(name));
    }
    if input.file == "-" || input.syms == "-" {
        let todo = "give a file instead of standard input, or the name with the address, as info shows it";
        return Err(Error::Usage(format!("--event {name} reads the profile and the symbols twice; {todo}")));
    }
    let source =
        Source { file: &input.file, form: input.form, boot: super::boots::index(input)?, progress: &mut |_| {} };
    let profile = read::read(source, Nothing)?.profile;
    let mut symbols = Symbols::open_with(&input.syms, input.debug_file.as_deref(), &mut Problems::default())?;
    placing::place_symbols((&input.file, &input.syms, input.force), &profile, &mut symbols, Talk { quiet: true })?;
    let names = Names::of(&profile, &symbols);
    match names.meant(name)[..] {
        // The error about a point that is not there comes later, with the names that are.
        [] => Ok(Cow::Borrowed(name)),
        [one] => Ok(Cow::Owned(one.to_owned())),
        ref several => {
            let list: Vec<String> = several.iter().map(|raw| format!("{raw} ({})", names.shown(raw))).collect();
            Err(Error::Usage(format!("--event {name} means {} points; give one of {}", list.len(), list.join(", "))))
        }
    }
}

/// Gives the points of a profile the names of functions, if there are symbols.
///
/// # Errors
/// If the symbols cannot be read, or are of another build.
pub fn rename(file: &str, syms: Option<&str>, profile: &mut Profile) -> Result<(), Error> {
    let Some(syms) = syms else { return Ok(()) };
    let mut symbols = Symbols::open(syms, &mut Problems::default())?;
    placing::place_symbols((file, syms, false), profile, &mut symbols, Talk { quiet: true })?;
    Names::of(profile, &symbols).rename(profile);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::Point;

    fn symbols() -> Symbols {
        let list = "1000 10 T kernel::fs::read\n1100 10 T kernel::mm::read\n1200 10 T same\n1300 10 T same\n";
        Symbols::read("list", list.into(), &b""[..], &mut Problems::default()).unwrap()
    }

    fn profile(boots: &[&[(&str, &str)]]) -> Profile {
        let boot = |(number, points): (usize, &&[(&str, &str)])| Boot {
            header: [("load".to_owned(), format!("{:x}", 0x9000 + 0x100_0000 * number))].into(),
            points: points
                .iter()
                .map(|(name, unit)| ((*name).to_owned(), Point { unit: (*unit).into(), ..Point::default() }))
                .collect(),
            ..Boot::default()
        };
        Profile { boots: boots.iter().enumerate().map(boot).collect(), ..Profile::default() }
    }

    fn points(profile: &Profile) -> Vec<Vec<&str>> {
        profile.boots.iter().map(|boot| boot.points.keys().map(String::as_str).collect()).collect()
    }

    #[test]
    fn a_point_is_named_by_the_function_that_begins_there_in_every_boot() {
        let mut profile = profile(&[
            &[("probe.0000000000001000", "ns"), ("probe.0000000000001108", "ns"), ("block.read", "ns")],
            &[("probe.0000000001001000", "ns"), ("probe.0000000000001000", "ns")],
        ]);
        let names = Names::of(&profile, &symbols());
        assert_eq!(names.shown("probe.0000000000001000"), "probe.kernel::fs::read");
        assert_eq!(names.shown("block.read"), "block.read");
        names.rename(&mut profile);
        let [first, second] = &points(&profile)[..] else { panic!() };
        assert_eq!(first[..], ["block.read", "probe.0000000000001108", "probe.kernel::fs::read"]);
        assert_eq!(second[..], ["probe.kernel::fs::read"]);
    }

    #[test]
    fn two_functions_of_one_name_stay_two_points() {
        let names =
            Names::of(&profile(&[&[("probe.0000000000001200", ""), ("probe.0000000000001300", "")]]), &symbols());
        assert_eq!(names.shown("probe.0000000000001200"), "probe.same@1200");
        assert_eq!(names.meant("probe.same").len(), 2);
        assert_eq!(names.meant("probe.same@1300"), ["probe.0000000000001300"]);
    }

    #[test]
    fn a_name_means_the_functions_that_fit_most_closely() {
        let names =
            Names::of(&profile(&[&[("probe.0000000000001000", ""), ("probe.0000000000001100", "")]]), &symbols());
        assert_eq!(names.meant("probe.kernel::fs::read"), ["probe.0000000000001000"]);
        assert_eq!(names.meant("probe.mm::read"), ["probe.0000000000001100"]);
        assert_eq!(names.meant("probe.*::fs::*"), ["probe.0000000000001000"]);
        assert_eq!(names.meant("probe.read").len(), 2);
        assert_eq!(names.meant("probe.nothing"), [""; 0]);
    }
}
