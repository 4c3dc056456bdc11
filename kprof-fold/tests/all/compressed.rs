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
