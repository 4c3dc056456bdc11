//! Judges what a profile says of the requests to disks.
//!
//! In: a profile whose requests were all recorded, and the serial log with lines `known: POINT WHO DISK REQUESTS BYTES
//! NANOSECONDS`, as the work itself has counted: WHO is a function or a task, and the last number is how long it took.
//! Out: nothing, or the first thing that is wrong. For each line the number of requests and their bytes are exact, each
//! has lasted for some time, and all together not longer than the work. There are no other requests. What was written
//! by `write_once`, and nothing else in its pages, is in the disk's image.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::parts::Parts;
use crate::run;

const POINTS: [&str; 2] = ["block.read", "block.write"];
const WORD: usize = size_of::<u64>();

/// Makes the disks of a machine, each with this many MiB. Each word is its offset, and the number of the disk in the
/// highest byte, which is what the workload `block` expects.
pub fn images<'a>(sizes: impl Iterator<Item = &'a str>, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut images = Vec::new();
    for (number, mib) in sizes.enumerate() {
        let bytes = mib.parse::<usize>().with_context(|| format!("# disk: {mib}"))? << 20;
        let words = (0..bytes).step_by(WORD).map(|offset| word(number, offset));
        let image = image(folder, number);
        fs::write(&image, words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?;
        images.push(image);
    }
    Ok(images)
}

fn image(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("disk-{number}.img"))
}

fn word(disk: usize, offset: usize) -> u64 {
    (disk as u64) << 56 | offset as u64
}

/// Requests of one point and disk by one function or task.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    requests: u64,
    bytes: u64,
    ns: u64,
}

/// Judges the profile in `file`. The disks are in `folder`.
pub fn judge(file: &Path, log: &str, parts: &Parts, symbols: &Path, folder: &Path) -> Result<()> {
    let mut known = BTreeMap::<(String, String, u16), Sum>::new();
    for line in log.lines().filter_map(|line| line.split_once("known: ")).map(|(_, rest)| rest) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [point, who, disk, numbers @ ..] = &words[..] else { continue };
        let numbers: Vec<u64> = numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
        let [requests, bytes, ns] = numbers[..].try_into().ok().with_context(|| format!("known: {line}"))?;
        known.entry(((*point).to_owned(), (*who).to_owned(), disk.parse()?)).or_default().add(requests, bytes, ns);
    }
    ensure!(!known.is_empty(), "the log says nothing of known requests");
    let mut found = BTreeMap::<(String, String, u16), Sum>::new();
    for point in POINTS {
        let mut script = Command::new(&parts.fold);
        script.args(["script", "--event", point, "--quiet"]).arg(file).arg(symbols);
        let text = run::output(&mut script)?;
        for event in text.split("\n\n").filter(|event| !event.trim().is_empty()) {
            let (head, frames) = event.split_once('\n').with_context(|| format!("no stack: {event}"))?;
            let request = request(head, point).with_context(|| format!("not a request: {head}"))?;
            ensure!(request.ns > 0, "a request without a time: {head}");
            let is_of = |who: &str| frames.contains(&format!("::{who}]")) || head.starts_with(&format!("{who} "));
            let who = known.keys().find(|(of, who, disk)| of == point && *disk == request.disk && is_of(who));
            let key = who.with_context(|| format!("nobody is known to have made this request:\n{event}"))?.clone();
            found.entry(key).or_default().add(1, request.bytes, request.ns);
        }
    }
    for (key, Sum { requests, bytes, ns }) in &known {
        let (point, who, disk) = key;
        let of = found.remove(key).with_context(|| format!("no {point} of disk {disk} by {who}"))?;
        println!(
            "  {point} of disk {disk} by {who}: {} requests, {} bytes, {} of {ns} ns",
            of.requests, of.bytes, of.ns
        );
        ensure!((of.requests, of.bytes) == (*requests, *bytes), "known are {requests} requests, {bytes} bytes");
        ensure!(of.ns <= *ns, "its requests have lasted for {} ns, but it has taken {ns} ns", of.ns);
    }
    let disk = known.iter().find(|((_, who, _), _)| who == "write_once");
    let Some(((_, _, disk), sum)) = disk else { return Ok(()) };
    let image = fs::read(image(folder, usize::from(*disk)))?;
    let inverted =
        |(at, bytes): &(usize, &[u8; WORD])| u64::from_le_bytes(**bytes) == !word(usize::from(*disk), at * WORD);
    let written = (image.as_chunks::<WORD>().0.iter().enumerate().filter(inverted).count() * WORD) as u64;
    ensure!(written == sum.bytes, "{written} bytes are on the disk, but {} were written", sum.bytes);
    Ok(())
}

/// One line of `script`.
struct Request {
    disk: u16,
    bytes: u64,
    ns: u64,
}

/// The request of the line `TASK CPU TIME: NS ns: POINT: device=D sector=S bytes=B`.
fn request(head: &str, point: &str) -> Option<Request> {
    let (before, arguments) = head.split_once(&format!(" ns: {point}: "))?;
    let ns = before.rsplit(' ').next()?.parse().ok()?;
    let value = |name: &str| arguments.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Some(Request { disk: value("device")?.parse().ok()?, bytes: value("bytes")?.parse().ok()?, ns })
}

impl Sum {
    fn add(&mut self, requests: u64, bytes: u64, ns: u64) {
        self.requests += requests;
        self.bytes += bytes;
        self.ns += ns;
    }
}
