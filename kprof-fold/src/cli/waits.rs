//! The subcommand `waits`. Stage: command line.
//!
//! In: a profile, and which tasks. Out: how the time of each task was divided into running, being ready to run, and
//! being blocked, by reason, over all boots of the file. Tasks of one name are added up.

use super::args::Waits;
use super::nearest::did_you_mean;
use super::plain;
use crate::error::Error;
use crate::output::waits;
use crate::overview::Overview;
use crate::profile::Boot;
use crate::task_times::TaskTimes;
use std::collections::BTreeMap;

/// `waits`.
///
/// # Errors
/// If the file cannot be read, has no times of tasks, or none of a task that was asked for.
pub fn run(args: &Waits) -> Result<u8, Error> {
    let reading = plain::read(&args.plain, None, Overview::default())?;
    let mut all = BTreeMap::<String, (u64, TaskTimes)>::new();
    for ((_, name), times) in reading.profile.boots.iter().flat_map(|boot| &boot.task_times) {
        let (count, sum) = all.entry(String::from_utf8_lossy(name).into_owned()).or_default();
        *count += 1;
        sum.add_times(times);
    }
    if all.is_empty() {
        let how = "record them, with the ctl command `event sched.* count` before the work and `stop` after it";
        return Err(Error::unusable(&args.plain.file, format!("has no times of tasks: {how}")));
    }
    for pattern in &args.task {
        if !all.keys().any(|name| pattern.fits(name)) {
            let hint = did_you_mean(pattern.as_str(), all.keys().map(String::as_str));
            return Err(Error::unusable(
                &args.plain.file,
                format!("has no times of the task {}{hint}", pattern.as_str()),
            ));
        }
    }
    if !args.task.is_empty() {
        all.retain(|name, _| args.task.iter().any(|pattern| pattern.fits(name)));
    }
    let tsc_hz = reading.profile.boots.iter().find_map(Boot::tsc_hz).map(|hz| hz as f64);
    plain::write(&args.plain, &reading, || waits::text(&all, tsc_hz), || waits::document(&all, tsc_hz))
}
