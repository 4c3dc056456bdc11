//! The self cost is shown in the unit in which the kernel has measured it, or not at all, with the reason.

use crate::sealed::sealed;
use std::path::PathBuf;
use std::process::Command;

const SYMBOLS: &str = "ffffffff80001000 0000000000001000 T kmain\n";
/// The counters of an account of 192 ticks.
const TICKS: &str = "sent=192 taken=192 recorded=192 delivered=192 irq-on=192 in-ring=0";

/// A profile of a kernel with a clock of 10 MHz, with these accounts. `fact`: a line of its header.
fn profile(fact: &str, accounts: &[&str]) -> String {
    let mut text =
        format!("# kprof-profile 1\n# tsc-hz 10000000\n# boot 7\n{fact}# cpus 3\n# trigger nmi\n# hz 1000\n");
    for (cpu, counters) in accounts.iter().enumerate() {
        text += &format!("# batch cpu={cpu} from=0 to=900 first-tick=1 last-tick=192\n");
        for tick in 1..=192 {
            text += &format!("kmain {cpu} {:x} ffffffff80001010\n", tick * 10_000);
        }
        text += &format!("# end cpu={cpu} to=900 samples=192\n# account cpu={cpu} {TICKS}{counters}\n");
    }
    text
}

/// What `kprof-fold VERB` prints.
fn said(name: &str, verb: &[&str], profile: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("self-cost-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("profile.txt"), sealed(profile)).unwrap();
    std::fs::write(folder.join("syms.txt"), SYMBOLS).unwrap();
    let files: &[&str] = if verb[0] == "info" { &["profile.txt"] } else { &["profile.txt", "syms.txt"] };
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let output = command.current_dir(&folder).args(verb).args(files).output().unwrap();
    String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
}

/// The sentence about the self cost, which `report` and `info` must have, once.
fn sentence(name: &str, profile: &str) -> String {
    let [report, info] = ["report", "info"].map(|verb| {
        let text = said(name, &[verb], profile);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("self cost")).collect();
        assert_eq!(lines.len(), 1, "{verb}: {text}");
        lines[0].to_owned()
    });
    assert_eq!(report, info);
    report
}

#[test]
fn cycles_are_shown_as_cycles_and_as_a_share_of_cycles() {
    // 300 cycles for each of three measured ticks, and 64 ticks with 10 000 cycles each between them.
    let cycles = " self-cycles=57600 cycles=1280000 self-samples=3";
    let one = profile("# self-cost cycles\n", &[cycles]);
    assert_eq!(
        sentence("cycles", &one),
        "self cost: 300 cycles a tick, the mean of 3; 3.00 % of the cycles that the CPUs counted meanwhile"
    );
    // A busy CPU counts, for its part, three times as many.
    let busy = " self-cycles=57600 cycles=3840000 self-samples=3";
    let two = sentence("two", &profile("# self-cost cycles\n", &[cycles, busy]));
    assert_eq!(
        two,
        "self cost: 300 cycles a tick, the mean of 6; 1.50 % of the cycles that the CPUs counted meanwhile"
    );
    let report = said("cycles", &["report"], &one);
    assert!(report.contains("100.0 %        192  kernel, interrupts on"), "{report}");
    assert!(!report.contains("self cost of the profiler"), "cycles are no row of the times: {report}");
}

#[test]
fn one_measured_tick_gives_no_share() {
    let text = profile("# self-cost cycles\n", &[" self-cycles=19200 cycles=0 self-samples=1"]);
    assert_eq!(sentence("one", &text), "self cost: 300 cycles a tick, the mean of 1");
}

#[test]
fn a_cpu_whose_counter_stands_still_is_named() {
    let cycles = " self-cycles=57600 cycles=1280000 self-samples=3";
    let text = profile("# self-cost cycles\n", &[cycles, ""]);
    let said = sentence("part", &text);
    assert!(said.ends_with("meanwhile; the cycle counter of CPU 1 is not enabled, or stands still"), "{said}");
    let none = sentence("none", &profile("# self-cost cycles\n", &["", ""]));
    assert_eq!(none, "self cost: not measured: the cycle counter of CPU 0, 1 is not enabled, or stands still");
}

#[test]
fn what_was_not_measured_has_no_number() {
    let why = "self cost: not measured: a tick of the kernel's clock is 100 ns, and the kernel offers no cycle counter \
               (Config::cycle_counter)";
    let coarse = profile("# self-cost -\n", &[""]);
    assert_eq!(sentence("coarse", &coarse), why);
    let json = said("coarse", &["report", "--format", "json"], &coarse);
    assert!(json.contains(&format!("\"self_cost\": \"{why}\"")), "{json}");
    let few = profile("# self-cost cycles\n", &[" self-cycles=0 cycles=0 self-samples=0"]);
    assert_eq!(
        sentence("few", &few),
        "self cost: not measured: fewer than 64 ticks on each CPU, of which one is measured"
    );
    let newer = sentence("newer", &profile("# self-cost joules\n", &[""]));
    assert_eq!(newer, "self cost: not measured: by joules, which this kprof-fold does not know");
}

#[test]
fn the_page_has_the_sentence_too() {
    let page = said("page", &["html", "-o", "-"], &profile("# self-cost -\n", &[""]));
    assert!(page.contains("<td>self cost: not measured: a tick of the kernel"), "the page has no such row");
}

#[test]
fn a_clock_that_is_fine_enough_gives_a_row_of_the_times() {
    // 200 ticks of the clock, on average, of 10 000 from tick to tick.
    let text = profile("", &[" self-tsc=38400 self-samples=3"]);
    let report = said("clock", &["report"], &text);
    assert!(report.contains("2.0 %          -  self cost of the profiler\n  100.0 %\n"), "{report}");
    assert!(!report.contains("self cost:"), "{report}");
    assert!(!said("clock", &["info"], &text).contains("self cost:"));
}

#[test]
fn a_slow_handler_is_told_by_its_cycles() {
    // 6000 cycles a tick, of 10 000 from tick to tick.
    let slow = " self-cycles=1152000 cycles=1280000 self-samples=3";
    let text = profile("# self-cost cycles\n", &[slow]).replace("sent=192", "sent=392 coalesced=200");
    let doctor = said("slow", &["doctor"], &text);
    assert!(doctor.contains("the handler takes 60 % of the time between two ticks"), "{doctor}");
}
