//! What a sample needs of a machine that is stopped by its gdb stub: registers, halted or not, stack, code. Stage:
//! capture.
//!
//! In: a connection. Out: messages as the plugin sends them. Mostly in one round trip: with the registers of all vCPUs,
//! their stacks are read where they were at the last sample, and some of the kernel's code. A stub does not say that
//! the machine was reset: this is known if no vCPU is in long mode any more, and if the kernel's code is at another
//! place (see [`held`]).

mod compared;
pub mod held;
mod memory;

use crate::finder::{Finder, Outcome};
use crate::gdb::Gdb;
use crate::message::{Message, Sample};
use crate::packet::{from_digits, read_reply, read_request};
use crate::walk::{self, Exits, LONG_MODE, Registers, Tables};
use anyhow::{Context, Result, ensure};
use compared::Compared;
use memory::{Code, Memory};

/// Replies for each vCPU.
const REPLIES: usize = 5;
/// GDB's order of x86_64 registers: RBP, RSP, RIP, of 8 bytes; RFLAGS, CS, of 4; and what only QEMU has: EFER.
const RBP: usize = 6 * 8;
const RSP: usize = 7 * 8;
const RIP: usize = 16 * 8;
const RFLAGS: usize = 17 * 8;
const CS: usize = RFLAGS + 4;
/// After five more segments of 4 bytes, three of their bases, CR0, CR2, CR3, CR4, CR8.
const EFER: usize = CS + 6 * 4 + 8 * 8;

/// A vCPU, as the stub names it.
#[derive(Debug)]
struct Vcpu {
    thread: String,
    number: u32,
    /// Where its stack was at the last sample, and probably is at the next one; 0 if that is not known.
    stack: u64,
    /// Whether it was in long mode since the last reset.
    was_in_long_mode: bool,
}

/// A machine that is reached through a gdb stub.
pub struct Guest {
    gdb: Gdb,
    vcpus: Vec<Vcpu>,
    /// The stub says which vCPUs are halted.
    says_halted: bool,
    /// The stub gives EFER where QEMU's does.
    has_efer: bool,
    compared: Compared,
    code: Code,
    exits: Exits,
    finder: Option<Finder>,
    tables: Option<Tables>,
}

impl Guest {
    /// Finds the vCPUs of a machine that is stopped, in QEMU or not: all, or those with these numbers.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(
        mut gdb: Gdb,
        is_qemu: bool,
        wanted: &[u32],
        finder: Option<Finder>,
        tables: Option<Tables>,
    ) -> Result<Self> {
        let mut vcpus = Vec::new();
        let mut says_halted = true;
        let mut list = gdb.ask(&["qfThreadInfo"])?.remove(0);
        while let Some(threads) = list.strip_prefix('m') {
            for thread in threads.split(',') {
                let said = extra(&gdb.ask(&[format!("qThreadExtraInfo,{thread}")])?[0]);
                says_halted &= is_halted(&said).is_some();
                let number = said.split_once("CPU#").and_then(|(_, rest)| rest.split([' ', '[']).next()?.parse().ok());
                let (thread, number) = (thread.to_owned(), number.unwrap_or(vcpus.len() as u32));
                vcpus.push(Vcpu { thread, number, stack: 0, was_in_long_mode: false });
            }
            list = gdb.ask(&["qsThreadInfo"])?.remove(0);
        }
        vcpus.retain(|vcpu| wanted.is_empty() || wanted.contains(&vcpu.number));
        ensure!(!vcpus.is_empty(), "the machine has no such vCPU");
        let (code, exits, compared) = (Code::new(), Exits::default(), Compared::default());
        Ok(Self { gdb, vcpus, says_halted, has_efer: is_qemu, compared, code, exits, finder, tables })
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

    /// Stops the machine, takes a sample of each vCPU, and lets it run. Looks whether the kernel is where it was found;
    /// `None` if this cannot be known now. If it is asked for, the code is looked for where it differs from what it
    /// was; even then it is not known if no vCPU executes kernel code.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn sample(&mut self, time: u64, is_asked: bool) -> Result<(Vec<Message>, Option<bool>)> {
        let bytes = self.gdb.max_bytes;
        let first = self.vcpus.iter().flat_map(|Vcpu { thread, stack, .. }| {
            let stack = read_request(*stack, if *stack == 0 { 0 } else { bytes });
            [
                format!("Hg{thread}"),
                "g".to_owned(),
                format!("qThreadExtraInfo,{thread}"),
                stack,
                self.compared.request(),
            ]
        });
        let replies = self.gdb.stop_and_ask(&first.collect::<Vec<_>>())?;
        let replies: Vec<&[String]> = replies.chunks(REPLIES).collect();
        let all = replies.iter().map(|reply| registers(&reply[1], self.has_efer)).collect::<Result<Vec<_>>>()?;
        let mut messages = Vec::with_capacity(self.vcpus.len());
        let mut is_unmoved = replies.iter().any(|reply| self.compared.is_same(&reply[4])).then_some(true);
        if self.was_reset(&all) {
            messages.push(Message::Reset);
            self.restart();
        }
        for ((vcpu, at), reply) in self.vcpus.iter_mut().zip(&all).zip(replies) {
            let (cpu, halted) = (vcpu.number, is_halted(&extra(&reply[2])));
            let mut sample = Sample { cpu, time, rip: at.rip, rflags: at.rflags, cs: at.cs, ..Sample::default() };
            let mut is_idle = halted == Some(true);
            let stack = read_reply(&reply[3], bytes).map(|read| (vcpu.stack, bytes, Some(read)));
            vcpu.stack = 0;
            let is_open = is_asked && is_unmoved.is_none();
            if (!is_idle || is_open) && !at.is_user() {
                let memory = Memory::new(&mut self.gdb, &mut self.code, &vcpu.thread, stack, at)?;
                is_idle |= !self.says_halted && memory.is_after_hlt(at.rip);
                if is_open {
                    is_unmoved = self.compared.is_unmoved(self.finder.as_mut(), at, &memory);
                }
                if let Some(finder) = &mut self.finder
                    && finder.look(at.rip, &|from, to| memory.fill(from, to))
                {
                    messages.push(Message::Place(finder.outcome.clone()));
                    self.compared.begin(at, &memory);
                    self.tables.iter_mut().for_each(|tables| tables.slide = Some(finder.outcome.slide));
                }
                if let Some(half) = at.half(Finder::lower(self.finder.as_ref())).filter(|_| !is_idle) {
                    let read = |from, to: &mut [u8]| memory.stack(from, to);
                    let code = |from, to: &mut [u8]| memory.code(from, to);
                    let stack = walk::walk(at, half, &read, &code, &mut self.exits, self.tables.as_ref());
                    (sample.candidate, sample.end, sample.callers) = (stack.candidate, stack.end as u64, stack.callers);
                    sample.rip = half.written(at.rip);
                }
                memory.end()?;
                vcpu.stack = at.rsp.saturating_sub(bytes / 4) & !7;
            }
            messages.push(if is_idle { Message::Idle { cpu } } else { Message::Sample(sample) });
        }
        self.gdb.go_on()?;
        Ok((messages, is_unmoved))
    }

    /// Stops the machine, looks whether the kernel is where it was found, and lets the machine run. `None` if this
    /// cannot be known now.
    ///
    /// # Errors
    /// If the connection ends.
    pub fn is_unmoved(&mut self) -> Result<Option<bool>> {
        let requests = self.vcpus.iter().flat_map(|vcpu| [format!("Hg{}", vcpu.thread), "g".to_owned()]);
        let replies = self.gdb.stop_and_ask(&requests.collect::<Vec<_>>())?;
        let mut is_unmoved = None;
        for (vcpu, reply) in self.vcpus.iter().zip(replies.chunks(2)) {
            let at = registers(&reply[1], self.has_efer)?;
            if is_unmoved.is_none() && !at.is_user() {
                let memory = Memory::new(&mut self.gdb, &mut self.code, &vcpu.thread, None, &at)?;
                is_unmoved = self.compared.is_unmoved(self.finder.as_mut(), &at, &memory);
                memory.end()?;
            }
        }
        self.gdb.go_on()?;
        Ok(is_unmoved)
    }

    /// Whether the machine was reset: every vCPU that was in long mode is no longer.
    fn was_reset(&mut self, all: &[Registers]) -> bool {
        let had_any = self.vcpus.iter().any(|vcpu| vcpu.was_in_long_mode);
        let has_any = self.vcpus.iter().zip(all).any(|(vcpu, at)| vcpu.was_in_long_mode && at.is_in_long_mode());
        for (vcpu, at) in self.vcpus.iter_mut().zip(all) {
            vcpu.was_in_long_mode = at.is_in_long_mode() || (vcpu.was_in_long_mode && has_any);
        }
        had_any && !has_any
    }

    /// Forgets where everything was, because the machine was reset.
    pub fn restart(&mut self) {
        self.code.clear();
        self.exits = Exits::default();
        self.compared = Compared::default();
        self.finder.iter_mut().for_each(Finder::restart);
        self.tables.iter_mut().for_each(|tables| tables.slide = None);
    }
}

/// The registers of a reply to `g`. Without EFER the machine is taken to be in long mode.
fn registers(reply: &str, has_efer: bool) -> Result<Registers> {
    let bytes = from_digits(reply).filter(|bytes| bytes.len() >= CS + 4);
    let bytes = bytes.with_context(|| format!("the stub gives no registers of x86_64: {reply:.40}"))?;
    let number =
        |at: usize, size: usize| bytes[at..at + size].iter().rev().fold(0, |sum, it| sum << 8 | u64::from(*it));
    let [rip, rsp, rbp] = [RIP, RSP, RBP].map(|at| number(at, 8));
    let efer = if has_efer && bytes.len() >= EFER + 8 { number(EFER, 8) } else { LONG_MODE };
    Ok(Registers { rip, rsp, rbp, rflags: number(RFLAGS, 4), cs: number(CS, 4), efer })
}

/// What a stub says of a vCPU in words, such as `CPU#0 [halted ]`.
fn extra(reply: &str) -> String {
    String::from_utf8_lossy(&from_digits(reply).unwrap_or_default()).into_owned()
}

fn is_halted(said: &str) -> Option<bool> {
    (said.contains("[halted") || said.contains("[running")).then(|| said.contains("[halted"))
}
