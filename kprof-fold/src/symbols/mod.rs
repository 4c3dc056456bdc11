//! Symbolize: from addresses to names. The second stage of the host end.
//!
//! In: a symbol file (`nm` text or the kernel's ELF) and addresses. Out: the names of the frames at an address, the same
//! for the same input always. A kernel image that does not belong to the profile is refused.

pub mod check;
pub mod name;
pub mod nm;
pub mod table;

use crate::error::Error;
use crate::problems::Problems;
use std::io::Read;
use table::Table;

/// Where names come from.
#[derive(Debug)]
pub struct Symbols {
    /// The code symbols.
    pub table: Table,
}

/// What stands behind the name of an inlined frame.
pub const INLINED: &str = " (inlined)";

/// From the start of a function up to here its frame pointer is not set: `push rbp` (1 byte), `mov rbp, rsp` (3 bytes).
const PROLOGUE_BYTES: u64 = 4;

impl Symbols {
    /// Whether the function at this instruction has just begun or is about to return, so that its frame pointer is still,
    /// or again, that of its caller.
    pub fn lacks_frame(&self, instruction: u64) -> bool {
        let Some(number) = self.table.find(instruction) else { return false };
        let symbol = self.table.get(number);
        let offset = instruction - symbol.start;
        offset < PROLOGUE_BYTES || (symbol.size > 0 && offset == symbol.size - 1)
    }

    /// Opens a symbol file and finds out which kind it is.
    ///
    /// # Errors
    /// The file cannot be read or has no code symbols.
    pub fn open(file: &str, problems: &mut Problems) -> Result<Self, Error> {
        let mut reader = crate::read::open(file)?;
        let mut head = vec![0; 4096];
        let got = reader.read(&mut head).map_err(|error| Error::io(file, "read", error))?;
        head.truncate(got);
        Self::read(file, head, reader, problems)
    }

    /// Reads symbols from any reader whose first bytes are `head`; `file` is only a name.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(file: &str, head: Vec<u8>, reader: impl Read, problems: &mut Problems) -> Result<Self, Error> {
        Ok(Self { table: nm::read(file, head, reader, problems)? })
    }
}
