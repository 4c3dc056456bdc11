//! ELF and DWARF: this test program itself is the image.
#![forbid(unsafe_code)]

use kprof_fold::problems::Problems;
use kprof_fold::profile::Boot;
use kprof_fold::symbols::elf::Inlined;
use kprof_fold::symbols::{Symbols, check};
use std::collections::BTreeSet;
use std::process::Command;

#[inline(always)]
fn the_inlined_one(value: u64) -> u64 {
    std::hint::black_box(value).rotate_left(7) ^ std::hint::black_box(3)
}

#[inline(never)]
fn the_function_around_it(value: u64) -> u64 {
    the_inlined_one(value) + the_inlined_one(value + 1)
}

fn own_image() -> (Symbols, String) {
    std::hint::black_box(the_function_around_it(5));
    let file = std::env::current_exe().expect("has a path").display().to_string();
    (Symbols::open(&file, &mut Problems::default()).expect("is an ELF file"), file)
}

/// Start and size of the function in the file.
fn place(symbols: &Symbols) -> (u64, u64) {
    let mut starts = symbols.table.named("the_function_around_it");
    let start = starts.next().expect("has the symbol");
    assert_eq!(starts.next(), None);
    (start, symbols.table.get(symbols.table.find(start).expect("is found")).size)
}

#[test]
fn inlined_frames_stand_inside_their_function_with_file_and_line() {
    let (mut symbols, _) = own_image();
    let (start, size) = place(&symbols);
    let mut seen = BTreeSet::new();
    for address in start..start + size {
        let mut names = Vec::new();
        symbols.frames_at(address, |name| names.push(name.to_owned()));
        assert!(names.last().expect("has a frame").ends_with("::the_function_around_it"), "{names:?}");
        seen.insert(names.len());
        if let Some(inner) = names.iter().find(|name| name.contains("the_inlined_one")) {
            assert!(inner.ends_with("the_inlined_one (inlined)"), "{inner}");
            seen.insert(100);
        }
    }
    assert!(seen.contains(&1) && seen.contains(&100), "{seen:?}");

    let lines: BTreeSet<u32> = (start..start + size)
        .flat_map(|address| symbols.inlined(address))
        .filter_map(|Inlined { location, .. }| location.filter(|place| place.file.ends_with("tests/elf.rs")))
        .map(|place| place.line)
        .collect();
    let source = include_str!("elf.rs");
    let line_of = |text: &str| source.lines().position(|line| line.contains(text)).expect("stands there") as u32 + 1;
    assert!(lines.contains(&line_of("rotate_left(7) ^")), "{lines:?}");
    assert!(lines.contains(&line_of("the_inlined_one(value) + ")), "{lines:?}");

    symbols.without_inlined = true;
    for address in start..start + size {
        assert_eq!(symbols.inlined(address).len(), 1);
    }
}

#[test]
fn a_slide_moves_all_lookups() {
    let (mut symbols, _) = own_image();
    let (start, _) = place(&symbols);
    symbols.slide = 0xffff_ffff_8000_0000;
    let mut names = Vec::new();
    symbols.frames_at(start + symbols.slide, |name| names.push(name.to_owned()));
    assert!(names.last().expect("has a frame").ends_with("::the_function_around_it"), "{names:?}");
    assert!(symbols.lacks_frame(start + symbols.slide));
}

#[test]
fn another_build_id_is_refused() {
    let (symbols, file) = own_image();
    let elf = symbols.elf.as_ref().expect("is an ELF file");
    let id = elf.build_id.clone().expect("the linker writes a build id");
    let boot = |id: &str| Boot { header: [("build-id".to_owned(), id.to_owned())].into(), ..Boot::default() };
    assert_eq!(check::build_id(&boot(&id), elf), Ok(()));
    assert_eq!(check::build_id(&boot(&id.to_uppercase()), elf), Ok(()));
    assert_eq!(check::build_id(&boot("-"), elf), Ok(()));
    assert!(check::build_id(&boot("1234abcd"), elf).is_err());

    let (start, _) = place(&symbols);
    let profile = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("build-id.profile");
    let run = |id: &str, more: &[&str]| {
        let load = 0xffff_ffff_8000_0000 + elf.base;
        let text =
            format!("# kprof-profile 1\n# build-id {id}\n# load {load:x}\na 0 1 {:x}\n", 0xffff_ffff_8000_0000 + start);
        std::fs::write(&profile, text).expect("the test folder is writable");
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.arg(&profile).arg(&file).args(more).output().expect("kprof-fold runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, out, said) = run(&id, &["--no-inline"]);
    assert_eq!((code, out.trim_end().ends_with("::the_function_around_it 1")), (Some(0), true), "{out} {said}");
    let (code, out, said) = run("1234abcd", &[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(said.contains("build id") && said.contains("--force"), "{said}");
    let (code, out, _) = run("1234abcd", &["--force"]);
    assert_eq!((code, out.is_empty()), (Some(0), false));
}
