//! A profile with one damaged byte, or without one of its batches: every delivered sample is either counted or counted
//! as lost, the loss is reported, and limits on losses apply.

use crate::sealed::{names, sealed};
use kprof_fold::account::Account;
use kprof_fold::problems::Problems;
use kprof_fold::profile::Profile;
use kprof_fold::read::{self, Source};
use kprof_fold::select::Select;
use kprof_fold::tally::{By, Tally};
use std::path::PathBuf;
use std::process::Command;

/// Samples in each batch of a CPU.
const BATCHES: [u64; 5] = [40, 7, 1, 25, 30];
const CPUS: u64 = 2;
const DELIVERED: u64 = 103 * CPUS;

/// A profile as `profiled` writes it, divided into its parts: header, batches of names and samples, accounts.
fn pieces() -> Vec<String> {
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 7\n# hz 1000\n# anchor kmain=ffffffff80001000\n";
    let names = "# batch cpu=meta from=0 to=10\n# task id=5 name=a\n# end cpu=meta to=10\n";
    let mut pieces = vec![head.to_owned(), names.to_owned()];
    let mut counts = [(0, 0, 0); CPUS as usize];
    for samples in BATCHES {
        for cpu in 0..CPUS {
            let (position, ticks, recorded) = &mut counts[cpu as usize];
            // A record has five words and two addresses. The CPU was idle at every third tick.
            let (from, to, first) = (*position, *position + 7 * samples, *ticks + 1);
            (*position, *ticks, *recorded) = (to, *ticks + samples + samples / 2, *recorded + samples);
            let idle = *ticks - *recorded;
            let mut piece =
                format!("# batch cpu={cpu} from={from} to={to} first-tick={first} last-tick={ticks} taken={ticks} ");
            piece += &format!("coalesced=0 user=0 idle={idle} lost-full=0 recorded={recorded}\n");
            for sample in 0..samples {
                piece += &format!("a {cpu} {:x} ffffffff80002010 ffffffff80001020\n", first + sample);
            }
            pieces.push(piece + &format!("# end cpu={cpu} to={to} samples={samples}\n"));
        }
    }
    for (cpu, (position, ticks, recorded)) in counts.iter().enumerate() {
        pieces.push(format!(
            "# account cpu={cpu} sent={ticks} taken={ticks} coalesced=0 user=0 idle={} lost-full=0 recorded={recorded} \
             delivered={recorded} overwritten=0 in-ring=0 position-out={position}\n",
            ticks - recorded
        ));
    }
    // The checksums begin with the id of the boot, which is in the first piece.
    let head_bytes = pieces[0].len();
    pieces
        .iter()
        .enumerate()
        .map(|(number, piece)| match number {
            0 => piece.clone(),
            _ => sealed(&[&pieces[0][..], piece].concat())[head_bytes..].to_owned(),
        })
        .collect()
}

fn parse(text: &str) -> (Profile, Problems) {
    let source = Source { file: "profile", form: None, boot: None, progress: &mut |_| {} };
    let tally = Tally::new(Select::default(), By::None);
    let reading = read::read_from(text.as_bytes(), source, tally).expect("is a profile");
    let counted: u64 = reading.consumer.counts().iter().map(|count| count.samples).sum();
    assert_eq!(counted, reading.profile.samples(), "{text}");
    (reading.profile, reading.problems)
}

#[test]
fn the_profile_without_damage_is_whole_and_balanced() {
    let (profile, problems) = parse(&pieces().concat());
    assert_eq!((profile.samples(), profile.lost(), problems.skipped()), (DELIVERED, 0, 0), "{problems}");
    assert!(Account::of(&profile).is_balanced());
}

/// A serial log of these lines.
fn serial(lines: &str) -> String {
    let mut log = String::new();
    for (number, line) in lines.lines().enumerate() {
        kprof_format::serial::write(&mut log, number as u64, line).expect("a string takes everything");
    }
    log
}

#[test]
fn what_precedes_the_boot_line_of_a_known_boot_belongs_to_that_boot() {
    let head = "# kprof-profile 1\n# boot 7\n";
    let batch = |cpu: u32, from: u64| {
        let to = from + 7;
        format!("# batch cpu={cpu} from={from} to={to}\na {cpu} {to:x} ffffffff80002010 ffffffff80001020\n")
    };
    let end = |cpu: u32, to: u64| format!("# end cpu={cpu} to={to} samples=1\n");
    // The second header lacks its first lines, or comes late; a batch of CPU 1 is damaged, and one has no end.
    let late = |between: &str| {
        let text = [head, &batch(0, 0), &end(0, 7), &batch(1, 7), &end(1, 14), "# kprof-profile 1\n", between];
        parse(&serial(&(text.concat() + "# boot 7\n" + &batch(0, 7) + &end(0, 14)))).0
    };
    let mark = "# batch cpu=meta from=0 to=9\n# mark tsc=5 name=a\n# end cpu=meta to=9\n";
    let damaged = late(&(mark.to_owned() + &batch(1, 0) + &end(1, 9)));
    assert_eq!((damaged.boots.len(), damaged.samples(), damaged.boots[0].marks.len()), (1, 3, 1));
    assert_eq!(damaged.boots[0].cpus[&1].begins_at, Some(0), "the damaged batch is of this boot");
    // Samples that were read before the boot was named stay with the header that they follow.
    let unended = late(&batch(1, 0));
    assert_eq!((unended.boots.len(), unended.samples()), (2, 4));
}

#[test]
fn one_damaged_byte_is_repaired_in_the_first_line_and_elsewhere_costs_the_batch_and_is_told() {
    let pieces = pieces();
    let (mut tried, mut whole) = (0, 0);
    for (number, piece) in pieces.iter().enumerate().filter(|(_, piece)| piece.starts_with("# batch")) {
        let samples = BATCHES[number.saturating_sub(2) / CPUS as usize] * u64::from(number > 1);
        let is_marked = |at: usize| piece[piece[..at].rfind('\n').map_or(0, |end| end + 1)..].starts_with('#');
        // All bytes of the first and the last line, and a few of the others.
        for at in (0..piece.len() - 1).filter(|at| is_marked(*at) || at % 13 == 0) {
            for damage in [*b"x9", *b" \0", *b"\n5"][at % 3] {
                let mut damaged = pieces.clone();
                let mut bytes = damaged[number].clone().into_bytes();
                if std::mem::replace(&mut bytes[at], damage) == damage {
                    continue;
                }
                damaged[number] = String::from_utf8(bytes).expect("is ASCII");
                let (profile, problems) = parse(&damaged.concat());
                let what = format!("byte {at} of {:?}\n{problems}", damaged[number].lines().next());
                // The last line has more than is needed, so damage there may leave the batch whole.
                let is_whole = profile.samples() == DELIVERED && (samples == 0 || at > piece.rfind("# end").unwrap());
                // From its second byte on the first line is recognised and repaired, unless it is no longer one line.
                let first_line = 1..piece.find('\n').unwrap();
                let is_repaired = first_line.contains(&at) && damage != b'\n';
                let missing = if is_whole || is_repaired { 0 } else { samples };
                let said = problems.to_string();
                assert!(samples == 0 || !is_repaired || said.contains("a damaged byte"), "{what}");
                assert!(!is_repaired || !said.contains("another CPU"), "{what}");
                assert_eq!((profile.samples(), profile.missing()), (DELIVERED - missing, missing), "{what}");
                assert!(missing == 0 || problems.skipped() > 0, "{what}");
                assert_eq!(profile.boots[0].cpus.len() as u64, CPUS, "{what}");
                assert_eq!(missing == 0, Account::of(&profile).is_balanced(), "{what}");
                (tried, whole) = (tried + 1, whole + u32::from(missing == 0));
            }
        }
    }
    assert!(tried > 2000 && whole * 2 < tried, "{whole} of {tried}");
}

#[test]
fn a_repaired_batch_counts_once_even_if_it_is_there_again() {
    let pieces = pieces();
    let mut damaged = pieces[2].clone().into_bytes();
    damaged[20] ^= 1;
    let damaged = String::from_utf8(damaged).expect("is ASCII");
    for both in [[&damaged, &pieces[2]], [&pieces[2], &damaged], [&damaged, &damaged]] {
        let mut all = pieces.clone();
        all[2] = both.map(String::as_str).concat();
        let (profile, problems) = parse(&all.concat());
        assert_eq!((profile.samples(), profile.missing()), (DELIVERED, 0), "{problems}");
    }
}

#[test]
fn a_batch_line_that_was_written_so_and_cannot_be_parsed_does_not_count() {
    let mut all = pieces();
    let head = all[0].len();
    let unknown = all[2].replacen("from=0", "from=nowhere", 1);
    let unsealed: String = unknown.lines().map(|line| line.split(" crc=").next().unwrap().to_owned() + "\n").collect();
    all[2] = sealed(&[&all[0][..], &unsealed].concat())[head..].to_owned();
    let (profile, problems) = parse(&all.concat());
    assert_eq!((profile.samples(), profile.missing()), (DELIVERED - BATCHES[0], BATCHES[0]), "{problems}");
    assert!(problems.to_string().contains("its first line cannot be parsed"), "{problems}");
}

#[test]
fn a_batch_that_is_gone_is_counted_from_its_neighbours_and_from_the_account() {
    let pieces = pieces();
    let batches = 2..2 + BATCHES.len() * CPUS as usize;
    for gone in batches.clone() {
        let samples = BATCHES[(gone - 2) / CPUS as usize];
        let mut left = pieces.clone();
        left.remove(gone);
        let (profile, problems) = parse(&left.concat());
        assert_eq!((profile.samples(), profile.missing()), (DELIVERED - samples, samples), "{gone}: {problems}");
        assert!(problems.to_string().contains(&format!("{samples} samples are missing")), "{gone}: {problems}");
        assert!(!Account::of(&profile).is_balanced(), "{gone}");
        // A recording that was interrupted has no account, so what came after the last batch is not known.
        left.truncate(batches.end - 1);
        let (profile, problems) = parse(&left.concat());
        let known = if gone + CPUS as usize >= batches.end { 0 } else { samples };
        assert_eq!((profile.samples(), profile.missing()), (DELIVERED - samples, known), "{gone}: {problems}");
    }
}

#[test]
fn the_rate_is_that_of_the_ticks_however_few_of_them_hit_the_kernel() {
    // A thousand ticks per second for ten seconds. Each CPU was in the kernel for only a part of this time.
    let mut text = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 7\n# hz 1000\n# cpus 2\n".to_owned();
    for (cpu, first, last) in [(0, 700, 9_100), (1, 4_000, 5_000)] {
        let (line, words) = (|tick: u64| format!("a {cpu} {:x} ffffffff80001000\n", tick * 1_000_000), 12);
        text += &format!("# batch cpu={cpu} from=0 to={words} first-tick={first} last-tick={last}\n");
        text += &format!("{}{}# end cpu={cpu} to={words} samples=2\n", line(first), line(last));
        text += &format!("# account cpu={cpu} sent=10000 taken=10000 idle=9998 recorded=2 delivered=2\n");
    }
    let (profile, _) = parse(&sealed(&text));
    for cpu in profile.boots[0].cpus.values() {
        let rate = cpu.ticks.rate(1e9, &profile.boots[0].settings).expect("is known");
        assert!((rate - 1000.0).abs() < 1e-6, "{rate}");
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("damage-rate.profile");
    std::fs::write(&file, sealed(&text)).expect("the test folder is writable");
    let done = Command::new(env!("CARGO_BIN_EXE_kprof-fold")).arg("info").arg(file).output().expect("kprof-fold runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(said.matches("1000.0 ticks/s of 1000 asked for").count(), 2, "{said}");
}

#[test]
fn a_later_recording_of_the_same_boot_lacks_nothing() {
    // The names and the first batches are missing, because they are in another file.
    let pieces = pieces();
    let later = [&pieces[..1], &pieces[4..]].concat().concat();
    let (profile, problems) = parse(&later);
    assert_eq!((profile.samples(), profile.missing(), problems.skipped()), (DELIVERED - 80, 0, 0), "{problems}");
    assert!(Account::of(&profile).is_balanced());
}

#[test]
fn a_lost_batch_is_drawn_and_counts_for_max_loss_and_the_doctor_sees_it() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (file, syms) = (folder.join("damage.profile"), folder.join("damage.syms"));
    let mut left = pieces();
    left.remove(2);
    std::fs::write(&file, left.concat()).expect("the test folder is writable");
    std::fs::write(&syms, "ffffffff80001000 0000000000000100 T kmain\nffffffff80002000 0000000000000100 t mm::map\n")
        .expect("the test folder is writable");
    let run = |before: &[&str], after: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = command.args(before).args([&file, &syms]).args(after).output().expect("kprof-fold runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&done.stdout), text(&done.stderr), done.status.code())
    };
    let (out, said, code) = run(&[], &["--max-loss", "1%"]);
    assert_eq!((out.as_str(), code), ("kmain;mm::map 166\n[lost] 40\n", Some(3)), "{said}");
    assert!(said.contains("40 samples are missing") && said.contains("NOT BALANCED"), "{said}");
    let (found, _, code) = run(&["doctor"], &[]);
    assert_eq!(code, Some(1));
    assert!(found.contains("40 samples that were delivered cannot be read"), "{found}");
}

#[test]
fn counters_whose_sums_do_not_fit_into_64_bits_stop_no_output() {
    let folder = tempfile::tempdir().expect("is writable");
    std::fs::write(folder.path().join("syms"), "ffffffff80001000 0000000000000100 T work\n").expect("is writable");
    let batch = |from: u64, tick: u64, lost: u64, time: u64| {
        format!(
            "# batch cpu=0 from={from} to={to} first-tick={tick} last-tick={tick} lost-full={lost} user={lost} \
             idle={lost} coalesced={lost}\na 0 {time:x} ffffffff80001010\n# end cpu=0 to={to} samples=1\n",
            to = from + 6
        )
    };
    for (name, value, setting) in
        [("one", u64::MAX, ""), ("half", 1 << 63, ""), ("two", u64::MAX, "# setting tsc=a value=hz%2010\n")]
    {
        let setting = if setting.is_empty() { String::new() } else { names(setting) };
        let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# hz 100\n";
        let text = format!("{head}{setting}{}{}", batch(0, 1, 0, 1), batch(6, 4, value, 1_000_000_000));
        std::fs::write(folder.path().join(name), sealed(&text)).expect("is writable");
        for words in [
            "report",
            "report --by cpu",
            "report --format json",
            "report --format csv",
            "report --cpu 0",
            "report --between 0 end",
            "folded --show lost --show coalesced",
            "folded --max-loss 1%",
            "flamegraph",
            "flamegraph --show coalesced",
            "html",
            "html --compare one",
            "doctor",
            "top --once",
            "diff one",
            "export --to pprof",
            "export --to firefox",
            "export --to speedscope",
            "export --to perfetto",
        ] {
            let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
            fold.args(words.split(' ')).args(["-q", name, "syms"]).current_dir(folder.path());
            let done = fold.output().expect("kprof-fold runs");
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.code().is_some_and(|code| code < 6), "{words} {name}: {said}");
        }
    }
}
