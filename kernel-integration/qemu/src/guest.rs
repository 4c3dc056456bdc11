//! What a sample needs of a machine that is stopped by its gdb stub: registers, halted or not, stack, code. Stage:
//! capture.
//!
//! In: a connection. Out: messages as the plugin sends them. Mostly in one round trip: with the registers of all vCPUs,
//! their stacks are read where they were at the last sample. Code is read once, because the kernel's does not change.

use crate::finder::{Finder, Outcome};
use crate::gdb::Gdb;
use crate::message::{Message, Sample};
use crate::packet::{from_digits, read_reply, read_request};
use crate::walk::{self, Exits, Registers, Tables};
use anyhow::{Context, Error, Result, ensure};
use std::cell::RefCell;
use std::collections::HashMap;

/// Code is read and kept in pieces of this size.
const LINE: u64 = 64;
/// So many are kept: 4 MiB.
const MAX_LINES: usize = 1 << 16;
const PAGE: u64 = 4096;
/// Replies for each vCPU.
const REPLIES: usize = 4;
/// GDB's order of x86_64 registers: RBP, RSP, RIP, of 8 bytes; RFLAGS, CS, of 4.
const RBP: usize = 6 * 8;
const RSP: usize = 7 * 8;
const RIP: usize = 16 * 8;
const RFLAGS: usize = 17 * 8;
const CS: usize = RFLAGS + 4;
/// The instruction that a halted processor has executed last.
const HLT: u8 = 0xf4;

/// Pieces of code by address.
type Code = HashMap<u64, Vec<u8>>;

/// A vCPU, as the stub names it.
#[derive(Debug)]
struct Vcpu {
    thread: String,
    number: u32,
    /// Where its stack was at the last sample, and probably is at the next one; 0 if that is not known.
    stack: u64,
}

/// A machine behind a gdb stub.
pub struct Guest {
    gdb: Gdb,
    vcpus: Vec<Vcpu>,
    /// The stub says which vCPUs are halted.
    says_halted: bool,
    code: Code,
    exits: Exits,
    finder: Option<Finder>,
    tables: Option<Tables>,
}

impl Guest {
    /// Finds the vCPUs of a machine that is stopped: all, or those with these numbers.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(mut gdb: Gdb, wanted: &[u32], finder: Option<Finder>, tables: Option<Tables>) -> Result<Self> {
        let mut vcpus = Vec::new();
        let mut says_halted = true;
        let mut list = gdb.ask(&["qfThreadInfo"])?.remove(0);
        while let Some(threads) = list.strip_prefix('m') {
            for thread in threads.split(',') {
                let said = extra(&gdb.ask(&[format!("qThreadExtraInfo,{thread}")])?[0]);
                says_halted &= is_halted(&said).is_some();
                let number = said.split_once("CPU#").and_then(|(_, rest)| rest.split([' ', '[']).next()?.parse().ok());
                vcpus.push(Vcpu { thread: thread.to_owned(), number: number.unwrap_or(vcpus.len() as u32), stack: 0 });
            }
            list = gdb.ask(&["qsThreadInfo"])?.remove(0);
        }
        vcpus.retain(|vcpu| wanted.is_empty() || wanted.contains(&vcpu.number));
        ensure!(!vcpus.is_empty(), "the machine has no such vCPU");
        Ok(Self { gdb, vcpus, says_halted, code: Code::new(), exits: Exits::default(), finder, tables })
    }

    /// The number of sampled vCPUs.
    pub fn vcpus(&self) -> usize {
        self.vcpus.len()
    }

    /// What is known of where the kernel runs.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.finder.as_ref().map(|finder| &finder.outcome)
    }

    /// The connection.
    pub fn gdb(&mut self) -> &mut Gdb {
        &mut self.gdb
    }

    /// Stops the machine, takes a sample of each vCPU, and lets it run.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn sample(&mut self, time: u64) -> Result<Vec<Message>> {
        let bytes = self.gdb.most_bytes;
        let first = self.vcpus.iter().flat_map(|Vcpu { thread, stack, .. }| {
            let stack = read_request(*stack, if *stack == 0 { 0 } else { bytes });
            [format!("Hg{thread}"), "g".to_owned(), format!("qThreadExtraInfo,{thread}"), stack]
        });
        let replies = self.gdb.stop_and_ask(&first.collect::<Vec<_>>())?;
        let mut messages = Vec::with_capacity(self.vcpus.len());
        for (vcpu, reply) in self.vcpus.iter_mut().zip(replies.chunks(REPLIES)) {
            let (at, halted) = (registers(&reply[1])?, is_halted(&extra(&reply[2])));
            let (cpu, is_kernel) = (vcpu.number, at.cs & 3 == 0);
            let mut sample = Sample { cpu, time, rip: at.rip, rflags: at.rflags, cs: at.cs, ..Sample::default() };
            let mut is_idle = halted == Some(true);
            let stack = read_reply(&reply[3], bytes).map(|read| (vcpu.stack, bytes, Some(read)));
            vcpu.stack = 0;
            if !is_idle && is_kernel {
                let memory = Memory::new(&mut self.gdb, &mut self.code, &vcpu.thread, stack, &at)?;
                is_idle = !self.says_halted && memory.is_after_hlt(at.rip);
                let slide = self.finder.as_mut().and_then(|it| it.slide(at.rip, &|from, to| memory.fill(from, to)));
                self.tables.iter_mut().for_each(|tables| tables.slide = slide);
                let read = |from, to: &mut [u8]| memory.stack(from, to);
                let code = |from, to: &mut [u8]| memory.code(from, to);
                let stack = walk::walk(&at, &read, &code, &mut self.exits, self.tables.as_ref());
                memory.end()?;
                (sample.candidate, sample.end, sample.callers) = (stack.candidate, stack.end as u64, stack.callers);
                vcpu.stack = at.rsp.saturating_sub(bytes / 4) & !7;
            }
            messages.push(if is_idle { Message::Idle { cpu } } else { Message::Sample(sample) });
        }
        self.gdb.go_on()?;
        Ok(messages)
    }
}

/// A part of the stack: its first address, its size, and what is in it; `None` if it is not mapped.
type Piece = (u64, u64, Option<Vec<u8>>);

/// Memory of a vCPU that is stopped.
struct Memory<'a> {
    gdb: RefCell<&'a mut Gdb>,
    thread: &'a str,
    code: RefCell<&'a mut Code>,
    stack: RefCell<Vec<Piece>>,
    error: RefCell<Option<Error>>,
}

impl<'a> Memory<'a> {
    /// Reads what is not known yet: the beginning of the stack, and the code at the sampled instruction.
    fn new(
        gdb: &'a mut Gdb,
        code: &'a mut Code,
        thread: &'a str,
        known: Option<Piece>,
        at: &Registers,
    ) -> Result<Self> {
        if code.len() > MAX_LINES {
            code.clear();
        }
        let (line, top, bytes) = (at.rip & !(LINE - 1), at.rsp & !7, gdb.most_bytes);
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

    fn stack(&self, address: u64, to: &mut [u8]) -> bool {
        let is_in = |piece: &&Piece| address >= piece.0 && address - piece.0 < piece.1;
        if self.stack.borrow().iter().find(is_in).is_none() {
            let bytes = (PAGE - address % PAGE).min(self.gdb.borrow().most_bytes);
            let read = self.read(address, bytes);
            self.stack.borrow_mut().push((address, bytes, read));
        }
        let pieces = self.stack.borrow();
        let Some((start, _, Some(read))) = pieces.iter().find(is_in) else { return false };
        let from = (address - start) as usize;
        read.get(from..from + to.len()).map(|bytes| to.copy_from_slice(bytes)).is_some()
    }

    fn code(&self, address: u64, to: &mut [u8]) -> bool {
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
    fn fill(&self, address: u64, to: &mut [u8]) -> bool {
        let most = self.gdb.borrow().most_bytes as usize;
        (address..).step_by(most).zip(to.chunks_mut(most)).all(|(at, part)| {
            let read = self.read(at, part.len() as u64).filter(|read| read.len() == part.len());
            read.map(|read| part.copy_from_slice(&read)).is_some()
        })
    }

    fn is_after_hlt(&self, rip: u64) -> bool {
        let mut before = [0];
        self.code(rip.wrapping_sub(1), &mut before) && before == [HLT]
    }

    fn end(self) -> Result<()> {
        self.error.into_inner().map_or(Ok(()), Err)
    }
}

/// The registers of a reply to `g`.
fn registers(reply: &str) -> Result<Registers> {
    let bytes = from_digits(reply).filter(|bytes| bytes.len() >= CS + 4);
    let bytes = bytes.with_context(|| format!("the stub gives no registers of x86_64: {reply:.40}"))?;
    let number =
        |at: usize, size: usize| bytes[at..at + size].iter().rev().fold(0, |sum, it| sum << 8 | u64::from(*it));
    let [rip, rsp, rbp] = [RIP, RSP, RBP].map(|at| number(at, 8));
    Ok(Registers { rip, rsp, rbp, rflags: number(RFLAGS, 4), cs: number(CS, 4) })
}

/// What a stub says of a vCPU in words, such as `CPU#0 [halted ]`.
fn extra(reply: &str) -> String {
    String::from_utf8_lossy(&from_digits(reply).unwrap_or_default()).into_owned()
}

fn is_halted(said: &str) -> Option<bool> {
    (said.contains("[halted") || said.contains("[running")).then(|| said.contains("[halted"))
}
