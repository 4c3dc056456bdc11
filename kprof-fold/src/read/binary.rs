//! The binary form: chunks, each of which can be read without the others. Stage: read.
//!
//! In: bytes. Out: the metadata lines and samples of whole chunks, to the [`Ingest`]. A damaged chunk is skipped, and
//! reading continues at the next magic. Memory: one chunk, at most 16 MiB.

use super::consumer::Consumer;
use super::ingest::{Ingest, Region};
use crate::problems::Kind;
use kprof_format::chunk::{self, BadChunk, Chunk, ChunkKind, HEADER_BYTES, MAGIC};
use kprof_format::event::LINE_BEGINS;
use kprof_format::samples::{self, take_varint};
use kprof_format::text::{Hex, UNNAMED_TASK, escaped};
use std::io::{self, Read};

/// Bytes asked for in one read.
const READ_BYTES: usize = 64 * 1024;

/// Reads a whole stream that begins with `head`. Returns its length in bytes.
///
/// # Errors
/// Errors of the reader.
pub fn read<C: Consumer>(
    ingest: &mut Ingest<C>,
    head: Vec<u8>,
    mut reader: impl Read,
    progress: &mut dyn FnMut(u64),
) -> io::Result<u64> {
    // In this form messages give byte offsets instead of line numbers.
    ingest.file.push_str(":byte");
    // Kept for all chunks, because it is large.
    let mut state = Box::<samples::Reader>::default();
    let mut buffer = head;
    let mut offset = 0u64;
    let mut at = 0;
    let mut needs = HEADER_BYTES;
    let mut ended = false;
    loop {
        while buffer.len() - at < needs && !ended {
            buffer.drain(..at);
            offset += at as u64;
            at = 0;
            ended = reader.by_ref().take(READ_BYTES as u64).read_to_end(&mut buffer)? == 0;
            progress(offset + buffer.len() as u64);
        }
        if at == buffer.len() {
            return Ok(offset + at as u64);
        }
        let place = offset + at as u64;
        needs = HEADER_BYTES;
        match Chunk::split(&buffer[at..]) {
            Ok((chunk, rest)) => {
                let after = buffer.len() - rest.len();
                take(ingest, &mut state, &chunk, place);
                at = after;
            }
            Err(BadChunk::Incomplete { needs_bytes }) if !ended => needs = needs_bytes,
            Err(BadChunk::Kind { bytes, .. }) => at += bytes,
            Err(bad) => {
                let file = &ingest.file;
                ingest.problems.add(Kind::Chunk, || format!("{file}:{place}: {}; skipped", why(bad)));
                ingest.drop_open("a damaged chunk follows before its end");
                // The last bytes may be the beginning of a magic, so they are kept.
                let kept = (buffer.len() - at).min(MAGIC.len() - 1);
                at = chunk::find(&buffer, at + 1).unwrap_or(if ended {
                    buffer.len()
                } else {
                    (buffer.len() - kept).max(at + 1)
                });
            }
        }
    }
}

fn why(bad: BadChunk) -> String {
    match bad {
        BadChunk::Incomplete { needs_bytes } => format!("the file ends inside a chunk of {needs_bytes} bytes"),
        BadChunk::Magic => "no chunk begins here".to_owned(),
        BadChunk::Version(version) => format!("a chunk of version {version}; take a newer kprof-fold"),
        BadChunk::Length(bytes) => format!("a chunk that claims {bytes} bytes"),
        BadChunk::Kind { kind, .. } => format!("a chunk of the unknown kind {kind}"),
        BadChunk::Checksum => "a chunk that does not match its checksum".to_owned(),
    }
}

fn take<C: Consumer>(ingest: &mut Ingest<C>, state: &mut samples::Reader, chunk: &Chunk<'_>, place: u64) {
    match chunk.kind {
        ChunkKind::Lines => lines(ingest, chunk.payload, place),
        ChunkKind::Samples => {
            let mut rest = chunk.payload;
            let text =
                take_varint(&mut rest).ok().and_then(|bytes| rest.split_at_checked(usize::try_from(bytes).ok()?));
            match text {
                Some((text, body)) => {
                    lines(ingest, text, place);
                    state.reset();
                    samples(ingest, state, body, chunk.samples, place);
                }
                None => damaged(ingest, place, "its lines are longer than it is"),
            }
        }
    }
}

fn lines<C: Consumer>(ingest: &mut Ingest<C>, text: &[u8], place: u64) {
    for line in
        text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"#") || line.first() == Some(&LINE_BEGINS))
    {
        ingest.line = place.saturating_sub(1);
        ingest.line(line);
    }
}

/// Reads the samples of a chunk, with a state that is at the beginning of a chunk.
fn samples<C: Consumer>(
    ingest: &mut Ingest<C>,
    state: &mut samples::Reader,
    mut body: &[u8],
    expected: u32,
    place: u64,
) {
    let cpu = match &ingest.region {
        Region::Batch(open) => open.cpu,
        Region::Free => return damaged(ingest, place, "its first line cannot be read"),
        // The batch was seen before, so its samples are skipped.
        Region::Repeated | Region::Damaged => return ingest.end_of_chunk(),
    };
    let Some(cpu) = cpu else { return damaged(ingest, place, "samples of the meta stream") };
    let mut count = 0;
    // The same task often repeats, so its unpacked name is kept.
    let mut known: Option<(u64, Vec<u8>)> = None;
    while let Some(sample) = state.read(&mut body) {
        let Ok(times) = sample else { return damaged(ingest, place, "a sample cannot be read") };
        if known.as_ref().is_none_or(|(id, _)| *id != times.task) {
            known = Some((times.task, task_name(ingest, times.task)));
        }
        let name = known.as_ref().map_or(&b"-"[..], |(_, name)| name);
        ingest.binary(name, cpu, times.tsc, state.stack());
        count += 1;
    }
    if count == expected {
        ingest.end_of_chunk();
    } else {
        damaged(ingest, place, "it has another number of samples than it says");
    }
}

fn task_name<C: Consumer>(ingest: &Ingest<C>, id: u64) -> Vec<u8> {
    let known = ingest.profile.boots.get(ingest.boot).and_then(|boot| boot.tasks.get(&id));
    match known {
        Some(name) => escaped(name).collect(),
        None => [UNNAMED_TASK.as_bytes(), Hex::new(id).as_bytes()].concat(),
    }
}

fn damaged<C: Consumer>(ingest: &mut Ingest<C>, place: u64, because: &str) {
    ingest.drop_open(because);
    ingest.region = Region::Free;
    let file = &ingest.file;
    ingest.problems.add(Kind::Chunk, || format!("{file}:{place}: chunk skipped: {because}"));
}
