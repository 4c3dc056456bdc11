//! The simulated disk, which loses in a crash what was not synced.
//!
//! In: writes, truncations, renames, syncs. Out: what would be there after a crash. Contents and names are stored
//! separately, as on a real disk: syncing a file does not save its name, and syncing a folder does not save the
//! contents of its files.

use super::Random;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub struct Content {
    pub now: Vec<u8>,
    pub synced: Vec<u8>,
}

/// What a crash leaves of the data that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Everything stays, because only the process dies.
    KeepsAll,
    /// Nothing stays.
    ForgetsUnsynced,
    /// Of data that was appended, some part of its beginning stays.
    KeepsSome,
    /// The file has its new length, but some sectors of what was appended are zeros.
    Zeros,
    /// As `Zeros`, but these sectors have what was in their place on the disk before: a part of another boot's file.
    Stale,
}

impl Crash {
    pub const ALL: [Self; 5] = [Self::KeepsAll, Self::ForgetsUnsynced, Self::KeepsSome, Self::Zeros, Self::Stale];
}

#[derive(Clone, Debug)]
pub struct Disk {
    pub contents: Vec<Content>,
    pub names: BTreeMap<PathBuf, usize>,
    synced_names: BTreeMap<PathBuf, usize>,
    /// Free space in bytes.
    pub room: usize,
    /// What was on the disk before.
    pub stale: Vec<u8>,
}

/// What a disk writes as a whole or not at all.
const SECTOR_BYTES: usize = 512;

impl Default for Disk {
    fn default() -> Self {
        Self {
            contents: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            room: usize::MAX,
            stale: Vec::new(),
        }
    }
}

impl Disk {
    /// The file with this name. It is created if it does not exist.
    pub fn open(&mut self, path: &Path) -> usize {
        *self.names.entry(path.into()).or_insert_with(|| {
            self.contents.push(Content::default());
            self.contents.len() - 1
        })
    }

    pub fn bytes(&self, path: &Path) -> &[u8] {
        self.names.get(path).map_or(&[], |file| &self.contents[*file].now)
    }

    pub fn write(&mut self, file: usize, offset: usize, bytes: &[u8]) -> usize {
        let content = &mut self.contents[file].now;
        assert!(offset <= content.len(), "a write beyond the end of the file");
        let grows = (offset + bytes.len()).saturating_sub(content.len());
        let count = bytes.len() - grows.saturating_sub(self.room);
        self.room -= grows.min(self.room);
        content.resize(content.len().max(offset + count), 0);
        content[offset..offset + count].copy_from_slice(&bytes[..count]);
        count
    }

    pub fn truncate(&mut self, file: usize, bytes: usize) {
        let content = &mut self.contents[file].now;
        self.room = self.room.saturating_add(content.len().saturating_sub(bytes));
        content.resize(bytes, 0);
    }

    pub fn sync(&mut self, file: usize) {
        let content = &mut self.contents[file];
        content.synced.clone_from(&content.now);
    }

    pub fn sync_names(&mut self) {
        self.synced_names.clone_from(&self.names);
    }

    pub fn crash(&mut self, how: Crash, random: &mut Random) {
        if how == Crash::KeepsAll {
            return;
        }
        self.names.clone_from(&self.synced_names);
        for content in &mut self.contents {
            let common = content.now.iter().zip(&content.synced).take_while(|(now, synced)| now == synced).count();
            let is_addition = common == content.synced.len();
            // A file has its first bytes only after they were synced: a new file is a new name.
            if matches!(how, Crash::Zeros | Crash::Stale) && is_addition && common > 0 {
                let mut is_lost = false;
                for at in common..content.now.len() {
                    if at == common || at % SECTOR_BYTES == 0 {
                        is_lost = random.once_in(2);
                    }
                    if is_lost {
                        let stale = self.stale.get(at).filter(|_| how == Crash::Stale);
                        content.now[at] = stale.copied().unwrap_or(0);
                    }
                }
            } else if how == Crash::KeepsSome && is_addition {
                let added = content.now.len() - common;
                content.now.truncate(common + random.below(added as u64 + 1) as usize);
            } else {
                content.now.clone_from(&content.synced);
            }
            content.synced.clone_from(&content.now);
        }
    }
}
