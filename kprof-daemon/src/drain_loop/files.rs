//! What a session does with its files: begins them, goes on, rotates, reopens, and feeds the live stream.
//!
//! In: what the composer holds. Out: bytes on the disk. Runs in: user process. A file is only left when everything in
//! it is acknowledged; the next one begins with the header and the names known so far.

use super::Session;
use crate::error::Error;
use crate::source::{Source, Stream};
use crate::system::System;
use crate::write::compose::Form;
use crate::write::resume::Resumed;
use crate::write::sample_file::SampleFile;

impl<S: System, Src: Source<S>> Session<'_, S, Src> {
    /// Goes on behind what a file holds, if it is of this boot; else begins with a header.
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

    /// Writes what has been composed; returns when it is on the disk.
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

    /// Queues the round's bytes for the live stream; a device that has just been opened gets the beginning first.
    fn send_live(&mut self) {
        let Some(mut live) = self.live.take() else { return };
        if live.connect(self.system) {
            live.queue(&self.beginning());
        }
        live.queue(self.composer.bytes());
        self.live = Some(live);
    }

    /// Gives the live stream's device what it takes.
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

    /// The account of every CPU as it is now.
    pub(super) fn account(&mut self) -> Result<(), Error> {
        self.source.observe(self.system, &mut self.ctl)?;
        self.composer.accounts(&self.ctl);
        // The account is the one piece that may go past the greatest length: without it the file could not be judged.
        let max = self.options.max_bytes.take();
        let written = self.write();
        self.options.max_bytes = max;
        written
    }

    /// Gives the file an older name and begins a new one. Everything in the old one is acknowledged.
    fn rotate(&mut self) -> Result<(), Error> {
        let begins_with = self.beginning();
        self.file.rotate(self.system, self.options.keep_files, &begins_with, self.options.on_full, &self.signals)
    }

    /// Opens the file by its name again, after somebody has renamed it.
    pub(super) fn reopen(&mut self) -> Result<(), Error> {
        let is_binary = self.options.form == Form::Binary;
        let (file, resumed) = match SampleFile::open(self.system, &self.options.output, is_binary) {
            // Still the same file: held by ourselves.
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
