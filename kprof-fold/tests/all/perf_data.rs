//! `export --to perf.data`: every sample, mapping, thread and loss is in the file as Linux's `perf` writes them, and
//! `perf` itself, where it is installed, shows the same functions with the same weights.

use crate::sealed::{batch, sealed};
use kprof_fold::symbols::name::frame_name;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Where the kernel of these tests was loaded. Its code is that of this program.
const LOAD: u64 = 0xffff_ffff_8000_0000;

/// A number of 8 bytes.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

/// Type, code's owner and content of each record between the header and the optional parts.
fn records(file: &[u8]) -> Vec<(u32, u16, &[u8])> {
    assert_eq!((&file[..8], word(file, 8)), (&b"PERFILE2"[..], 104));
    let (mut at, bytes) = (word(file, 40) as usize, word(file, 48) as usize);
    let end = at + bytes;
    let mut records = Vec::new();
    while at < end {
        let head = word(file, at);
        let size = (head >> 48) as usize;
        assert!(size >= 8 && size.is_multiple_of(8) && at + size <= end, "a record of {size} bytes at {at}");
        records.push((head as u32, (head >> 32) as u16, &file[at + 8..at + size]));
        at += size;
    }
    records
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("is text").split('\0').next().expect("has a first piece")
}

fn kprof_fold(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kprof-fold")).args(words).output().expect("kprof-fold runs")
}

/// Exports a profile of this program as a kernel.
fn exported(folder: &Path, profile: &str) -> Vec<u8> {
    let (file, out) = (folder.join("profile"), folder.join("perf.data"));
    fs::write(&file, sealed(profile)).expect("can be written");
    let elf = std::env::current_exe().expect("has a path");
    let paths = [&file, &elf, &out].map(|path| path.display().to_string());
    let done = kprof_fold(&["export", "-q", "--to", "perf.data", &paths[0], &paths[1], "-o", &paths[2]]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    fs::read(out).expect("was written")
}

#[test]
fn perf_data_has_samples_with_stacks_mappings_threads_losses_and_ticks_without_a_sample() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let elf = std::env::current_exe().expect("has a path").canonicalize().expect("exists").display().to_string();
    let symbols = kprof_fold::symbols::Symbols::open(&elf, &mut Default::default()).expect("is an ELF file");
    let image = symbols.elf.as_ref().expect("is an ELF file");
    let (code, _, offset) = image.code[0];
    let start = code - image.base + LOAD;
    let [leaf, caller] = [start + 0x20, start + 0x41];
    // Between them an interrupt, which is a frame without an address.
    let samples = format!("init 1 3e8 {leaf:x} {caller:x}\nsh 1 7d0 {leaf:x} fffffffffffff121 {caller:x}\n");
    let counted = "# batch cpu=1 from=0 to=12 sent=12 taken=12 user=4 idle=3 lost-full=3 recorded=2 delivered=2";
    let batch = batch(1, &samples).replacen("# batch cpu=1 from=0 to=12", counted, 1);
    let header = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# arch x86_64\n# load {LOAD:x}\n# hz 1000\n");
    let file = exported(folder.path(), &(header + &batch));

    let all = records(&file);
    let of = |kind: u32| all.iter().filter(move |record| record.0 == kind).collect::<Vec<_>>();
    let names: Vec<(u64, &str)> = of(3).iter().map(|comm| (word(comm.2, 0), text(&comm.2[8..]))).collect();
    let thread = |name: &str| names.iter().find(|(_, of)| *of == name).expect("has this thread").0;
    assert_eq!(thread("kernel"), 1 | 1 << 32);
    let [(_, owner, map)] = of(10)[..] else { panic!("one piece of code") };
    assert_eq!((*owner, [8, 24].map(|at| word(map, at))), (2, [start, offset]));
    assert_eq!(text(&map[64..]), elf);
    let [(.., lost)] = of(2)[..] else { panic!("one loss") };
    assert_eq!(word(lost, 8), 3);

    // Address, thread, time, CPU, the time it stands for, and the stack after the word that says whose it is.
    let found: Vec<_> = of(9)
        .iter()
        .map(|(_, owner, sample)| {
            assert_eq!(*owner, 2);
            let words: Vec<u64> = (0..sample.len()).step_by(8).map(|at| word(sample, at)).collect();
            let [address, thread, nanos, cpu, period, frames, stack @ ..] = &words[..] else { panic!("{words:x?}") };
            assert_eq!((stack.len() as u64, *cpu), (*frames, 1));
            assert!(stack.first().is_none_or(|first| *first == -512_i64 as u64), "{stack:x?}");
            (*address, *thread, *nanos, *period, stack.iter().skip(1).copied().collect::<Vec<_>>())
        })
        .collect();
    let sampled = |name: &str, nanos, caller| (leaf, thread(name), nanos, 1_000_000, vec![leaf, caller]);
    assert!(found.contains(&sampled("init", 0, caller - 1)), "{found:x?}");
    assert!(found.contains(&sampled("sh", 1000, caller)), "an interrupted instruction: {found:x?}");
    let counted = |name: &str| {
        let ticks = found.iter().filter(|sample| sample.1 == thread(name));
        ticks.map(|sample| (sample.0, sample.3, sample.4.len())).collect::<Vec<_>>()
    };
    assert_eq!([counted("[user]"), counted("[idle]")], [[(0, 4_000_000, 0)], [(0, 3_000_000, 0)]]);
    assert_eq!(found.len(), 4);
}

#[test]
fn perf_data_is_refused_without_an_elf_file_and_for_a_point() {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let [profile, syms] = ["profile", "syms"].map(|name| folder.path().join(name).display().to_string());
    fs::write(&profile, sealed(&format!("# kprof-profile 1\n# hz 1000\n{}", batch(0, &format!("a 0 1 {LOAD:x}\n")))))
        .expect("can be written");
    fs::write(&syms, format!("{LOAD:x} T kmain\n")).expect("can be written");
    let refused = |more: &[&str]| {
        let done = kprof_fold(&[&["export", "--to", "perf.data", &profile, &syms, "1"], more].concat());
        assert!(!done.status.success() && done.stdout.is_empty());
        String::from_utf8(done.stderr).expect("is text")
    };
    let said = refused(&[]);
    assert!(said.contains(&syms) && said.contains("Give the file that the linker made"), "{said}");
    let said = refused(&["--event", "irq"]);
    assert!(said.contains("--to perf.data has samples only"), "{said}");
}

/// Whether there is `perf`. Where `KPROF_NEEDS_PERF` is set, as in `cargo xtask test --only readers`, it must be there.
fn has_perf() -> bool {
    let found = Command::new("perf").arg("--version").output().is_ok_and(|done| done.status.success());
    assert!(found || std::env::var_os("KPROF_NEEDS_PERF").is_none(), "KPROF_NEEDS_PERF is set, but perf does not run");
    if !found {
        eprintln!("skipped: no perf, so nothing was opened by it (Debian: linux-perf)");
    }
    found
}

/// What perf shows of the file in the folder.
fn perf(folder: &Path, words: &[&str]) -> String {
    let mut perf = Command::new("perf");
    perf.args(words).arg("-i").arg(folder.join("perf.data")).env("HOME", folder).env("PERF_CONFIG", "/dev/null");
    let done = perf.output().expect("perf runs");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("is text")
}

#[test]
fn perf_shows_the_same_functions_with_the_same_weights_and_callers() {
    if !has_perf() {
        return;
    }
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let elf = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = kprof_fold::symbols::Symbols::open(&elf, &mut Default::default()).expect("is an ELF file");
    let base = symbols.elf.as_ref().expect("is an ELF file").base;
    let is_plain = |number: &usize| {
        let symbol = symbols.table.get(*number);
        symbol.size > 64 && symbols.table.other_names(*number).next().is_none()
    };
    let functions: Vec<usize> = (0..symbols.table.len()).filter(is_plain).step_by(97).take(20).collect();
    assert_eq!(functions.len(), 20);
    let address = |number: usize| symbols.table.get(number).start - base + LOAD + 0x11;
    // The function with number n has n + 1 samples, and is called by the one before it.
    let mut samples = String::new();
    for (at, pair) in functions.windows(2).enumerate() {
        let line = |tsc| format!("task{} 0 {tsc:x} {:x} {:x}\n", at % 3, address(pair[1]), address(pair[0]) + 1);
        samples.extend((0..=at).map(|round| line(1_000_000 * (20 * at + round))));
    }
    let header = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# arch x86_64\n# load {LOAD:x}\n# hz 1000\n");
    exported(folder.path(), &(header + &batch(0, &samples)));

    let raw = |number: usize| frame_name(symbols.table.name(number)).into_owned();
    let mut expected = BTreeMap::<String, u64>::new();
    functions.windows(2).zip(1..).for_each(|(pair, count)| *expected.entry(raw(pair[1])).or_default() += count);
    let report = ["report", "--stdio", "--no-demangle", "--no-children", "-g", "none", "-F", "period,sym", "-t", "|"];
    let mut found = BTreeMap::<String, u64>::new();
    for line in perf(folder.path(), &report).lines().filter(|line| !line.starts_with('#') && line.contains('|')) {
        let (period, name) = line.split_once('|').expect("two columns");
        let name = name.trim().strip_prefix("[.] ").expect("a program's function");
        let count = period.trim().parse::<u64>().expect("is a number") / 1_000_000;
        *found.entry(frame_name(name.as_bytes()).into_owned()).or_default() += count;
    }
    assert_eq!(found, expected);
    let script = perf(folder.path(), &["script", "--no-demangle", "--no-inline", "-F", "comm,tid,time,ip,sym"]);
    let named = |line: &str| line.trim().split_once(' ').map(|(_, name)| frame_name(name.as_bytes()).into_owned());
    let stacks: Vec<Vec<String>> =
        script.split("\n\n").map(|one| one.lines().skip(1).filter_map(named).collect()).collect();
    let last = stacks.iter().rfind(|stack| !stack.is_empty()).expect("has stacks");
    assert_eq!(*last, [raw(functions[19]), raw(functions[18])], "{script}");
}
