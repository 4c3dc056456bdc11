//! Rotation of the sample file: `NAME` becomes `NAME.1`, and a new file begins.
//!
//! ```text
//! NAME.new written and synced ─► NAME.1 to NAME.2 ... ─► NAME to NAME.1 ─► NAME.new to NAME ─► folder synced
//! ```
//!
//! In: what a new file begins with. Out: names in the folder. Runs in: user process. It may be killed at any arrow: the
//! next session finds the old file or the new one, and completes the rotation. Never replaces a file that is not a
//! profile.

use super::append::{Appended, Waiting};
use super::found::{self, Found, Maker};
use super::resume::is_profile;
use super::sample_file::{SampleFile, first_bytes, with_suffix};
use crate::error::Error;
use crate::system::{Open, System, again};
use std::io;
use std::path::Path;

impl<S: System> SampleFile<S> {
    /// Begins a new file with the bytes `begins_with`. The present file becomes `NAME.1`, the previous `NAME.1` becomes
    /// `NAME.2`, and so on up to `keep`.
    ///
    /// The new file is whole and on the disk, under `NAME.new`, before the first name changes; so at whatever moment
    /// the program is killed, [`SampleFile::open`] finds either the old or the new one.
    ///
    /// # Errors
    /// As [`SampleFile::append`].
    pub fn rotate(
        &mut self,
        system: &mut S,
        keep: u32,
        begins_with: &[u8],
        waiting: Waiting<'_>,
    ) -> Result<Appended, Error> {
        match found::look(system, &self.path) {
            // It is the file of this session, which has locked it; or another program has moved that one away.
            Err(Error::Locked { .. }) | Ok(Found::Nothing | Found::Profile(Maker::Profiled)) => {}
            other => {
                other?;
                let what = "another program has put a file there; move it away".into();
                return Err(Error::Malformed { path: self.path.clone(), what });
            }
        }
        found::check_older(system, &self.path, keep)?;
        let new_path = with_suffix(&self.path, "new");
        let open = again(|| system.open(&new_path, Open::NextFile));
        let mut file = open.map_err(|cause| self.failed("opening the next file", cause))?;
        let first = first_bytes(system, &mut file).map_err(|cause| self.failed("looking at the next file", cause))?;
        // A killed rotation has left an unfinished profile there, or nothing.
        if !first.is_some_and(|first| first.is_empty() || is_profile(&first)) {
            let what = "not a file of this program, and the next file has this name; move it away".into();
            return Err(Error::Malformed { path: new_path, what });
        }
        let counts_names = self.counts_names;
        let mut new = Self { path: new_path, file, safe_bytes: 0, begins_bytes: 0, is_regular: true, counts_names };
        new.make_private(system);
        new.cut_back(system).map_err(|cause| new.failed("emptying it", cause))?;
        let _ = again(|| system.lock(&mut new.file));
        if new.append(system, begins_with, waiting)? == Appended::ReopenFirst {
            return Ok(Appended::ReopenFirst);
        }
        let fails = |cause| self.failed("renaming it", cause);
        again(|| system.sync_folder(&self.path)).map_err(fails)?;
        // Renames only up to the first free number. An interrupted rotation leaves a free number, and no file is lost
        // when it is filled.
        let numbered = |number: u32| with_suffix(&self.path, &number.to_string());
        let mut is_taken = |number: &u32| again(|| system.open(&numbered(*number), Open::Probe)).is_ok();
        let taken = (1..keep).take_while(&mut is_taken).last().unwrap_or(0);
        for number in (1..=taken).rev() {
            again(|| system.rename(&numbered(number), &numbered(number + 1))).map_err(fails)?;
        }
        match again(|| system.rename(&self.path, &numbered(1))) {
            // Another program has already moved the file away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(fails)?,
        }
        again(|| system.rename(&new.path, &self.path)).map_err(fails)?;
        again(|| system.sync_folder(&self.path)).map_err(fails)?;
        new.begins_bytes = new.safe_bytes;
        new.path.clone_from(&self.path);
        *self = new;
        Ok(Appended::Whole)
    }
}

/// Completes a rotation that was killed between its last two renames: the new file is complete but still called
/// `NAME.new`. Another file of this name stays where it is.
pub(super) fn finish_rotation<S: System>(system: &mut S, path: &Path) {
    let new_path = with_suffix(path, "new");
    if again(|| system.open(path, Open::Probe)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        && let Ok(mut file) = again(|| system.open(&new_path, Open::ProbeNoLink))
        && first_bytes(system, &mut file).is_ok_and(|first| first.is_some_and(|first| is_profile(&first)))
    {
        // If the renaming fails, the session begins a new file.
        let _ = again(|| system.rename(&new_path, path));
    }
}
