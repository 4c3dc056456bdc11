//! What a session does with its files: it begins, continues, rotates and reopens them, and feeds the live stream.
//!
//! In: what the composer holds. Out: bytes on the disk. Runs in: user process. A file is only closed after everything
//! in it has been acknowledged. The next one begins with the header and the names known so far.

use super::Session;
use crate::error::Error;
use crate::source::{Source, Stream};
use crate::system::System;
use crate::write::compose::Form;
use crate::write::resume::Resumed;
use crate::write::sample_file::SampleFile;

impl<S: System, Src: Source<S>> Session<'_, S, Src> {
    /// Continues after what the file holds if that is from this boot; otherwise writes a new header first.
    pub(super) fn go_on_from(&mut self, resumed: Resumed) -> Result<(), Error> {
        if self.ctl.boot().is_empty() || resumed.boot.as_deref() != Some(self.ctl.boot()) {
            self.composer.header(&self.ctl);
            return self.write();
        }
        for (id, name) in resumed.names {
            self.names.set_escaped(id, 0, name);
        }
        for (stream, end) in resumed.ends {
            self.intake.place(stream).on_disk = end;
        }
        Ok(())
    }

    /// Writes the composed bytes; returns when they are on the disk.
    pub(super) fn write(&mut self) -> Result<(), Error> {
        let length = self.composer.bytes().len() as u64;
        if length == 0 {
            return Ok(());
        }
        if self.file.is_regular() && self.options.max_bytes.is_some_and(|max| self.file.would_exceed(length, max)) {
            if self.options.keep_files == 0 {
                self.totals.reached_max = true;
                self.composer.clear();
                return Ok(());
            }
            self.rotate()?;
        }
        self.file.append(self.system, self.composer.bytes(), self.options.on_full, &self.signals)?;
        self.totals.bytes += length;
        self.send_live();
        self.composer.clear();
        Ok(())
    }

    /// Queues the round's bytes for the live stream; a device that has just been opened gets the header and the names
    /// first.
    fn send_live(&mut self) {
        let Some(mut live) = self.live.take() else { return };
        if live.connect(self.system) {
            live.queue(&self.beginning());
        }
        live.queue(self.composer.bytes());
        self.live = Some(live);
    }

    /// Writes to the live stream's device as much as it accepts.
    pub(super) fn pump_live(&mut self, is_the_end: bool) {
        if let Some(live) = &mut self.live {
            if is_the_end {
                live.finish(self.system);
            } else {
                live.pump(self.system);
            }
            (self.totals.live, self.totals.live_dropped) = live.counts();
        }
    }

    /// Writes the present account of every CPU.
    pub(super) fn account(&mut self) -> Result<(), Error> {
        self.source.observe(self.system, &mut self.ctl)?;
        self.composer.accounts(&self.ctl);
        // Only the account may exceed the maximum length: without it nobody could check whether the file is complete.
        let max = self.options.max_bytes.take();
        let written = self.write();
        self.options.max_bytes = max;
        written
    }

    /// Renames the file to an older number and begins a new one. Everything in the old one has been acknowledged.
    fn rotate(&mut self) -> Result<(), Error> {
        let begins_with = self.beginning();
        self.file.rotate(self.system, self.options.keep_files, &begins_with, self.options.on_full, &self.signals)
    }

    /// Opens the file by its name again, after another program has renamed it.
    pub(super) fn reopen(&mut self) -> Result<(), Error> {
        let is_binary = self.options.form == Form::Binary;
        let (file, resumed) = match SampleFile::open(self.system, &self.options.output, is_binary) {
            // The name still leads to the same file, which this session itself has locked.
            Err(Error::Busy { .. }) => return Ok(()),
            other => other?,
        };
        self.file = file;
        if resumed.boot.as_deref() != Some(self.ctl.boot()) {
            let begins_with = self.beginning();
            self.file.append(self.system, &begins_with, self.options.on_full, &self.signals)?;
        }
        Ok(())
    }

    /// The header and the names known so far, in the form of the file.
    fn beginning(&mut self) -> Vec<u8> {
        let position = self.intake.place(Stream::Meta).acknowledged;
        self.composer.beginning(&self.ctl, &self.names, position)
    }
}
