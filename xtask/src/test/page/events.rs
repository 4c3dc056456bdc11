//! Profiles of the hits of points, for the tests of the page.
//!
//! In: a unit, whether every hit is recorded or is drawn by weight, and whether hits are missing. Out: a profile with
//! hits on three CPUs in two tasks, lost hits, hits without a record, hits on a CPU without memory, a mark, and an
//! account of the point that balances; the symbols of its functions; and each recorded hit with its time, so that a
//! range can be computed.

use std::fmt::Write as _;

use anyhow::Result;
use kprof_format::checksum::Crc32;

use crate::bench::fold::Random;

/// Where the code begins. Each function has 0x1000 bytes.
pub const TEXT: u64 = 0xffff_ffff_8000_1000;
const FUNCTIONS: u64 = 8;
/// CPUs with hits: those from 1 on.
pub const CPUS: u64 = 3;
const HITS: u64 = 600;
/// Microseconds between two hits of a CPU, on average.
const PERIOD: u64 = 10_000;

/// A profile, and the truth about it.
pub struct Made {
    /// The text of the profile.
    pub text: String,
    /// A JSON list of recorded hits: microseconds since the first one, CPU, weight.
    pub truth: String,
}

/// The symbols, as nm prints them.
///
/// # Errors
/// Never: writing to memory does not fail.
pub fn symbols() -> Result<String> {
    let mut text = String::new();
    (0..FUNCTIONS).try_for_each(|at| writeln!(text, "{:016x} 0000000000001000 T f{at}", TEXT + at * 0x1000))?;
    Ok(text)
}

/// What a profile is like.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Where the random numbers begin.
    pub seed: u64,
    /// The unit of the weights.
    pub unit: &'static str,
    /// The mean distance of hits that are drawn by weight; without it every hit is recorded.
    pub mean: Option<u64>,
    /// Whether some hits are lost, and some came before records were asked for.
    pub has_missing: bool,
    /// The function whose hits are four times as heavy.
    pub heavy: Option<u64>,
}

/// Makes a profile of the point `work`.
///
/// # Errors
/// Never: writing to memory does not fail.
pub fn profile(shape: Shape) -> Result<Made> {
    let Shape { seed, unit, mean, has_missing, heavy } = shape;
    let mut random = Random(seed);
    let mut text = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 7\n# cpus 4\n# sampler 0\n".to_owned();
    let mut meta = "# batch cpu=meta from=0 to=60\n# mark tsc=b2d05e00 name=copying\n".to_owned();
    let (mut batches, mut hits) = (String::new(), Vec::new());
    for cpu in 1..=CPUS {
        let (mut weight, mut asked, mut lost, mut lost_weight, mut unsampled, mut recorded) = (0, 0, 0, 0, 0, 0);
        let mut only_counted = 0;
        let mut batch = format!("# batch cpu=event-{cpu} from=0 to=60\n");
        let mut tsc = 1_000_000_000;
        for hit in 0..HITS {
            tsc += 1 + random.below(2 * PERIOD * 1000);
            let function = 2 + random.below(FUNCTIONS - 2);
            let usual = 1 + random.below(1 << (8 + 2 * function));
            let one = if heavy == Some(function) { 4 * usual } else { usual };
            weight += one;
            // The first hits came before records were asked for.
            if has_missing && hit < 30 {
                only_counted += 1;
                continue;
            }
            asked += one;
            let chance = mean.map_or(1.0, |mean| -(-(one as f64) / mean as f64).exp_m1());
            if random.below(1 << 30) as f64 >= chance * f64::from(1 << 30) {
                unsampled += 1;
                continue;
            }
            if has_missing && random.below(50) == 0 {
                (lost, lost_weight) = (lost + 1, lost_weight + one);
                continue;
            }
            recorded += 1;
            hits.push((tsc, cpu, one));
            let (state, task) =
                (mean.map_or_else(String::new, |mean| format!("~{mean}")), ["copy", "sh"][hit as usize % 2]);
            let [leaf, middle, root] = [function, function % 2, 0].map(|at| TEXT + at * 0x1000 + 0x20);
            writeln!(batch, "!work {task} {cpu} {tsc:x} {one}{state} - {leaf:x} {middle:x} {root:x}")?;
        }
        let filtered = unsampled + only_counted;
        writeln!(
            meta,
            "# point-account tsc=9 cpu={cpu} weight={weight} recorded={recorded} lost={lost} filtered={filtered} \
             unsampled={unsampled} asked-weight={asked} lost-weight={lost_weight} unit={unit} point=work"
        )?;
        batches += &sealed(&batch, &format!("cpu=event-{cpu} to=60 samples={recorded}"));
    }
    if has_missing {
        writeln!(meta, "# point-account tsc=9 weight=5000 lost=2 unit={unit} point=work")?;
    }
    text += &sealed(&meta, "cpu=meta to=60");
    text += &batches;
    let first = hits.iter().map(|(tsc, ..)| *tsc).min().unwrap_or(0);
    let hits = hits.iter().map(|(tsc, cpu, weight)| format!("[{},{cpu},{weight}]", (tsc - first) / 1000));
    Ok(Made { text, truth: format!("[{}]\n", hits.collect::<Vec<_>>().join(",")) })
}

/// A batch with its end and its checksum.
pub fn sealed(batch: &str, end: &str) -> String {
    format!("{batch}# end {end} crc={:08x}\n", Crc32::of_batch("7").with(batch.as_bytes()).end())
}
