//! `--strict` and `--max-loss` mean the same in every subcommand.

use crate::sealed::sealed;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A profile with two samples in a batch that reports a loss. `account` is appended.
fn profile(start: u64, account: &str) -> String {
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 1\n# hz 1000\n";
    let line = |tsc| format!("a 1 {tsc} {:x}\n", 0xffff_ffff_8000_0000 + start + 1);
    let batch = "# batch cpu=1 from=0 to=10 lost-full=1\n";
    let end = "# end cpu=1 to=10 samples=2\n";
    sealed(&format!("{head}# load ffffffff80000000\n{POINT}{batch}{}{}{end}{account}", line(1), line(2)))
}

/// What a point has counted, in a batch of the meta stream.
const POINT: &str = "# batch cpu=meta from=0 to=20\n\
                     # point-account tsc=1 cpu=1 weight=9 filtered=1 log2-3=1 unit=ns point=block.read\n\
                     # end cpu=meta to=20\n";
const BALANCED: &str = "# account cpu=1 sent=3 taken=3 coalesced=0 user=0 idle=0 lost-full=1 recorded=2 delivered=2 overwritten=0 in-ring=0\n";
const UNBALANCED: &str = "# account cpu=1 sent=9 taken=3 coalesced=0 user=0 idle=0 lost-full=1 recorded=2 delivered=2 overwritten=0 in-ring=0\n";

#[inline(never)]
fn sampled_function(value: u64) -> u64 {
    std::hint::black_box(value).rotate_left(7) ^ std::hint::black_box(3)
}

/// The path of this test program, and the distance of [`sampled_function`] from its lowest address.
fn image() -> (String, u64) {
    std::hint::black_box(sampled_function(1));
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let mut problems = kprof_fold::problems::Problems::default();
    let symbols = kprof_fold::symbols::Symbols::open(&file, &mut problems).expect("is an ELF file");
    let start = symbols.table.named("sampled_function").next().expect("has the symbol");
    (file, start - symbols.elf.expect("is an ELF file").base)
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kprof-fold")).args(arguments).output().expect("kprof-fold runs")
}

#[test]
fn every_subcommand_has_the_exit_codes_for_skipped_lost_and_unbalanced() {
    let (elf, start) = image();
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = |name: &str, text: String| {
        let path = folder.join(format!("limits-{name}"));
        fs::write(&path, text).expect("the test folder is writable");
        path.display().to_string()
    };
    let syms = file("syms", format!("{:x} T sampled\n", 0xffff_ffff_8000_0000 + start));
    let good = file("good", profile(start, BALANCED));
    let unbalanced = file("unbalanced", profile(start, UNBALANCED));
    let damaged = file("damaged", format!("{}a 1 zz ffffffff80000001\n", profile(start, BALANCED)));
    let commands: [&[&str]; 12] = [
        &["FILE", "SYMS"],
        &["folded", "FILE", "SYMS"],
        &["flamegraph", "FILE", "SYMS"],
        &["script", "FILE", "SYMS"],
        &["info", "FILE"],
        &["latency", "FILE"],
        &["lockups", "FILE", "SYMS"],
        &["export", "--to", "speedscope", "FILE", "SYMS"],
        &["export", "--to", "perfetto", "FILE", "SYMS"],
        &["annotate", "FILE", "ELF", "*sampled_function"],
        &["top", "--once", "FILE", "SYMS"],
        &["diff", "FILE", "FILE", "SYMS"],
    ];
    for command in commands {
        let code = |profile: &str, limits: &[&str]| {
            let word = |word: &&str| match *word {
                "FILE" => profile.to_owned(),
                "SYMS" => syms.clone(),
                "ELF" => elf.clone(),
                other => other.to_owned(),
            };
            let words: Vec<String> =
                command.iter().map(word).chain(limits.iter().map(|word| (*word).to_owned())).collect();
            let done = run(&words.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(!done.stdout.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
            done.status.code().expect("was not killed")
        };
        for (profile, limits, expected) in [
            (&good, &["--strict", "--max-loss", "50%"][..], 0),
            (&good, &["--max-loss", "33%"], 3),
            (&damaged, &[], 0),
            (&damaged, &["--strict"], 1),
            (&damaged, &["--strict", "--max-loss", "33%"], 3),
            (&unbalanced, &[], 0),
            (&unbalanced, &["--strict"], 5),
        ] {
            assert_eq!(code(profile, limits), expected, "{command:?} {limits:?} of {profile}");
        }
    }
}

#[test]
fn folded_stacks_that_say_what_was_lost_are_held_to_it() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("limits.folded");
    fs::write(&path, "a;b 9\n[lost] 1\n").expect("the test folder is writable");
    let file = path.display().to_string();
    assert_eq!(run(&["diff", &file, &file, "--max-loss", "10%"]).status.code(), Some(0));
    assert_eq!(run(&["diff", &file, &file, "--max-loss", "9%"]).status.code(), Some(3));
}

#[test]
fn a_claim_speaks_of_functions_that_exist_whether_they_were_sampled_or_not() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (file, syms) = (folder.join("limits-claim"), folder.join("limits-claim.syms"));
    fs::write(&file, profile(0x1000, BALANCED)).expect("the test folder is writable");
    fs::write(&syms, "ffffffff80001000 t mm::map\nffffffff80002000 t mm::unmap\n")
        .expect("the test folder is writable");
    let (file, syms) = (file.display().to_string(), syms.display().to_string());
    let diff = |claim: &str| run(&["diff", "-q", &file, &file, &syms, "--fail-if", claim]);
    for (claim, code) in [
        ("mm::map > +2%", Some(0)),
        ("self  mm::map > +2%", Some(0)),
        ("mm::unmap > +2%", Some(0)),
        ("self mm::* > +2%", Some(0)),
        ("mm::mapp > +2%", Some(2)),
        ("self  self > +2%", Some(2)),
    ] {
        let done = diff(claim);
        assert_eq!(done.status.code(), code, "{claim}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let said = diff("mm::mapp > +2%").stderr;
    assert!(String::from_utf8_lossy(&said).contains("did you mean `mm::map`"), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn latency_says_that_words_of_the_meta_stream_are_missing() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("limits-missing-meta");
    let missing = POINT.replace("to=20\n# point", "to=20\n# corrupt cpu=meta from=0 words=12 reason=gap\n# point");
    let doubt = "; 12 words of the meta stream are missing, which may have had hits\n";
    // What was overwritten before the first read was given to nobody, so that the kernel writes its counts again.
    for (batches, balance, end) in [
        (POINT.to_owned(), "  balanced: 1 hits", "lost\n"),
        (missing.clone(), "  balanced: 1 hits", "lost\n"),
        ([POINT, &missing].concat(), "  not balanced: 2 hits", doubt),
    ] {
        let text = sealed(&format!("# kprof-profile 1\n# tsc-hz 1000000000\n# boot 1\n{batches}"));
        fs::write(&file, text).expect("the test folder is writable");
        let output = run(&["latency", &file.display().to_string()]);
        let text = String::from_utf8_lossy(&output.stdout);
        let last = text.lines().last().expect("prints something");
        assert!(last.starts_with(balance) && format!("{last}\n").ends_with(end), "{text}");
    }
}

#[test]
fn info_says_that_counts_by_task_may_be_missing() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("limits-missing-events");
    let counts = "# batch cpu=meta from=0 to=9\n# events tsc=f cpu=0 interrupts=3 task=cp\n# end cpu=meta to=9\n";
    let gap = "# batch cpu=meta from=9 to=20\n# corrupt cpu=meta from=9 words=11 reason=gap\n# end cpu=meta to=20\n";
    let row = format!("        {:>18}  cp\n", 3);
    let doubt = "        11 words of the meta stream are missing, which may have had more of them\n";
    for (batches, expected) in [([counts, ""], row.clone()), ([counts, gap], row + doubt)] {
        let text = sealed(&format!("# kprof-profile 1\n# tsc-hz 1000000000\n# boot 1\n{}", batches.concat()));
        fs::write(&file, text).expect("the test folder is writable");
        let output = run(&["info", &file.display().to_string()]);
        let text = String::from_utf8_lossy(&output.stdout);
        let (_, behind) = text.split_once("  events        interrupts  task\n").expect("has the table");
        assert!(behind.starts_with(&expected), "{text}");
        assert_eq!(text.contains(doubt), expected.ends_with(doubt), "{text}");
    }
}
