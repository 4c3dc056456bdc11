//! The exact flame graph of a counted run: an SVG. Stage: output.
//!
//! In: folded stacks with instructions. Out: an SVG, drawn by the inferno library. What ran before the kernel
//! (firmware, boot loader, decompressor: stacks that are nothing but `[unknown]`) is left out, and the subtitle says
//! how much.

use anyhow::{Context, Result, ensure};
use inferno::flamegraph::{self, Options};
use std::collections::BTreeMap;
use std::io::Write;

const BEFORE: &str = "[unknown]";
/// Frames narrower than this part of the picture are not drawn; they still count for the frames under them.
const MIN_WIDTH_PERCENT: f64 = 0.05;

/// Draws the stacks.
///
/// # Errors
/// If there is nothing to draw, or the writer fails.
pub fn write(folded: &BTreeMap<String, u64>, out: &mut dyn Write) -> Result<()> {
    let lines = lines(folded);
    ensure!(!lines.is_empty(), "nothing of the kernel was executed: there is no flame graph");
    let before = folded.get(BEFORE).copied().unwrap_or(0);
    let all: u64 = folded.values().sum();
    let mut options = Options::default();
    options.title = "kprof-qemu count".to_owned();
    options.subtitle =
        Some(format!("{} instructions, each of them counted; {before} before the kernel are left out", all - before));
    options.count_name = "instructions".to_owned();
    options.min_width = MIN_WIDTH_PERCENT;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out).context("the flame graph")
}

fn lines(folded: &BTreeMap<String, u64>) -> Vec<String> {
    folded.iter().filter(|(stack, _)| *stack != BEFORE).map(|(stack, count)| format!("{stack} {count}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(folded: &[(&str, u64)]) -> Result<String> {
        let folded = folded.iter().map(|(stack, count)| ((*stack).to_owned(), *count)).collect();
        let mut out = Vec::new();
        write(&folded, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn what_ran_before_the_kernel_is_said_and_not_drawn() {
        let svg = drawn(&[("[unknown]", 700), ("start;[unknown]", 40), ("start;work", 60), ("start", 1)]).unwrap();
        assert!(svg.contains("101 instructions, each of them counted; 700 before the kernel are left out"), "{svg}");
        assert!(svg.contains("<title>work (60 instructions, 59.41%)"), "{svg}");
        assert!(svg.contains("<title>start (101 instructions, 100.00%)"), "{svg}");
        assert!(drawn(&[("[unknown]", 700)]).unwrap_err().to_string().contains("nothing of the kernel"));
    }
}
