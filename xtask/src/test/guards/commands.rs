//! Checks that the commands in documents are accepted by the programs that they call.
//!
//! In: the lines of Markdown pages that a reader would type: indented blocks, and blocks between fences that are marked
//! `sh`, `bash`, `shell` or `console`. A program may have variables, `sudo` or `time` before it, and a path. Out: each
//! command of this repository's programs that its parser refuses, with its reason. No command is run: the arguments of
//! `cargo xtask` are parsed here, and another program gets `--help` as its last argument. It then reads the options
//! before that one, and ends. So it is not checked whether an option of such a program is missing, or whether two
//! exclude each other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};

use super::Source;
use crate::{build, run};

/// The programs besides `cargo xtask`.
const PROGRAMS: [&str; 4] = ["kprof-fold", "kprof-qemu", "kprof-record", "profiled"];
/// Values of `kprof-fold export --to` that a cargo feature adds, with options of their own. Commands that have them are
/// not checked, because programs are built without features here; the group `fleet` runs such commands.
const WITH_FEATURE: [&str; 2] = ["otlp", "parquet"];
/// The marks of blocks that have commands.
const SHELLS: [&str; 4] = ["sh", "bash", "shell", "console"];
/// The time limit of a program that prints its help.
const LIMIT: Duration = Duration::from_secs(60);

/// A command of a document.
#[derive(Debug, PartialEq, Eq)]
struct Quoted {
    /// The page and the number of the line.
    place: String,
    /// The program, and its arguments.
    words: Vec<String>,
}

/// The commands that are refused, as `path:line: command: reason`.
///
/// # Errors
/// If a program cannot be built or started.
pub fn refused(sources: &[Source], verbs: fn() -> clap::Command) -> Result<Vec<String>> {
    let mut programs: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut found = Vec::new();
    for Quoted { place, words } in sources.iter().flat_map(quoted).filter(|quoted| !needs_feature(&quoted.words)) {
        let reason = if words[0] == "cargo" {
            xtask(verbs(), &words[2..])
        } else {
            let name = &words[0];
            if !programs.contains_key(name) {
                programs.insert(name.clone(), build::tool(name)?);
            }
            other(Command::new(&programs[name]).args(before_help(&words[1..])).arg("--help"))?
        };
        found.extend(reason.map(|reason| format!("{place}: {}: {reason}", words.join(" "))));
    }
    Ok(found)
}

/// Why a command line refuses these arguments.
fn xtask(verbs: clap::Command, words: &[String]) -> Option<String> {
    let arguments = ["cargo xtask"].into_iter().chain(words.iter().map(String::as_str));
    let error = verbs.try_get_matches_from(arguments).err()?;
    let is_shown = [DisplayHelp, DisplayVersion].contains(&error.kind());
    (!is_shown).then(|| first_line(&error.to_string()))
}

/// Why another program does not print its help after these arguments.
fn other(command: &mut Command) -> Result<Option<String>> {
    let finished = run::caught(command, LIMIT)?;
    let is_accepted = finished.status.is_some_and(|status| status.success());
    Ok((!is_accepted).then(|| first_line(&finished.text)))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Whether the program accepts these words only if it was built with a cargo feature.
fn needs_feature(words: &[String]) -> bool {
    words.windows(2).any(|pair| pair[0] == "--to" && WITH_FEATURE.contains(&&pair[1][..]))
}

/// The arguments of the program itself: those after `--` are another program's.
fn before_help(words: &[String]) -> &[String] {
    &words[..words.iter().position(|word| word == "--").unwrap_or(words.len())]
}

/// The commands of a page.
fn quoted(source: &Source) -> Vec<Quoted> {
    let mut found = Vec::new();
    let mut fence = None;
    let mut lines = source.text.lines().enumerate().filter(|_| source.path.ends_with(".md"));
    while let Some((index, line)) = lines.next() {
        if let Some(mark) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(mark.trim()) };
            continue;
        }
        if !fence.map_or(line.starts_with("    "), |mark| SHELLS.contains(&mark)) {
            continue;
        }
        let mut text = line.trim().trim_start_matches("$ ").to_owned();
        while text.ends_with('\\') {
            text.pop();
            text += lines.next().map_or("", |(_, next)| next.trim());
        }
        let place = format!("{}:{}", source.path, index + 1);
        found.extend(commands(&text).into_iter().map(|words| Quoted { place: place.clone(), words }));
    }
    found
}

/// The commands of this repository's programs in a line of a shell. Output of a program that is no line of a shell,
/// because a quotation mark in it has no end, has none.
fn commands(line: &str) -> Vec<Vec<String>> {
    let split = |word: String| match word.strip_suffix(';') {
        Some(before) if !before.is_empty() => vec![before.to_owned(), ";".to_owned()],
        _ => vec![word],
    };
    let words: Vec<String> = shlex::split(line).unwrap_or_default().into_iter().flat_map(split).collect();
    let is_end = |word: &String| {
        let redirection = word.trim_start_matches(|digit: char| digit.is_ascii_digit());
        ["|", "||", "&&", "&", ";"].contains(&&word[..]) || [">", ">>", "<"].contains(&redirection)
    };
    let is_before = |word: &&String| {
        let is_variable = word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty()
                && name.chars().all(|part| part.is_ascii_uppercase() || part == '_' || part.is_ascii_digit())
        });
        is_variable || ["sudo", "time"].contains(&&word[..])
    };
    let ours = |words: &[String]| {
        let mut words = words[words.iter().take_while(is_before).count()..].to_vec();
        let first = words.first_mut()?;
        *first = first.rsplit('/').next().unwrap_or_default().to_owned();
        let is_ours = PROGRAMS.contains(&&first[..]) || words.starts_with(&["cargo".to_owned(), "xtask".to_owned()]);
        is_ours.then_some(words)
    };
    words.split(is_end).filter_map(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;
    use clap::CommandFactory as _;

    fn found(text: &str) -> Vec<String> {
        quoted(&source("a.md", text))
            .iter()
            .map(|Quoted { place, words }| format!("{place} {}", words.join("|")))
            .collect()
    }

    #[test]
    fn commands_are_found_in_indented_blocks_and_in_blocks_of_a_shell() {
        let page = "kprof-fold a\n\n    kprof-fold 'a b' c    # a | b\n    kprof-fold: no command\n\n```sh\n\
                    $ profiled -o x &\n```\n```yaml\nprofiled\n```\n    cargo xtask test\n    cargo test\n";
        assert_eq!(found(page), ["a.md:3 kprof-fold|a b|c", "a.md:7 profiled|-o|x", "a.md:12 cargo|xtask|test"]);
    }

    #[test]
    fn each_form_of_a_command_is_found() {
        for line in [
            "KPROF_A=1 sudo kprof-record stat",
            "time ./target/debug/kprof-record stat",
            "$ /usr/bin/kprof-record stat",
            "true; kprof-record stat",
            "false || kprof-record stat | grep a",
        ] {
            assert_eq!(found(&format!("    {line}\n")), ["a.md:1 kprof-record|stat"], "{line}");
            for mark in SHELLS {
                assert_eq!(found(&format!("  ```{mark}\n  {line}\n  ```\n")), ["a.md:2 kprof-record|stat"], "{mark}");
            }
        }
        assert!(found("    man kprof-record\n    a=b kprof-record\n    cargo xtasks\n").is_empty());
    }

    #[test]
    fn a_line_may_go_on_and_may_have_several_commands() {
        let page = "    kprof-record start && kprof-fold a \\\n        'b > 1%' > c\n\
                    \x20   kprof-qemu count -- kprof-fold it's\n";
        assert_eq!(found(page), ["a.md:1 kprof-record|start", "a.md:1 kprof-fold|a|b > 1%"]);
    }

    #[test]
    fn a_verb_and_an_option_that_do_not_exist_are_refused_with_the_reason() {
        let reason = |line: &str| xtask(crate::Arguments::command(), &shlex::split(line).unwrap());
        assert_eq!(reason("truth --seeds 1"), None);
        assert_eq!(reason("test --help"), None);
        assert_eq!(reason("truht"), Some("error: unrecognized subcommand 'truht'".to_owned()));
        assert_eq!(reason("truth --sedes 1"), Some("error: unexpected argument '--sedes' found".to_owned()));
        assert!(reason("truth --seeds 0").is_some_and(|reason| reason.contains("0 is not in 1..=1000")));
    }

    #[test]
    fn a_command_of_a_cargo_feature_is_told_from_others() {
        let needs = |line: &str| needs_feature(&shlex::split(line).unwrap());
        assert!(needs("kprof-fold export --to parquet a"));
        assert!(!needs("kprof-fold export --to pprof otlp"));
    }

    #[test]
    fn what_comes_after_two_hyphens_is_another_programs() {
        let words = |line: &str| shlex::split(line).unwrap();
        assert_eq!(before_help(&words("-F 2000 -- cp --help")), words("-F 2000"));
        assert_eq!(before_help(&words("status")), words("status"));
    }
}
