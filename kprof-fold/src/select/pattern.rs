//! Names as the user gives them: of functions and of tasks. Stage: fold, and every subcommand that names a function.
//!
//! In: a text. Out: whether a name fits. Three forms: `/.../` is a regular expression that fits if it is found
//! anywhere; a text with `*` (any characters) or `?` (one character) must fit the whole name; any other text is plain.
//! A plain text means the functions of exactly this name; if there are none, those whose path ends with it; if there
//! are none either, those that contain it. So `--under fill` never means `refill` where there is a `fill`.

use crate::symbols::name::merge_generics;
use kprof_format::pattern::{self, without_brackets};
pub use kprof_format::pattern::{Fit, stars};
use regex_lite::Regex;

/// A name, part of a name, a pattern with stars, or a regular expression.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Plain,
    Stars,
    Regex(Regex),
}

impl Form {
    fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }
}

impl std::str::FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = match text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some(inside) if !inside.is_empty() => {
                Form::Regex(Regex::new(inside).map_err(|why| format!("`{text}` is no regular expression: {why}"))?)
            }
            _ if text.contains(['*', '?']) => Form::Stars,
            _ => Form::Plain,
        };
        Ok(Self { text: text.to_owned(), form })
    }
}

impl Pattern {
    /// The text as the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the pattern fits the whole of `name`; a regular expression may be found anywhere in it.
    pub fn fits(&self, name: &str) -> bool {
        self.fit(name) == Some(Fit::Whole)
    }

    /// How closely the name of a function fits, if it does. Its path ends before the types of a generic instance too.
    pub fn fit(&self, name: &str) -> Option<Fit> {
        if let Form::Regex(regex) = &self.form {
            let other = || without_brackets(name).map(|(inside, rest)| format!("{inside}{rest}"));
            let is_match = regex.is_match(name) || other().is_some_and(|name| regex.is_match(&name));
            return is_match.then_some(Fit::Whole);
        }
        let found = pattern::fit(&self.text, name);
        match found {
            None | Some(Fit::Part) if self.form.is_plain() && name.ends_with('>') => {
                let without_types = pattern::fit(&self.text, &merge_generics(name));
                let is_path = without_types.is_some_and(|fit| fit < Fit::Part);
                if is_path { Some(Fit::Path) } else { found }
            }
            _ => found,
        }
    }

    /// The names that are meant: those that fit most closely among all of them.
    pub fn among<'a, N: AsRef<str>>(&'a self, names: impl IntoIterator<Item = N>) -> Meant<'a> {
        let closest = names.into_iter().filter_map(|name| self.fit(name.as_ref())).min();
        Meant { pattern: self, closest }
    }
}

/// What a pattern means among the functions that exist.
#[derive(Clone, Copy, Debug)]
pub struct Meant<'a> {
    pattern: &'a Pattern,
    /// `None` if no function fits.
    pub closest: Option<Fit>,
}

impl Meant<'_> {
    /// Whether this function is meant.
    pub fn is(&self, name: &str) -> bool {
        let fit = || self.pattern.fit(name);
        self.closest.is_some_and(|closest| fit().is_some_and(|fit| fit <= closest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap_or_else(|why| panic!("{why}"))
    }

    #[test]
    fn a_pattern_fits_whole_names_with_stars() {
        for (text, name, fits) in [
            ("mm::map", "mm::map", true),
            ("mm::map", "mm::mapx", false),
            ("mm::*", "mm::map", true),
            ("*map*", "mm::map_page", true),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("m?::map", "mm::map", true),
            ("", "", true),
            ("*", "", true),
            ("", "x", false),
            ("/^mm::.*page$/", "mm::map_page", true),
            ("/^mm::.*page$/", "xmm::map_page", false),
            ("/unmap|free/", "mm::free_page", true),
        ] {
            assert_eq!(pattern(text).fits(name), fits, "{text} {name}");
        }
    }

    #[test]
    fn a_plain_name_means_the_functions_that_fit_most_closely() {
        let names = ["kernel::mm::map", "map", "kernel::mm::remap", "kernel::mm::fill::<u8>", "kernel::fs::refill"];
        for (text, meant) in [
            ("map", &["map"][..]),
            ("mm::map", &["kernel::mm::map"]),
            ("m::map", &["kernel::mm::map"]),
            ("ma", &["kernel::mm::map", "map", "kernel::mm::remap"]),
            ("fill", &["kernel::mm::fill::<u8>"]),
            ("refi", &["kernel::fs::refill"]),
            ("MAP", &[]),
            ("", &[]),
        ] {
            let pattern = pattern(text);
            let found = pattern.among(names);
            let is: Vec<&str> = names.into_iter().filter(|name| found.is(name)).collect();
            assert_eq!(is, meant, "{text}");
        }
    }

    #[test]
    fn what_is_no_regular_expression_is_explained() {
        assert!("/a(/".parse::<Pattern>().is_err_and(|why| why.contains("`/a(/` is no regular expression")));
        assert!(pattern("/").fits("/") && pattern("//").fits("//"));
    }
}
