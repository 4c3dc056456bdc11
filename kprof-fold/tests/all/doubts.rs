//! What makes a result doubtful is in the result itself, and not only on standard error: it is shared without that.

use crate::sealed::{batch, sealed};
use flate2::read::GzDecoder;
use kprof_fold::output::export::pprof::proto::Profile;
use kprof_format::marker::Marker;
use prost::Message as _;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

const SYMS: &str = "ffffffff80001000 0000000000000100 T kmain\nffffffff80002000 0000000000000100 t leaf\n";
const CALLERS: &str = "1 of 2 different stacks may lack the caller of their innermost function";
const BUILD: &str = "does not look like the symbols of profile.txt: 60 of 60 addresses lie where these symbols have no";

/// A stack that is certain, and one in the middle of a function with a candidate for its caller.
fn with_candidate() -> String {
    let candidate = Marker::Candidate.encode();
    batch(0, &format!("a 0 1 ffffffff80001010\na 0 2 ffffffff80002010 {candidate:x} ffffffff80001021\n"))
}

/// Sixty addresses of another build.
fn foreign() -> String {
    batch(0, &(0..60).map(|at| format!("a 0 {at:x} {:x}\n", 0xffff_ffff_8000_3000u64 + at)).collect::<String>())
}

fn run(folder: &Path, batch: &str, words: &[&str]) -> Output {
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n";
    std::fs::write(folder.join("profile.txt"), sealed(&(head.to_owned() + batch))).expect("is writable");
    std::fs::write(folder.join("syms"), SYMS).expect("is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(words).current_dir(folder).output().expect("kprof-fold runs");
    assert!(done.stderr.is_empty(), "-q: {}", String::from_utf8_lossy(&done.stderr));
    done
}

#[test]
fn every_output_that_is_shared_says_what_is_doubtful_also_with_q() {
    let folder = tempfile::tempdir().expect("is writable");
    for (batch, sentence) in [(with_candidate(), CALLERS), (foreign(), BUILD)] {
        for words in [
            &["html", "-q", "profile.txt", "syms"][..],
            &["flamegraph", "-q", "profile.txt", "syms"],
            &["report", "-q", "profile.txt", "syms"],
            &["report", "-q", "--by", "cpu", "profile.txt", "syms"],
            &["report", "-q", "--format", "json", "profile.txt", "syms"],
            &["diff", "-q", "profile.txt", "profile.txt", "syms"],
            &["diff", "-q", "--format", "json", "profile.txt", "profile.txt", "syms"],
            &["diff", "-q", "--format", "markdown", "profile.txt", "profile.txt", "syms"],
            &["doctor", "-q", "profile.txt", "syms"],
        ] {
            let done = run(folder.path(), &batch, words);
            let text = String::from_utf8_lossy(&done.stdout);
            let sentence = if words[0] == "doctor" && sentence == BUILD { "wrong kernel image? " } else { sentence };
            assert!(text.contains(sentence), "{words:?}: {sentence}: {:.3000}", text);
        }
        let pprof = ["export", "-q", "--to", "pprof", "profile.txt", "syms"];
        let mut bytes = Vec::new();
        let done = run(folder.path(), &batch, &pprof);
        GzDecoder::new(&done.stdout[..]).read_to_end(&mut bytes).expect("is gzipped");
        let profile = Profile::decode(&bytes[..]).expect("is a profile");
        let comments: Vec<&String> = profile.comment.iter().map(|at| &profile.string_table[*at as usize]).collect();
        assert!(comments.len() == 1 && comments[0].contains(sentence), "{comments:?}");
    }
}

#[test]
fn a_result_without_doubt_has_none() {
    let folder = tempfile::tempdir().expect("is writable");
    let prologue = with_candidate().replace("80002010", "80002001");
    for words in [&["report", "-q", "profile.txt", "syms"][..], &["folded", "-q", "profile.txt", "syms"]] {
        let text = String::from_utf8_lossy(&run(folder.path(), &prologue, words).stdout).into_owned();
        assert!(!text.contains("may lack") && text.contains("leaf"), "{text}");
    }
}

/// Ten samples in each of two functions: at 100 ticks a second, and after the setting at 10.
fn two_rates() -> String {
    let sample = |tsc: u64, at: u64| format!("a 0 {tsc:x} {at:x}\n");
    let quick: String = (0..10).map(|n| sample(n * 10_000_000, 0xffff_ffff_8000_1010)).collect();
    let slow: String = (1..11).map(|n| sample(100_000_000 * n, 0xffff_ffff_8000_2010)).collect();
    let setting = "# batch cpu=meta from=0 to=10\n# setting tsc=5f5e0ff value=hz%2010\n# end cpu=meta to=10\n";
    setting.to_owned() + &batch(0, &(quick + &slow))
}

#[test]
fn samples_at_two_rates_are_a_doubt_and_no_fault_of_the_sampler() {
    let folder = tempfile::tempdir().expect("is writable");
    let rates = "samples were taken at 10 and 1000 per second and CPU";
    for words in [&["report", "-q", "profile.txt", "syms"][..], &["doctor", "-q", "profile.txt", "syms"]] {
        let text = String::from_utf8_lossy(&run(folder.path(), &two_rates(), words).stdout).into_owned();
        assert!(text.contains(rates) && !text.contains("the rate was not reached"), "{text}");
    }
    let one = ["report", "-q", "profile.txt", "syms", "--between", "0.2", "end"];
    let text = String::from_utf8_lossy(&run(folder.path(), &two_rates(), &one).stdout).into_owned();
    assert!(text.starts_with("9 samples in") && !text.contains("samples were taken at"), "{text}");
}

#[test]
fn numbers_of_samples_at_two_rates_are_not_compared_as_the_same_work() {
    let folder = tempfile::tempdir().expect("is writable");
    std::fs::write(folder.path().join("syms"), SYMS).expect("is writable");
    let samples = batch(0, "a 0 1 ffffffff80001010\n");
    for hz in [1000, 500] {
        let text = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# hz {hz}\n{samples}");
        std::fs::write(folder.path().join(format!("{hz}.txt")), sealed(&text)).expect("is writable");
    }
    let run = |words: &[&str]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        fold.args(words).args(["--same-work", "-q"]).current_dir(folder.path()).output().expect("kprof-fold runs")
    };
    let done = run(&["diff", "1000.txt", "500.txt", "syms"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(2) && said.contains("OLD was sampled 1000 times per second"), "{said}");
    assert_eq!(run(&["diff", "500.txt", "500.txt", "syms"]).status.code(), Some(0));
}

#[test]
fn a_comparison_says_if_the_clocks_differ_and_what_was_lost() {
    let folder = tempfile::tempdir().expect("is writable");
    std::fs::write(folder.path().join("syms"), SYMS).expect("is writable");
    let lossy = "# batch cpu=0 from=0 to=6 first-tick=1 last-tick=1 lost-full=0\na 0 1 ffffffff80001010\n\
                 # end cpu=0 to=6 samples=1\n\
                 # batch cpu=0 from=6 to=12 first-tick=5 last-tick=5 lost-full=3\na 0 10 ffffffff80001010\n\
                 # end cpu=0 to=12 samples=1\n";
    for (name, clock, samples) in
        [("old", "instructions", &batch(0, "a 0 1 ffffffff80001010\n")[..]), ("new", "tsc", lossy)]
    {
        let text = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n# clock {clock}\n{samples}");
        std::fs::write(folder.path().join(name), sealed(&text)).expect("is writable");
    }
    let run = |words: &[&str]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.args(words).arg("-q").current_dir(folder.path()).output().expect("kprof-fold runs");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    for format in ["text", "markdown", "json", "flamegraph"] {
        let text = run(&["diff", "--format", format, "old", "new", "syms"]);
        assert!(text.contains("time is counted in instructions in OLD and in ticks of the clock in NEW"), "{text}");
        assert!(text.contains("NEW: 3 of 5 samples were lost (60.00 %)"), "{text}");
        let text = run(&["diff", "--format", format, "old", "old", "syms"]);
        assert!(!text.contains("time is counted") && !text.contains("lost"), "{text}");
    }
}

#[test]
fn a_function_that_was_merged_with_others_says_that_it_is_one_of_several() {
    let folder = tempfile::tempdir().expect("is writable");
    // The code of `a_read`, `b_read` and `c_read` is the same; `__leaf` is another name of `leaf`.
    let syms = "ffffffff80001000 0000000000000100 t b_read\nffffffff80001000 0000000000000100 t c_read\n\
                ffffffff80001000 0000000000000100 t a_read\nffffffff80001000 0000000000000000 T text_start\n\
                ffffffff80002000 0000000000000100 T leaf\nffffffff80002000 0000000000000100 W __leaf\n";
    std::fs::write(folder.path().join("syms"), syms).expect("is writable");
    let samples = batch(0, "t 0 1 ffffffff80002010 ffffffff80001020\n");
    let text = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n{samples}");
    std::fs::write(folder.path().join("p"), sealed(&text)).expect("is writable");
    let run = |words: &[&str]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.args(words).args(["-q", "p", "syms"]).current_dir(folder.path()).output().expect("runs");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    for words in [
        &["report"][..],
        &["report", "--tree"],
        &["report", "--format", "csv"],
        &["report", "--under", "a_read"],
        &["top", "--once"],
        &["flamegraph"],
    ] {
        let text = run(words);
        assert!(text.contains("a_read (1 of 3 names)"), "{words:?}: {text}");
        assert!(!text.contains("leaf (1 of"), "{words:?}: {text}");
    }
    let document: serde_json::Value = serde_json::from_str(&run(&["report", "--format", "json"])).expect("is JSON");
    let rows = document["rows"].as_array().expect("has rows");
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).expect("has this row");
    assert_eq!((&row("a_read")["one_of"], row("__leaf").get("one_of")), (&3.into(), None));
    // Other programs compare names, which are the same in every build.
    assert_eq!(run(&["folded"]), "a_read;__leaf 1\n");
}
