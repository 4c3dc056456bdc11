//! Files with holes, as a power loss leaves them: sectors of zeros, sectors with what was there before, a lost end.
//! Exactly the samples of the batches that are as they were written count, and the damage is reported.

use crate::sealed::sealed;
use kprof_fold::problems::Problems;
use kprof_fold::profile::Profile;
use kprof_fold::read::consumer::{Consumer, Sample};
use kprof_fold::read::{self, Source};
use proptest::prelude::*;

const SECTOR_BYTES: usize = 512;

/// Keeps the TSCs of all samples that count.
#[derive(Default)]
struct Tscs {
    counted: Vec<u64>,
    provisional: Vec<u64>,
}

impl Consumer for Tscs {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.provisional.push(sample.tsc);
    }

    fn commit(&mut self) {
        self.counted.append(&mut self.provisional);
    }

    fn discard(&mut self) {
        self.provisional.clear();
    }
}

fn counted(file: &[u8]) -> (Vec<u64>, Profile, Problems) {
    let source = Source { file: "profile", form: None, boot: None, progress: &mut |_| {} };
    let mut reading = read::read_from(file, source, Tscs::default()).expect("the header is whole");
    reading.consumer.commit();
    assert_eq!(reading.consumer.counted.len() as u64, reading.profile.samples());
    (reading.consumer.counted, reading.profile, reading.problems)
}

/// A batch: its bytes in the file, and the TSCs of its samples.
struct Batch {
    start: usize,
    end: usize,
    tscs: Vec<u64>,
}

/// A file with batches of these sizes. Its header fills the first sector.
fn file(boot: &str, first_tsc: u64, sizes: &[usize]) -> (Vec<u8>, Vec<Batch>) {
    let mut text = format!("# kprof-profile 1\n# boot {boot}\n# anchor ");
    text.push_str(&"x".repeat(SECTOR_BYTES - text.len() - "=1\n".len()));
    text.push_str("=1\n");
    let (mut tsc, mut positions, mut batches) = (first_tsc, [0; 2], Vec::new());
    for (number, size) in sizes.iter().enumerate() {
        let cpu = number % 2;
        let (from, to) = (positions[cpu], positions[cpu] + 7 * size);
        positions[cpu] = to;
        let mut batch = format!("# batch cpu={cpu} from={from} to={to} first-tick=1 last-tick=2\n");
        let tscs: Vec<u64> = (tsc..tsc + *size as u64).collect();
        tsc += *size as u64;
        for tsc in &tscs {
            batch += &format!("a {cpu} {tsc:x} ffffffff80002010 ffffffff80001020\n");
        }
        batch += &format!("# end cpu={cpu} to={to} samples={size}\n");
        let start = text.len();
        text = sealed(&(text + &batch));
        batches.push(Batch { start, end: text.len(), tscs });
    }
    (text.into_bytes(), batches)
}

/// What a lost sector holds.
#[derive(Clone, Copy, Debug)]
enum Lost {
    Zeros,
    /// What the same sector of an older file has.
    Stale,
    /// Nothing: the file ends there.
    Gone,
}

fn lost() -> impl Strategy<Value = Lost> {
    prop_oneof![4 => Just(Lost::Zeros), 4 => Just(Lost::Stale), 1 => Just(Lost::Gone)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_samples_of_whole_batches_count(
        sizes in proptest::collection::vec(1..14usize, 1..20),
        older in proptest::collection::vec(1..14usize, 1..30),
        holes in proptest::collection::vec((1..30usize, 1..4usize, lost()), 0..4),
        same_boot in any::<bool>(),
        cr in any::<bool>(),
    ) {
        let (written, batches) = file("7", 0x10_0000, &sizes);
        // Also an older file of the same boot: then only parts of batches are left of it, as its header says.
        let (stale, older) = file(if same_boot { "7" } else { "8" }, 0x90_0000, &older);
        let mut damaged = written.clone();
        for (first, sectors, lost) in holes {
            let (from, to) = (first * SECTOR_BYTES, (first + sectors) * SECTOR_BYTES);
            let to = to.min(damaged.len());
            match lost {
                _ if from >= to => {}
                Lost::Zeros => damaged[from..to].fill(0),
                Lost::Stale => {
                    (from..to).for_each(|at| damaged[at] = stale.get(at).copied().unwrap_or(0));
                }
                Lost::Gone => damaged.truncate(from),
            }
        }
        // A batch is whole if all its bytes are there and it begins at the beginning of a line. Its checksum ends with
        // a space as well as with a line feed, and the file may end before either.
        let is_whole = |of: &[u8], batch: &Batch| {
            let range = batch.start - 1..batch.end - 1;
            damaged.get(range.clone()).is_some_and(|bytes| Some(bytes) == of.get(range))
                && damaged.get(batch.end - 1).is_none_or(|end| b"\n ".contains(end))
        };
        let expected: Vec<u64> =
            batches.iter().filter(|batch| is_whole(&written, batch)).flat_map(|batch| batch.tscs.clone()).collect();
        // A whole batch of this boot is one that was written, wherever it comes from. Of another boot none counts.
        let from_older = older.iter().any(|batch| is_whole(&stale, batch));
        let text = if cr {
            damaged.split_inclusive(|byte| *byte == b'\n').flat_map(|line| match line.strip_suffix(b"\n") {
                Some(line) => [line, b"\r\n"].concat(),
                None => line.to_vec(),
            }).collect()
        } else {
            damaged.clone()
        };
        let (tscs, profile, problems) = counted(&text);
        if same_boot && from_older {
            let known = |tsc: &u64| batches.iter().chain(&older).any(|batch| batch.tscs.contains(tsc));
            prop_assert!(tscs.iter().all(known), "{}", problems);
        } else {
            prop_assert_eq!(&tscs, &expected, "{}", problems);
            let is_there = |batch: &&Batch| batch.end <= damaged.len();
            // The rest of an older file may look like a batch that was already read. It is skipped and counted as a
            // repeated batch. The batches alone do not show that another batch was in its place.
            let cpus = profile.boots.iter().flat_map(|boot| boot.cpus.values());
            let is_told = problems.skipped() > 0 || cpus.map(|cpu| cpu.repeated_batches).sum::<u64>() > 0;
            let all_whole = batches.iter().filter(is_there).all(|batch| is_whole(&written, batch));
            prop_assert!(is_told || all_whole, "{}", problems);
        }
    }
}

#[test]
fn a_file_without_holes_is_whole_and_nothing_is_reported() {
    let (written, batches) = file("7", 1, &[3, 5, 2]);
    let (tscs, _, problems) = counted(&written);
    assert_eq!(tscs, batches.iter().flat_map(|batch| batch.tscs.clone()).collect::<Vec<_>>());
    assert_eq!((tscs.len(), problems.skipped()), (10, 0), "{problems}");
}

#[test]
fn lines_after_a_lost_first_line_are_no_samples() {
    let (mut damaged, batches) = file("7", 1, &[3, 2]);
    damaged[batches[1].start..batches[1].start + 20].fill(0);
    let (tscs, _, problems) = counted(&damaged);
    assert_eq!(tscs, batches[0].tscs);
    let told = problems.to_string();
    // The header has 3 lines and the first batch has 5.
    assert!(told.contains("profile:9: 4 lines outside any batch; left out"), "{told}");
}

#[test]
fn a_batch_with_as_many_other_lines_is_left_out() {
    let (mut damaged, batches) = file("7", 1, &[3, 2, 4]);
    let (start, end) = (batches[1].start, batches[1].end);
    let first = start + damaged[start..end].iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let sample = b"a 1 5 ffffffff80003010 ffffffff80001020\n";
    assert!(damaged[first..].starts_with(b"a 1 4 "));
    damaged[first..first + sample.len()].copy_from_slice(sample);
    let (tscs, profile, problems) = counted(&damaged);
    assert_eq!(tscs, [&batches[0].tscs[..], &batches[2].tscs].concat());
    let told = problems.to_string();
    assert!(told.contains("profile:9: batch of 2 samples left out: it does not match its checksum"), "{told}");
    assert_eq!(profile.boots.len(), 1);
}

#[test]
fn batches_under_the_header_of_another_boot_are_left_out() {
    // The header of the second boot is lost, so its batches would be those of the first.
    let (first, batches) = file("7", 1, &[3]);
    let (second, _) = file("8", 0x900, &[1, 2, 9]);
    let lost = [&first[..], &vec![0; SECTOR_BYTES - 1], b"\n", &second[SECTOR_BYTES..]].concat();
    let (tscs, _, problems) = counted(&lost);
    assert_eq!(tscs, batches[0].tscs, "{problems}");
    assert_eq!(counted(&[first, second].concat()).0.len(), 3 + 12);
}

#[test]
fn a_batch_without_a_checksum_is_left_out_and_a_text_without_batches_has_none() {
    let (written, batches) = file("7", 1, &[3, 2]);
    let text = String::from_utf8(written).expect("is ASCII");
    let at = text.find(" crc=").expect("has one");
    let (tscs, _, problems) = counted([&text[..at], &text[at + " crc=01234567".len()..]].concat().as_bytes());
    assert_eq!(tscs, batches[1].tscs);
    assert!(problems.to_string().contains("left out: its last line has no checksum"), "{problems}");
    let redox = "a 0 1 ffffffff80002010 ffffffff80001020\n".repeat(3);
    let (tscs, _, problems) = counted(redox.as_bytes());
    assert_eq!((tscs.len(), problems.skipped()), (3, 0), "{problems}");
}

#[test]
fn samples_before_a_late_header_do_not_count() {
    let (written, batches) = file("7", 1, &[3]);
    let late = ["a 0 1 ffffffff80002010\na 7ff 2 ffffffff80002010\n".as_bytes(), &written].concat();
    let (tscs, profile, problems) = counted(&late);
    assert_eq!(tscs, batches[0].tscs);
    assert!(problems.to_string().contains("2 samples before the first header or batch"), "{problems}");
    assert_eq!(profile.boots.iter().map(|boot| boot.cpus.len()).sum::<usize>(), 1);
}
