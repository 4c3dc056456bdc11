//! Tests of the command line of `kprof-record`. Other files' tests parse their command lines with its functions.

use super::*;
use crate::write::compose::Form;
use std::path::Path;

pub(in crate::record) fn wanted(words: &[&str]) -> Result<Wanted, Error> {
    parse(words.iter().map(OsString::from))
}

pub(in crate::record) fn session(words: &[&str]) -> Record {
    match wanted(words).unwrap() {
        Wanted::Session(record) => *record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_command_keeps_its_own_options() {
    let record = session(&["--hz", "2000 force", "-o", "x", "cp", "-r", "--", "a"]);
    assert_eq!(record.command, ["cp", "-r", "--", "a"]);
    assert_eq!(record.options.commands, ["lease", "hz 2000 force", "start"]);
    assert_eq!(session(&["--include=user", "--", "-x"]).command, ["-x"]);
    assert_eq!(session(&["stat", "--", "stat"]).command, ["stat"]);
    assert_eq!(session(&["stat", "stat", "-x", ","]).what, What::Stat(Counting::default()));
    assert_eq!(session(&["stat", "stat", "-r", "2"]).command, ["stat", "-r", "2"]);
    assert_eq!(session(&["--", "stat"]).what, What::Record);
    assert_eq!(session(&["ls", "--help"]).command, ["ls", "--help"]);
    assert_eq!(session(&["help"]).command, ["help"]);
}

#[test]
fn a_recording_is_beside_the_caller_and_not_in_the_file_of_profiled() {
    for words in [&["true"][..], &["--binary", "--", "true"]] {
        let options = session(words).options;
        assert_eq!((options.output.to_str(), options.maker), (Some("kprof-record.txt"), Maker::Record));
    }
    assert_eq!(session(&["-o", "x", "--", "true"]).options.output, Path::new("x"));
}

#[test]
fn options_of_perf_are_understood() {
    let record = session(&["-a", "-g", "-F", "99", "-C", "1,2", "--", "true"]);
    assert_eq!(record.options.commands, ["lease", "hz 99", "cpus 1,2", "start"]);
    assert_eq!(session(&["-ag", "-F99", "sleep", "1"]).command, ["sleep", "1"]);
    let words = ["record", "-e", "block.*", "--event", "page.fault count", "-e", "a every 10", "--", "true"];
    let commands = ["lease", "event block.* record", "event page.fault count", "event a every 10", "start"];
    assert_eq!(session(&words).options.commands, commands);
    assert_eq!(
        (session(&words).command, session(&["--", "record"]).command),
        (vec!["true".into()], vec!["record".into()])
    );
    for bad in ["a b", "a every", "a*b"] {
        assert!(wanted(&["-e", bad, "true"]).is_err(), "{bad}");
    }
    for words in [&["-p", "7"][..], &["-p7", "true"], &["-p"], &["stat", "-p", "7"]] {
        let error = wanted(words).unwrap_err().to_string();
        assert!(error.contains("`kprof-fold --task NAME` shows"), "{error}");
    }
}

#[test]
fn ranges_of_cpus_are_lists_for_the_kernel() {
    for (given, list) in [("1-3", "1,2,3"), ("0,2-2,5-6", "0,2,5,6"), ("all", "all"), ("7", "7")] {
        assert_eq!(session(&["-C", given, "true"]).options.commands[1], format!("cpus {list}"));
    }
    for bad in ["3-1", "1-", "-", "1-99999", "a-b"] {
        let error = wanted(&[&format!("--cpus={bad}"), "true"]).unwrap_err().to_string();
        assert!(error.contains("as 1,3 or 0-2"), "{bad}: {error}");
    }
}

#[test]
fn a_verb_of_perf_that_reads_a_file_names_the_program_that_does_it() {
    for verb in OF_FOLD {
        let error = wanted(&[verb, "file"]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("a verb of kprof-fold"), "{error}");
        assert_eq!(session(&["--", verb]).command, [verb]);
        assert_eq!(session(&["record", verb]).command, [verb], "`record` is the verb");
    }
}

#[test]
fn every_setting_is_a_command_for_the_kernel_and_the_last_value_counts() {
    let words = "--mark a --depth 9 --include idle --seed 4 --interval fixed --backoff off --include user --hz 1 \
                 --hz 2 --mark b --binary --on-full stop -q -q";
    let record = session(&words.split_whitespace().collect::<Vec<_>>());
    let commands = "lease,hz 2,include idle,include user,depth 9,interval fixed,seed 4,backoff off,mark a,mark b,start";
    assert_eq!(record.options.commands, commands.split(',').collect::<Vec<_>>());
    assert_eq!((record.options.form, record.quiet, record.options.is_recording), (Form::Binary, true, true));
}

#[test]
fn a_verb_is_the_first_word_and_takes_nothing_but_the_folder() {
    let control = wanted(&["status", "--scheme", "/dev/kprof"]);
    let is_folder = |folder: &Path| folder == Path::new("/dev/kprof");
    assert!(matches!(control, Ok(Wanted::Control(Control::Status, folder)) if is_folder(&folder)));
    assert!(matches!(wanted(&["list"]), Ok(Wanted::Control(Control::List, _))));
    for words in [&["start", "now"][..], &["stop", "--hz", "1"], &["status", "-x"]] {
        assert_eq!(wanted(words).unwrap_err().exit_code(), 2, "{words:?}");
    }
    assert_eq!(session(&["--", "status"]).command, ["status"]);
    assert_eq!(session(&["-q", "stop"]).command, ["stop"], "only the first word is a verb");
}

#[test]
fn an_option_that_is_none_is_named() {
    for (words, said) in [
        (&["--frob", "1"][..], "'--frob'"),
        (&["-x"], "'-x'"),
        (&["--hz"], "'--hz <N>'"),
        (&["--mark", "a\nstop"], "one line"),
        (&["--on-full", "panic"], "[possible values: wait, stop]"),
        (&["stat", "--include", "user"], "stat counts user and idle time without --include"),
        (&["stat", "-o", "x", "true"], "'-o'"),
        (&["stat", "-r", "0", "true"], "'0' for '--repeat <N>'"),
        (&["stat", "-r", "2"], "not provided"),
        (&["stat", "-I", "9"], "'9' for '--interval-print <MS>'"),
        (&["stat", "-I", "20", "-r", "3", "true"], "cannot be used with"),
        (&["stat", "-x", "", "true"], "--field-separator"),
        (&["stat", "-I", "20", "-e", "a", "true"], "cannot be used with"),
        (&["stat", "-e", "a record", "true"], "stat counts each hit"),
    ] {
        let error = wanted(words).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{words:?}: {error}");
        assert!(error.to_string().contains(said) && error.to_string().lines().count() == 1, "{words:?}: {error}");
    }
}

#[test]
fn help_manual_pages_and_completions_have_every_option() {
    let text = |words: &[&str]| match wanted(words).unwrap() {
        Wanted::Text(text) => text,
        other => panic!("{other:?}"),
    };
    let verbs = ["", "stat", "probe", "status", "start", "stop"];
    crate::options::tests::check_texts(text, "kprof-record", "1", &verbs);
    assert!(text(&["man"]).contains("126 when the command"), "the notes are in the page");
    assert!(text(&["stat", "-V"]).ends_with(concat!(" ", env!("CARGO_PKG_VERSION"), "\n")));
}

#[test]
fn stat_repeats_separates_and_prints_in_intervals() {
    let record = session(&["stat", "-r", "3", "-x", "\\t", "-F", "9", "--duration", "1s", "--", "cp", "a"]);
    let counting = Counting { repeat: Some(3), separator: Some("\t".into()), ..Counting::default() };
    assert_eq!(record.what, What::Stat(counting));
    assert_eq!(record.options.commands, ["lease", "hz 9", "start"]);
    assert_eq!(record.options.duration, Some(Duration::from_secs(1)));
    assert_eq!(record.options.output, Path::new("/dev/null"));
    let record = session(&["stat", "-I", "100", "-x,"]);
    let counting =
        Counting { separator: Some(",".into()), interval: Some(Duration::from_millis(100)), ..Counting::default() };
    assert_eq!(record.what, What::Stat(counting));
}
