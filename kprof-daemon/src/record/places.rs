//! The file of places that `kprof-fold probes` has written, for `kprof-record probe`.
//!
//! In: the file, patterns of names, the kernel's facts. Out: the functions that are to have a probe, and by how much
//! the kernel runs higher than its file says. Runs in: user process. A file of another kernel is refused: its places
//! would be other instructions here.

use crate::ctl::Ctl;
use crate::error::Error;
use kprof_format::fact::Fact;
use kprof_format::pattern::{Fit, fit};
use kprof_format::probe::{Line, lines};
use kprof_format::text::parse_hex;
use std::path::{Path, PathBuf};

/// The places of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    path: PathBuf,
    build_id: Option<String>,
    load: u64,
    /// By address.
    functions: Vec<Function>,
    /// The lines of functions that cannot have a probe: `NAME: REASON`.
    refused: Vec<String>,
}

/// A function that can have a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address in the file.
    pub address: u64,
    /// The distances of its exits.
    pub exits: Vec<u64>,
    /// Its name.
    pub name: String,
}

impl Places {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read, or a line is wrong.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|why| Error::Usage(format!("--places {}: cannot be read: {why}", path.display())))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let mut places = Self { path: path.to_owned(), ..Self::default() };
        let malformed = |what: String| Error::Malformed { path: path.to_owned(), what };
        let mut has_load = false;
        for line in lines(text) {
            match line.map_err(|why| malformed(why.to_string()))? {
                Line::First => {}
                Line::BuildId(id) => places.build_id = id.map(str::to_owned),
                Line::Load(load) => (places.load, has_load) = (load, true),
                Line::Place(place) => places.functions.push(Function {
                    address: place.address,
                    exits: place.exits.collect(),
                    name: place.name.to_owned(),
                }),
                Line::Refused(text) => places.refused.push(text.to_owned()),
            }
        }
        if has_load { Ok(places) } else { Err(malformed("ends before its line `# load`".into())) }
    }

    /// The functions that the patterns mean, by address; all of them without a pattern.
    ///
    /// # Errors
    /// A pattern that no function fits, with the reason if the functions that fit cannot have a probe; no function.
    pub fn chosen(&self, patterns: &[String]) -> Result<Vec<&Function>, Error> {
        let mut chosen = vec![patterns.is_empty(); self.functions.len()];
        for pattern in patterns {
            let fits: Vec<Option<Fit>> = self.functions.iter().map(|function| fit(pattern, &function.name)).collect();
            let Some(closest) = fits.iter().flatten().min() else { return Err(self.none_fits(pattern)) };
            for (is_chosen, fit) in chosen.iter_mut().zip(&fits) {
                *is_chosen |= fit.as_ref().is_some_and(|fit| fit <= closest);
            }
        }
        let chosen: Vec<&Function> =
            self.functions.iter().zip(chosen).filter(|(_, is)| *is).map(|(it, _)| it).collect();
        if chosen.is_empty() {
            return Err(Error::Usage(format!(
                "--places {}: has no function that can have a probe",
                self.path.display()
            )));
        }
        Ok(chosen)
    }

    fn none_fits(&self, pattern: &str) -> Error {
        let path = self.path.display();
        let refused =
            self.refused.iter().find(|text| fit(pattern, text.split(": ").next().unwrap_or_default()).is_some());
        Error::Usage(match refused {
            Some(why) => format!("`{pattern}`: no function that fits can have a probe: {why}"),
            None if is_regex(pattern) => {
                format!("`{pattern}`: regular expressions are for kprof-fold probes, which writes only what fits")
            }
            None => format!("`{pattern}`: {path} has no such function"),
        })
    }

    /// By how much the running kernel is higher than the addresses in the file.
    ///
    /// # Errors
    /// If the kernel is another one; or, without `force`, if it is not known which one it is.
    pub fn slide(&self, ctl: &Ctl, force: bool) -> Result<u64, Error> {
        let path = self.path.display();
        let told = ctl.fact(Fact::BuildId).filter(|id| *id != "-");
        match (&self.build_id, told) {
            (Some(own), Some(told)) if own.eq_ignore_ascii_case(told) => {}
            (Some(own), Some(told)) => {
                let todo = "give the places of the kernel that runs";
                return Err(Error::Usage(format!("{path} is of build {own}, and the kernel is {told}: {todo}")));
            }
            _ if force => {}
            (own, _) => {
                let whose = if own.is_none() { "the file has" } else { "the kernel tells" };
                return Err(unknown(format!("{whose} no build id")));
            }
        }
        let load = ctl.fact(Fact::Load).and_then(|load| parse_hex(load.as_bytes())).filter(|load| *load > 0);
        match load {
            Some(load) => Ok(load.wrapping_sub(self.load)),
            None if force => Ok(0),
            None => Err(unknown("the kernel does not tell its load address".into())),
        }
    }

    /// The name of the function at this address of the file.
    pub fn name(&self, address: u64) -> Option<&str> {
        let found = self.functions.binary_search_by_key(&address, |function| function.address).ok()?;
        self.functions.get(found).map(|function| &function.name[..])
    }
}

fn unknown(why: String) -> Error {
    let risk = "wrong places would change other instructions";
    Error::Usage(format!(
        "it cannot be checked whether the places are those of this kernel: {why}; {risk}. Give --force"
    ))
}

fn is_regex(pattern: &str) -> bool {
    pattern.len() > 2 && pattern.starts_with('/') && pattern.ends_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# kprof-probes 1\n# build-id 1234abcd\n# load ffffffff80000000\n\
        ffffffff80000010 f,2a kernel::fs::read\nffffffff80000100 - kernel::fs::serve\n\
        ffffffff80000200 7 kernel::mm::reads\n\
        # refused: kernel::trap::enter: does not begin with `push rbp`\n";

    fn places() -> Places {
        Places::parse(Path::new("p.txt"), FILE).unwrap()
    }

    fn names(patterns: &[&str]) -> Result<Vec<String>, String> {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let places = places();
        let chosen = places.chosen(&patterns).map_err(|error| error.to_string())?;
        Ok(chosen.iter().map(|function| function.name.rsplit("::").next().unwrap().to_owned()).collect())
    }

    #[test]
    fn a_regular_expression_is_known() {
        assert!(is_regex("/a/"));
        assert!(["//", "/", "/a", "a/", "abc"].iter().all(|pattern| !is_regex(pattern)));
    }

    #[test]
    fn patterns_mean_the_functions_that_fit_most_closely() {
        for (patterns, expected) in [
            (&[][..], &["read", "serve", "reads"][..]),
            (&["read"], &["read"]),
            (&["fs::read", "reads"], &["read", "reads"]),
            (&["rea"], &["read", "reads"]),
            (&["kernel::fs::*"], &["read", "serve"]),
            (&["*::read?"], &["reads"]),
            (&["kernel::fs::serve", "kernel::fs::*"], &["read", "serve"]),
        ] {
            assert_eq!(names(patterns).unwrap(), expected, "{patterns:?}");
        }
    }

    #[test]
    fn a_pattern_that_chooses_nothing_is_an_error_with_its_reason() {
        for (pattern, why) in [
            ("nothing", "`nothing`: p.txt has no such function"),
            ("*nothing", "has no such function"),
            ("", "has no such function"),
            ("trap::enter", "can have a probe: kernel::trap::enter: does not begin with `push rbp`"),
            ("/read|serve/", "regular expressions are for kprof-fold probes"),
        ] {
            let error = names(&["read", pattern]).unwrap_err();
            assert!(error.contains(why), "{pattern}: {error}");
        }
        let empty = Places { functions: Vec::new(), ..places() };
        assert!(empty.chosen(&[]).is_err_and(|error| error.to_string().contains("p.txt: has no function")));
    }

    #[test]
    fn a_file_that_is_wrong_is_refused_with_the_line() {
        let wrong = FILE.replace("f,2a", "2a,f");
        let error = Places::parse(Path::new("p.txt"), &wrong).unwrap_err().to_string();
        assert!(error.starts_with("p.txt: line 4: expected exits"), "{error}");
        let error = Places::parse(Path::new("p.txt"), "# kprof-probes 1\n# build-id -\n").unwrap_err().to_string();
        assert_eq!(error, "p.txt: ends before its line `# load`");
        let error = Places::read(Path::new("/nonexistent")).unwrap_err().to_string();
        assert!(error.contains("--places /nonexistent: cannot be read"), "{error}");
    }

    #[test]
    fn the_slide_is_known_only_of_the_same_build() {
        let slide = |ctl: &str, force| places().slide(&Ctl::parse(ctl), force).map_err(|error| error.to_string());
        let moved = "build-id 1234ABCD\nload ffffffff90000000\n";
        assert_eq!(slide(moved, false), Ok(0x1000_0000));
        assert_eq!(slide("build-id 1234abcd\nload ffffffff70000000\n", false), Ok(0_u64.wrapping_sub(0x1000_0000)));
        for (ctl, why) in [
            ("build-id -\nload ffffffff90000000\n", "the kernel tells no build id"),
            ("load ffffffff90000000\n", "the kernel tells no build id"),
            ("build-id 1234abcd\nload 0\n", "does not tell its load address"),
        ] {
            let error = slide(ctl, false).unwrap_err();
            assert!(error.contains(why) && error.contains("--force"), "{ctl}: {error}");
        }
        assert_eq!(slide("load ffffffff90000000\n", true), Ok(0x1000_0000));
        assert_eq!(slide("build-id 1234abcd\n", true), Ok(0));
        for force in [false, true] {
            let error = slide("build-id 5678\nload ffffffff90000000\n", force).unwrap_err();
            assert!(error.contains("is of build 1234abcd, and the kernel is 5678"), "{error}");
        }
        let without = Places { build_id: None, ..places() };
        assert!(without.slide(&Ctl::parse(moved), false).is_err_and(|it| it.to_string().contains("the file has no")));
    }

    #[test]
    fn a_function_has_its_name_at_its_own_address_only() {
        assert_eq!(places().name(0xffff_ffff_8000_0100), Some("kernel::fs::serve"));
        assert_eq!(places().name(0xffff_ffff_8000_0101), None);
    }
}
