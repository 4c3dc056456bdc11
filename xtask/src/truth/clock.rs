//! The clock of a profile, its rate, and its account: against what QEMU counts, and against the host's clock.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Case, HZ, machine};
use crate::build::Kernel;
use crate::parts::Parts;
use crate::qemu::{Accel, Verdict};

/// Lines with the guest's clock: half of them, four seconds, the other half.
const LINES: usize = 20;
/// How long the lines are waited for: the machine needs a second to start, on a busy host many.
const PATIENCE: Duration = Duration::from_secs(90);
/// What a clock or a rate may be off.
const TOLERANCE: f64 = 0.01;

/// The clock of the file: under counted instructions one tick of the TSC is one nanosecond. And the rate that was
/// reached.
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
        // Ticks of the busiest CPU from its first to its last sample.
        let rate = busiest_rate(&text, tsc_hz)?;
        println!("rate: {rate:.1} ticks/s of {HZ}, {:+.3} %", (rate / HZ as f64 - 1.0) * 100.0);
        if (rate / HZ as f64 - 1.0).abs() > TOLERANCE {
            wrong.push(format!("{}: {rate:.1} ticks/s instead of {HZ}", case.title));
        }
    }
    let merged: u64 = text
        .lines()
        .filter(|line| line.starts_with("# account "))
        .filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("merged=")?.parse::<u64>().ok()))
        .sum();
    println!("merged: {merged}");
    if case.accel == "icount" && merged > 0 {
        wrong.push(format!("{}: {merged} ticks merged", case.title));
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

/// The look with the least delay of the host's clock after the guest's.
fn earliest(looks: &[(f64, f64)]) -> (f64, f64) {
    let delay = |(guest, host): &(f64, f64)| host - guest;
    looks.iter().copied().min_by(|one, other| delay(one).total_cmp(&delay(other))).unwrap_or_default()
}

/// With a thread per CPU the guest's clock is the host's: nanoseconds between lines of the guest on the serial port,
/// by its own clock and by the host's.
pub fn against_host(parts: &Parts, kernel: &Kernel, output: &Path) -> Result<Vec<String>> {
    let folder = output.join("host-clock");
    let serial = folder.join("serial.log");
    let machine = machine(parts, kernel, &folder, &serial, Accel::Tcg, "scenario=truth-clock")?;
    let (mut seen, mut lines) = (Vec::new(), Vec::new());
    let verdict = machine.run(&parts.qemu, || {
        // Looked at each millisecond until both are there, in one go: `run` comes by only now and then.
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
    // A line is seen late, never early, and on a busy host some are seen very late: of the first and of the last ones
    // that with the least delay counts.
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
