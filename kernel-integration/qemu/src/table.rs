//! Writes the rows of a counted run. Stage: output.
//!
//! In: rows by function, totals. Out: a table by function, most instructions first; a table by image; and a line for
//! each check of the counts against another count, with the difference. Functions below a share are one row of the
//! table, so its sum is all instructions.

use crate::counted::{Counted, Row};
use crate::functions::Functions;
use crate::message::Totals;
use crate::totals::Counts;
use crate::window::Halted;
use std::collections::BTreeMap;
use std::io::{Result, Write};

/// Writes the table.
///
/// # Errors
/// Those of the writer.
pub fn write(counted: &Counted, functions: &Functions, min_percent: f64, out: &mut impl Write) -> Result<()> {
    let all = counted.own();
    let percent = |part: u64| if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 };
    let mut rows: Vec<(u32, Row)> = (0..).zip(counted.rows.iter().copied()).filter(|(_, row)| row.own > 0).collect();
    rows.sort_by(|(a, left), (b, right)| {
        right.own.cmp(&left.own).then_with(|| functions.name(*a).cmp(functions.name(*b)))
    });
    let has_contexts = !counted.contexts.is_empty();
    let calls = if has_contexts { "calls" } else { "entered" };
    write!(out, "{:>15} {:>6} {calls:>12} {:>12}", "instructions", "%", "per call")?;
    writeln!(
        out,
        "{}  function",
        if has_contexts { format!(" {:>15} {:>6}", "with callees", "%") } else { String::new() }
    )?;
    let is_shown = |row: &Row| percent(row.own) >= min_percent;
    for (number, row) in rows.iter().filter(|(_, row)| is_shown(row)) {
        write!(out, "{:>15} {:>6.2}", row.own, percent(row.own))?;
        match row.calls {
            0 => write!(out, " {:>12} {:>12}", "-", "-")?,
            calls => write!(out, " {calls:>12} {:>12.1}", row.own as f64 / calls as f64)?,
        }
        if has_contexts {
            write!(out, " {:>15} {:>6.2}", row.total, percent(row.total))?;
        }
        writeln!(out, "  {}", functions.name(*number))?;
    }
    let blank = if has_contexts { 49 } else { 26 };
    let others: Vec<u64> = rows.iter().filter(|(_, row)| !is_shown(row)).map(|(_, row)| row.own).collect();
    let rest = others.iter().sum();
    if !others.is_empty() {
        writeln!(
            out,
            "{rest:>15} {:>6.2}{:blank$}  {} functions below {min_percent} %",
            percent(rest),
            "",
            others.len()
        )?;
    }
    writeln!(out, "{all:>15} {:>6.2}{:blank$}  all", percent(all), "")?;
    let mut images: BTreeMap<&str, u64> = BTreeMap::new();
    rows.iter().for_each(|(number, row)| *images.entry(functions.image(*number)).or_default() += row.own);
    writeln!(out, "\n{:>15} {:>6}  image", "instructions", "%")?;
    images.iter().try_for_each(|(image, own)| writeln!(out, "{own:>15} {:>6.2}  {image}", percent(*own)))?;
    halts(&counted.window.halts, out)
}

/// How long vCPUs were halted.
fn halts(halts: &[Halted], out: &mut impl Write) -> Result<()> {
    let Some(of_ns) = halts.first().map(|halted| halted.of_ns) else { return Ok(()) };
    writeln!(out, "\n{:>15} {:>6} {:>28}  vCPU", "halted (ns)", "%", "instructions of the others")?;
    for Halted { cpu, ns, others, .. } in halts {
        writeln!(out, "{ns:>15} {:>6.2} {others:>28}  {cpu}", *ns as f64 * 100.0 / of_ns.max(1) as f64)?;
    }
    writeln!(out, "{of_ns:>15} {:>6.2} {:>28}  all of the guest's time", 100.0, "")
}

/// What the counts were checked against, in lines.
pub fn checks(counted: &Counted, totals: &Totals) -> Vec<String> {
    let Totals { executed, clock, jumps, jumped, counts, .. } = *totals;
    let Counts { interrupts, faults, told, misguessed, switches, unexplained } = counts;
    let mut lines = vec![format!("{} instructions by function, {executed} one by one: the same", counted.own())];
    let has_contexts = !counted.contexts.is_empty();
    if let Some(clock) = clock {
        let mut line = format!("QEMU's clock (-icount) has counted {clock}");
        if jumps > 0 {
            line += &format!("; of these {jumped} were skipped, not executed, when a vCPU was reset ({jumps} times)");
        }
        let began = i128::from(executed) + i128::from(jumped) - i128::from(clock);
        line += &match (began, has_contexts) {
            (0, _) => "; otherwise the same".to_owned(),
            (..0, _) => format!("; {} more than the instructions that began", -began),
            (began, false) => format!("; {began} instructions began and did not complete"),
            (began, true) => {
                let rest = began - i128::from(faults);
                let other = if rest == 0 { String::new() } else { format!(", and {rest} otherwise") };
                format!("; {began} instructions began and did not complete: {faults} that faulted{other}")
            }
        };
        lines.push(line);
    }
    if has_contexts {
        lines.push(format!(
            "{} contexts; {interrupts} interrupts and exceptions ({faults} faults), {switches} changes of stacks, \
             {unexplained} jumps without a reason, {} calls deeper than is recorded",
            counted.contexts.len() - 1,
            totals.too_deep
        ));
        if told > 0 {
            lines.push(format!(
                "QEMU has told {told} of the interrupts and exceptions; what is guessed with older versions differs in \
                 {misguessed}"
            ));
        }
    }
    lines
}
