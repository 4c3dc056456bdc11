//! The lockups of a profile: for each one, where the CPU was, and what every CPU did. Stage: output.
//!
//! In: lockups, symbols. Out: text, a JSON document, or folded stacks: `[soft lockup CPU 2];FUNCTION TICKS`. The ticks
//! are counted by the function that an address is in; ticks without an address are `[not known]`.

use crate::lockups::{Lockup, Stack};
use crate::resolve::{Frame, Resolver};
use crate::symbols::name::{clean, visible};
use crate::symbols::{Symbols, UNKNOWN};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The function of ticks without an address.
pub const NOT_KNOWN: &str = "[not known]";

/// Where the CPU was, by function; the largest count comes first.
pub fn functions(lockup: &Lockup, symbols: &Symbols) -> Vec<(String, u64)> {
    let mut counts = BTreeMap::<String, u64>::new();
    for (address, count) in &lockup.places {
        let name = symbols.find(*address).map_or(UNKNOWN.into(), |number| symbols.function(number));
        *counts.entry(clean(&name).into_owned()).or_default() += count;
    }
    if lockup.unknown > 0 {
        counts.insert(NOT_KNOWN.to_owned(), lockup.unknown);
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    counts
}

/// One sentence about a lockup.
pub fn sentence(lockup: &Lockup, tsc_hz: Option<f64>) -> String {
    let time = match tsc_hz {
        Some(hz) => format!("{:.1} ms", lockup.ms(hz)),
        None => format!("{} TSC ticks", lockup.tsc.saturating_sub(lockup.from)),
    };
    let (kind, what) = (visible(&lockup.kind), visible(lockup.what()));
    format!("{kind} lockup: CPU {} {what} for {time}", lockup.cpu)
}

/// As [`sentence`], with the function in which the CPU was most of the time.
pub fn sentence_with_function(lockup: &Lockup, symbols: &Symbols, tsc_hz: Option<f64>) -> String {
    let functions = functions(lockup, symbols);
    let most = functions.first().filter(|(name, _)| name != NOT_KNOWN);
    let place = most.map_or_else(String::new, |(name, _)| format!(", in {}", visible(name)));
    format!("{}{place}", sentence(lockup, tsc_hz))
}

/// Formats the text.
pub fn text(lockups: &[&Lockup], symbols: &Symbols, tsc_hz: Option<f64>) -> String {
    let mut text = String::new();
    for lockup in lockups {
        let task = lockup.task.as_ref().map_or_else(String::new, |task| format!(", task {}", name_of(task)));
        let sentence = sentence(lockup, tsc_hz);
        let _ = writeln!(text, "{sentence}, from TSC {:x} to {:x}{task}", lockup.from, lockup.tsc);
        if lockup.unknown > 0 && lockup.kind == "soft" {
            let _ =
                writeln!(text, "  where: not known for {} of {} ticks, the ring is full", lockup.unknown, lockup.ticks);
        }
        if let Some((lock, cpu)) = lockup.holder {
            let _ = writeln!(text, "  waits for the lock at {lock:x}, which was taken on CPU {cpu}");
        }
        if !lockup.places.is_empty() {
            let _ = writeln!(text, "      ticks       %  function");
            for (name, count) in functions(lockup, symbols) {
                let share = 100.0 * count as f64 / lockup.ticks.max(1) as f64;
                let _ = writeln!(text, "  {count:>9}  {share:>6.2}  {}", visible(&name));
            }
        }
        for stack in &lockup.stacks {
            let age = match tsc_hz {
                Some(hz) => format!("{:.1} ms", lockup.tsc.saturating_sub(stack.tsc) as f64 * 1000.0 / hz),
                None => format!("{} TSC ticks", lockup.tsc.saturating_sub(stack.tsc)),
            };
            let _ = writeln!(text, "  CPU {}, newest stack, {age} before, task {}", stack.cpu, name_of(&stack.task));
            for frame in frames(stack, symbols) {
                let _ = writeln!(text, "      {}", visible(&frame));
            }
        }
    }
    text
}

/// The frames of a stack, innermost first.
fn frames(stack: &Stack, symbols: &Symbols) -> Vec<String> {
    let mut frames = Vec::new();
    Resolver::new(symbols).frames(&stack.words, false, |frame| match frame {
        Frame::At(_, place) => frames.extend(place.functions.iter().map(|function| function.shown(symbols.with_lines))),
        Frame::Marker(_) | Frame::Running | Frame::Nothing => frames.push(frame.name().into_owned()),
    });
    frames
}

fn name_of(task: &[u8]) -> String {
    visible(&String::from_utf8_lossy(task)).into_owned()
}

/// All of it for programs.
pub fn document(lockups: &[&Lockup], symbols: &Symbols, tsc_hz: Option<f64>) -> Value {
    let stack = |stack: &Stack| {
        json!({
            "cpu": stack.cpu,
            "tsc": stack.tsc,
            "task": String::from_utf8_lossy(&stack.task),
            "frames": frames(stack, symbols),
        })
    };
    let lockup = |lockup: &&Lockup| {
        let function = |(name, ticks): (String, u64)| json!({ "name": name, "ticks": ticks });
        json!({
            "cpu": lockup.cpu,
            "kind": lockup.kind,
            "reason": lockup.reason,
            "from_tsc": lockup.from,
            "tsc": lockup.tsc,
            "ms": tsc_hz.map(|hz| lockup.ms(hz)),
            "task": lockup.task.as_ref().map(|task| String::from_utf8_lossy(task)),
            "ticks": lockup.ticks,
            "unknown": lockup.unknown,
            "lock": lockup.holder.map(|(lock, _)| format!("{lock:x}")),
            "holder_cpu": lockup.holder.map(|(_, cpu)| cpu),
            "functions": functions(lockup, symbols).into_iter().map(function).collect::<Vec<_>>(),
            "stacks": lockup.stacks.iter().map(stack).collect::<Vec<_>>(),
        })
    };
    json!({ "lockups": lockups.iter().map(lockup).collect::<Vec<_>>() })
}

/// The histograms of all lockups as folded stacks.
pub fn folded(lockups: &[&Lockup], symbols: &Symbols) -> String {
    let mut lines = BTreeMap::<String, u64>::new();
    for lockup in lockups {
        let root = format!("[{} lockup CPU {}]", clean(&lockup.kind), lockup.cpu);
        for (name, ticks) in functions(lockup, symbols) {
            *lines.entry(format!("{root};{name}")).or_default() += ticks;
        }
    }
    lines.iter().map(|(stack, ticks)| format!("{stack} {ticks}\n")).collect()
}
