//! The subcommand `latency`. Stage: command line.
//!
//! In: a profile, and the names of points. Out: their hits and the distribution of their weights, over all boots of the
//! file. A name that no point of the file has is an error, so that a mistyped name is not taken for a point without
//! hits.

use super::args::{Latency, TableFormat};
use super::load;
use super::nearest::did_you_mean;
use super::out::{not_written, put};
use crate::account::Account;
use crate::error::Error;
use crate::output::{info, latency};
use crate::overview::Overview;
use crate::points::Point;
use crate::read::{self, Source};
use crate::symbols::name::visible_lines;
use kprof_format::point::Points;
use std::collections::BTreeMap;

/// `latency`.
///
/// # Errors
/// If the file cannot be read, has no points, or none of a name that was asked for.
pub fn run(args: &Latency) -> Result<u8, Error> {
    let output = args.output.as_deref();
    let format = TableFormat::of(args.format, output)?;
    let reading = read::read(Source { file: &args.file, form: None, progress: &mut |_| {} }, Overview::default())?;
    super::talk::print(&reading.problems);
    let mut all = BTreeMap::<String, Point>::new();
    for (name, point) in reading.profile.boots.iter().flat_map(|boot| &boot.points) {
        all.entry(name.clone()).or_default().add(point);
    }
    let points = chosen(&all, args)?;
    let text = match format {
        TableFormat::Text => visible_lines(&latency::text(&points)).into_owned(),
        TableFormat::Json => format!("{:#}\n", latency::document(&points)),
        TableFormat::Csv => info::csv::text(&latency::document(&points)).map_err(|error| not_written(output, error))?,
    };
    put(output, true, &[&args.file], |out| out.write_all(text.as_bytes()).map_err(|error| not_written(output, error)))?;
    let kept = (reading.profile.samples(), reading.profile.lost());
    Ok(load::exit_code(args.limits, &reading.problems, &Account::of(&reading.profile), kept))
}

/// The points that were asked for; all of them if no name was given.
fn chosen(all: &BTreeMap<String, Point>, args: &Latency) -> Result<BTreeMap<String, Point>, Error> {
    let usage = |text: String| Err(Error::Usage(text));
    if all.is_empty() {
        return usage(format!(
            "{} has no counts of points: enable them before the work, with the ctl command `event NAME count`",
            args.file
        ));
    }
    let mut chosen = BTreeMap::new();
    for text in &args.names {
        let Some(points) = Points::of(text) else {
            return usage(format!("`{text}` is not the name of a point; only its end may be `*`"));
        };
        let named = all.iter().filter(|(name, _)| points.contains(name));
        chosen.extend(named.map(|(name, point)| (name.clone(), point.clone())));
        if !all.keys().any(|name| points.contains(name)) {
            let hint = did_you_mean(text, all.keys().map(String::as_str));
            return usage(format!("{} has no counts of the point {text}{hint}", args.file));
        }
    }
    Ok(if args.names.is_empty() { all.clone() } else { chosen })
}
