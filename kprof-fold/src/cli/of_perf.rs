//! Answers to the words of perf that kprof-fold does not have. Stage: command line, instead of a parser's error.
//!
//! In: the error of the parser, or the first word. Out: a sentence that says what to type here, or nothing.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of `perf report` and `perf script`, and what is typed instead.
const OPTIONS: [(&[&str], &str); 13] = [
    (&["--stdio", "--stdio2", "--tui", "--gtk"], "tables are text already, so nothing is needed for it"),
    (
        &["-g", "-G", "--call-graph", "--inverted"],
        "`report --tree` shows what functions call, `report --tree callers` who calls them",
    ),
    (&["--children"], "`report --sort total` orders functions by the time with their callees"),
    (&["--no-children"], "`report --sort self` orders functions by their own time"),
    (&["--percent-limit"], "`report --limit 1%` leaves out functions below a part of all samples"),
    (&["-i", "--input"], "the profile is the first argument: `kprof-fold report PROFILE KERNEL`"),
    (&["-k", "--vmlinux"], "the kernel's ELF file is the second argument: `kprof-fold report PROFILE KERNEL`"),
    (&["-n", "--show-nr-samples", "--show-total-period"], "tables have the numbers of samples already"),
    (&["-c", "--comms", "--comm"], "`--task NAME` chooses tasks"),
    (
        &["-S", "--symbols", "--symbol-filter"],
        "`--under FUNCTION` chooses stacks, `annotate PROFILE KERNEL FUNCTION` shows one function",
    ),
    (
        &["-p", "--parent", "--pid"],
        "`report --callers FUNCTION` shows who calls a function; `--task NAME` chooses tasks",
    ),
    (&["-F", "--freq", "--fields"], "`kprof-record -F` sets the rate, `--format json` has all fields"),
    (&["--time"], "`--between FROM TO` chooses a part of the time"),
];

/// The keys of `perf report --sort`, and what is typed instead.
const SORT_KEYS: [(&[&str], &str); 5] = [
    (&["sym", "symbol", "overhead"], "the rows are functions, and `--sort self` or `--sort total` orders them"),
    (&["comm", "pid", "tid"], "`--by task` makes a row for each task"),
    (&["cpu"], "`--by cpu` makes a row for each CPU"),
    (&["srcline", "srcfile"], "`--by line` makes a row for each source line"),
    (&["parent", "dso"], "`--by entry` makes a row for each entry into the kernel"),
];

/// Verbs that run on the profiled machine, and how they are typed there.
const VERBS: [(&str, &str); 4] = [
    ("record", "kprof-record -- COMMAND"),
    ("stat", "kprof-record stat -- COMMAND"),
    ("list", "kprof-record list"),
    ("probe", "kprof-record probe"),
];

/// What to type instead of the argument that the parser has refused.
pub fn option(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg)?;
    let (word, answers) = match error.kind() {
        ErrorKind::UnknownArgument => (argument, &OPTIONS[..]),
        ErrorKind::InvalidValue if argument.starts_with("--sort") => (text(ContextKind::InvalidValue)?, &SORT_KEYS[..]),
        _ => return None,
    };
    let first = word.split([',', '=']).next().unwrap_or_default();
    let (_, answer) = answers.iter().find(|(words, _)| words.contains(&first))?;
    Some(format!("`{first}` is a word of perf: {answer}"))
}

/// What to type instead of a verb that runs on the profiled machine.
pub fn verb(word: &str) -> Option<String> {
    let (_, typed) = VERBS.iter().find(|(verb, _)| *verb == word)?;
    Some(format!("`{word}` is for the profiled machine: type `{typed}` there"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::Cli;
    use clap::Parser as _;

    #[test]
    fn what_users_of_perf_type_is_answered_and_other_mistakes_are_not() {
        let said = |words: &str| {
            let words = ["kprof-fold"].into_iter().chain(words.split(' ')).chain(["p", "k"]);
            Cli::try_parse_from(words).map_or_else(|error| option(&error), |_| Some("parsed".to_owned()))
        };
        for (words, answer) in [
            ("report --stdio", "nothing is needed"),
            ("report -g", "--tree"),
            ("report --percent-limit=1", "--limit 1%"),
            ("report -i file", "first argument"),
            ("report --sort comm,symbol", "--by task"),
            ("report --sort sym", "--sort self"),
        ] {
            let said = said(words).unwrap_or_else(|| panic!("{words}: no answer"));
            assert!(said.contains(answer) && said.contains("perf"), "{words}: {said}");
        }
        assert_eq!([said("report --frobnicate"), said("report --sort nothing")], [None, None]);
        assert_eq!(said("report --sort self"), Some("parsed".to_owned()));
    }

    #[test]
    fn every_answer_names_options_that_there_are() {
        let answers = OPTIONS.iter().chain(&SORT_KEYS).map(|(_, answer)| *answer);
        let mut named = 0;
        for typed in answers.flat_map(|answer| answer.split('`').skip(1).step_by(2)) {
            let words = match typed.split_once(' ') {
                _ if typed.starts_with("kprof-record") => continue,
                Some(("report", options)) => format!("kprof-fold report p k {options}"),
                Some(("annotate", _)) => format!("kprof-fold {typed}"),
                Some(("kprof-fold", _)) => typed.to_owned(),
                _ if typed.starts_with("--format") => format!("kprof-fold report {typed} p k"),
                _ => format!("kprof-fold report p k {typed}"),
            };
            assert!(Cli::try_parse_from(words.split(' ')).is_ok(), "{words}");
            named += 1;
        }
        assert!(named > 10, "{named}");
    }

    #[test]
    fn verbs_of_the_profiled_machine_name_their_program() {
        assert!(verb("record").is_some_and(|said| said.contains("`kprof-record -- COMMAND`")));
        assert_eq!(verb("reprot"), None);
    }
}
