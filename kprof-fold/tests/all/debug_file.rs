//! Stripped images with a separate debug file. The image is this test program itself; `objcopy` of the binutils, which
//! the linker comes from, takes it apart.

use kprof_fold::problems::Problems;
use kprof_fold::symbols::Symbols;
use std::path::Path;
use std::process::Command;

#[inline(never)]
fn the_function_with_a_line(value: u64) -> u64 {
    std::hint::black_box(value).rotate_left(3)
}

fn objcopy(words: &[&str], folder: &Path) {
    let done = Command::new("objcopy").args(words).current_dir(folder).status().expect("binutils are installed");
    assert!(done.success(), "{words:?}");
}

/// Whether the symbols have the function, and whether they have its file.
fn found(symbols: Result<Symbols, kprof_fold::error::Error>) -> Result<(bool, bool), String> {
    let symbols = symbols.map_err(|error| error.to_string())?;
    let start = symbols.table.named("the_function_with_a_line").next();
    let lines = start.map(|start| symbols.inlined(start));
    let is_here = |place: &kprof_fold::symbols::elf::Location| place.file.ends_with("debug_file.rs");
    let has_line = lines.is_some_and(|lines| lines.iter().any(|frame| frame.location.as_ref().is_some_and(is_here)));
    Ok((start.is_some(), has_line))
}

#[test]
fn a_stripped_image_finds_its_debug_file_and_no_other() {
    std::hint::black_box(the_function_with_a_line(5));
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let own = std::env::current_exe().expect("has a path").display().to_string();
    objcopy(&["--only-keep-debug", &own, "kernel.debug"], folder.path());
    objcopy(&["--strip-all", "--add-gnu-debuglink=kernel.debug", &own, "kernel"], folder.path());
    objcopy(&["--strip-debug", "--add-gnu-debuglink=kernel.debug", &own, "with-symbols"], folder.path());
    let mut problems = Problems::default();
    let kernel = path("kernel");
    assert_eq!(found(Symbols::open(&kernel, &mut problems)), Ok((true, true)));
    assert_eq!(found(Symbols::open(&path("with-symbols"), &mut problems)), Ok((true, true)));
    assert_eq!(problems.to_string(), "");

    // In another place it has to be given.
    std::fs::create_dir(folder.path().join("away")).expect("is writable");
    std::fs::rename(path("kernel.debug"), path("away/kernel.debug")).expect("is writable");
    let error = found(Symbols::open(&kernel, &mut problems)).expect_err("is stripped");
    assert!(error.contains("its symbols are in kernel.debug") && error.contains("--debug-file"), "{error}");
    let away = path("away/kernel.debug");
    assert_eq!(found(Symbols::open_with(&kernel, Some(&away), &mut problems)), Ok((true, true)));
    assert_eq!(problems.to_string(), "");
    assert_eq!(found(Symbols::open(&path("with-symbols"), &mut problems)), Ok((true, false)));
    assert!(problems.to_string().contains("kernel.debug is not found"), "{problems}");

    // The folder `.debug/` is searched too, and a file with another checksum is not used.
    std::fs::create_dir(folder.path().join(".debug")).expect("is writable");
    std::fs::copy(&away, path(".debug/kernel.debug")).expect("is writable");
    assert_eq!(found(Symbols::open(&kernel, &mut problems)), Ok((true, true)));
    let mut bytes = std::fs::read(&away).expect("is there");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(path(".debug/kernel.debug"), &bytes).expect("is writable");
    assert!(found(Symbols::open(&kernel, &mut problems)).is_err());

    let bytes = std::fs::read(&away).expect("is there");
    std::fs::write(path("kernel.debug"), &bytes[..bytes.len() - 1]).expect("is writable");
    let error = found(Symbols::open(&kernel, &mut problems)).expect_err("is stripped");
    assert!(error.contains("kernel.debug is of another build; give the right one"), "{error}");

    // The debug file of another build is refused.
    let other = env!("CARGO_BIN_EXE_kprof-fold");
    let error = found(Symbols::open_with(&kernel, Some(other), &mut problems)).expect_err("is another program");
    assert!(error.contains("is not the debug file") && error.contains("build id"), "{error}");
}

#[test]
fn a_given_debug_file_proves_without_build_ids_that_it_belongs() {
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let own = std::env::current_exe().expect("has a path").display().to_string();
    let other = env!("CARGO_BIN_EXE_kprof-fold");
    let no_id = "--remove-section=.note.gnu.build-id";
    objcopy(&["--only-keep-debug", no_id, &own, "own.debug"], folder.path());
    objcopy(&["--only-keep-debug", no_id, other, "other.debug"], folder.path());
    objcopy(&["--strip-all", no_id, &own, "bare"], folder.path());
    objcopy(&["--strip-all", no_id, "--add-gnu-debuglink=own.debug", &own, "linked"], folder.path());
    let mut problems = Problems::default();
    for (kernel, why) in [("bare", "its .text is "), ("linked", "its checksum is ")] {
        let mut open = |debug: &str| found(Symbols::open_with(&path(kernel), Some(&path(debug)), &mut problems));
        assert_eq!(open("own.debug"), Ok((true, true)), "{kernel}");
        let error = open("other.debug").expect_err("is of another program");
        assert!(error.contains("is not the debug file of") && error.contains(why), "{error}");
    }
}

#[test]
fn a_relocatable_file_is_refused_as_an_image_and_as_a_list_of_symbols() {
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let object = folder.path().join("module.o");
    let mut bytes = std::fs::read(std::env::current_exe().expect("has a path")).expect("is there");
    // The type of the file: ET_REL.
    bytes[16..18].copy_from_slice(&1u16.to_le_bytes());
    std::fs::write(&object, bytes).expect("is writable");
    let list = folder.path().join("module.syms");
    let zero = "0000000000000000";
    std::fs::write(&list, format!("{zero} 000000000000000c T leave\n{zero} 0000000000000019 T probe\n"))
        .expect("is writable");
    for (file, why) in [(object, "is a relocatable file"), (list, "leave and probe both begin at 0")] {
        let error =
            found(Symbols::open(&file.display().to_string(), &mut Problems::default())).expect_err("has no place");
        assert!(error.contains(why) && error.contains("/proc/kallsyms"), "{error}");
    }
}
