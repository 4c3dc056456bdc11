//! Tables of functions: what inlined code is charged to. The image is this test program itself.

use crate::sealed::{batch, sealed};
use kprof_fold::problems::Problems;
use kprof_fold::symbols::Symbols;
use std::collections::BTreeMap;
use std::process::Command;

const SLIDE: u64 = 0xffff_ffff_8000_0000;

#[inline(always)]
fn the_inlined_function(value: u64) -> u64 {
    std::hint::black_box(value).wrapping_mul(3)
}

#[inline(never)]
fn the_function(value: u64) -> u64 {
    std::hint::black_box(the_inlined_function(value)).rotate_left(9)
}

/// Self samples by function, as `report` prints them for one sample in `core` that was inlined into each of the two
/// functions.
fn self_samples(more: &[&str]) -> BTreeMap<String, u64> {
    std::hint::black_box(the_function(5));
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = Symbols::open(&file, &mut Problems::default()).expect("is an ELF file");
    let start = symbols.table.named("the_function").next().expect("has the symbol");
    let size = symbols.table.get(symbols.table.find(start).expect("is found")).size;
    let with_names = |names: &[&str]| {
        let fits = |address: &u64| {
            let frames = symbols.inlined(*address);
            let found: Vec<&str> = frames.iter().filter_map(|frame| frame.name.as_deref()).collect();
            found.len() == names.len() && found.iter().zip(names).all(|(found, name)| found.contains(name))
        };
        (start..start + size).find(fits).unwrap_or_else(|| panic!("no code with {names:?}")) + SLIDE
    };
    let samples = [with_names(&["wrapping_mul", "the_inlined_function"]), with_names(&["rotate_left"])];
    let samples: String = samples.iter().map(|address| format!("a 0 1 {address:x}\n")).collect();
    let load = symbols.elf.expect("is an ELF file").base + SLIDE;
    let text = sealed(&format!("# kprof-profile 1\n# load {load:x}\n{}", batch(0, &samples)));
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let profile = folder.path().join("profile");
    std::fs::write(&profile, text).expect("the test folder is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["report", "-q", "--sort", "self"]).args(more).arg(&profile).arg(&file).output();
    let done = done.expect("kprof-fold runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let table = text.lines().skip_while(|line| !line.contains("self %")).skip(1).take_while(|line| !line.is_empty());
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words[4..].join(" ");
        (name.rsplit("::").next().unwrap_or_default().to_owned(), words[2].parse().expect("is a number"))
    };
    table.map(row).filter(|(_, own)| *own > 0).collect()
}

fn rows(rows: &[(&str, u64)]) -> BTreeMap<String, u64> {
    rows.iter().map(|(name, own)| ((*name).to_owned(), *own)).collect()
}

#[test]
fn inlined_library_code_is_charged_to_the_function_that_has_it() {
    assert_eq!(self_samples(&[]), rows(&[("the_function", 1), ("the_inlined_function (inlined)", 1)]));
    assert_eq!(self_samples(&["--no-inline"]), rows(&[("the_function", 2)]));
    let lines = self_samples(&["--by", "line"]);
    assert!(lines.len() == 2 && lines.keys().all(|name| name.contains("tests/all/tables.rs:")), "{lines:?}");
    let all = self_samples(&["--inline"]);
    assert!(all.len() == 2 && !all.keys().any(|name| name.contains("the_")), "{all:?}");
}
