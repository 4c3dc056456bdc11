//! The report for spreadsheets: one table of comma-separated values. Stage: output.
//!
//! In: as for the text. Out: the functions, or the groups of `--by`, with a header line. Lost samples are a row of
//! their own. The account and the table of time are not in it; JSON has them.

use super::{Input, Style, chosen, chosen_groups};
use std::io::{self, Write};

/// Writes the table.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: Input<'_>, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    let name = |frame| input.folded.frames.shown(frame);
    let all = input.whole().max(1) as f64;
    let percent = |part: u64| format!("{:.4}", part as f64 * 100.0 / all);
    match style.by {
        Some(by) => {
            csv.write_record([by, "samples", "percent", "busiest", "busiest_self"])?;
            for group in chosen_groups(input, style).0 {
                let (samples, busiest) = (group.samples.to_string(), group.busiest.1.to_string());
                let (group, part) = (name(group.frame), (percent(group.samples), name(group.busiest.0)));
                csv.write_record([&group, &samples[..], &part.0, &part.1, &busiest])?;
            }
            for (name, count) in input.beside() {
                csv.write_record([name, &count.to_string(), &percent(count), "", ""])?;
            }
        }
        None => {
            csv.write_record(["function", "self", "total", "self_percent", "total_percent"])?;
            for row in chosen(input, style).0 {
                let (own, total) = (row.self_samples.to_string(), row.total.to_string());
                csv.write_record([
                    &name(row.frame),
                    &own[..],
                    &total,
                    &percent(row.self_samples),
                    &percent(row.total),
                ])?;
            }
            for (name, count) in input.beside() {
                let (count, part) = (count.to_string(), percent(count));
                csv.write_record([name, &count, &count, &part, &part])?;
            }
        }
    }
    csv.flush()
}
