//! Memory of a vCPU that is stopped by its gdb stub. Stage: capture.
//!
//! In: a connection, what is known of the stack already, and the code that was read before. Out: bytes. Code is read
//! once, because the kernel's does not change. After an error of the connection nothing is read any more.

use crate::gdb::Gdb;
use crate::packet::{read_reply, read_request};
use crate::walk::Registers;
use anyhow::{Error, Result};
use std::cell::RefCell;
use std::collections::HashMap;

/// Code is read and kept in pieces of this size.
const LINE: u64 = 64;
/// So many are kept: 4 MiB.
const MAX_LINES: usize = 1 << 16;
const PAGE: u64 = 4096;
/// The instruction that a halted processor has executed last.
const HLT: u8 = 0xf4;

/// Pieces of code by address.
pub type Code = HashMap<u64, Vec<u8>>;

/// A part of the stack: its first address, its size, and what is in it; `None` if it is not mapped.
pub type Piece = (u64, u64, Option<Vec<u8>>);

/// Memory of a vCPU that is stopped.
pub struct Memory<'a> {
    gdb: RefCell<&'a mut Gdb>,
    thread: &'a str,
    code: RefCell<&'a mut Code>,
    stack: RefCell<Vec<Piece>>,
    error: RefCell<Option<Error>>,
}

impl<'a> Memory<'a> {
    /// Reads what is not known yet: the beginning of the stack, and the code at the sampled instruction.
    pub fn new(
        gdb: &'a mut Gdb,
        code: &'a mut Code,
        thread: &'a str,
        known: Option<Piece>,
        at: &Registers,
    ) -> Result<Self> {
        if code.len() > MAX_LINES {
            code.clear();
        }
        let (line, top, bytes) = (at.rip & !(LINE - 1), at.rsp & !7, gdb.max_bytes);
        let mut stack: Vec<Piece> = known.into_iter().collect();
        let is_known = stack.iter().any(|(start, bytes, _)| at.rsp.wrapping_sub(*start) < bytes / 2);
        let mut requests = vec![format!("Hg{thread}")];
        requests.extend((!is_known).then(|| read_request(top, bytes)));
        requests.extend((!code.contains_key(&line)).then(|| read_request(line, LINE)));
        if requests.len() > 1 {
            // The two replies differ in their length. A stack that is not all mapped is read page by page.
            for reply in &gdb.ask(&requests)?[1..] {
                stack.extend(read_reply(reply, bytes).map(|read| (top, bytes, Some(read))));
                code.extend(read_reply(reply, LINE).map(|read| (line, read)));
            }
        }
        let (gdb, code, stack) = (RefCell::new(gdb), RefCell::new(code), RefCell::new(stack));
        Ok(Self { gdb, thread, code, stack, error: RefCell::default() })
    }

    fn read(&self, address: u64, bytes: u64) -> Option<Vec<u8>> {
        if self.error.borrow().is_some() {
            return None;
        }
        let requests = [format!("Hg{}", self.thread), read_request(address, bytes)];
        match self.gdb.borrow_mut().ask(&requests) {
            Ok(replies) => read_reply(&replies[1], bytes),
            Err(error) => {
                *self.error.borrow_mut() = Some(error);
                None
            }
        }
    }

    pub fn stack(&self, address: u64, to: &mut [u8]) -> bool {
        let is_in = |piece: &&Piece| address >= piece.0 && address - piece.0 < piece.1;
        if self.stack.borrow().iter().find(is_in).is_none() {
            let bytes = (PAGE - address % PAGE).min(self.gdb.borrow().max_bytes);
            let read = self.read(address, bytes);
            self.stack.borrow_mut().push((address, bytes, read));
        }
        let pieces = self.stack.borrow();
        let Some((start, _, Some(read))) = pieces.iter().find(is_in) else { return false };
        let from = (address - start) as usize;
        read.get(from..from + to.len()).map(|bytes| to.copy_from_slice(bytes)).is_some()
    }

    pub fn code(&self, address: u64, to: &mut [u8]) -> bool {
        to.iter_mut().enumerate().all(|(number, byte)| {
            let at = address.wrapping_add(number as u64);
            let line = at & !(LINE - 1);
            if !self.code.borrow().contains_key(&line) {
                let read = self.read(line, LINE);
                self.code.borrow_mut().extend(read.map(|bytes| (line, bytes)));
            }
            self.code.borrow().get(&line).map(|bytes| *byte = bytes[(at - line) as usize]).is_some()
        })
    }

    /// Memory that is not kept.
    pub fn fill(&self, address: u64, to: &mut [u8]) -> bool {
        let most = self.gdb.borrow().max_bytes as usize;
        (address..).step_by(most).zip(to.chunks_mut(most)).all(|(at, part)| {
            let read = self.read(at, part.len() as u64).filter(|read| read.len() == part.len());
            read.map(|read| part.copy_from_slice(&read)).is_some()
        })
    }

    pub fn is_after_hlt(&self, rip: u64) -> bool {
        let mut before = [0];
        self.code(rip.wrapping_sub(1), &mut before) && before == [HLT]
    }

    pub fn end(self) -> Result<()> {
        self.error.into_inner().map_or(Ok(()), Err)
    }
}
