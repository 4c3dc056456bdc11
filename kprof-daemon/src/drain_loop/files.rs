//! What a session does with its files: it begins, continues, rotates and reopens them, and feeds the live stream.
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
        let begins = resumed.begins.iter().map(|(stream, (from, _))| (*stream, *from));
        if self.ctl.rename_repeated_boot(resumed.boot.as_deref(), begins, &resumed.ends) {
            self.system.say(format_args!(
                "{}: the boot id {} is already in the file, but what was read of that boot is not of this one; this is \
                 boot {} there. The kernel should set a different `Config::boot` at each boot",
                self.options.output.display(),
                self.ctl.kernels_boot(),
                self.ctl.boot(),
            ));
        }
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
        for (stream, (from, tsc)) in resumed.begins {
            self.intake.place(stream).begins = tsc.map(|tsc| (from, tsc));
        }
        Ok(())
    }

    /// Writes the composed bytes; returns when they are on the disk.
    pub(super) fn write(&mut self) -> Result<(), Error> {
        let length = self.composer.bytes().len() as u64;
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
                    (self.unwritten, self.unwritten_events) = (0, 0);
                    self.composer.clear();
                    return Ok(());
                }
                if self.rotate()? == Appended::ReopenFirst {
                    self.reopen()?;
                    continue;
                }
            }
            let waiting = waiting(&self.options, &self.signals, self.began);
            match self.file.append(self.system, self.composer.bytes(), waiting)? {
                Appended::Whole => break,
                Appended::ReopenFirst => self.reopen()?,
            }
        }
        self.totals.bytes += length;
        self.totals.samples += std::mem::take(&mut self.unwritten);
        self.totals.events += std::mem::take(&mut self.unwritten_events);
        self.send_live();
        self.composer.clear();
        Ok(())
    }

    /// Queues the round's bytes for the live stream. A device that has just been opened gets the header and the task
    /// names first.
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
        let waiting = waiting(&self.options, &self.signals, self.began);
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
            let waiting = waiting(&self.options, &self.signals, self.began);
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
        self.composer.beginning(&self.ctl, &self.names, position)
    }
}
