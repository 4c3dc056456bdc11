//! Compares the fold with a second implementation that is slow but simple: the same input must give the same text.
//!
//! The second implementation reads the whole file at once, keeps every sample, and searches all symbols one after the
//! other. It shares no code with the library except the demangling of names.

use crate::sealed::sealed;
use kprof_fold::fold::Folder;
use kprof_fold::problems::Problems;
use kprof_fold::read::{self, Source};
use kprof_fold::select::Select;
use kprof_fold::symbols::Symbols;
use kprof_fold::tally::{By, Tally};
use proptest::prelude::*;
use std::io::Read;

/// A reader that gives its bytes in pieces of a chosen size.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let take = self.0.len().min(to.len()).min(self.1);
        to[..take].copy_from_slice(&self.0[..take]);
        self.0 = &self.0[take..];
        Ok(take)
    }
}

/// The folded text of the library; `None` if the library refuses the input.
fn fast(profile: &[u8], syms: &[u8], piece: usize) -> Option<String> {
    let symbols = Symbols::read("syms", syms.to_vec(), std::io::empty(), &mut Problems::default()).ok()?;
    let source = Source { file: "profile", form: None, boot: None, progress: &mut |_| {} };
    let select = Select::default();
    let reading = read::read_from(Pieces(profile, piece), source, Tally::new(select.clone(), By::None)).ok()?;
    let folder = Folder { symbols: &symbols, stacks: &reading.stacks, select: &select, by: By::None, groups: &[] };
    let folded = folder.fold(&reading.consumer.counts());
    let mut out = Vec::new();
    kprof_fold::output::folded::write(&folded, reading.profile.lost(), &mut out).expect("memory takes everything");
    Some(String::from_utf8(out).expect("output is UTF-8"))
}

fn number(digits: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    proptest::collection::vec(prop::sample::select(b"0123456789abcdefABCDEF".to_vec()), digits)
        .prop_map(|digits| String::from_utf8(digits).expect("digits are ASCII"))
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => (0..0x600u64).prop_map(|offset| format!("{:x}", 0xffff_ffff_8000_0f00 + offset)),
        2 => (0..0x800u64).prop_map(|low| format!("{:x}", 0xffff_ffff_ffff_f000 + low)),
        1 => Just("ffffffffffffeffe".to_owned()),
        1 => number(0..20),
        1 => Just("303b".to_owned()),
        1 => prop::sample::select(vec!["", "0x1", "-1", "g", "+1", "ffffffff80001000\0"]).prop_map(str::to_owned),
    ]
}

/// The lines of a batch, with a sample for each of these offsets.
fn whole_batch(cpu: u32, from: u64, to: u64, samples: &[u64]) -> String {
    let line = |at: &u64| format!("a {cpu} 1 {:x}\n", 0xffff_ffff_8000_0f00 + at);
    let samples: String = samples.iter().map(line).collect();
    format!("# batch cpu={cpu} from={from} to={to} lost-full=1\n{samples}# end cpu={cpu} to={to}")
}

fn line() -> impl Strategy<Value = String> {
    let good = (
        prop::sample::select(vec!["a", "kmain", "%00", "w-fd", "x%20y"]),
        0..4u32,
        number(1..16),
        proptest::collection::vec(
            (0..0x600u64).prop_map(|offset| format!("{:x}", 0xffff_ffff_8000_0f00 + offset)),
            1..6,
        ),
    );
    prop_oneof![
        6 => good.prop_map(|(task, cpu, tsc, stack)| format!("{task} {cpu:x} {tsc} {}", stack.join(" "))),
        3 => (prop::sample::select(vec!["a", "", "b"]), number(0..10), number(0..18), proptest::collection::vec(word(), 0..6))
            .prop_map(|(task, cpu, tsc, stack)| format!("{task} {cpu} {tsc} {}", stack.join(" "))),
        1 => (0..3u32, 0..6u64, 0..6u64, 0..5u64)
            .prop_map(|(cpu, from, len, lost)| format!("# batch cpu={cpu} from={from} to={} lost-full={lost}", from + len)),
        2 => (0..3u32, 0..10u64, any::<bool>()).prop_map(|(cpu, to, wrong)| {
            format!("# end cpu={cpu} to={to}{}", if wrong { " crc=01234567" } else { "" })
        }),
        4 => (0..3u32, 0..9u64, 0..6u64, proptest::collection::vec(0..0x600u64, 0..4))
            .prop_map(|(cpu, from, len, samples)| whole_batch(cpu, from, from + len, &samples)),
        1 => (0..3u32, 0..9u64).prop_map(|(cpu, lost)| format!("# account cpu={cpu} lost-torn={lost} lost-full=2")),
        1 => prop::sample::select(vec!["# batch cpu=x", "# boot 1", "# boot 2", "# kprof-profile 1", "#", "# end", ""])
            .prop_map(str::to_owned),
    ]
}

fn symbols() -> impl Strategy<Value = String> {
    let one = (0..0x60u64, 0..4u64, prop::sample::select(b"tTwWdDrU".to_vec()), "[a-c;<]{1,3}");
    proptest::collection::vec(one, 1..12).prop_map(|all| {
        let line = |(place, size, kind, name): (u64, u64, u8, String)| {
            let (start, kind) = (0xffff_ffff_8000_1000 + place * 0x10, kind as char);
            if size == 0 {
                format!("{start:016x} {kind} {name}\n")
            } else {
                format!("{start:016x} {:016x} {kind} {name}\n", size * 0x18)
            }
        };
        all.into_iter().map(line).chain(["ffffffff80001000 T base\n".to_owned()]).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_fold_the_same(
        header in any::<bool>(),
        lines in proptest::collection::vec(line(), 0..40),
        ends in any::<bool>(),
        crlf in any::<bool>(),
        syms in symbols(),
        piece in 1..300usize,
    ) {
        let mut text = if header { "# kprof-profile 1\n# boot 1\n".to_owned() } else { String::new() };
        text.push_str(&lines.join("\n"));
        if ends {
            text.push('\n');
        }
        text = sealed(&text);
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        let expected = crate::model::fold(&text, &syms);
        prop_assert_eq!(fast(text.as_bytes(), syms.as_bytes(), piece), expected, "{}", text);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000), piece in 1..300usize) {
        let _ = fast(&bytes, b"ffffffff80001000 T base\n", piece);
        let _ = fast(b"a 0 1 ffffffff80001000\n", &bytes, piece);
        for start in [&b"\x89kprof\r\n\x01\x02\0\0"[..], b"~kprof 0 ", b"# kprof-profile 1\n"] {
            let _ = fast(&[start, &bytes].concat(), b"ffffffff80001000 T base\n", piece);
        }
    }
}

#[test]
fn both_fold_the_real_profile_the_same() {
    let profile = include_str!("../data/redox/profiling.txt");
    let syms = include_str!("../data/redox/syms.txt");
    let expected = crate::model::fold(profile, syms);
    assert_eq!(expected.as_ref().map(|text| text.lines().count() > 250), Some(true));
    assert_eq!(fast(profile.as_bytes(), syms.as_bytes(), 1000), expected);
}
