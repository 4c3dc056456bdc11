//! Opens the output of `export --to pprof` with `go tool pprof` (Debian: golang-go). Its functions, files, lines and
//! inlined frames must be those of the folded stacks. Without Go these tests are skipped and say so. `cargo xtask test
//! --only readers` installs Go, or counts the tests as skipped. It sets `KPROF_NEEDS_GO`, with which a missing Go is a
//! failure.

use crate::sealed::{batch, sealed};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its methods have angle brackets in their names; one of them is inlined into the other.
struct Wrapper<T>(T);

impl Wrapper<u64> {
    #[inline(always)]
    fn the_inlined_one(&self) -> u64 {
        std::hint::black_box(self.0).rotate_left(7) ^ std::hint::black_box(3)
    }
}

trait Around {
    fn the_method_around_it(&self) -> u64;
}

impl Around for Wrapper<u64> {
    #[inline(never)]
    fn the_method_around_it(&self) -> u64 {
        std::hint::black_box(self.the_inlined_one()).wrapping_mul(5)
    }
}

const NEEDS: &str = "go tool pprof runs (Debian: golang-go)";

/// Whether Go is installed.
fn has_go() -> bool {
    let found = Command::new("go").arg("version").output().is_ok_and(|done| done.status.success());
    assert!(found || std::env::var_os("KPROF_NEEDS_GO").is_none(), "{NEEDS}");
    if !found {
        eprintln!("skipped: no Go, so nothing was opened by go tool pprof (Debian: golang-go)");
    }
    found
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("pprof-{name}"));
    fs::create_dir_all(&folder).expect("the test folder is writable");
    folder
}

fn fold(words: &[&str]) -> String {
    let done = Command::new(env!("CARGO_BIN_EXE_kprof-fold")).args(words).output().expect("kprof-fold runs");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("is text")
}

fn pprof(folder: &Path, words: &[&str], file: &str) -> String {
    let mut go = Command::new("go");
    let done =
        go.args(["tool", "pprof"]).args(words).arg(file).env("HOME", folder).env("GOFLAGS", "").output().expect(NEEDS);
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("is text")
}

/// Self and total samples of each function. An inlined instance counts as the same function.
fn expected(folded: &str) -> BTreeMap<String, (u64, u64)> {
    let mut rows: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in folded.lines() {
        let (stack, samples) = line.rsplit_once(' ').expect("has a count");
        let samples: u64 = samples.parse().expect("is a number");
        let frames = stack.split(';').map(|frame| frame.strip_suffix(" (inlined)").unwrap_or(frame));
        let frames: Vec<String> = frames.map(str::to_owned).collect();
        rows.entry(frames.last().expect("has a frame").clone()).or_default().0 += samples;
        for frame in frames.into_iter().collect::<BTreeSet<_>>() {
            rows.entry(frame).or_default().1 += samples;
        }
    }
    rows
}

/// The rows of `go tool pprof -top`: flat, flat %, sum %, cum, cum %, name.
fn rows(top: &str) -> BTreeMap<String, (u64, u64)> {
    let table = top.lines().skip_while(|line| !line.trim_start().starts_with("flat ")).skip(1);
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| fields[at].parse().expect("is a number");
        let name = fields[5..].join(" ");
        (name.strip_suffix(" (inline)").unwrap_or(&name).to_owned(), (number(0), number(3)))
    };
    let mut rows: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (name, (flat, cum)) in table.map(row) {
        assert_eq!(rows.insert(name.clone(), (flat, cum)), None, "{name} is there twice");
    }
    rows
}

const TOP: [&str; 5] = ["-top", "-unit=", "-nodefraction=0", "-edgefraction=0", "-nodecount=100000"];

#[test]
fn go_tool_pprof_has_the_functions_and_numbers_of_a_real_profile() {
    if !has_go() {
        return;
    }
    let folder = folder("redox");
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redox");
    let [profile, syms] = ["profiling.txt", "syms.txt"].map(|name| data.join(name).display().to_string());
    let out = folder.join("redox.pb.gz").display().to_string();
    fold(&["export", "-q", "--to", "pprof", &profile, &syms, "2.2", "-o", &out]);
    let expected = expected(&fold(&["-q", &profile, &syms, "2.2"]));
    let found = rows(&pprof(&folder, &TOP, &out));
    assert!(expected.keys().filter(|name| name.contains('<')).count() > 20);
    assert_eq!(found, expected);
    let plain = folder.join("redox.pb").display().to_string();
    fold(&["export", "-q", "--to", "pprof", &profile, &syms, "2.2", "-o", &plain]);
    let gzipped = |file: &str| fs::read(file).expect("was written").starts_with(&[0x1f, 0x8b]);
    assert_eq!((gzipped(&out), gzipped(&plain)), (true, false));
    assert_eq!(rows(&pprof(&folder, &TOP, &plain)), expected);
}

#[test]
fn go_tool_pprof_has_inlined_frames_files_lines_and_the_build() {
    if !has_go() {
        return;
    }
    std::hint::black_box(Wrapper(5).the_method_around_it());
    let folder = folder("elf");
    let elf = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = kprof_fold::symbols::Symbols::open(&elf, &mut Default::default()).expect("is an ELF file");
    let name = "the_method_around_it";
    let number = (0..symbols.len()).find(|number| symbols.function(*number).ends_with(name)).expect("has the symbol");
    let function = symbols.function(number).into_owned();
    assert!(function.starts_with('<'), "{function}");
    let (start, size) = (symbols.start(number), symbols.table.get(number).size);
    let image = symbols.elf.as_ref().expect("is an ELF file");
    let load = 0xffff_ffff_8000_0000u64;
    let samples: String =
        (start..start + size).map(|at| format!("a 1 {at:x} {:x}\n", at - image.base + load)).collect();
    let profile = folder.join("profile").display().to_string();
    let header = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# load {load:x}\n# hz 1000\n");
    fs::write(&profile, sealed(&(header + &batch(1, &samples)))).expect("the test folder is writable");
    let out = folder.join("elf.pb.gz").display().to_string();
    fold(&["export", "-q", "--to", "pprof", &profile, &elf, "-o", &out]);
    let expected = expected(&fold(&["-q", &profile, &elf]));
    let found = rows(&pprof(&folder, &TOP, &out));
    assert_eq!(found, expected);
    assert!(found.keys().any(|name| name.ends_with("the_inlined_one")), "{found:?}");
    assert_eq!(found[&function].1, size);
    // Inlined frames are several lines of one location, and their line numbers are those of this file.
    let raw = pprof(&folder, &["-raw"], &out);
    assert!(raw.contains(&format!("{function} ")) && raw.contains("tests/all/pprof.rs:"), "{raw}");
    let line_of =
        |text: &str| include_str!("pprof.rs").lines().position(|line| line.contains(text)).expect("is here") + 1;
    let inlined_at = format!("tests/all/pprof.rs:{} ", line_of("self.the_inlined_one()).wrapping_mul"));
    assert!(raw.contains(&inlined_at), "{inlined_at} in {raw}");
    if let Some(build_id) = &image.build_id {
        assert!(raw.contains(build_id), "{raw}");
    }
}
