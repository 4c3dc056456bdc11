//! The page: a profile as one HTML file that needs nothing else, neither a network nor a server. Stage: output.
//!
//! In: every sample with its time, names, header and account; for a comparison also the stacks of an older profile.
//! Out: the file. It has a head that can be read without scripts, the data as one compressed text (`columns.rs`), and
//! the script that draws them. The script's files are beside this one; each has one idea, and they are joined in the
//! order of `SCRIPT`. The same input gives the same bytes.

pub mod columns;
pub mod event;
pub mod facts;
pub mod gaps;
pub mod source;
pub mod stacks;

use crate::account::Account;
use crate::diff::Diff;
use crate::output::export::hits::Hits;
use crate::profile::Profile;
use crate::symbols::Inlines;
use crate::timeline::Timeline;
use columns::{Column, pack};
use stacks::{Source, Tree};
use std::io::{self, Write};

/// The files of the script, in the order in which they are joined.
const SCRIPT: [&str; 18] = [
    include_str!("data.js"),
    include_str!("choice.js"),
    include_str!("link.js"),
    include_str!("tree.js"),
    include_str!("names.js"),
    include_str!("color.js"),
    include_str!("unit.js"),
    include_str!("lanes.js"),
    include_str!("flame.js"),
    include_str!("chart.js"),
    include_str!("timeline.js"),
    include_str!("histogram.js"),
    include_str!("table.js"),
    include_str!("detail.js"),
    include_str!("sample.js"),
    include_str!("save.js"),
    include_str!("controls.js"),
    include_str!("main.js"),
];

/// What is shown.
pub struct Input<'a> {
    /// The title.
    pub title: &'a str,
    /// The profile's file and the symbols' file. The page has their names without folders: it is shared, and the same
    /// profile in another folder gives the same page.
    pub files: (&'a str, &'a str),
    /// The samples by time, of every kind.
    pub timeline: &'a Timeline,
    /// What gives the stacks their names.
    pub source: Source<'a>,
    /// Header and counters.
    pub profile: &'a Profile,
    /// The account.
    pub account: &'a Account,
    /// TSC ticks per second.
    pub tsc_hz: f64,
    /// Whether user code is shown at first.
    pub user: bool,
    /// Which inlined frames are shown at first. The symbols must give all of them.
    pub inlines: Inlines,
    /// The point whose hits are shown instead of samples.
    pub event: Option<event::OfPoint<'a>>,
    /// The profile that this one is compared with.
    pub old: Option<Old<'a>>,
}

/// The older profile of a comparison.
pub struct Old<'a> {
    /// Its file, as it was named.
    pub file: &'a str,
    /// Why what is shown of it may be wrong.
    pub doubts: &'a [String],
    /// Its samples.
    pub timeline: &'a Timeline,
    /// The hits of a point, if they are compared instead of samples; those of the timeline in the same order.
    pub hits: Option<&'a Hits>,
    /// What gives its stacks their names.
    pub source: Source<'a>,
    /// Which functions have changed.
    pub diff: &'a Diff,
}

impl Old<'_> {
    /// What each entry of the timeline counts: 1, or the weight for which a hit stands.
    fn counts(&self) -> impl Iterator<Item = u64> {
        let weight = |at: usize| self.hits.map_or(1, |hits| hits.hits[at].stands_for);
        (0..self.timeline.events.len()).map(weight)
    }
}

/// Writes the page.
///
/// # Errors
/// Errors of the writer.
pub fn write(input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut tree = Tree::new();
    let numbers = tree.add(&input.source, input.timeline.events.iter().map(|event| event.stack));
    let mut old_counts = Vec::new();
    if let Some(old) = &input.old {
        let numbers = tree.add(&old.source, old.timeline.events.iter().map(|event| event.stack));
        old_counts.resize(tree.len(), 0u64);
        for (event, count) in old.timeline.events.iter().zip(old.counts()) {
            let sum = &mut old_counts[numbers[&event.stack] as usize];
            *sum = sum.saturating_add(count);
        }
    }
    let mut counts = vec![0; tree.len()];
    input.timeline.events.iter().for_each(|event| counts[numbers[&event.stack] as usize] += 1);
    let mut text = facts::text(input, &tree);
    text["source"] = tree.source(&counts);
    let clock = facts::Clock::new(input);
    let cpus = facts::cpus(input);
    let (mut times, mut places, mut stacks, mut tasks) = <(Column, Column, Column, Column)>::default();
    let mut before = 0;
    for event in &input.timeline.events {
        let at = clock.micros(event.boot, event.tsc);
        times.push(at.saturating_sub(before));
        before = at.max(before);
        places.push(cpus.binary_search(&event.cpu).unwrap_or_default() as u64);
        stacks.push(u64::from(numbers[&event.stack]));
        tasks.push(u64::from(event.task));
    }
    let mut columns = Vec::from(tree.columns());
    columns.extend([times, places, stacks, tasks, old_counts.into_iter().collect()]);
    columns.push(input.event.iter().flat_map(event::OfPoint::weights).collect());
    let data = pack(&text.to_string(), &columns)?;
    out.write_all(facts::head(input).as_bytes())?;
    writeln!(out, "<script type=\"text/plain\" id=\"data\">{data}</script>")?;
    writeln!(out, "<script>\n\"use strict\";\n(() => {{")?;
    SCRIPT.iter().try_for_each(|file| out.write_all(file.as_bytes()))?;
    writeln!(out, "}})();\n</script>\n</body>\n</html>")
}
