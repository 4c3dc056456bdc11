//! A heat map: how many samples were taken at which time within each second. Stage: output.
//!
//! In: a timeline. Out: an SVG with a column per second and 50 rows of 20 ms, darker where there are more samples. It
//! shows patterns that repeat within a second, idle times and bursts.

use crate::symbols::name::markup;
use crate::timeline::Timeline;
use std::fmt::Write as _;

/// Number of rows in a column; each is a fiftieth of a second.
const ROWS: usize = 50;
const CELL: usize = 9;
const LEFT: usize = 60;
const TOP: usize = 50;
/// Maximum number of columns; in longer profiles a column stands for a longer time.
const MAX_COLUMNS: usize = 1800;

/// Draws the SVG.
pub fn svg(timeline: &Timeline, tsc_hz: f64, title: &str) -> String {
    let clock = timeline.clock(tsc_hz);
    let last = timeline.events.iter().map(|event| clock.seconds(event)).fold(0.0, f64::max);
    let per_column = (last as usize / MAX_COLUMNS) + 1;
    let columns = last as usize / per_column + 1;
    let mut cells = vec![[0u64; ROWS]; columns];
    for event in &timeline.events {
        let at = clock.seconds(event);
        let row = ((at.fract() * ROWS as f64) as usize).min(ROWS - 1);
        cells[(at as usize / per_column).min(columns - 1)][row] += 1;
    }
    let most = cells.iter().flatten().copied().max().unwrap_or(1).max(1);
    let (width, height) =
        ((LEFT + columns * CELL + 20).max(420).max(LEFT + 10 * title.chars().count() + 20), TOP + ROWS * CELL + 50);
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" font-size="12">"#
    );
    let _ = writeln!(svg, r##"<rect width="100%" height="100%" fill="#ffffff"/>"##);
    let _ = writeln!(svg, r#"<text x="{LEFT}" y="20" font-size="16">{}</text>"#, markup(title));
    let shade = "darkest";
    let _ = writeln!(
        svg,
        r##"<text x="{LEFT}" y="38" fill="#555555">{} samples; {shade}: {most} in 20 ms of {per_column} s</text>"##,
        timeline.events.len()
    );
    for (column, rows) in cells.iter().enumerate() {
        for (row, count) in rows.iter().enumerate().filter(|(_, count)| **count > 0) {
            // The start of a second is at the bottom, as in FlameScope.
            let (x, y) = (LEFT + column * CELL, TOP + (ROWS - 1 - row) * CELL);
            let (from, to) = (row * 20, row * 20 + 20);
            let _ = writeln!(
                svg,
                r#"<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{}"><title>second {}, {from} to {to} ms: {count} samples</title></rect>"#,
                color(*count as f64 / most as f64),
                column * per_column
            );
        }
    }
    for row in (0..=ROWS).step_by(10) {
        let y = TOP + (ROWS - row) * CELL + 4;
        let _ = writeln!(svg, r#"<text x="{}" y="{y}" text-anchor="end">{} ms</text>"#, LEFT - 6, row * 20);
    }
    for column in (0..columns).step_by(10) {
        let (x, y) = (LEFT + column * CELL, TOP + ROWS * CELL + 18);
        let _ = writeln!(svg, r#"<text x="{x}" y="{y}">{} s</text>"#, column * per_column);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The color of a cell, from pale yellow to dark red.
fn color(part: f64) -> String {
    let mix = |from: f64, to: f64| (from + (to - from) * part.sqrt()).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(255.0, 128.0), mix(240.0, 0.0), mix(190.0, 30.0))
}
