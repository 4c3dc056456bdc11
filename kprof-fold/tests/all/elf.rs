//! ELF and DWARF: the image is this test program itself.

use crate::sealed::{batch, names, sealed};
use kprof_fold::problems::Problems;
use kprof_fold::profile::Boot;
use kprof_fold::resolve;
use kprof_fold::symbols::elf::Inlined;
use kprof_fold::symbols::{Inlines, Symbols, check};
use std::collections::BTreeSet;
use std::process::Command;

#[inline(always)]
fn the_inlined_one(value: u64) -> u64 {
    std::hint::black_box(value).rotate_left(7) ^ std::hint::black_box(3)
}

#[inline(never)]
fn the_function_around_it(value: u64) -> u64 {
    let both = the_inlined_one(value) + the_inlined_one(value + 1);
    std::hint::black_box(both).wrapping_mul(5)
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

/// An address and its line, both in the function's own code: no inlined call has the same line.
fn own_code(symbols: &Symbols) -> (u64, u32) {
    let (start, size) = place(symbols);
    let own = (start..start + size).find_map(|address| match symbols.inlined(address).as_slice() {
        [Inlined { location: Some(place), .. }] if place.line != line_of("the_inlined_one(value) + ") => {
            Some((address, place.line))
        }
        _ => None,
    });
    own.expect("the function has code of its own")
}

#[test]
fn inlined_frames_stand_inside_their_function_with_file_and_line() {
    let (mut symbols, _) = own_image();
    let (start, size) = place(&symbols);
    let mut seen = BTreeSet::new();
    for address in start..start + size {
        let mut names = Vec::new();
        names.extend(
            resolve::place(&symbols, address).functions.iter().map(|function| function.shown(symbols.with_lines)),
        );
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
        .filter_map(|Inlined { location, .. }| location.filter(|place| place.file.ends_with("tests/all/elf.rs")))
        .map(|place| place.line)
        .collect();
    let source = include_str!("elf.rs");
    let line_of = |text: &str| source.lines().position(|line| line.contains(text)).expect("stands there") as u32 + 1;
    assert!(lines.contains(&line_of("rotate_left(7) ^")), "{lines:?}");
    assert!(lines.contains(&line_of("the_inlined_one(value) + ")), "{lines:?}");

    symbols.inlines = Inlines::None;
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
    names
        .extend(resolve::place(&symbols, start + symbols.slide).functions.iter().map(|function| function.shown(false)));
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
        let sample = batch(0, &format!("a 0 1 {:x}\n", 0xffff_ffff_8000_0000 + start));
        let text = format!("# kprof-profile 1\n# build-id {id}\n# load {load:x}\n{sample}");
        std::fs::write(&profile, sealed(&text)).expect("the test folder is writable");
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

#[test]
fn the_kernel_may_report_where_its_text_begins_although_the_file_has_constants_before_it() {
    let (symbols, file) = own_image();
    let (elf, (start, _)) = (symbols.elf.as_ref().expect("is an ELF file"), place(&symbols));
    let text = elf.segments().find(|start| elf.code(*start).is_some()).expect("has code");
    assert!(text > elf.base, "the constants come first");
    let here = |address: u64| 0xffff_ffff_8000_0000 + address;
    let anchor = format!("# anchor the_function_around_it={:x}", here(start));
    let head = format!("# load {:x}\n# text {0:x}-{:x}\n{anchor}", here(text), here(start) + 0x1000);
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let profile = folder.path().join("profile");
    let sample = batch(0, &format!("a 0 1 {:x}\n", here(start)));
    std::fs::write(&profile, sealed(&format!("# kprof-profile 1\n{head}\n{sample}"))).expect("is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["folded", "--no-inline"]).arg(profile).arg(file).output().expect("kprof-fold runs");
    let (out, said) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(out.ends_with("::the_function_around_it 1\n"), "{out}{said}");
}

#[test]
fn an_image_for_another_processor_is_refused_by_its_name() {
    let (symbols, file) = own_image();
    let own = symbols.elf.as_ref().expect("is an ELF file").arch_name().expect("tests run on a known processor");
    let profile = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("arch.profile");
    let run = |arch: &str| {
        let text = format!("# kprof-profile 1\n# arch {arch}\n{}", batch(0, "a 0 1 ffffffff80001000\n"));
        std::fs::write(&profile, sealed(&text)).expect("the test folder is writable");
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.arg(&profile).arg(&file).output().expect("kprof-fold runs");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    assert_eq!(run(own).0, Some(0));
    let (code, said) = run("mips64");
    assert_eq!(code, Some(2));
    assert!(said.contains(&format!("it is for {own}, and the profile is of mips64")), "{said}");
}

/// The line of this file with `text` in it, from 1.
fn line_of(text: &str) -> u32 {
    let source = include_str!("elf.rs");
    source.lines().position(|line| line.contains(text)).expect("stands there") as u32 + 1
}

fn annotate(header: &str) -> (Option<i32>, String, String) {
    let (symbols, file) = own_image();
    let (start, size) = place(&symbols);
    let (own, _) = own_code(&symbols);
    let slide = 0xffff_ffff_8000_0000u64;
    let inner = (start..start + size).find(|address| {
        symbols
            .inlined(*address)
            .first()
            .is_some_and(|frame| frame.location.as_ref().is_some_and(|place| place.line == line_of("rotate_left(7) ^")))
    });
    let inner = inner.expect("the inlined line has code") + slide;
    let load = symbols.elf.expect("is an ELF file").base + slide;
    let samples = batch(0, &format!("a 0 1 {inner:x}\na 0 2 {inner:x}\na 0 3 {:x}\n", own + slide));
    let text = sealed(&format!("# kprof-profile 1\n# load {load:x}\n{header}{samples}"));
    let profile =
        std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("annotate-{}.profile", header.len()));
    std::fs::write(&profile, text).expect("the test folder is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["annotate", "-q"]).arg(&profile).arg(&file).arg("*::the_function_around_it").output();
    let done = done.expect("kprof-fold runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (done.status.code(), text(done.stdout), text(done.stderr))
}

#[test]
fn annotate_shows_the_lines_of_a_function_with_their_share() {
    let (code, text, said) = annotate("");
    assert_eq!(code, Some(0), "{said}");
    assert!(!text.contains("note:"), "{text}");
    // The two samples of the inlined function are counted at the line of its call, as for any callee. The third sample
    // is in the function's own code.
    assert!(text.contains("1 samples innermost, 3 anywhere in the stack"), "{text}");
    let row = |text: &str, line: u32| {
        let rows = text.lines().map(|row| row.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        rows.into_iter().find(|row| row.get(2).is_some_and(|number| *number == line.to_string())).unwrap_or_default()
    };
    assert_eq!(row(&text, line_of("the_inlined_one(value) + "))[..2], ["0.00", "66.67"], "{text}");
    let (_, own_line) = own_code(&own_image().0);
    assert_eq!(row(&text, own_line)[..2], ["33.33", "33.33"], "{text}");
}

#[test]
fn annotate_says_when_places_are_rough() {
    for (header, note) in [
        ("# precision block\n", "places are rough (multi-threaded TCG)"),
        ("# clock instructions\n", "time is counted in instructions"),
        ("# trigger ipi\n", "time with interrupts off appears at the instruction that turns them on"),
    ] {
        let (_, text, said) = annotate(header);
        assert!(
            text.lines().next().is_some_and(|line| line.starts_with("note: ") && line.contains(note)),
            "{text}{said}"
        );
    }
}

#[test]
fn images_beside_the_kernel_have_their_own_build_and_place() {
    let (symbols, file) = own_image();
    let (own, own_line) = own_code(&symbols);
    let elf = symbols.elf.as_ref().expect("is an ELF file");
    let id = elf.build_id.clone().expect("the linker writes a build id");
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (profile, syms) = (folder.join("image.profile"), folder.join("image.syms"));
    std::fs::write(&syms, "ffffffff80001000 T kmain\n").expect("the test folder is writable");
    let run = |id: &str, more: &[&str]| {
        let load = 0x7000_0000_0000 + elf.base;
        let at = 0x7000_0000_0000 + own;
        let image = format!("# image tsc=1 load={load:x} text={load:x}-700100000000 build-id={id} name=init%201\n");
        let samples = batch(0, &format!("a 0 1 {at:x}\na 0 2 ffffffff80001000\n"));
        let text = sealed(&format!("# kprof-profile 1\n{}{samples}", names(&image)));
        std::fs::write(&profile, text).expect("the test folder is writable");
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let image = format!("init 1={file}");
        let done = fold.arg(&profile).arg(&syms).args(["--user", "-q", "--image", &image]).args(more).output();
        let done = done.expect("kprof-fold runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (code, out, said) = run(&id, &["--no-inline"]);
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(matches!(lines[..], [one, "kmain 1"] if one.ends_with("::the_function_around_it 1")), "{out}");
    let (_, out, _) = run(&id, &["--lines", "--no-inline"]);
    assert!(out.contains(&format!("tests/all/elf.rs:{own_line} 1")), "{out}");
    let (code, out, said) = run("1234abcd", &[]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(said.contains("the image init 1") && said.contains("build id"), "{said}");
    assert_eq!(run("1234abcd", &["--force"]).0, Some(0));
}

/// Found by fuzzing: the DWARF reader adds one to the address that it looks up.
#[test]
fn a_symbol_at_the_last_address_has_frames() {
    let found = include_bytes!("../../fuzz/corpus/elf/symbol-at-the-last-address");
    let image = [kprof_fold::symbols::elf::MAGIC, found].concat();
    let symbols = Symbols::read("found", image, std::io::empty(), &mut Problems::default()).expect("is an ELF file");
    let last = symbols.table.len() - 1;
    assert_eq!(symbols.start(last), u64::MAX);
    assert_eq!(symbols.inlined(u64::MAX).len(), 1);
}

/// Found by fuzzing: segments near the last address, and segments that reach beyond it.
#[test]
fn code_at_the_last_places_is_asked_for_without_overflow() {
    for found in [
        &include_bytes!("../../fuzz/corpus/elf/code-at-the-last-place")[..],
        include_bytes!("../../fuzz/corpus/elf/code-beyond-the-last-place"),
    ] {
        let image = [kprof_fold::symbols::elf::MAGIC, found].concat();
        let symbols =
            Symbols::read("found", image, std::io::empty(), &mut Problems::default()).expect("is an ELF file");
        for number in 0..symbols.len() {
            let _ = symbols.lacks_frame(symbols.start(number));
        }
    }
}

/// The numbers of two sections of the image, as `readelf -SW` shows them.
const DEBUG_INFO: usize = 6;
const DEBUG_STR: usize = 9;

/// An image in which a section claims to be `bytes` long once `stream` is decompressed, by zstd.
fn image_that_claims(section: usize, bytes: u64, stream: &[u8]) -> Vec<u8> {
    let stored = include_bytes!("../../fuzz/corpus/elf/inlined");
    let mut image = [kprof_fold::symbols::elf::MAGIC, stored].concat();
    let word = |image: &[u8], at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes")) as usize;
    // Of the section header: flags at 8, the place in the file at 24.
    let header = word(&image, 40) + section * 64;
    let place = word(&image, header + 24);
    image[header + 9] |= 8;
    image[place..place + 24].fill(0);
    image[place] = 2;
    image[place + 8..place + 16].copy_from_slice(&bytes.to_le_bytes());
    image[place + 16] = 1;
    image[place + 24..place + 24 + stream.len()].copy_from_slice(stream);
    image
}

#[test]
fn a_section_that_zstd_has_made_much_smaller_than_deflate_could_is_read() {
    // 15 blocks of 128 KiB of zeros, four bytes each, and an empty one: 69 bytes in all, as many as the section has.
    let zeros = ((1u32 << 17) << 3 | 1 << 1).to_le_bytes();
    let mut stream = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
    (0..15).for_each(|_| stream.extend([zeros[0], zeros[1], zeros[2], 0]));
    stream.extend([1, 0, 0]);
    let image = image_that_claims(DEBUG_STR, 15 << 17, &stream);
    let mut problems = Problems::default();
    Symbols::read("small", image, std::io::empty(), &mut problems).expect("has symbols");
    assert!(problems.kept().is_empty(), "{problems:?}");
}

#[test]
fn an_image_whose_functions_are_described_in_other_files_says_so() {
    let said = |stored: &[u8]| {
        let (image, mut problems) = ([kprof_fold::symbols::elf::MAGIC, stored].concat(), Problems::default());
        Symbols::read("image", image, std::io::empty(), &mut problems).expect("has symbols");
        format!("{problems:?}")
    };
    let why = "lines and inlined frames may be missing: its DWARF is split, and .dwo files are not read";
    assert!(said(include_bytes!("../../fuzz/corpus/elf/split-dwarf-4")).contains(why));
    assert!(said(include_bytes!("../../fuzz/corpus/elf/split-dwarf-5")).contains(why));
    assert!(!said(include_bytes!("../../fuzz/corpus/elf/inlined")).contains("split"));
}

#[test]
fn compressed_sections_say_the_same() {
    let frames = |stored: &[u8]| {
        let (image, mut problems) = ([kprof_fold::symbols::elf::MAGIC, stored].concat(), Problems::default());
        let symbols = Symbols::read("image", image, std::io::empty(), &mut problems).expect("has symbols");
        assert!(problems.kept().is_empty(), "{problems:?}");
        let (start, end) = (symbols.start(0), symbols.start(symbols.len() - 1) + 64);
        (start..end).map(|address| symbols.inlined(address)).collect::<Vec<_>>()
    };
    let plain = frames(include_bytes!("../../fuzz/corpus/elf/inlined"));
    assert!(plain.iter().any(|frames| frames.len() > 1), "something is inlined");
    assert_eq!(frames(include_bytes!("../../fuzz/corpus/elf/compressed-by-zlib")), plain);
    assert_eq!(frames(include_bytes!("../../fuzz/corpus/elf/compressed-by-zstd")), plain);
}

#[test]
fn a_section_that_claims_gigabytes_is_named_and_takes_no_memory() {
    let mut problems = Problems::default();
    let image = image_that_claims(DEBUG_INFO, 3 << 30, &[]);
    let symbols = Symbols::read("claims", image, std::io::empty(), &mut problems).expect("has symbols");
    assert!(!symbols.is_empty());
    let said = format!("{problems:?}");
    assert!(said.contains(".debug_info cannot be read: it claims 3221225472 bytes, compressed to 224"), "{said}");
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak is there");
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(peak_kib < 1 << 20, "{peak_kib} KiB");
}
