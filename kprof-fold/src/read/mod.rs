//! Read: from bytes to samples, for every form that a profile can have. The first stage of the host tool.
//!
//! In: a file, a pipe, a serial log; each may be compressed. Out: samples to a [`Consumer`], and a [`Reading`] with
//! everything else. Every error names its line or byte. Of damaged input only the damaged piece is skipped. Memory is
//! bounded by the block size and the distinct stacks.

pub mod batch;
pub mod binary;
pub mod blocks;
pub mod checked;
pub mod compressed;
pub mod consumer;
pub mod damage;
pub mod escape;
pub mod events;
pub mod form;
pub mod header;
pub mod hex;
pub mod ingest;
pub mod lines;
pub mod metadata;
pub mod repair;
pub mod seal;
pub mod serial;
pub mod split;
pub mod unsampled;

use crate::error::Error;
use crate::problems::{Kind, Problems};
use crate::profile::Profile;
use crate::stacks::Stacks;
use blocks::{Block, Blocks};
use consumer::Consumer;
use form::Form;
use ingest::Ingest;
use std::fs::File;
use std::io::{self, Read};

/// What was read from a file.
pub struct Reading<C> {
    /// The consumer that has received the samples.
    pub consumer: C,
    /// Header, counters, names.
    pub profile: Profile,
    /// The distinct stacks.
    pub stacks: Stacks,
    /// What was skipped, and what looks wrong.
    pub problems: Problems,
    /// The form of the file.
    pub form: Form,
}

impl<C> Reading<C> {
    /// The same contents, with what is made of the consumer.
    pub fn map<D>(self, make: impl FnOnce(C) -> D) -> Reading<D> {
        let Self { consumer, profile, stacks, problems, form } = self;
        Reading { consumer: make(consumer), profile, stacks, problems, form }
    }
}

/// What to read, and in which form.
pub struct Source<'a> {
    /// Name of the file, for opening it and for messages; `-` is standard input.
    pub file: &'a str,
    /// The form, if the user has given it.
    pub form: Option<Form>,
    /// The index of the only boot that is read; `None` reads all.
    pub boot: Option<usize>,
    /// Called once per block with the number of bytes read so far.
    pub progress: &'a mut dyn FnMut(u64),
}

/// Opens a file, or standard input for `-`; compressed content is decompressed.
///
/// # Errors
/// If the file cannot be opened.
pub fn open(file: &str) -> Result<Box<dyn Read>, Error> {
    if file == "-" {
        return compressed::open(io::stdin()).map_err(|error| Error::io("standard input", "read", error));
    }
    let opened = File::open(file).map_err(|source| Error::io(file, "open", source))?;
    if opened.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(Error::unusable(file, "is a directory; a profile file is needed"));
    }
    compressed::open(opened).map_err(|error| Error::io(file, "read", error))
}

/// Reads a whole profile.
///
/// # Errors
/// If the file cannot be read, is empty, or contains nothing that looks like a profile.
pub fn read<C: Consumer>(source: Source<'_>, consumer: C) -> Result<Reading<C>, Error> {
    let name = if source.file == "-" { "standard input" } else { source.file };
    read_from(open(source.file)?, Source { file: name, ..source }, consumer)
}

/// Reads a whole profile from any reader; `source.file` is only used as its name in messages.
///
/// # Errors
/// As [`read`].
pub fn read_from<C: Consumer>(mut reader: impl Read, source: Source<'_>, consumer: C) -> Result<Reading<C>, Error> {
    let failed = |error| Error::io(source.file, "read", error);
    let (head, form) = form::detect(&mut reader, source.form).map_err(failed)?;
    if head.is_empty() {
        return Err(Error::unusable(source.file, "is empty: no header, no samples. Did the recording run?"));
    }
    let mut ingest = Ingest::new(source.file, form, source.boot, consumer);
    let bytes = match form {
        Form::Binary => binary::read(&mut ingest, head, reader, source.progress).map_err(failed)?,
        _ => {
            let mut blocks = Blocks::new(head, reader);
            match form {
                Form::Serial => serial::read(&mut ingest, &mut blocks, source.progress),
                _ => read_text(&mut ingest, &mut blocks, source.progress),
            }
            .map_err(failed)?;
            blocks.read_bytes()
        }
    };
    ingest.finish();
    ingest.profile.bytes = bytes;
    for boot in &mut ingest.profile.boots {
        boot.points.values_mut().for_each(|point| point.missing_meta_words = boot.missing_meta_words);
    }
    let Ingest { consumer, profile, problems, stacks, .. } = ingest;
    if profile.samples() == 0 && profile.boots.iter().all(|boot| boot.version.is_none()) {
        let why = format!(
            "no header and no sample in {} lines: not a profile. If it is a kernel's log: is the feature `profiling` \
             on, does init answer Ok, and is export called?",
            profile.lines
        );
        return Err(Error::unusable(source.file, &why));
    }
    Ok(Reading { consumer, profile, stacks, problems, form })
}

fn read_text<C: Consumer>(
    ingest: &mut Ingest<C>,
    blocks: &mut Blocks<impl Read>,
    progress: &mut dyn FnMut(u64),
) -> io::Result<()> {
    loop {
        match blocks.next_block()? {
            Block::Lines(lines) => ingest.lines(lines),
            Block::Unfinished(line) => {
                ingest.line(line);
                let (file, number) = (&ingest.file, ingest.line);
                ingest
                    .problems
                    .add(Kind::Note, || format!("{file}:{number}: the last line has no line end; it may be truncated"));
            }
            Block::TooLong(bytes) => ingest.too_long(bytes),
            Block::End => return Ok(()),
        }
        progress(blocks.read_bytes());
    }
}
