//! Checks the clock of a profile, its rate and its account, against the count of QEMU and against the host's clock.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Case, hz, machine};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::{Accel, Verdict};

/// Number of lines with the guest's clock. The second half of them comes four seconds after the first.
const LINES: usize = 20;
/// Maximum time to wait for the lines. The machine needs a second to start, and much longer on a busy host.
const PATIENCE: Duration = Duration::from_secs(90);
/// Maximum relative error of a clock or a rate.
const TOLERANCE: f64 = 0.01;

/// Checks the clock of the file, and the rate that was reached. Under `-icount` one tick of the TSC is one nanosecond.
pub fn of_file(case: &Case, folder: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(folder.join("profiling.txt"))?;
    let fact = |key: &str| text.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(' '));
    let tsc_hz: f64 = fact("tsc-hz").context("no tsc-hz")?.parse()?;
    let mut wrong = Vec::new();
    if case.accel == "icount" {
        let off = tsc_hz / 1e9 - 1.0;
        println!("clock: {tsc_hz} Hz, {:+.3} % from what QEMU counts", off * 100.0);
        if off.abs() > TOLERANCE {
            wrong.push(format!("{}: the clock is {:+.2} % off", case.title, off * 100.0));
        }
        // The rate is computed from the ticks of the busiest CPU from its first to its last sample.
        let rate = busiest_rate(&text, tsc_hz)?;
        let asked = hz(case);
        println!("rate: {rate:.1} ticks/s of {asked}, {:+.3} %", (rate / asked as f64 - 1.0) * 100.0);
        if (rate / asked as f64 - 1.0).abs() > TOLERANCE {
            wrong.push(format!("{}: {rate:.1} ticks/s instead of {asked}", case.title));
        }
    }
    let coalesced: u64 = text
        .lines()
        .filter(|line| line.starts_with("# account "))
        .filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("coalesced=")?.parse::<u64>().ok()))
        .sum();
    println!("coalesced: {coalesced}");
    if case.accel == "icount" && coalesced > 0 {
        wrong.push(format!("{}: {coalesced} ticks coalesced", case.title));
    }
    Ok(wrong)
}

fn busiest_rate(text: &str, tsc_hz: f64) -> Result<f64> {
    let mut cpus: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ').skip(1);
        let (Some(cpu), Some(tsc)) = (words.next(), words.next()) else { continue };
        let tsc = u64::from_str_radix(tsc, 16)?;
        let seen = cpus.entry(cpu).or_insert((tsc, tsc, 0));
        (seen.1, seen.2) = (tsc, seen.2 + 1);
    }
    let (first, last, samples) = cpus.values().copied().max_by_key(|(.., samples)| *samples).context("no samples")?;
    Ok((samples - 1) as f64 * tsc_hz / (last - first) as f64)
}

/// The pair of times in which the host's clock is least behind the guest's.
fn earliest(looks: &[(f64, f64)]) -> (f64, f64) {
    let delay = |(guest, host): &(f64, f64)| host - guest;
    looks.iter().copied().min_by(|one, other| delay(one).total_cmp(&delay(other))).unwrap_or_default()
}

/// With a thread per CPU the guest's clock must run like the host's. Compares the nanoseconds between lines of the
/// guest on the serial port by both clocks.
pub fn against_host(parts: &Parts, kernel: &Kernel, output: &Path) -> Result<Vec<String>> {
    let folder = output.join("host-clock");
    let serial = folder.join("serial.log");
    let machine = machine(parts, kernel, &folder, &serial, Accel::Tcg, "scenario=truth-clock")?;
    let (mut seen, mut lines) = (Vec::new(), Vec::new());
    let verdict = machine.run(&parts.qemu, || {
        // Checks each millisecond until all lines are there. `run` calls this function too rarely to do this in steps.
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && lines.len() < LINES {
            let text = std::fs::read_to_string(&serial).unwrap_or_default();
            let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
            lines = whole.lines().filter_map(|line| line.strip_prefix("clock now: ")?.parse::<u64>().ok()).collect();
            seen.resize(lines.len(), Instant::now());
            std::thread::sleep(Duration::from_millis(1));
        }
    })?;
    if lines.len() < LINES {
        bail!("{}: only {} of {LINES} lines with the guest's clock came ({verdict:?})", serial.display(), lines.len());
    }
    // A line is seen late, never early, and on a busy host sometimes very late. So in each half the line with the least
    // delay is used.
    let begin = seen[0];
    let looks: Vec<(f64, f64)> =
        lines.iter().zip(&seen).map(|(at, seen)| (*at as f64 / 1e9, (*seen - begin).as_secs_f64())).collect();
    let (first, last) = (earliest(&looks[..LINES / 2]), earliest(&looks[LINES / 2..LINES]));
    let (guest, host) = (last.0 - first.0, last.1 - first.1);
    let off = guest / host - 1.0;
    println!(
        "\na thread per CPU: {guest:.3} s by the guest's clock are {host:.3} s by the host's, {:+.3} %",
        off * 100.0
    );
    let holds = verdict == Verdict::Success && off.abs() <= TOLERANCE;
    Ok(if holds { vec![] } else { vec![format!("the guest's clock is {:+.2} % off the host's", off * 100.0)] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_looks_the_least_delayed_one_counts() {
        assert_eq!(earliest(&[(1.0, 6.5), (1.1, 6.11), (1.2, 6.4)]), (1.1, 6.11));
    }
}
