//! `doctor` names the cause of a problem. For each cause a profile is made here, and the message is checked.

use crate::sealed::{names, sealed};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

const SYMBOLS: &str = "ffffffff80001000 0000000000001000 T kmain\n";
/// A header without problems; it also says where the kernel's code is.
const HEADER: &str = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 7\n# cpus 2\n# sampler 1\n# trigger nmi\n# hz 1000\n\
                      # text ffffffff80001000-ffffffff80002000\n# anchor kmain=ffffffff80001000\n";

/// A profile of CPU 0 with one sample for each of these stacks, a tick each millisecond, and these further counters.
fn profile(stacks: &[String], counters: &str) -> String {
    let count = stacks.len();
    let mut text = format!("{HEADER}# batch cpu=0 from=0 to=900 first-tick=1 last-tick={count}\n");
    for (number, stack) in stacks.iter().enumerate() {
        let _ = writeln!(text, "kmain 0 {:x} {stack}", (number as u64 + 1) * 1_000_000);
    }
    let _ = write!(
        text,
        "# end cpu=0 to=900 samples={count}\n# account cpu=0 sent={count} taken={count} recorded={count} delivered={count} \
         in-ring=0{counters}\n"
    );
    text
}

fn stacks(each: &[&str]) -> Vec<String> {
    each.iter().cycle().take(40).map(|stack| (*stack).to_owned()).collect()
}

/// What `kprof-fold VERB` prints for a profile: standard output, then standard error.
fn said(name: &str, verb: &str, profile: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("doctor-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("profile.txt"), sealed(profile)).unwrap();
    std::fs::write(folder.join("syms.txt"), SYMBOLS).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let output = command.current_dir(&folder).args([verb, "profile.txt", "syms.txt"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

fn doctor(name: &str, profile: &str) -> String {
    said(name, "doctor", profile)
}

const WELL: &str = "ffffffff80001010 ffffffff80001100";

#[test]
fn a_profile_that_is_right_has_no_cause() {
    assert_eq!(
        doctor("well", &profile(&stacks(&[WELL]), " sleep-asked=39000000 sleep-late=100000")),
        "nothing is wrong\n"
    );
}

#[test]
fn stacks_of_one_frame_are_a_stack_that_the_kernel_does_not_know() {
    let found = doctor("one-frame", &profile(&stacks(&["ffffffff80001010 fffffffffffff402", WELL]), ""));
    assert!(found.contains("20 of 40 stacks have one frame: stack_range does not know the stack in use"), "{found}");
}

#[test]
fn other_truncated_stacks_have_their_own_causes() {
    let outside = doctor("range", &profile(&stacks(&["ffffffff80001010 ffffffff80001100 fffffffffffff402"]), ""));
    assert!(outside.contains("40 of 40 stacks end where a frame pointer leaves the stack"), "{outside}");
    let broken = doctor("broken", &profile(&stacks(&["ffffffff80001010 fffffffffffff405", WELL]), ""));
    assert!(broken.contains("20 of 40 stacks end where the chain of frame pointers is broken"), "{broken}");
    let deep = doctor("deep", &profile(&stacks(&["ffffffff80001010 ffffffff80001100 fffffffffffff401"]), ""));
    assert!(deep.contains("40 of 40 stacks are deeper than `depth`"), "{deep}");
}

#[test]
fn stacks_that_end_in_a_stub_lack_its_description() {
    let found = doctor("entry", &profile(&stacks(&["ffffffff80001010 fffffffffffff406", WELL, WELL, WELL]), ""));
    assert!(found.contains("10 of 40 stacks end in an entry stub: its frame is not described"), "{found}");
}

#[test]
fn a_few_truncated_stacks_are_no_cause() {
    let mut all = stacks(&[WELL]);
    all[3] = "ffffffff80001010 fffffffffffff402".to_owned();
    all[4] = "ffffffff80001010 fffffffffffff406".to_owned();
    assert_eq!(doctor("few", &profile(&all, "")), "nothing is wrong\n");
}

#[test]
fn a_sampler_that_sleeps_too_long_is_told_from_one_that_is_not_alone() {
    // 40 ticks in 40 ms, although 4000 per second are requested.
    let slow = |counters| profile(&stacks(&[WELL]), counters).replace("# hz 1000", "# hz 4000");
    let long = doctor("sleeps", &slow(" sleep-asked=10000000 sleep-late=29000000"));
    assert!(long.contains("the sampler sleeps too long: 0.039 s where it asked for 0.010 s"), "{long}");
    let busy = doctor("busy", &slow(" sleep-asked=10000000 sleep-late=100000"));
    assert!(busy.contains("is the sampler CPU alone?") && !busy.contains("sleeps too long"), "{busy}");
}

#[test]
fn the_trigger_is_that_of_the_sampler_even_if_the_header_is_older() {
    // The first header of a serial log can be written before the sampler runs.
    let at_boot =
        profile(&stacks(&[WELL]), "").replace("# hz 1000", "# hz 4000").replace("trigger nmi", "trigger timer");
    let own = doctor("own-timer", &at_boot);
    assert!(own.contains("the timer has to come several times as often"), "{own}");
    let later = at_boot.replacen("# batch", &format!("{}# batch", names("# setting tsc=1 value=trigger%20nmi\n")), 1);
    let sampled = doctor("later-sampler", &later);
    assert!(sampled.contains("is the sampler CPU alone?") && !sampled.contains("the timer has to"), "{sampled}");
    let page = said("later-page", "html", &later);
    assert!(page.contains("<dt>Trigger</dt><dd>nmi</dd>"), "no trigger nmi");
}

#[test]
fn ticks_come_together_where_the_handler_is_slow_or_where_the_cpu_did_not_run() {
    let coalesced = |own: u64| {
        let text = profile(&stacks(&[WELL]), &format!(" coalesced=60 self-tsc={own}"));
        text.replace("sent=40", "sent=100")
    };
    let slow = doctor("slow-handler", &coalesced(40 * 500_000));
    assert!(
        slow.contains("60 of 100 ticks coalesced: the rate is too high for this machine: the handler takes 50 %"),
        "{slow}"
    );
    let few = doctor("few-cores", &coalesced(40 * 5_000));
    assert!(few.contains("60 of 100 ticks coalesced: the CPUs did not run when their ticks came"), "{few}");
    assert!(few.contains("more virtual CPUs than the host has cores"), "{few}");
}

#[test]
fn samples_and_anchors_outside_of_the_text_are_a_stub_in_another_section() {
    let odd = doctor("odd-samples", &profile(&stacks(&[WELL, WELL, WELL, "ffffffff80003000"]), ""));
    assert!(odd.contains("10 of 40 samples were taken outside of the kernel's text, as at ffffffff80003000"), "{odd}");
    let text = profile(&stacks(&[WELL]), "");
    let anchor =
        doctor("odd-anchor", &text.replace("# anchor kmain=ffffffff80001000", "# anchor nmi_entry=ffffffff80003000"));
    assert!(anchor.contains("nmi_entry is at ffffffff80003000, outside of the kernel's text"), "{anchor}");
    assert!(!anchor.contains("wrong kernel image"), "{anchor}");
    // Symbols of another build are still reported as such.
    let wrong =
        doctor("other-build", &text.replace("# anchor kmain=ffffffff80001000", "# anchor kmain=ffffffff80001040"));
    assert!(wrong.contains("wrong kernel image: kmain is at ffffffff80001000 in the symbols"), "{wrong}");
}

#[test]
fn a_log_without_a_line_of_kprofs_is_called_one() {
    let found = doctor("no-lines", "kernel: hello\nkernel: 3 CPUs\n# not a profile\n");
    assert!(found.contains("not a profile. If it is a kernel's log: is the feature `profiling` on"), "{found}");
}

/// A file with 40 samples that a panic handler has written out, from position 500 on. According to its account, a
/// reader had acknowledged `delivered` samples before, and `in_ring` samples are still in the ring.
fn dump(delivered: u64, in_ring: u64) -> String {
    let recorded = delivered + in_ring;
    profile(&stacks(&[WELL]), " position-in=900 position-out=500").replace("from=0 to=900", "from=500 to=900").replace(
        "sent=40 taken=40 recorded=40 delivered=40 in-ring=0",
        &format!("sent={recorded} taken={recorded} recorded={recorded} delivered={delivered} in-ring={in_ring}"),
    )
}

#[test]
fn what_a_panic_has_written_out_is_in_the_ring_still_and_balances() {
    for (name, delivered, in_ring) in [("dump", 0, 100), ("dump-after-delivery", 70, 40)] {
        let found = doctor(name, &dump(delivered, in_ring));
        assert_eq!(found, "nothing is wrong\n");
        let report = said(name, "report", &dump(delivered, in_ring));
        assert!(report.contains("balanced; 40 of these are still in the ring"), "{report}");
    }
    let too_many = doctor("dump-too-many", &dump(0, 39));
    assert!(too_many.contains("40 samples were dumped of 39 in the ring"), "{too_many}");
}

#[test]
fn a_dump_after_an_export_leaves_the_export_exact() {
    let first = profile(&stacks(&[WELL]), " position-out=900");
    let both = |delivered: u64| {
        let mut text = first.clone() + "# batch cpu=0 from=900 to=1000 first-tick=41 last-tick=42\n";
        text += "kmain 0 2b00000 ffffffff80001010\nkmain 0 2c00000 ffffffff80001010\n# end cpu=0 to=1000 samples=2\n";
        let recorded = delivered + 2;
        let _ = writeln!(
            text,
            "# account cpu=0 sent={recorded} taken={recorded} recorded={recorded} delivered={delivered} in-ring=2 \
             position-out=900"
        );
        text
    };
    assert_eq!(doctor("export-and-dump", &both(40)), "nothing is wrong\n");
    let found = doctor("export-less", &both(39));
    assert!(
        found.contains("the account does not balance: CPU 0: delivered 39 is not the samples in the file, 40"),
        "{found}"
    );
}

/// CPUs 0 and 1 at the same 40 ticks, CPU 1 with a clock that is `ahead`. The last sample of CPU 1 is at `last`.
fn two_cpus(ahead: u64, last: u64) -> String {
    let mut text = HEADER.replace("# cpus 2", "# cpus 3").replace("# sampler 1", "# sampler 2");
    for cpu in 0..2 {
        let _ = writeln!(text, "# batch cpu={cpu} from=0 to=900 first-tick=1 last-tick=40");
        for tick in 1..=40 {
            let tsc = if (cpu, tick) == (1, 40) { last } else { tick * 1_000_000 };
            let _ = writeln!(text, "kmain {cpu} {:x} {WELL}", tsc + if cpu == 1 { ahead } else { 0 });
        }
        let _ = writeln!(text, "# end cpu={cpu} to=900 samples=40");
        let _ = writeln!(text, "# account cpu={cpu} sent=40 taken=40 recorded=40 delivered=40 in-ring=0");
    }
    text
}

#[test]
fn clocks_of_cpus_that_disagree_or_go_back_are_named() {
    let end = 40_000_000;
    assert_eq!(doctor("clocks-agree", &two_cpus(500_000, end)), "nothing is wrong\n");
    let found = doctor("clocks-apart", &two_cpus(50_000_000, end));
    assert!(found.contains("the time stamps of CPU 1 are 0.050000 s from those of CPU 0"), "{found}");
    let without_ticks = two_cpus(9_000_000_000_000, end).replace(" first-tick=1 last-tick=40", "");
    let found = doctor("clocks-ages", &without_ticks);
    assert!(found.contains("the time stamps of CPU 1 are 8999.961000 s from those of CPU 0"), "{found}");
    let found = doctor("clocks-back", &two_cpus(0, 20_000_000));
    assert!(found.contains("the time stamps of CPU 1 go back"), "{found}");
}

#[test]
fn cpus_without_a_sample_in_the_chosen_time_are_named() {
    let folder = tempfile::tempdir().expect("is writable");
    std::fs::write(folder.path().join("p.txt"), sealed(&two_cpus(9_000_000_000_000, 40_000_000))).expect("is writable");
    std::fs::write(folder.path().join("syms"), SYMBOLS).expect("is writable");
    let said = |words: &[&str]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let words = [&["report", "-q", "p.txt", "syms", "--between", "0", "1"], words].concat();
        String::from_utf8(fold.args(words).current_dir(folder.path()).output().unwrap().stdout).unwrap()
    };
    let text = "CPU 1 has samples, but none in the chosen time";
    assert!(said(&[]).contains(text), "{}", said(&[]));
    assert!(!said(&["--cpu", "0"]).contains(text));
}
