//! Where a sample file that is already there can be continued.
//!
//! ```text
//! # kprof-profile 1 ... # batch ... # end ... # batch ... # end ... # batch ... samp
//!                                                               ▲
//!                                        everything after the last finished piece is cut away
//! ```
//!
//! In: the bytes of the file, line by line. Out: where to cut, and for the last boot in it: the position up to which each
//! stream is on disk and the names of its contexts (the kernel has given up its copy of them). Context: user process.
//! Never cuts a file that is not ours, and never a finished batch or account.

use super::lines::FIRST_LINE;
use crate::source::Stream;
use kprof::format::text::parse_hex;
use std::collections::BTreeMap;

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Length up to which the file is finished, in bytes.
    pub finished_bytes: u64,
    /// Id of the last boot in it.
    pub boot: Option<String>,
    /// Position after the last record on disk, for each stream of that boot.
    pub ends: BTreeMap<Stream, u64>,
    /// Context ids and their escaped names, of that boot.
    pub names: BTreeMap<u64, Box<[u8]>>,
}

/// Goes through a file's lines.
#[derive(Debug, Default)]
pub struct Scan {
    finished: Resumed,
    /// The boot of a header below which nothing is finished yet.
    new_boot: Option<String>,
    offset: u64,
    open: Option<OpenBatch>,
}

#[derive(Debug)]
struct OpenBatch {
    stream: Stream,
    to: u64,
    samples: u64,
    names: Vec<(u64, Box<[u8]>)>,
}

impl Scan {
    /// Takes one line with its line feed.
    ///
    /// # Errors
    /// When the first line is not that of a kprof profile of this version.
    pub fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let is_first = self.offset == 0;
        self.offset += line.len() as u64;
        let Some(line) = line.strip_suffix(b"\n") else {
            // Torn: not finished, whatever it was going to be. As a first line it must at least begin like ours.
            let alien = is_first && !FIRST_LINE.as_bytes().starts_with(line);
            return if alien { Err(not_ours()) } else { Ok(()) };
        };
        if is_first && line != FIRST_LINE.as_bytes() {
            return Err(not_ours());
        }
        let Some(line) = line.strip_prefix(b"# ") else {
            if let Some(open) = &mut self.open {
                open.samples += 1;
            }
            return Ok(());
        };
        if let Ok(line) = std::str::from_utf8(line) {
            self.meta(line);
        }
        Ok(())
    }

    /// A piece of a line that is too long to be held; the rest of it follows.
    pub fn piece(&mut self, bytes: &[u8]) -> Result<(), String> {
        let is_first = self.offset == 0;
        self.offset += bytes.len() as u64;
        if is_first { Err(not_ours()) } else { Ok(()) }
    }

    /// What was found.
    pub fn end(self) -> Resumed {
        self.finished
    }

    fn meta(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "kprof-profile" => self.open = None,
            "boot" => self.new_boot = Some(rest.into()),
            "batch" => self.open = OpenBatch::from_line(rest),
            "context" => {
                let id = field(rest, "id").and_then(|id| parse_hex(id.as_bytes()));
                if let (Some(open), Some(id), Some(name)) = (&mut self.open, id, field(rest, "name")) {
                    open.names.push((id, name.as_bytes().into()));
                }
            }
            "end" => self.batch_end(rest),
            "account" if self.open.is_none() => self.all_is_finished(),
            _ => {}
        }
    }

    fn batch_end(&mut self, rest: &str) {
        let Some(open) = self.open.take() else { return };
        let samples = field(rest, "samples").and_then(|count| count.parse().ok());
        let is_whole = stream(rest) == Some(open.stream)
            && field(rest, "to").and_then(|to| to.parse().ok()) == Some(open.to)
            && samples.unwrap_or(open.samples) == open.samples;
        if is_whole {
            self.all_is_finished();
            let end = self.finished.ends.entry(open.stream).or_default();
            *end = open.to.max(*end);
            self.finished.names.extend(open.names);
        }
    }

    /// Everything up to here stays.
    fn all_is_finished(&mut self) {
        if let Some(boot) = self.new_boot.take()
            && self.finished.boot.as_ref() != Some(&boot)
        {
            self.finished = Resumed { boot: Some(boot), ..Resumed::default() };
        }
        self.finished.finished_bytes = self.offset;
    }
}

impl OpenBatch {
    fn from_line(rest: &str) -> Option<Self> {
        Some(Self { stream: stream(rest)?, to: field(rest, "to")?.parse().ok()?, samples: 0, names: Vec::new() })
    }
}

fn stream(rest: &str) -> Option<Stream> {
    match field(rest, "cpu")? {
        "meta" => Some(Stream::Meta),
        cpu => cpu.parse().ok().map(Stream::Cpu),
    }
}

/// The value of `key=value` among the words of a line.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

fn not_ours() -> String {
    format!("not a file of this program: it does not begin with `{FIRST_LINE}`; move it away or choose another with -o")
}
