//! Hits of the point `block.read` in the generated profiles of a fleet.
//!
//! In: the random numbers of a profile, whether hits are drawn by weight, and the stacks that they may have. Out: the
//! lines of the account, which balances, and the recorded hits of each CPU. Some hits came before records were asked
//! for, some were lost, and some were on a CPU without memory.

use std::fmt::Write as _;

use super::profiles::{CPUS, SECONDS};
use crate::bench::fold::Random;

/// The point.
pub const POINT: &str = "block.read";
/// Hits of a CPU.
const HITS: u64 = 40;
/// Of these no record was asked for.
const ONLY_COUNTED: u64 = 4;
/// The mean distance of hits that are drawn by weight.
const MEAN: u64 = 20_000;

/// The lines of the account, and for each CPU the lines of its hits with their number.
pub fn lines(random: &mut Random, is_drawn: bool, stack: &dyn Fn(u64) -> String) -> (String, Vec<(String, u64)>) {
    let (mut account, mut cpus) = (String::new(), Vec::new());
    for cpu in 0..CPUS {
        let (mut weight, mut asked, mut lost_weight) = (0, 0, 0);
        let (mut recorded, mut lost, mut unsampled) = (0, 0, 0);
        let mut hits = String::new();
        for hit in 0..HITS {
            let bits = 8 + random.below(10);
            let one = 1 + random.below(1 << bits);
            weight += one;
            if hit < ONLY_COUNTED {
                continue;
            }
            asked += one;
            let chance = if is_drawn { -(-(one as f64) / MEAN as f64).exp_m1() } else { 1.0 };
            if random.below(1 << 30) as f64 >= chance * f64::from(1 << 30) {
                unsampled += 1;
            } else if random.below(12) == 0 {
                (lost, lost_weight) = (lost + 1, lost_weight + one);
            } else {
                recorded += 1;
                let (tsc, task) = (hit * SECONDS * 1_000_000 / HITS, ["init", "sh", "a%20b"][random.below(3) as usize]);
                let state = if is_drawn { format!("~{MEAN}") } else { String::new() };
                let frames = stack(random.below(4));
                let _ = writeln!(hits, "!{POINT} {task} {cpu} {tsc:x} {one}{state} -{frames}");
            }
        }
        let filtered = unsampled + ONLY_COUNTED;
        let _ = writeln!(
            account,
            "# point-account tsc=9 cpu={cpu} weight={weight} recorded={recorded} lost={lost} filtered={filtered} \
             unsampled={unsampled} asked-weight={asked} lost-weight={lost_weight} unit=ns point={POINT}"
        );
        cpus.push((hits, recorded));
    }
    let _ = writeln!(account, "# point-account tsc=9 weight=5000 lost=2 unit=ns point={POINT}");
    (account, cpus)
}
