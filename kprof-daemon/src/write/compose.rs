//! Puts the pieces of a round together in the form of the file.
//!
//! In: header, meta records and samples of one round. Out: one run of bytes for one write. Context: user process. The
//! buffers are kept from round to round; they grow to the size of the greatest round and no further.

use super::lines::{self, Batch};
use crate::ctl::{Counters, Ctl};
use crate::names::Names;
use crate::read::{Meta, Sample, Skipped};
use crate::source::Stream;

/// The form of the sample file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Lines.
    #[default]
    Text,
    /// Lines without markers, as Redox's tools know them.
    Plain,
}

/// The output of one round.
#[derive(Debug, Default)]
pub struct Composer {
    form: Form,
    out: Vec<u8>,
    body: Vec<u8>,
    open: Batch,
    has_begun: bool,
}

impl Composer {
    /// A composer for this form.
    pub fn new(form: Form) -> Self {
        Self { form, ..Self::default() }
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.out
    }

    /// Forgets the bytes so far: they are on disk.
    pub fn clear(&mut self) {
        self.out.clear();
    }

    /// The header of a boot.
    pub fn header(&mut self, ctl: &Ctl) {
        lines::header(&mut self.out, ctl);
    }

    /// The names known so far, for a file that begins in mid-session.
    pub fn names(&mut self, names: &Names, position: u64) {
        let known = names.all();
        if known.is_empty() {
            return;
        }
        self.begin(position);
        for (id, _, name) in known {
            lines::context(&mut self.body, id, name.iter().copied());
        }
        self.end(Stream::Meta, position, None);
    }

    /// A batch begins, at this position.
    pub fn begin(&mut self, from: u64) {
        self.body.clear();
        self.open = Batch { from, to: from, ..Batch::default() };
        self.has_begun = false;
    }

    /// One sample of the open batch.
    #[inline]
    pub fn sample(&mut self, names: &mut Names, cpu: u32, sample: &Sample<'_>) {
        if !self.has_begun {
            self.open.first_tick = sample.tick;
            self.has_begun = true;
        }
        self.open.last_tick = sample.tick;
        self.open.samples += 1;
        self.open.is_snapshot |= sample.is_snapshot;
        lines::sample(&mut self.body, names, cpu, sample, self.form == Form::Plain);
    }

    /// One meta record of the open batch.
    pub fn meta(&mut self, record: &Meta<'_>) {
        lines::meta(&mut self.body, record);
    }

    /// Damage in the open batch.
    pub fn corrupt(&mut self, stream: Stream, skipped: &Skipped) {
        lines::corrupt(&mut self.body, stream, skipped);
    }

    /// The open batch ends at this position. An empty one leaves no trace.
    pub fn end(&mut self, stream: Stream, to: u64, counters: Option<&Counters>) {
        if self.body.is_empty() {
            return;
        }
        self.open.to = to;
        lines::batch(&mut self.out, stream, &self.open, counters);
        self.out.push(b'\n');
        self.out.extend_from_slice(&self.body);
        lines::end(&mut self.out, stream, &self.open);
    }

    /// The account of every CPU.
    pub fn accounts(&mut self, ctl: &Ctl) {
        for (cpu, counters) in ctl.cpus() {
            lines::account(&mut self.out, cpu, counters);
        }
    }
}
