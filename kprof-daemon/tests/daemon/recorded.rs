//! The program `profiled` on a real recording: it must convert the raw words of a Redox kernel to the stored text.
//!
//! In: `data/redox/` (three CPUs, 5083 samples). Out: the samples as text and in the binary form, also if the work was
//! interrupted and continued at any place. The test runs the real program on the real file system.

use kprof_daemon::error::Error;
use kprof_daemon::source::Source;
use kprof_daemon::source::recorded::Recorded;
use kprof_daemon::system::host::Host;
use kprof_format::chunk::{Chunk, ChunkKind};
use kprof_format::record::{Kind, SampleHeader};
use kprof_format::samples::{Reader, take_varint};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redox")
}

/// The same samples as text, stored with the tests of kprof-fold.
fn text_form() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kprof-fold/tests/data/redox/profiling.txt")
}

fn profiled(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_profiled")).args(arguments).output().expect("profiled starts")
}

fn drain(output: &Path, more: &[&str]) -> Output {
    let data = data();
    let fixed = ["--source", data.to_str().expect("UTF-8"), "-o", output.to_str().expect("UTF-8")];
    profiled(&[&fixed, more].concat())
}

fn samples(text: &[u8]) -> Vec<u8> {
    text.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"#")).collect::<Vec<_>>().concat()
}

#[test]
fn the_real_dump_comes_out_as_the_text_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiling.txt");
    let ended = drain(&file, &[]);
    assert!(ended.status.success(), "{ended:?}");
    let expected = std::fs::read(text_form()).unwrap();
    assert!(samples(&std::fs::read(&file).unwrap()) == expected, "the samples differ");
    // The same recording again: it is recognised by its id, so no sample is written twice.
    assert!(drain(&file, &[]).status.success());
    assert!(samples(&std::fs::read(&file).unwrap()) == expected, "read again, it is not the same");
}

#[test]
fn a_recording_that_has_grown_is_continued() {
    let (folder, data) = (tempfile::tempdir().unwrap(), data());
    let output = folder.path().join("profiling.txt");
    let drain = || {
        let ended = profiled(&["--source", folder.path().to_str().unwrap(), "-o", output.to_str().unwrap()]);
        assert!(ended.status.success(), "{ended:?}");
        let text = std::fs::read(&output).unwrap();
        text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#")).count()
    };
    let files: Vec<PathBuf> = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
    let streams = || files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "bin"));
    let put = |file: &Path, bytes: &[u8]| std::fs::write(folder.path().join(file.file_name().unwrap()), bytes).unwrap();
    // At first there are 100 records of one CPU, then of each, then all.
    let beginning = |file: &Path| {
        let bytes = std::fs::read(file).unwrap();
        let is_first = |word: &&[u8; 8]| word[1..4] == [0xac, 0xdf, 0xfe] && word[4..] == [0; 4];
        let mut firsts =
            bytes.as_chunks::<8>().0.iter().enumerate().filter(|(_, word)| is_first(word)).map(|(at, _)| at * 8);
        let end = firsts.nth(100).unwrap();
        bytes[..end].to_vec()
    };
    let oldest = streams().min_by_key(|file| u64::from_le_bytes(beginning(file)[16..24].try_into().unwrap())).unwrap();
    put(oldest, &beginning(oldest));
    assert_eq!(drain(), 100);
    streams().for_each(|file| put(file, &beginning(file)));
    assert_eq!(drain(), 100 * streams().count());
    streams().for_each(|file| put(file, &std::fs::read(file).unwrap()));
    assert_eq!(drain(), 5083);
}

#[test]
fn a_file_torn_anywhere_is_completed_to_the_same_samples() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiling.txt");
    for form in [&["-q"][..], &["-q", "--binary"]] {
        let _ = std::fs::remove_file(&file);
        assert!(drain(&file, form).status.success());
        let whole = std::fs::read(&file).unwrap();
        let step = whole.len() / 40;
        for length in (0..whole.len()).step_by(step).chain([1, whole.len() - 1]) {
            std::fs::write(&file, &whole[..length]).unwrap();
            let ended = drain(&file, form);
            assert!(ended.status.success(), "{form:?}, torn at {length}: {ended:?}");
            let again = std::fs::read(&file).unwrap();
            assert!(again == whole, "{form:?}, torn at {length}: not the same file");
        }
    }
}

#[test]
fn the_binary_form_holds_the_same_in_two_fifths_of_the_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiling.bin");
    assert!(drain(&file, &["--binary"]).status.success());
    let bytes = std::fs::read(&file).unwrap();
    let text = std::fs::read(text_form()).unwrap();
    let share = bytes.len() as f64 / text.len() as f64;
    println!("binary {} bytes, text {} bytes: {:.1} %", bytes.len(), text.len(), 100.0 * share);
    assert!(share <= 0.4, "{share}");

    let mut expected = text.split(|byte| *byte == b'\n');
    let (mut rest, mut reader) = (&bytes[..], Reader::default());
    let mut count = 0;
    while !rest.is_empty() {
        let (chunk, after) = Chunk::split(rest).unwrap();
        rest = after;
        if chunk.kind != ChunkKind::Samples {
            continue;
        }
        let mut payload = chunk.payload;
        let head_bytes = take_varint(&mut payload).unwrap() as usize;
        let (head, mut payload) = payload.split_at(head_bytes);
        let head = std::str::from_utf8(head).unwrap();
        let cpu: u32 = head.split(' ').find_map(|word| word.strip_prefix("cpu=")).unwrap().parse().unwrap();
        reader.reset();
        while let Some(times) = reader.read(&mut payload) {
            let times = times.unwrap();
            let stack: Vec<String> = reader.stack().iter().map(|word| format!("{word:x}")).collect();
            let line = String::from_utf8(expected.next().unwrap().to_vec()).unwrap();
            let after_name = line.split_once(' ').unwrap().1;
            assert_eq!(format!("{cpu:x} {:x} {}", times.tsc, stack.join(" ")), after_name);
            count += 1;
        }
    }
    assert_eq!(count, 5083);
}

#[test]
fn what_is_no_recording_is_refused_with_its_name_and_a_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = path("out.txt");
    let refused = |source: &str, code: i32, words: &str| {
        let ended = profiled(&["--source", source, "-o", &output]);
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{said}");
        assert!(said.contains(source) && said.contains(words), "{said}");
    };
    refused(&path(""), 3, "no file profiling-N.bin");
    refused(&path("profiling-0.bin"), 3, "cannot open");
    std::fs::write(path("profiling-0.bin"), b"hello, this is no record").unwrap();
    refused(&path("profiling-0.bin"), 7, "neither a framed record");
    std::fs::write(path("other.bin"), b"").unwrap();
    refused(&path("other.bin"), 7, "which CPU");
    // A file that is not a sample file is not changed.
    std::fs::write(&output, b"my diary\n").unwrap();
    let ended = drain(Path::new(&output), &[]);
    assert_eq!(ended.status.code(), Some(7));
    assert_eq!(std::fs::read(&output).unwrap(), b"my diary\n");
}

#[test]
fn the_file_is_private_also_when_it_was_not_before() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    for before in [None, Some(0o644)] {
        let file = folder.path().join(format!("{before:?}.txt"));
        if let Some(mode) = before {
            std::fs::write(&file, b"").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        assert!(drain(&file, &[]).status.success());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn the_boot_of_framed_recordings_is_that_of_their_oldest_record() {
    let folder = tempfile::tempdir().unwrap();
    let boot = |output: &str| {
        let output = folder.path().join(output);
        let ended = profiled(&["--source", folder.path().to_str().unwrap(), "-o", output.to_str().unwrap()]);
        assert!(ended.status.success(), "{ended:?}");
        let text = std::fs::read_to_string(&output).unwrap();
        text.lines().find(|line| line.starts_with("# boot ")).expect("a boot id").to_owned()
    };
    let put = |cpu: u32, tick: u64, tsc: u64| {
        let header = SampleHeader { tick, tsc, task: 1, address: 0xffff_ffff_8020_0000, ..SampleHeader::default() };
        let bytes: Vec<u8> = header.record(Kind::Sample, &[]).flat_map(u64::to_le_bytes).collect();
        std::fs::write(folder.path().join(format!("profiling-{cpu}.bin")), bytes).unwrap();
    };
    put(1, 9, 100);
    let alone = boot("alone.txt");
    // It is younger by its TSC, which all CPUs have in common, although its tick number is lower.
    put(0, 1, 200);
    assert_eq!(boot("younger.txt"), alone);
    put(2, 99, 50);
    assert_ne!(boot("older.txt"), alone);
}

#[test]
fn a_recording_takes_no_commands() {
    let mut host = Host::default();
    let mut recorded = Recorded::open(&mut host, &data()).unwrap();
    assert!(matches!(recorded.command(&mut host, "start"), Err(Error::Refused { .. })));
}
