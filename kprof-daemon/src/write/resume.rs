//! Finds where an existing sample file can be continued.
//!
//! ```text
//! # kprof-profile 1 ... # batch ... # end ... # batch ... # end ... # batch ... samp
//!                                                               ▲
//!                                        everything after the last finished piece is removed
//! ```
//!
//! In: the bytes of the file. Out: where to truncate it. For the last boot in it also the position up to which each
//! stream is on disk, and the names of its tasks, because the kernel has already freed its copy of them. Runs in: user
//! process. A batch that does not match its checksum is not finished: its records are written again, after the last
//! finished piece. Never truncates a file that is not a kprof profile, and never removes a finished batch or account.

use crate::source::Stream;
use kprof_format::checksum::Crc32;
use kprof_format::chunk::{self, BadChunk, Chunk, ChunkKind, MAGIC, VERSION};
use kprof_format::fact::Fact;
use kprof_format::line::{Account, Batch, Checksum, End, FIRST_LINE, Name, Profile, Task};
use kprof_format::samples;
use std::collections::BTreeMap;

/// The header line with the id of the boot.
const BOOT: &str = Fact::Boot.name();
/// Maximum length in bytes of a line that is held in memory. The daemon writes no longer line; if the file has one, it
/// is read in pieces.
const LONGEST_LINE: usize = 256 * 1024;

/// What a scan has found in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resumed {
    /// Length up to which the file is finished, in bytes.
    pub finished_bytes: u64,
    /// Id of the last boot in it.
    pub boot: Option<String>,
    /// Position after the last record on disk, for each stream of that boot.
    pub ends: BTreeMap<Stream, u64>,
    /// Where the first batch of each stream of that boot begins, and the TSC of its first sample: together they tell
    /// that boot from another one with the same id. No TSC if the batch does not begin with a sample.
    pub begins: BTreeMap<Stream, (u64, Option<u64>)>,
    /// The tasks of that boot: ids, and escaped names.
    pub names: BTreeMap<u64, Box<[u8]>>,
}

/// Whether a file that begins with these bytes is a profile. An empty file is not.
pub fn is_profile(first: &[u8]) -> bool {
    first.starts_with(&MAGIC) || first.strip_prefix(FIRST_LINE.as_bytes()).is_some_and(|rest| rest.starts_with(b"\n"))
}

/// Scans a file of either form.
#[derive(Debug, Default)]
pub struct Scan {
    finished: Resumed,
    /// The boot of the last header, if no batch or account after it is finished yet.
    new_boot: Option<String>,
    /// The boot id in the last header, finished or not; empty if that header has no boot id.
    header_boot: String,
    offset: u64,
    open: Option<OpenBatch>,
    is_binary: bool,
}

#[derive(Debug)]
struct OpenBatch {
    stream: Stream,
    from: u64,
    to: u64,
    /// How many lines it has so far, its own first line included, and the TSC if the second one is a sample.
    lines: u64,
    first_tsc: Option<u64>,
    /// The checksum of its lines so far.
    sum: Crc32,
    names: Vec<(u64, Box<[u8]>)>,
}

impl Scan {
    /// A scan of a file that is to be continued in this form.
    pub fn new(is_binary: bool) -> Self {
        Self { is_binary, ..Self::default() }
    }

    /// Scans as much as it can from the beginning of `bytes` and returns how many bytes that was. The caller passes the
    /// rest again, with more bytes after it unless `at_end`.
    ///
    /// # Errors
    /// If the file is not a kprof profile of this version and form.
    pub fn take(&mut self, bytes: &[u8], at_end: bool) -> Result<usize, String> {
        if self.offset == 0 {
            self.check_first(bytes)?;
        }
        if self.is_binary { Ok(self.chunks(bytes, at_end)) } else { Ok(self.lines(bytes, at_end)) }
    }

    /// The result of the scan.
    pub fn end(self) -> Resumed {
        self.finished
    }

    fn check_first(&self, bytes: &[u8]) -> Result<(), String> {
        let first_line = [FIRST_LINE.as_bytes(), b"\n"].concat();
        // A file that ends inside its first line may also be a kprof profile.
        let begins_with = |first: &[u8]| bytes.starts_with(first) || first.starts_with(bytes);
        let (is_text, is_binary) = (begins_with(&first_line), begins_with(&MAGIC));
        if let Some(version) = bytes.strip_prefix(&MAGIC).and_then(<[u8]>::first).filter(|version| **version > VERSION)
        {
            return Err(format!("written by a newer program (form {version}); use another -o, or a newer profiled"));
        }
        match (if self.is_binary { is_binary } else { is_text }, is_text || is_binary) {
            (true, _) => Ok(()),
            (false, true) if self.is_binary => {
                Err("it holds the text form; leave --binary out, or use another -o".into())
            }
            (false, true) => Err("it holds the binary form; use --binary, or another -o".into()),
            (false, false) => Err(format!(
                "not a file of this program (it does not begin with `{FIRST_LINE}`); move it away, or use another -o"
            )),
        }
    }

    fn lines(&mut self, bytes: &[u8], at_end: bool) -> usize {
        let mut used = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = line.ends_with(b"\n");
            if !is_whole && !at_end && line.len() < LONGEST_LINE {
                break;
            }
            self.offset += line.len() as u64;
            used += line.len();
            if is_whole {
                self.line(&line[..line.len() - 1]);
            }
            // If this line has ended a batch, that batch is no longer open. So if a batch is open, this line belongs to
            // it.
            if let Some(open) = &mut self.open {
                open.sum.add(line);
                open.lines += 1;
            }
        }
        used
    }

    fn line(&mut self, line: &[u8]) {
        if let Some(line) = line.strip_prefix(b"# ")
            && let Ok(line) = std::str::from_utf8(line)
        {
            self.meta(line);
        } else if let Some(open) = self.open.as_mut().filter(|open| open.lines == 1 && is_of_cpu(open.stream)) {
            open.first_tsc = tsc_of_sample(line);
        }
    }

    fn chunks(&mut self, bytes: &[u8], at_end: bool) -> usize {
        let mut used = 0;
        while used < bytes.len() {
            match Chunk::split(&bytes[used..]) {
                Ok((chunk, rest)) => {
                    let end = bytes.len() - rest.len();
                    self.offset += (end - used) as u64;
                    used = end;
                    self.chunk(&chunk);
                }
                Err(BadChunk::Incomplete { .. }) if !at_end => break,
                Err(_) => {
                    // This chunk is damaged or incomplete: continue at the next chunk, if there is one.
                    let next = chunk::find(bytes, used + 1).unwrap_or(bytes.len());
                    self.offset += (next - used) as u64;
                    used = next;
                }
            }
        }
        used
    }

    fn chunk(&mut self, chunk: &Chunk<'_>) {
        let mut payload = chunk.payload;
        if chunk.kind == ChunkKind::Lines {
            return payload.split(|byte| *byte == b'\n').for_each(|line| self.line(line));
        }
        let head =
            samples::take_varint(&mut payload).ok().and_then(|length| payload.get(..usize::try_from(length).ok()?));
        let first = head.and_then(|head| std::str::from_utf8(head.split(|byte| *byte == b'\n').next()?).ok());
        if let Some((Batch::WORD, rest)) = first.and_then(|line| line.strip_prefix("# ")?.split_once(' '))
            && let Some(mut open) = self.begin(rest)
        {
            // Lines after the first one are of words that were no record, which may have been the first ones.
            let is_alone = head.is_some_and(|head| head.iter().filter(|byte| **byte == b'\n').count() == 1);
            if is_alone && is_of_cpu(open.stream) {
                let mut samples = payload.get(head.map_or(0, <[u8]>::len)..).unwrap_or_default();
                open.first_tsc = samples::Reader::default().read(&mut samples).and_then(Result::ok).map(|it| it.tsc);
            }
            self.finish(open);
        }
    }

    fn meta(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            Profile::WORD => (self.open, self.header_boot) = (None, String::new()),
            BOOT => (self.new_boot, self.header_boot) = (Some(rest.into()), rest.into()),
            Batch::WORD => self.open = self.begin(rest),
            Task::WORD => {
                if let (Some(open), Ok(Task { id, name: Name::Escaped(name) })) = (&mut self.open, Task::read(rest)) {
                    open.names.push((id.0, name.into()));
                }
            }
            End::WORD => self.batch_end(rest),
            Account::WORD if self.open.is_none() => self.all_is_finished(),
            _ => {}
        }
    }

    /// The batch that begins with this line; its checksum begins here. One that names another boot than the header is
    /// left from an older file.
    fn begin(&self, rest: &str) -> Option<OpenBatch> {
        let of_header = Name::Raw(self.header_boot.trim().as_bytes());
        let batch = Batch::read(rest).ok().filter(|batch| batch.boot.is_none_or(|boot| boot == of_header))?;
        let sum = Crc32::of_batch(&self.header_boot);
        let (stream, from, to) = (batch.cpu.into(), batch.from, batch.to);
        Some(OpenBatch { stream, from, to, lines: 0, first_tsc: None, sum, names: Vec::new() })
    }

    /// Ends the open batch. It is finished if its `# end` line has its stream and position and, in the text form, if
    /// its bytes match the checksum in that line. The binary form needs no such check: there only names are in batches
    /// made of lines, and each chunk has a checksum of its own.
    fn batch_end(&mut self, rest: &str) {
        let (Some(open), Ok(end)) = (self.open.take(), End::read(rest)) else { return };
        let is_sound = self.is_binary || end.crc == Some(Checksum(open.sum.end()));
        if is_sound && Stream::from(end.cpu) == open.stream && end.to == open.to {
            self.finish(open);
        }
    }

    fn finish(&mut self, batch: OpenBatch) {
        self.all_is_finished();
        let end = self.finished.ends.entry(batch.stream).or_default();
        *end = batch.to.max(*end);
        self.finished.begins.entry(batch.stream).or_insert((batch.from, batch.first_tsc));
        self.finished.names.extend(batch.names);
    }

    /// Marks everything up to here as finished.
    fn all_is_finished(&mut self) {
        if let Some(boot) = self.new_boot.take()
            && self.finished.boot.as_ref() != Some(&boot)
        {
            self.finished = Resumed { boot: Some(boot), ..Resumed::default() };
        }
        self.finished.finished_bytes = self.offset;
    }
}

fn is_of_cpu(stream: Stream) -> bool {
    matches!(stream, Stream::Cpu(_))
}

/// The TSC in the line of a sample: `TASK CPU TSC ADDRESS ...`.
fn tsc_of_sample(line: &[u8]) -> Option<u64> {
    let tsc = line.split(|byte| *byte == b' ').nth(2)?;
    u64::from_str_radix(std::str::from_utf8(tsc).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::lines;

    #[test]
    fn an_account_after_a_batch_is_finished_and_one_inside_an_open_batch_is_not() {
        let header = "# kprof-profile 1\n# boot now\n";
        let batch = "# batch cpu=1 from=0 to=10\nsh 1 2 ffffffff80000000\n";
        let account = "# account cpu=1 sent=1 taken=1\n";
        let sum = Crc32::of_batch("now").with(batch.as_bytes()).end();
        let mut end = Vec::new();
        lines::end(&mut end, Stream::Cpu(1), &lines::Batch { to: 10, samples: 1, ..Default::default() }, Some(sum));
        let whole = [header.as_bytes(), batch.as_bytes(), &end, account.as_bytes()].concat();
        let open = [&whole[..], batch.as_bytes(), account.as_bytes()].concat();
        for file in [&whole, &open] {
            let mut scan = Scan::new(false);
            assert_eq!(scan.take(file, true), Ok(file.len()));
            let resumed = scan.end();
            assert_eq!(resumed.ends, [(Stream::Cpu(1), 10)].into());
            assert_eq!(resumed.finished_bytes, whole.len() as u64);
        }
    }

    /// A batch that is the last one of its stream, and the file with it, of which `before` is the rest.
    fn with_last_batch(before: &[u8]) -> Vec<u8> {
        let batch = b"# batch cpu=2 from=0 to=10\nsh 2 2 ffffffff80000000\n";
        let sum = Crc32::of_batch("now").with(batch).end();
        let mut file = [before, batch].concat();
        lines::end(&mut file, Stream::Cpu(2), &lines::Batch { to: 10, samples: 1, ..Default::default() }, Some(sum));
        file
    }

    #[test]
    fn a_line_that_is_cut_by_the_end_of_what_was_read_is_read_whole_with_the_next_bytes() {
        let header = b"# kprof-profile 1\n# boot now\n".to_vec();
        // More than the longest line is held when the file is truncated.
        let filler = b"# marks and other lines that are in no batch\n".repeat(2 * LONGEST_LINE / 45);
        let before = [header, filler].concat();
        let file = with_last_batch(&before);
        for cut in before.len() - 50..=file.len() {
            let mut scan = Scan::new(false);
            let used = scan.take(&file[..cut], false).unwrap();
            let lines = file[..cut].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            assert_eq!(used, lines, "all whole lines, and no part of another");
            assert_eq!(scan.take(&file[used..], true), Ok(file.len() - used));
            let resumed = scan.end();
            assert_eq!(resumed.ends, [(Stream::Cpu(2), 10)].into(), "cut at byte {cut} of {}", file.len());
            assert_eq!(resumed.finished_bytes, file.len() as u64);
        }
    }

    #[test]
    fn a_long_line_that_is_cut_is_read_whole() {
        let counters: String = (0..20_000).map(|number| format!(" c{number}=1")).collect();
        let file = format!("# kprof-profile 1\n# boot now\n# account cpu=1{counters}\n").into_bytes();
        for cut in [100, 2000, 100_000, file.len() - 1] {
            let mut scan = Scan::new(false);
            let used = scan.take(&file[..cut], false).unwrap();
            assert_eq!(scan.take(&file[used..], true), Ok(file.len() - used));
            assert_eq!(scan.end().finished_bytes, file.len() as u64, "cut at {cut}");
        }
    }

    #[test]
    fn only_a_profile_of_this_form_and_version_is_continued() {
        let (text, binary) = (b"# kprof-profile 1\n".to_vec(), [&MAGIC[..], &[VERSION]].concat());
        let newer = [&MAGIC[..], &[VERSION + 1]].concat();
        for (is_binary, first, refused) in [
            (false, &text, None),
            (true, &binary, None),
            (false, &text[..9].to_vec(), None),
            (true, &MAGIC[..2].to_vec(), None),
            (true, &text, Some("it holds the text form")),
            (false, &binary, Some("it holds the binary form")),
            (true, &newer, Some("written by a newer program")),
            (false, &newer, Some("written by a newer program")),
            (false, &b"root:x:0:0\n".to_vec(), Some("not a file of this program")),
            (true, &b"root:x:0:0\n".to_vec(), Some("not a file of this program")),
        ] {
            let said = Scan::new(is_binary).take(first, true).err();
            assert_eq!(said.is_some(), refused.is_some(), "{is_binary}, {first:?}: {said:?}");
            assert!(said.iter().all(|said| said.contains(refused.unwrap())), "{is_binary}, {first:?}: {said:?}");
        }
    }

    #[test]
    fn the_end_of_another_batch_finishes_none_and_a_header_without_a_boot_begins_anew() {
        let header = b"# kprof-profile 1\n# boot now\n".to_vec();
        let batch = b"# batch cpu=2 from=0 to=10\nsh 2 2 ffffffff80000000\n";
        for (cpu, to, boot) in [(2, 10, "now"), (1, 10, "now"), (2, 11, "now"), (2, 10, "")] {
            let before = if boot.is_empty() { [&header[..], b"# kprof-profile 1\n"].concat() } else { header.clone() };
            let mut file = [&before[..], batch].concat();
            let sum = Crc32::of_batch(boot).with(batch).end();
            lines::end(&mut file, Stream::Cpu(cpu), &lines::Batch { to, samples: 1, ..Default::default() }, Some(sum));
            let mut scan = Scan::new(false);
            assert_eq!(scan.take(&file, true), Ok(file.len()));
            let finished = if (cpu, to) == (2, 10) { file.len() } else { 0 };
            assert_eq!(scan.end().finished_bytes, finished as u64, "cpu {cpu}, to {to}, boot {boot}");
        }
    }

    fn chunk(kind: ChunkKind, payload: &[u8]) -> Vec<u8> {
        [&Chunk { kind, samples: 0, payload }.header()[..], payload].concat()
    }

    /// The chunk of a batch of CPU 1 of ten words, with this at the end of its first line.
    fn samples(from: u64, boot: &str) -> Vec<u8> {
        let line = format!("# batch cpu=1 from={from} to={}{boot}\n", from + 10);
        let (block, length) = samples::varint(line.len() as u64);
        chunk(ChunkKind::Samples, &[&block[..length], line.as_bytes()].concat())
    }

    #[test]
    fn a_damaged_chunk_hides_no_chunk_after_it() {
        let header = chunk(ChunkKind::Lines, b"# kprof-profile 1\n# boot now\n");
        let before = [header, samples(0, "")].concat();
        let file = [before.clone(), samples(10, ""), samples(20, "")].concat();
        // Any byte of the chunk in the middle, also those of its length.
        for at in before.len()..before.len() + samples(10, "").len() {
            let mut file = file.clone();
            file[at] ^= 0x40;
            let mut scan = Scan::new(true);
            assert_eq!(scan.take(&file, true), Ok(file.len()), "byte {at}");
            let resumed = scan.end();
            assert_eq!((resumed.ends[&Stream::Cpu(1)], resumed.finished_bytes), (30, file.len() as u64), "byte {at}");
        }
    }

    #[test]
    fn a_chunk_that_is_left_from_another_boot_is_not_on_disk() {
        let header = chunk(ChunkKind::Lines, b"# kprof-profile 1\n# boot now\n");
        for (boot, end) in [(" boot=now", 60), ("", 60), (" boot=before", 10)] {
            let file = [header.clone(), samples(0, " boot=now"), samples(50, boot)].concat();
            let mut scan = Scan::new(true);
            assert_eq!(scan.take(&file, true), Ok(file.len()));
            let resumed = scan.end();
            assert_eq!(resumed.ends[&Stream::Cpu(1)], end, "{boot}");
            assert_eq!(resumed.finished_bytes as usize == file.len(), end == 60, "{boot}");
        }
    }
}
