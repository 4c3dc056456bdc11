//! The subcommand `latency`. Stage: command line.
//!
//! In: a profile, and the names of points. Out: their hits and the distribution of their weights, over all boots of the
//! file, and over all CPUs or those that are asked for. A name that no point of the file has is an error, so that a
//! mistyped name is not taken for a point without hits. With `--by-size`: the recorded requests to disks, by disk and
//! size.

use super::args::Latency;
use super::event::{account_of, on_cpus};
use super::nearest::did_you_mean;
use super::plain;
use crate::error::Error;
use crate::output::{latency, requests};
use crate::overview::Overview;
use crate::points::Point;
use crate::read::Reading;
use crate::read::consumer::Consumer;
use crate::requests::Requests;
use crate::select::admits_known;
use kprof_format::point::Points;
use std::collections::BTreeMap;
use std::path::Path;

/// `latency`.
///
/// # Errors
/// If the file cannot be read, has no points, or none of a name that was asked for.
pub fn run(args: &Latency) -> Result<u8, Error> {
    if args.by_size {
        return by_size(args);
    }
    let (reading, points) = read_points(args, Overview::default())?;
    plain::write(&args.plain, &reading, || latency::text(&points), || latency::document(&points))
}

/// `latency --by-size`.
fn by_size(args: &Latency) -> Result<u8, Error> {
    let (mut reading, points) = read_points(args, Requests::of_cpus(&args.cpu))?;
    let requests = std::mem::take(&mut reading.consumer);
    if let Some(point) = requests.chosen_by_weight.as_ref().filter(|point| points.contains_key(*point)) {
        let why = format!("the requests of {point} were chosen by weight, so long ones are too many among them");
        return Err(Error::unusable(&args.plain.file, why));
    }
    let groups = requests.groups(|point| points.contains_key(point));
    if groups.is_empty() {
        let how = "record them, with the ctl command `event block.* record`";
        return Err(Error::unusable(&args.plain.file, format!("has no recorded requests to disks: {how}")));
    }
    let words = |point: &Point, name: &str| account_of(&on_cpus(name, &args.cpu), point);
    let account = |name: &str| points.get(name).map_or_else(String::new, |point| words(point, name));
    plain::write(&args.plain, &reading, || requests::text(&groups, account), || requests::document(&groups))
}

/// Reads the profile, and returns the points that were asked for too.
fn read_points<C: Consumer>(args: &Latency, consumer: C) -> Result<(Reading<C>, BTreeMap<String, Point>), Error> {
    if let Some(word) = args.syms.as_deref().filter(|word| !Path::new(word).exists()) {
        return Err(Error::Usage(format!("{word}: there is no such file; a point is named by --event {word}")));
    }
    let reading = plain::read(&args.plain, args.syms.as_deref(), consumer)?;
    let mut all = BTreeMap::<String, Point>::new();
    for (name, point) in reading.profile.boots.iter().flat_map(|boot| &boot.points) {
        all.entry(name.clone()).or_default().add(point);
    }
    let mut points = chosen(&all, args)?;
    if !args.cpu.is_empty() {
        points.values_mut().for_each(|point| *point = point.of_cpus(|cpu| admits_known(&args.cpu, cpu)));
    }
    Ok((reading, points))
}

/// The points that were asked for; all of them if no name was given.
fn chosen(all: &BTreeMap<String, Point>, args: &Latency) -> Result<BTreeMap<String, Point>, Error> {
    let usage = |text: String| Err(Error::Usage(text));
    if all.is_empty() {
        return usage(format!(
            "{} has no counts of points: enable them before the work, with the ctl command `event NAME count`",
            args.plain.file
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
            return usage(format!("{} has no counts of the point {text}{hint}", args.plain.file));
        }
    }
    Ok(if args.names.is_empty() { all.clone() } else { chosen })
}
