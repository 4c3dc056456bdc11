//! The same samples give the same folded stacks in every form of input, and exports have the same samples as the folded
//! stacks.

use crate::sealed::sealed;
use kprof_fold::output::export::pprof::proto::Profile;
use kprof_format::chunk::{Chunk, ChunkKind};
use kprof_format::samples::{MAX_SAMPLE_BYTES, Times, Writer, varint};
use kprof_format::serial;
use prost::Message;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output};

const K: u64 = 0xffff_ffff_8000_0000;
const SYMS: &str = "ffffffff80001000 0000000000000100 T kmain\nffffffff80002000 0000000000000100 t mm::map\n";
const HEADER: &str = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 7\n# hz 1000\n";
const META: &str =
    "# batch cpu=meta from=0 to=10\n# task id=5 name=a%20b\n# mark tsc=64 name=go\n# end cpu=meta to=10\n";

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn fold(name: &str, profile: &[u8], before: &[&str], after: &[&str]) -> Output {
    let (profile_file, syms_file) = (path(&format!("{name}.profile")), path(&format!("{name}.syms")));
    std::fs::write(&profile_file, profile).expect("the test folder is writable");
    std::fs::write(&syms_file, SYMS).expect("the test folder is writable");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    command.args(before).arg(profile_file).arg(syms_file).args(after).output().expect("kprof-fold runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// (TSC, stack) of each sample of two batches of CPU 1.
fn batches() -> [Vec<(u64, Vec<u64>)>; 2] {
    let marker = 0xffff_ffff_ffff_f121;
    let first = (0..50).map(|n| (100 + n, vec![K + 0x2010 + n % 3, K + 0x1020]));
    let second = (0..20).map(|n| (900 + n, vec![K + 0x2010, marker, K + 0x1000]));
    [first.collect(), second.collect()]
}

fn text() -> String {
    let mut text = [HEADER, META].concat();
    for (number, batch) in batches().iter().enumerate() {
        let (from, to) = (number * 1000, number * 1000 + 1000);
        text += &format!("# batch cpu=1 from={from} to={to} lost-full={number}\n");
        for (tsc, stack) in batch {
            let stack: Vec<String> = stack.iter().map(|word| format!("{word:x}")).collect();
            text += &format!("a%20b 1 {tsc:x} {}\n", stack.join(" "));
        }
        text += &format!("# end cpu=1 to={to} samples={}\n", batch.len());
    }
    sealed(&text)
}

fn chunk(kind: ChunkKind, samples: u32, payload: &[u8]) -> Vec<u8> {
    let chunk = Chunk { kind, samples, payload };
    [&chunk.header()[..], payload].concat()
}

/// The chunk of a batch; `boot` is the field that names its boot, or nothing.
fn chunk_of(number: usize, batch: &[(u64, Vec<u64>)], boot: &str) -> Vec<u8> {
    let line = format!("# batch cpu=1 from={} to={} lost-full={number}{boot}\n", number * 1000, number * 1000 + 1000);
    let mut payload = Vec::new();
    let (block, length) = varint(line.len() as u64);
    payload.extend_from_slice(&block[..length]);
    payload.extend_from_slice(line.as_bytes());
    let (mut writer, mut room) = (Writer::default(), [0; MAX_SAMPLE_BYTES]);
    for (tick, (tsc, stack)) in batch.iter().enumerate() {
        let times = Times { tick: tick as u64, tsc: *tsc, task: 5 };
        let callers: Vec<[u8; 8]> = stack[1..].iter().map(|word| word.to_le_bytes()).collect();
        let length = writer.write(times, stack[0], &callers, &mut room);
        payload.extend_from_slice(&room[..length]);
    }
    chunk(ChunkKind::Samples, batch.len() as u32, &payload)
}

fn binary() -> Vec<Vec<u8>> {
    let head = chunk(ChunkKind::Lines, 0, [HEADER, META].concat().as_bytes());
    let samples = batches().iter().enumerate().map(|(number, batch)| chunk_of(number, batch, "")).collect::<Vec<_>>();
    [vec![head], samples].concat()
}

#[test]
fn a_chunk_of_another_boot_is_left_out_and_reported() {
    let [first, second] = batches();
    let boot = HEADER.lines().find_map(|line| line.strip_prefix("# boot ")).expect("the header names its boot");
    for (name, is_used) in [(boot, true), ("other", false), ("", false)] {
        let last = chunk_of(1, &second, &format!(" boot={name}"));
        let all = [binary()[0].clone(), chunk_of(0, &first, ""), last].concat();
        let done = fold("other-boot", &all, &["--by", "task"], &[]);
        assert_eq!(out(&done).contains("[interrupt 33]"), is_used, "{name}: {}", out(&done));
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(said.contains("without the header of this boot"), !is_used, "{name}: {said}");
    }
}

fn serial_lines() -> Vec<String> {
    let text = text();
    let line = |(number, line): (usize, &str)| {
        let mut out = String::new();
        serial::write(&mut out, number as u64, line).expect("a string takes everything");
        format!("[{number}] other words {out}")
    };
    text.lines().enumerate().map(line).collect()
}

const FOLDED: &str = "a b;kmain;[interrupt 33];mm::map 20\na b;kmain;mm::map 50\n[lost] 1\n";

#[test]
fn text_binary_and_serial_fold_to_the_same() {
    let by = &["--strict", "--by", "task"];
    let noise = "\nkernel: something else\n";
    for (name, profile) in [
        ("same-text", text().into_bytes()),
        ("same-binary", binary().concat()),
        ("same-serial", serial_lines().join(noise).into_bytes()),
    ] {
        // Without an account `--strict` would give exit code 5, so it is not used: this test is about skipped pieces.
        let done = fold(name, &profile, by, &[]);
        assert_eq!(out(&done), FOLDED, "{name}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.status.code(), Some(5), "{name}");
    }
}

#[test]
fn a_damaged_chunk_costs_itself() {
    let chunks = binary();
    for damaged in 1..3 {
        for byte in [0, 9, 13, 20, 30, chunks[damaged].len() - 1] {
            let mut all = chunks.clone();
            all[damaged][byte] ^= 0x55;
            let done = fold("damaged-chunk", &all.concat(), &[], &[]);
            let samples = batches()[2 - damaged].len();
            let counted: usize = out(&done)
                .lines()
                .filter(|line| !line.starts_with("[lost]"))
                .map(|line| line.rsplit(' ').next().expect("has a count").parse::<usize>().expect("is a number"))
                .sum();
            assert_eq!(counted, samples, "chunk {damaged}, byte {byte}: {}", out(&done));
            let place: usize = chunks[..damaged].iter().map(Vec::len).sum();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(said.contains(&format!(":byte:{place}: ")), "chunk {damaged}, byte {byte}: {said}");
        }
    }
    let whole = chunks.concat();
    let torn = fold("torn-chunk", &whole[..whole.len() - 1], &[], &[]);
    assert_eq!(out(&torn), "kmain;mm::map 50\n");
    assert!(String::from_utf8_lossy(&torn.stderr).contains("ends inside a chunk"));
}

#[test]
fn a_damaged_serial_line_costs_itself_and_is_counted() {
    let mut lines = serial_lines();
    let sample = lines.iter().position(|line| line.contains("a%20b 1 64 ")).expect("the first sample");
    lines[sample] = lines[sample].replace(" 1 64 ", " 1 65 ");
    lines.remove(sample + 3);
    let done = fold("damaged-serial", lines.concat().as_bytes(), &["--by", "task"], &[]);
    // The end of the batch says how many samples it had, so the two missing ones are counted as lost.
    assert_eq!(out(&done), FOLDED.replace(" 50", " 48").replace("[lost] 1", "[lost] 3"));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("damaged ~kprof line") && said.contains("1 ~kprof lines are missing"), "{said}");
}

#[test]
fn times_and_marks_choose_samples() {
    let count = |from: &str, to: &str| {
        let done = fold("between", text().as_bytes(), &["-q", "--between", from, to], &[]);
        let numbers = out(&done);
        numbers.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>()
    };
    // The one lost sample is between TSC 149 and 919.
    assert_eq!(count("start", "end"), 71);
    assert_eq!(count("go", "0x64"), 0);
    assert_eq!(count("0x64", "0x6e"), 10);
    assert_eq!(count("@0.000000100", "@0.000000110"), 10);
    assert_eq!(count("0", "0.00000001"), 10);
    let done = fold("between", text().as_bytes(), &["--between", "nowhere", "end"], &[]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("marks: go"));
}

#[test]
fn the_script_form_is_read_by_the_flame_graph_tools_parser() {
    let done = fold("script", text().as_bytes(), &["script", "-q"], &[]);
    let script = out(&done);
    assert!(script.starts_with("a_b 1 0.000000:\n\tffffffff80002010 [mm::map] ([kernel])\n"), "{script}");
    assert_eq!(script.lines().filter(|line| line.contains(" 1 0.") && line.ends_with(':')).count(), 70);
    // The clock of the header counts, so the one of the arguments is only for files without one.
    let other_clock = fold("script", text().as_bytes(), &["script", "-q"], &["0.0001"]);
    assert_eq!(out(&other_clock), script);
    let without = text().replace("# tsc-hz 1000000000\n", "");
    assert!(without.len() < text().len());
    let given_clock = fold("script", without.as_bytes(), &["script", "-q"], &["0.0001"]);
    assert!(out(&given_clock).starts_with("a_b 1 0.001000:\n"), "{}", out(&given_clock));
}

#[test]
fn pprof_samples_add_up_and_name_known_locations() {
    let done = fold("pprof", text().as_bytes(), &["export", "-q", "--to", "pprof"], &[]);
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&done.stdout[..]).read_to_end(&mut bytes).expect("is gzip");
    let profile = Profile::decode(&bytes[..]).expect("is a protocol buffer");
    assert_eq!(profile.string_table[0], "");
    let ids: Vec<u64> = profile.location.iter().map(|location| location.id).collect();
    assert!(profile.sample.iter().flat_map(|sample| &sample.location_id).all(|id| ids.contains(id)));
    let all: i64 = profile.sample.iter().map(|sample| sample.value[0]).sum();
    // The three samples of `mm::map` have three addresses, so they are three samples here. One more was lost.
    assert_eq!((profile.sample.len(), all, profile.function.len()), (3 + 1 + 1, 70 + 1, 3 + 1));
    for name in ["[lost]", "kmain", "mm::map", "[interrupt 33]", "samples", "count", "task", "a b"] {
        assert!(profile.string_table.iter().any(|text| text == name), "{name}: {:?}", profile.string_table);
    }
}
