//! Compressed profiles and symbols give the same result as the files themselves.

use flate2::{Compression, write::GzEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

fn zstd(content: &[u8]) -> Vec<u8> {
    compress_to_vec(content, CompressionLevel::Fastest)
}

#[test]
fn profiles_and_symbols_may_be_compressed_whatever_their_names_are() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redox");
    let read = |name: &str| std::fs::read(data.join(name)).expect("is there");
    let (profile, syms) = (read("profiling.txt"), read("syms.txt"));
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let put = |name: &str, content: &[u8]| {
        let path = folder.path().join(name).display().to_string();
        std::fs::write(&path, content).expect("the test folder is writable");
        path
    };
    let fold = |file: &str, syms: &str, input: &[u8]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let mut child = fold
            .args(["-q", file, syms])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kprof-fold runs");
        child.stdin.take().expect("is piped").write_all(input).expect("is read to the end");
        let done = child.wait_with_output().expect("kprof-fold ends");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    };
    let plain = put("syms", &syms);
    let expected = fold(&put("profile", &profile), &plain, b"");
    assert!(expected.len() > 1000);
    for (name, compress) in [("gz", gzip as fn(&[u8]) -> Vec<u8>), ("zst", zstd)] {
        let (small, small_syms) = (compress(&profile), compress(&syms));
        assert!(small.len() < profile.len() / 2);
        let syms = put(&format!("syms.{name}"), &small_syms);
        assert!(fold(&put(name, &small), &syms, b"") == expected, "{name}");
        assert!(fold("-", &syms, &small) == expected, "{name} from a pipe");
    }
}

#[test]
fn a_byte_order_mark_is_skipped_and_other_containers_are_named() {
    let folder = tempfile::tempdir().expect("is writable");
    let (profile, syms) = (folder.path().join("profile"), folder.path().join("syms"));
    let run = |profile_bytes: &[u8], syms_bytes: &[u8]| {
        std::fs::write(&profile, profile_bytes).expect("is writable");
        std::fs::write(&syms, syms_bytes).expect("is writable");
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.arg("-q").args([&profile, &syms]).output().expect("kprof-fold runs");
        (String::from_utf8_lossy(&done.stdout).into_owned(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (samples, symbols) = (&b"a 0 1 ffffffff80001010\n"[..], &b"ffffffff80001000 T kmain\n"[..]);
    let mark = &b"\xef\xbb\xbf"[..];
    assert_eq!(run(&[mark, samples].concat(), &[mark, symbols].concat()), ("kmain 1\n".to_owned(), String::new()));
    for (first, what) in [
        (&b"\xfd7zXZ\0"[..], "is compressed by xz"),
        (b"BZh91AY", "is compressed by bzip2"),
        (b"PK\x03\x04\0", "is a zip archive"),
        (b"\xff\xfef\0", "is text in UTF-16"),
    ] {
        for (profile, syms) in [(first, symbols), (samples, first)] {
            let (out, said) = run(profile, syms);
            assert!(out.is_empty() && said.lines().count() == 1 && said.contains(what), "{out}{said}");
        }
    }
}
