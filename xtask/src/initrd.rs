//! The initrd: busybox and its names, the daemon, programs, init and workload scripts, the kernel's symbols.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use cpio::NewcBuilder;

use crate::run;

/// The busybox programs that get a name in /bin.
const APPLETS: [&str; 41] = [
    "awk", "basename", "cat", "chmod", "cmp", "cp", "cut", "date", "dd", "echo", "env", "expr", "false", "find",
    "grep", "head", "kill", "ln", "ls", "md5sum", "mkdir", "mv", "poweroff", "printf", "pwd", "rm", "rmdir", "sed",
    "seq", "sh", "sleep", "sort", "tail", "test", "time", "timeout", "touch", "tr", "true", "usleep", "wc",
];

/// An archive that is being built.
pub struct Initrd {
    entries: Vec<(String, u32, Vec<u8>)>,
}

const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const FOLDER: u32 = 0o040_755;

impl Initrd {
    /// An archive without entries.
    pub fn empty() -> Self {
        Self { entries: Vec::new() }
    }

    /// An archive with busybox under all its names, and with all scripts of the test kernel.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn new(busybox: &Path) -> Result<Self> {
        let mut initrd = Self::empty();
        initrd.file("bin/busybox", busybox)?;
        for name in APPLETS {
            initrd.entries.push((format!("bin/{name}"), LINK, b"/bin/busybox".to_vec()));
        }
        for folder in ["workloads", "scenarios"] {
            let from = run::root().join("test-kernel").join(folder);
            let mut paths: Vec<_> = std::fs::read_dir(&from)
                .with_context(|| from.display().to_string())?
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.extension().is_some_and(|extension| extension == "sh"))
                .collect();
            paths.sort();
            for path in paths {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                initrd.file(&format!("{folder}/{name}"), &path)?;
            }
        }
        initrd.file("etc/profiled.sh", &run::root().join("kprof-daemon/init/profiled.sh"))?;
        initrd.file("etc/ctl.sh", &run::root().join("test-kernel/ctl.sh"))?;
        initrd.file("init", &run::root().join("test-kernel/init.sh"))?;
        Ok(initrd)
    }

    /// Adds a file from the host.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn file(&mut self, name: &str, from: &Path) -> Result<()> {
        let bytes = std::fs::read(from).with_context(|| from.display().to_string())?;
        self.entries.push((name.to_owned(), PROGRAM, bytes));
        Ok(())
    }

    /// Adds a folder and its parents, unless they were added before. (Linux needs folders before the files in them; the
    /// test kernel needs no entries for folders.)
    pub fn folder(&mut self, path: &Path) {
        let mut folders: Vec<_> = path.ancestors().map(|folder| folder.to_string_lossy().into_owned()).collect();
        folders.retain(|folder| !folder.is_empty() && self.entries.iter().all(|(name, ..)| name != folder));
        self.entries.extend(folders.into_iter().rev().map(|folder| (folder, FOLDER, Vec::new())));
    }

    /// Adds a text as the first entry, so that the kernel finds it quickly during the boot.
    pub fn first_text(&mut self, name: &str, text: &str) {
        self.entries.insert(0, (name.to_owned(), PROGRAM, text.as_bytes().to_vec()));
    }

    /// Writes the archive (cpio, newc). The same entries give the same bytes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut file = File::create(path).with_context(|| path.display().to_string())?;
        for (inode, (name, mode, bytes)) in self.entries.iter().enumerate() {
            let builder = NewcBuilder::new(name).ino(inode as u32 + 1).mode(*mode).nlink(1);
            let mut writer = builder.write(&mut file, bytes.len() as u32);
            std::io::copy(&mut bytes.as_slice(), &mut writer)?;
            writer.finish()?;
        }
        cpio::newc::trailer(&mut file)?;
        Ok(())
    }
}
