//! What a session does with its files: it begins, continues, rotates and reopens them.
//!
//! In: what the composer holds. Out: bytes on the disk. Runs in: user process. A file is only closed after everything
//! in it has been acknowledged. The next file begins with the header and the task names known so far.

use super::{Options, Session};
use crate::error::Error;
use crate::signals::Signals;
use crate::source::{Source, Stream};
use crate::system::System;
use crate::write::append::{Appended, Waiting};
use crate::write::compose::Form;
use crate::write::found::{self, Maker};
use crate::write::resume::Resumed;
use crate::write::sample_file::SampleFile;
use std::path::Path;
use std::time::Duration;

/// What was found when the sample file was opened by its name again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    /// The file that was open before.
    TheSame,
    /// Another file, which has the header of this boot.
    HasBeginning,
    /// Another file, into which the header and the task names have to be written.
    LacksBeginning,
}

/// Opens the sample file, and before that looks at all names that the session will rename or continue.
pub(super) fn open_file<S: System>(system: &mut S, options: &Options) -> Result<(SampleFile<S>, Resumed), Error> {
    let path = &options.output;
    if options.maker == Maker::Profiled && path != Path::new("-") {
        found::check_continued(system, path)?;
        if options.keep_files > 0 {
            // A link is refused.
            found::look(system, path)?;
            found::check_older(system, path, options.keep_files)?;
        }
    }
    SampleFile::open(system, path, options.form == Form::Binary)
}

/// What ends a write that has to wait, in a session that began at `began`.
fn waiting<'a>(options: &Options, signals: &'a Signals, began: Duration) -> Waiting<'a> {
    let until = options.duration.and_then(|duration| began.checked_add(duration));
    Waiting { on_full: options.on_full, signals, until }
}

impl<S: System, Src: Source<S>> Session<'_, S, Src> {
    /// Continues a file that was opened: if its last boot is this boot, records that it already has are skipped;
    /// otherwise a new header is written.
    pub(super) fn go_on_from(&mut self, resumed: Resumed) -> Result<(), Error> {
        if self.ctl.boot().is_empty() || resumed.boot.as_deref() != Some(self.ctl.boot()) {
            self.digest.composer.header(&self.ctl);
            return self.write();
        }
        for (stream, end) in &resumed.ends {
            if self.ctl.position_in(*stream).is_some_and(|newest| newest < *end) {
                let what = format_args!("the file goes to position {end}, the kernel not so far");
                return Err(self.other_boot(*stream, what));
            }
        }
        for (stream, (from, _)) in &resumed.begins {
            // A flight recorder whose file was rotated may have older records than the file.
            if !self.ctl.overwrites() && self.ctl.position_out(*stream).is_some_and(|oldest| oldest < *from) {
                let what = format_args!("the file begins at position {from}, the kernel earlier");
                return Err(self.other_boot(*stream, what));
            }
        }
        for (id, name) in resumed.names {
            self.digest.names.set_escaped(id, 0, name);
        }
        for (stream, end) in resumed.ends {
            self.intake.place(stream).on_disk = end;
        }
        for (stream, (from, tsc)) in resumed.begins {
            self.intake.place(stream).begins = tsc.map(|tsc| (from, tsc));
        }
        Ok(())
    }

    /// The kernel has booted again with the id of the last boot in the file. Nothing of it was written or acknowledged.
    pub(super) fn other_boot(&self, stream: Stream, what: std::fmt::Arguments<'_>) -> Error {
        let what = format!(
            "its boot {} is another one than that of the kernel, which has the same id: in stream {stream}, {what}; \
             move the file away (nothing was acknowledged), and set a different `Config::boot` at each boot",
            self.ctl.boot()
        );
        Error::Malformed { path: self.options.output.clone(), what }
    }

    /// Writes the composed bytes; returns when they are on the disk.
    pub(super) fn write(&mut self) -> Result<(), Error> {
        let length = self.digest.composer.bytes().len() as u64;
        if length == 0 {
            return Ok(());
        }
        loop {
            if self.file.was_truncated(self.system, self.options.form == Form::Binary)? {
                self.write_beginning()?;
            }
            let is_due = self.options.max_bytes.is_some_and(|max| self.file.would_exceed(length, max));
            if self.file.is_regular() && is_due {
                if self.options.keep_files == 0 {
                    self.totals.reached_max = true;
                    (self.digest.samples, self.digest.events) = (0, 0);
                    self.digest.composer.clear();
                    return Ok(());
                }
                if self.rotate()? == Appended::ReopenFirst {
                    self.reopen()?;
                    continue;
                }
            }
            let waiting = waiting(&self.options, &self.signals, self.times.began);
            match self.file.append(self.system, self.digest.composer.bytes(), waiting)? {
                Appended::Whole => break,
                Appended::ReopenFirst => self.reopen()?,
            }
        }
        self.totals.bytes += length;
        self.totals.samples += std::mem::take(&mut self.digest.samples);
        self.totals.events += std::mem::take(&mut self.digest.events);
        self.digest.composer.clear();
        Ok(())
    }

    /// Writes the present account of every CPU.
    pub(super) fn account(&mut self) -> Result<(), Error> {
        self.source.observe(self.system, &mut self.ctl)?;
        self.digest.composer.accounts(&self.ctl);
        // Only the account may exceed the maximum length, because without it a reader cannot check whether the file is
        // complete.
        let max = self.options.max_bytes.take();
        let written = self.write();
        self.options.max_bytes = max;
        written
    }

    /// Renames `FILE` to `FILE.1` and begins a new file. Everything in the old file has been acknowledged.
    fn rotate(&mut self) -> Result<Appended, Error> {
        let begins_with = self.beginning();
        let waiting = waiting(&self.options, &self.signals, self.times.began);
        self.file.rotate(self.system, self.options.keep_files, &begins_with, waiting)
    }

    /// Opens the file by its name again, after another program has renamed it.
    pub(super) fn reopen(&mut self) -> Result<(), Error> {
        if self.open_by_name()? == Opened::LacksBeginning {
            self.write_beginning()?;
        }
        Ok(())
    }

    /// Writes the header and the task names known so far into a file that lacks them.
    fn write_beginning(&mut self) -> Result<(), Error> {
        let begins_with = self.beginning();
        loop {
            let waiting = waiting(&self.options, &self.signals, self.times.began);
            if self.file.append(self.system, &begins_with, waiting)? == Appended::Whole
                || self.open_by_name()? == Opened::HasBeginning
            {
                return Ok(());
            }
        }
    }

    fn open_by_name(&mut self) -> Result<Opened, Error> {
        self.signals.take_reopen();
        let (file, resumed) = match open_file(self.system, &self.options) {
            // The name still leads to the same file, which this session itself has locked.
            Err(Error::Locked { .. }) => return Ok(Opened::TheSame),
            other => other?,
        };
        self.file = file;
        let has_beginning = resumed.boot.as_deref() == Some(self.ctl.boot());
        Ok(if has_beginning { Opened::HasBeginning } else { Opened::LacksBeginning })
    }

    /// The header and the task names known so far, in the form of the file.
    fn beginning(&mut self) -> Vec<u8> {
        let position = self.intake.place(Stream::Meta).acknowledged;
        self.digest.composer.beginning(&self.ctl, &self.digest.names, position)
    }
}
