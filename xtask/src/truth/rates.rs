//! Checks that every tick is accounted for at every rate: none is coalesced, none is lost if the ring is large enough,
//! and if it is not, lost samples are counted exactly.
//!
//! In: runs under `-icount` with user and idle samples included, so that the file has every tick that was taken. Out: a
//! table. Losses are counted in two ways, which must agree: by the handler, and as the difference between the ticks
//! that were sent and the samples in the file.

use std::path::Path;

use anyhow::Result;
use clap::Parser;

use crate::build::Kernel;
use crate::parts::Parts;
use crate::profile;

const RATES_HZ: [u32; 4] = [100, 1_000, 10_000, 100_000];
/// Two sizes of the ring: one is large enough for the whole run, the other is far too small.
const RING_WORDS: [u32; 2] = [4_194_304, 1_024];

/// Runs all rates, or one of them.
pub fn run(parts: &Parts, kernel: &Kernel, output: &Path, all: bool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    println!("\nevery tick accounted for (CPU 1 to 3)\n      hz  ring words     sent   coalesced     lost  in file");
    for hz in RATES_HZ.into_iter().filter(|hz| all || *hz == 10_000) {
        for words in RING_WORDS {
            let folder = output.join(format!("rate-{hz}-{words}"));
            let (hz_text, words_text, to) = (hz.to_string(), words.to_string(), folder.display().to_string());
            let line =
                ["truth", "--repeatable", "--hz", &hz_text, "--workload", "truth-rates", "--include", "idle,user"];
            let line = [&line[..], &["--ring-words", &words_text, "--drain-after", "--cpus", "4", "-o", &to]].concat();
            profile::of_kernel(&profile::Line::try_parse_from(line)?.profile, parts, kernel)?;
            wrong.extend(judge(hz, words, &folder)?);
        }
    }
    Ok(wrong)
}

fn judge(hz: u32, words: u32, folder: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(folder.join("profiling.txt"))?;
    let (mut sum, mut wrong) = ([0u64; 4], Vec::new());
    for account in text.lines().filter_map(|line| line.strip_prefix("# account cpu=")) {
        let Some((cpu, rest)) = account.split_once(' ') else { continue };
        let cpu: u64 = cpu.parse()?;
        let value = |key: &str| {
            let found = rest.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok());
            found.unwrap_or(0)
        };
        let (sent, coalesced, lost) = (value("sent"), value("coalesced"), value("lost-full"));
        let of_cpu = |line: &&str| {
            !line.starts_with('#')
                && line.split(' ').nth(1).and_then(|word| u64::from_str_radix(word, 16).ok()) == Some(cpu)
        };
        let in_file = text.lines().filter(of_cpu).count() as u64;
        if sent != coalesced + lost + in_file {
            wrong.push(format!(
                "CPU {cpu}: {sent} ticks sent, {in_file} in the file, {coalesced} coalesced, {lost} lost"
            ));
        }
        if coalesced > 0 {
            wrong.push(format!("CPU {cpu}: {coalesced} of {sent} ticks coalesced"));
        }
        if words == RING_WORDS[0] && lost > 0 {
            wrong.push(format!("CPU {cpu}: {lost} ticks lost in a large ring"));
        }
        sum.iter_mut().zip([sent, coalesced, lost, in_file]).for_each(|(sum, value)| *sum += value);
    }
    let [sent, coalesced, lost, in_file] = sum;
    println!("{hz:8} {words:11} {sent:8} {coalesced:8} {lost:8} {in_file:8}");
    if words == RING_WORDS[1] && hz >= 10_000 && lost == 0 {
        wrong.push("nothing was lost in a ring that is too small: this shows nothing".to_owned());
    }
    Ok(wrong.into_iter().map(|text| format!("{hz} Hz, ring of {words} words: {text}")).collect())
}
