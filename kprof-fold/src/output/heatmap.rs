//! Heat maps: how many samples were taken at which time within each second, and how large the weights of a point's hits
//! were at which time. Stage: output.
//!
//! In: a timeline, or the times and weights of hits. Out: an SVG with columns of time, darker where there are more. Of
//! samples it has a column per second and 50 rows of 20 ms, which shows patterns that repeat within a second, idle
//! times and bursts. Of hits it has a row for each power of two of the weight, which shows what a histogram does not:
//! whether the slow ones came together.

use crate::symbols::name::markup;
use crate::timeline::Timeline;
use kprof_format::point::{bucket, weights};
use std::fmt::Write as _;

/// Number of rows in a column of samples; each is a fiftieth of a second.
const ROWS: usize = 50;
const CELL: usize = 9;
/// The least width of the names of rows.
const LEFT: usize = 60;
const TOP: usize = 50;
/// Number of columns of hits.
const WEIGHT_COLUMNS: usize = 120;
/// Maximum number of columns of samples; in longer profiles a column stands for a longer time.
const MAX_COLUMNS: usize = 1800;

/// Draws the SVG of samples.
pub fn svg(timeline: &Timeline, tsc_hz: f64, title: &str) -> String {
    let clock = timeline.clock(tsc_hz);
    let last = timeline.events.iter().map(|event| clock.seconds(event)).fold(0.0, f64::max);
    let per_column = (last as usize / MAX_COLUMNS) + 1;
    let columns = last as usize / per_column + 1;
    let mut cells = vec![vec![0u64; ROWS]; columns];
    for event in &timeline.events {
        let at = clock.seconds(event);
        let row = ((at.fract() * ROWS as f64) as usize).min(ROWS - 1);
        cells[(at as usize / per_column).min(columns - 1)][row] += 1;
    }
    let picture = Picture {
        title,
        what: format!("{} samples", timeline.events.len()),
        cell: format!("20 ms of {per_column} s"),
        row_names: (0..=ROWS).step_by(10).map(|row| (row, format!("{} ms", row * 20))).collect(),
        column_names: (0..columns).step_by(10).map(|column| (column, format!("{} s", column * per_column))).collect(),
        cells,
    };
    picture.svg(|column, row, count| {
        let (second, from, to) = (column * per_column, row * 20, row * 20 + 20);
        format!("second {second}, {from} to {to} ms: {count} samples")
    })
}

/// Draws the SVG of hits, each with its time in seconds and its weight in `unit`.
pub fn of_weights(hits: &[(f64, u64)], unit: &str, title: &str) -> String {
    let last = hits.iter().map(|(at, _)| *at).fold(0.0, f64::max);
    let rows = || hits.iter().map(|(_, weight)| bucket(*weight));
    let (lowest, highest) = (rows().min().unwrap_or(0), rows().max().unwrap_or(0));
    let per_column = (last / WEIGHT_COLUMNS as f64).max(f64::MIN_POSITIVE);
    let mut cells = vec![vec![0u64; highest - lowest + 1]; WEIGHT_COLUMNS];
    for (at, weight) in hits {
        let column = ((at / per_column) as usize).min(WEIGHT_COLUMNS - 1);
        cells[column][bucket(*weight) - lowest] += 1;
    }
    let seconds = |column: usize| format!("{:.6} s", column as f64 * per_column);
    let picture = Picture {
        title,
        what: format!("{} hits; upwards: {unit}", hits.len()),
        cell: format!("{:.3} ms", per_column * 1e3),
        row_names: (0..=highest - lowest).step_by(2).map(|row| (row, weights(row + lowest).0.to_string())).collect(),
        column_names: (0..WEIGHT_COLUMNS).step_by(10).map(|column| (column, seconds(column))).collect(),
        cells,
    };
    picture.svg(|column, row, count| {
        let (least, greatest) = weights(row + lowest);
        format!("{} to {}, {least} to {greatest} {unit}: {count} hits", seconds(column), seconds(column + 1))
    })
}

/// What is drawn.
struct Picture<'a> {
    title: &'a str,
    /// What is counted, with its number.
    what: String,
    /// How much time a cell is.
    cell: String,
    /// Names of the lower ends of rows, and of the left ends of columns.
    row_names: Vec<(usize, String)>,
    column_names: Vec<(usize, String)>,
    /// Counts by column and row; the first row is at the bottom, as in FlameScope.
    cells: Vec<Vec<u64>>,
}

impl Picture<'_> {
    /// Draws it; `name` is the text of a cell by its column, row and count.
    fn svg(&self, name: impl Fn(usize, usize, u64) -> String) -> String {
        let longest = self.row_names.iter().map(|(_, name)| name.len()).max().unwrap_or(0);
        let left = (longest * 15 / 2 + 6).max(LEFT);
        let rows = self.cells.first().map_or(0, Vec::len);
        let most = self.cells.iter().flatten().copied().max().unwrap_or(1).max(1);
        let width = (left + self.cells.len() * CELL + 20).max(420).max(left + 10 * self.title.chars().count() + 20);
        let height = TOP + rows * CELL + 50;
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" font-size="12">"#
        );
        let _ = writeln!(svg, r##"<rect width="100%" height="100%" fill="#ffffff"/>"##);
        let _ = writeln!(svg, r#"<text x="{left}" y="20" font-size="16">{}</text>"#, markup(self.title));
        let (what, cell) = (&self.what, &self.cell);
        let _ = writeln!(svg, r##"<text x="{left}" y="38" fill="#555555">{what}; darkest: {most} in {cell}</text>"##);
        for (column, counts) in self.cells.iter().enumerate() {
            for (row, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let (x, y) = (left + column * CELL, TOP + (rows - 1 - row) * CELL);
                let (color, name) = (color(*count as f64 / most as f64), name(column, row, *count));
                let _ = writeln!(
                    svg,
                    r#"<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{color}"><title>{}</title></rect>"#,
                    markup(&name)
                );
            }
        }
        for (row, name) in &self.row_names {
            let y = TOP + (rows - row) * CELL + 4;
            let _ = writeln!(svg, r#"<text x="{}" y="{y}" text-anchor="end">{name}</text>"#, left - 6);
        }
        for (column, name) in &self.column_names {
            let (x, y) = (left + column * CELL, TOP + rows * CELL + 18);
            let _ = writeln!(svg, r#"<text x="{x}" y="{y}">{name}</text>"#);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The color of a cell, from pale yellow to dark red.
fn color(part: f64) -> String {
    let mix = |from: f64, to: f64| (from + (to - from) * part.sqrt()).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(255.0, 128.0), mix(240.0, 0.0), mix(190.0, 30.0))
}
