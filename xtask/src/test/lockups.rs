//! Judges the lockups of a scenario: what the kernel has reported against what was planted.
//!
//! In: `# lockups: FILE MS`: `serial.log` or a file of /root, and the threshold. In the serial log the kernel says of
//! each CPU that was stuck: `stuck: FUNCTION on cpu N from TSC to TSC`. Out: an error unless each of them, and nothing
//! else, is reported once in the file, at most 1.1 times the threshold after its beginning, with the function; and the
//! one that waits for a lock with the CPU that holds it, the others with none. Time in which the emulator did not run
//! the sampler does not count: on a busy host it can be some 30 ms of the machine's time, of which kprof counts at most
//! a quarter of the threshold.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::parts::Parts;
use crate::run;

/// The function that waits for a lock, and the one that holds it.
const WAITER: &str = "wait_for_lock";
const HOLDER: &str = "hold_lock";

/// A CPU that was stuck.
struct Planted {
    function: String,
    cpu: u64,
    from: u64,
    to: u64,
}

/// Compares the lockups in a file with those that were planted.
pub fn judge(words: &str, parts: &Parts, folder: &Path, symbols: &Path, log: &str) -> Result<()> {
    let (file, ms) = words.split_once(' ').context("FILE MS")?;
    let ms: f64 = ms.parse()?;
    let place = if file.starts_with("serial") { folder.join(file) } else { folder.join("root").join(file) };
    let mut fold = Command::new(&parts.fold);
    fold.arg("lockups").arg(&place).arg(symbols).args(["--quiet", "--format", "json"]);
    let printed = run::output(&mut fold)?;
    let document: Value = serde_json::from_str(&printed).with_context(|| printed.clone())?;
    let reported = document["lockups"].as_array().context("no list of lockups")?;
    let planted = log.lines().filter_map(planted).collect::<Vec<_>>();
    if reported.len() != planted.len() {
        bail!("{} lockups were planted and {} reported:\n{printed}", planted.len(), reported.len());
    }
    for one in &planted {
        let is_it = |lockup: &&Value| {
            let found = lockup["tsc"].as_u64().unwrap_or(0);
            lockup["cpu"] == one.cpu && (one.from..=one.to).contains(&found)
        };
        let lockup = reported.iter().find(is_it);
        let lockup =
            lockup.with_context(|| format!("{} on cpu {} is not reported:\n{printed}", one.function, one.cpu))?;
        check(one, lockup, ms).with_context(|| printed.clone())?;
        let holder = planted.iter().find(|other| one.function == WAITER && other.function == HOLDER);
        if lockup["holder_cpu"].as_u64() != holder.map(|holder| holder.cpu) {
            bail!("{} on cpu {} has another holder:\n{printed}", one.function, one.cpu);
        }
    }
    Ok(())
}

/// Whether a report came in time and names the function.
fn check(planted: &Planted, lockup: &Value, ms: f64) -> Result<()> {
    let number = |key: &str| lockup[key].as_f64().with_context(|| format!("no {key}"));
    // The report has both times in TSC ticks and in milliseconds, so it says how long a millisecond is.
    let ticks_per_ms = (number("tsc")? - number("from_tsc")?) / number("ms")?;
    let late = (number("tsc")? - planted.from as f64) / ticks_per_ms;
    println!("{} on cpu {}: {} after {late:.2} ms of {ms}", planted.function, planted.cpu, lockup["reason"]);
    // The sampler ticks once a millisecond.
    let without_ticks = (late - number("ticks")?).max(0.0);
    if !(ms..=1.1 * ms + without_ticks).contains(&late) {
        bail!(
            "{} was reported after {late:.2} ms, {without_ticks:.2} of them without ticks; the threshold is {ms}",
            planted.function
        );
    }
    // A hard lockup has no samples: the newest stack of the CPU is the last thing that is known of it.
    let functions = lockup["functions"].as_array().context("no functions")?;
    let stacks = lockup["stacks"].as_array().context("no stacks")?;
    let own = stacks.iter().find(|stack| stack["cpu"] == planted.cpu).context("no stack of the CPU itself")?;
    let frames = own["frames"].as_array().context("no frames")?;
    let is_it = |name: &Value| name.as_str().is_some_and(|name| name.contains(&planted.function));
    if !frames.iter().any(is_it) {
        bail!("the newest stack of cpu {} is not in {}", planted.cpu, planted.function);
    }
    let (mut inside, mut all) = (0, 0);
    for row in functions.iter().filter(|row| row["name"] != "[not known]") {
        let ticks = row["ticks"].as_u64().unwrap_or(0);
        all += ticks;
        // The loop of a wait is in the lock's own function.
        let is_wait = planted.function == WAITER && row["name"].as_str().is_some_and(|name| name.contains("RawLock"));
        inside += if is_wait || is_it(&row["name"]) { ticks } else { 0 };
    }
    // The rest is in interrupts, which come while interrupts are on.
    if lockup["kind"] == "soft" && inside * 10 < all * 9 {
        bail!("only {inside} of {all} ticks are in {}", planted.function);
    }
    Ok(())
}

/// The CPU that a line of the log says was stuck.
fn planted(line: &str) -> Option<Planted> {
    let words: Vec<&str> = line.split_once("stuck: ")?.1.split(' ').collect();
    let [function, "on", "cpu", cpu, "from", from, "to", to] = words[..] else { return None };
    let tsc = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
    Some(Planted { function: function.to_owned(), cpu: cpu.parse().ok()?, from: tsc(from)?, to: tsc(to)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lockup(tsc: u64, ticks: u64, name: &str) -> Value {
        json!({
            "cpu": 2, "kind": "soft", "reason": "one-task", "from_tsc": 1100, "tsc": tsc, "ms": (tsc - 1100) as f64,
            "ticks": ticks,
            "functions": [{ "name": name, "ticks": 95 }, { "name": "timer", "ticks": 5 }],
            "stacks": [{ "cpu": 2, "frames": [name] }],
        })
    }

    #[test]
    fn a_late_report_and_one_of_another_function_are_refused() {
        let planted = planted("x stuck: spin on cpu 2 from 3e8 to ffff").unwrap();
        assert_eq!((planted.cpu, planted.from), (2, 1000));
        check(&planted, &lockup(1105, 105, "a::spin"), 100.0).unwrap();
        check(&planted, &lockup(1111, 111, "a::spin"), 100.0).unwrap_err();
        check(&planted, &lockup(1105, 105, "a::other"), 100.0).unwrap_err();
        // The sampler did not run for 30 ms: the report may be as much later, and no later.
        check(&planted, &lockup(1138, 108, "a::spin"), 100.0).unwrap();
        check(&planted, &lockup(1142, 112, "a::spin"), 100.0).unwrap_err();
    }
}
