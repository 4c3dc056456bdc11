//! Every sample with its stack, in the form of `perf script`. Stage: output.
//!
//! In: a timeline and names. Out: the format of redox-kprofiling, with correct time stamps: seconds, a point, six
//! digits. A `->` inside a name becomes an arrow sign, because tools that read this form take `->` for inlining and
//! split the name there.

use crate::by_address::AddressHasher;
use crate::resolve::{Frame, Resolver};
use crate::stacks::{StackId, Stacks};
use crate::symbols::{Symbols, name::clean, users::plain};
use crate::timeline::{Event, Timeline};
use kprof_format::marker::PUBLISHED_LEAF;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io::{self, Write};

/// The most bytes of formatted stacks that are kept, so that a stack that comes again need not be formatted.
const MAX_KEPT_BYTES: usize = 32 << 20;

/// How samples are printed.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// TSC ticks per second.
    pub tsc_hz: f64,
    /// Whether user samples and the user part of stacks are printed.
    pub user: bool,
    /// Whether offsets are printed after names.
    pub offsets: bool,
    /// Whether offsets are printed as separate frames.
    pub expand_offsets: bool,
    /// Whether a stack ends at the first address without a known function.
    pub stop_at_unknown: bool,
}

/// Writes all samples.
///
/// # Errors
/// Errors of the writer.
pub fn write(
    timeline: &Timeline,
    stacks: &Stacks,
    symbols: &Symbols,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut resolver = Resolver::new(symbols);
    let mut words = Vec::new();
    let mut text = String::new();
    // The frames of most samples are those of an earlier one. Their text is kept, up to a limit.
    let mut kept: HashMap<StackId, Box<str>, BuildHasherDefault<AddressHasher>> = HashMap::default();
    let mut kept_bytes = 0;
    for event in &timeline.events {
        let task = &timeline.tasks[event.task as usize];
        // The oldest form of profiles has no tasks.
        let shown = if task == "-" { "kernel" } else { &task[..] };
        writeln!(out, "{} {} {}:", shown.replace(' ', "_"), event.cpu, seconds(event, style.tsc_hz))?;
        if let Some(frames) = kept.get(&event.stack) {
            out.write_all(frames.as_bytes())?;
            continue;
        }
        text.clear();
        stacks.words(event.stack, &mut words);
        symbols.users.settle(task, &mut words);
        frames(&words, &mut resolver, style, &mut text);
        out.write_all(text.as_bytes())?;
        // Where tasks have symbols of their own, the same addresses have other names in each task.
        if symbols.users.is_empty() && kept_bytes + text.len() <= MAX_KEPT_BYTES {
            kept_bytes += text.len();
            kept.insert(event.stack, text.as_str().into());
        }
    }
    out.flush()
}

/// Appends the lines of a stack, and an empty line.
pub fn frames(words: &[u64], resolver: &mut Resolver<'_>, style: Style, text: &mut String) {
    let mut ended = false;
    let symbols = resolver.symbols;
    resolver.frames(words, style.user, |found| {
        if !ended {
            ended = !frame(found, symbols, style, text);
        }
    });
    text.push('\n');
}

/// The time of a sample: [`time`].
pub fn seconds(event: &Event, tsc_hz: f64) -> String {
    time(event.tsc, tsc_hz)
}

/// `SECONDS.MICROSECONDS`, rounded down.
pub fn time(tsc: u64, tsc_hz: f64) -> String {
    let hz = tsc_hz.round().max(1.0) as u128;
    let micros = u128::from(tsc) * 1_000_000 / hz;
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// Adds the lines of one frame; returns false if the stack ends before it.
fn frame(frame: Frame<'_>, symbols: &Symbols, style: Style, text: &mut String) -> bool {
    let (address, found) = match frame {
        Frame::At(address, found) => (address, found),
        Frame::Marker(marker) => {
            text.push_str(&format!("\t{:x} {} ([kernel])\n", marker.encode(), frame.name()));
            return true;
        }
        Frame::Running => {
            text.push_str(&format!("\t{PUBLISHED_LEAF:x} {} ([kernel])\n", frame.name()));
            return true;
        }
        Frame::Nothing => return true,
    };
    let place = format!("[{}]", symbols.image_name(address));
    let Some(number) = found.symbol else {
        if !style.stop_at_unknown {
            text.push_str(&format!("\t{:x} [unknown] ({place})\n", plain(address)));
        }
        return !style.stop_at_unknown;
    };
    let start = symbols.start(number);
    let offset = address.wrapping_sub(start);
    let raw = symbols.plain_name(number);
    let (shown, start) = (plain(address), plain(start));
    let function = clean(&raw).replace("->", "\u{2192}");
    if style.expand_offsets && offset != 0 {
        text.push_str(&format!("\t{shown:x} [{function}+{offset:#x}] ({place})\n\t{start:x} [{function}] ({place})\n"));
    } else if style.offsets {
        text.push_str(&format!("\t{shown:x} [{function}+{offset:#x}] ({place})\n"));
    } else {
        for function in &found.functions {
            let name = function.shown(symbols.with_lines).replace("->", "\u{2192}");
            text.push_str(&format!("\t{shown:x} [{name}] ({place})\n"));
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_have_six_digits() {
        let event = |tsc| Event { tsc, boot: 0, cpu: 0, task: 0, stack: 0 };
        assert_eq!(seconds(&event(2_200_011_000), 2.2e9), "1.000005");
        assert_eq!(seconds(&event(0), 2.2e9), "0.000000");
        assert_eq!(seconds(&event(u64::MAX), 1e9), "18446744073.709551");
    }
}
