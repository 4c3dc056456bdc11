//! Judges a profile of the kernel's heap: what was not freed, by the function that has allocated it.
//!
//! In: a profile whose allocations were sampled by bytes; the serial log, with what the kernel itself has counted. Out:
//! estimates of it. The sum of allocations that were sampled with the mean distance W and have B bytes in all has a
//! variance of at most B * W.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::known_events::Estimate;
use crate::parts::Parts;

/// The mean distance of the scenario, in bytes.
const MEAN: f64 = 65_536.0;

/// What the profile in `file` says of what the kernel has counted.
///
/// # Errors
/// If something else is wrong.
pub fn estimates(file: &Path, log: &str, parts: &Parts, symbols: &Path) -> Result<Vec<Estimate>> {
    let known = log.lines().find_map(|line| line.split_once("known: leak ")).context("the log has no `known: leak`")?;
    let numbers: Vec<f64> = known.1.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [_, bytes, forgotten] = numbers[..] else { bail!("known: leak {}", known.1) };
    let stacks = |event: &str| parts.event_stacks::<f64>(event, file, symbols);
    let sum = |stacks: &[(String, f64)], name: &str| -> f64 {
        stacks.iter().filter(|(stack, _)| stack.contains(name)).map(|(_, bytes)| bytes).sum()
    };
    let (live, made) = (stacks("heap.live")?, stacks("heap.alloc")?);
    let kept = sum(&live, "leak::keep_for_a_while");
    ensure!(kept == 0.0, "{kept} bytes that were freed count as not freed");
    let lost = sum(&made, "[lost]");
    ensure!(lost == 0.0, "{lost} bytes have no record");
    let most = live.iter().max_by(|one, other| one.1.total_cmp(&other.1)).context("nothing was not freed")?;
    ensure!(most.0.contains("leak::forget"), "most of what was not freed is {}", most.0);
    let estimate = |name: &str, found, known: f64| {
        let deviation = (known * MEAN).sqrt();
        Estimate { name: name.to_owned(), found, known, deviation }
    };
    Ok(vec![
        estimate("bytes not freed, of `forget`", sum(&live, "leak::forget"), forgotten),
        estimate("bytes allocated, of the workload", sum(&made, "leak::allocate"), bytes),
    ])
}
