//! The stack of a vCPU of aarch64 or riscv64. Stage: capture.
//!
//! In: registers, and functions that read the guest's stack and its code. Out: what [`walk`](super::walk) gives for
//! x86_64. Runs in: QEMU's process, on the vCPU's thread. The code of each function is followed to its return (see
//! [`exit`]), which says where its return address and its caller's registers are. Where it never returns, or cannot be
//! followed, its frame record says this. Every return address follows a call instruction. These processors push
//! nothing at an exception, and what its entry stub saves is not known, so a stack ends there as truncated.

pub mod aarch64;
pub mod exit;
pub mod riscv64;
mod unwound;

use super::walk::half::Half;
use super::walk::{End, MAX_CALLERS, Read, Stack, Tables};
use exit::{Exit, Exits, Start, Value};

/// Frames lie within one stack: the next one is at most this far away.
const MAX_FRAME_BYTES: u64 = 64 * 1024;
/// Stacks are aligned to this.
const ALIGNMENT: u64 = 16;

/// The registers that a sample needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    pub pc: u64,
    pub sp: u64,
    /// The frame pointer: x29, s0.
    pub fp: u64,
    /// The link register: x30, ra.
    pub link: u64,
}

/// What differs between the processors.
pub struct Processor {
    /// Goes on by one instruction.
    pub step: fn(&mut exit::State, Read<'_>) -> exit::Next,
    /// Whether the instruction before this address is a call.
    pub follows_a_call: fn(u64, Read<'_>) -> bool,
    /// Where the frame record is, from the frame pointer on: the caller's frame pointer, then the return address.
    pub record: i64,
    /// Whether the frame pointer is the stack pointer of the caller.
    pub has_sp_in_fp: bool,
    /// The bits of an address that may have a signature (pointer authentication).
    pub signature: u64,
}

/// Where a function is to be returned to.
struct Caller {
    pc: u64,
    /// `None` if it is not known.
    sp: Option<u64>,
    fp: u64,
}

/// What is known of the kernel's code.
pub struct Known<'a> {
    pub half: Half,
    pub exits: &'a mut Exits,
    /// The kernel's unwind tables, if stacks are found by them.
    pub tables: Option<&'a Tables>,
}

/// Walks from these registers.
pub fn walk(of: &Processor, at: &Registers, read_stack: Read<'_>, read_code: Read<'_>, known: Known<'_>) -> Stack {
    let Known { half, exits, tables } = known;
    let word = |address: u64| {
        let mut bytes = [0; 8];
        read_stack(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let walk = Walk { of, half, word: &word, read_code };
    let (mut callers, mut candidate) = (Vec::new(), 0);
    let mut here = Caller { pc: at.pc, sp: Some(at.sp), fp: at.fp };
    let mut lowest = at.sp;
    let end = loop {
        if callers.len() >= MAX_CALLERS {
            break End::Depth;
        }
        let start = if callers.is_empty() { Start::Anywhere } else { Start::AfterCall };
        let exit = exits.of(of, here.pc, start, read_code);
        let row = unwound::row(tables, here.pc, callers.is_empty());
        // An entry stub; or code that may be one, for all that is known of its end. Assembly has no such row.
        if row.is_none() && (exit == Exit::Exception || (exit == Exit::Jump && start == Start::AfterCall)) {
            break End::Entry;
        }
        let link = callers.is_empty().then_some(at.link);
        let by_code = walk.by_code(exit, &here, link).map(Ok);
        let told = row.as_ref().and_then(|row| match start {
            Start::Anywhere if by_code.is_some() => None,
            _ => walk.by_row(row, &here, link),
        });
        let next = match told.or(by_code) {
            Some(Ok(next)) => next,
            Some(Err(end)) => break end,
            // The frame pointer of such a function may be anything.
            None if row.is_some() => break End::Entry,
            None => {
                let by_record = walk.by_record(exit, &here, lowest);
                // The function may have no record at this instruction. The host knows its code from the beginning on.
                let first = by_record.as_ref().map_or(0, |next| next.pc);
                if let Some(link) = link.and_then(|link| walk.return_address(link)).filter(|link| *link != first) {
                    candidate = half.written(link);
                }
                match by_record {
                    Ok(next) => next,
                    Err(end) => break end,
                }
            }
        };
        callers.push(half.written(next.pc));
        lowest = next.sp.unwrap_or(lowest.max(here.fp));
        here = next;
    };
    Stack { candidate, callers, end }
}

struct Walk<'a> {
    of: &'a Processor,
    half: Half,
    word: &'a dyn Fn(u64) -> Option<u64>,
    read_code: Read<'a>,
}

impl Walk<'_> {
    /// The address, without a signature, if it is one that a call has left.
    fn return_address(&self, value: u64) -> Option<u64> {
        let is_one = |address: &u64| self.half.has_code(*address) && (self.of.follows_a_call)(*address, self.read_code);
        // Bit 55 says in which half of the address space it is.
        let signed = (value >> 55 & 1 == 1).then_some(value | self.of.signature);
        Some(value).filter(is_one).or_else(|| signed.filter(is_one))
    }

    /// The caller, by what the function's code does until it returns.
    fn by_code(&self, exit: Exit, here: &Caller, link: Option<u64>) -> Option<Caller> {
        let Exit::Return { link: return_address, fp, sp } = exit else { return None };
        // Whoever saves both next to each other, as a record, has its frame pointer point to it.
        let own = match (return_address, fp) {
            (Value::WordAtSp(link), Value::WordAtSp(fp)) if link == fp + 8 && here.sp.is_none() => {
                Some(here.fp.wrapping_add_signed(self.of.record - fp))
            }
            _ => here.sp,
        };
        let place = |value| match value {
            Value::Sp(at) | Value::WordAtSp(at) => own.map(|sp| sp.wrapping_add_signed(at)),
            Value::Fp(at) | Value::WordAtFp(at) => Some(here.fp.wrapping_add_signed(at)),
            Value::Link | Value::Unknown => None,
        };
        let value = |value| match value {
            Value::Sp(_) | Value::Fp(_) => place(value),
            Value::WordAtSp(_) | Value::WordAtFp(_) => {
                place(value).filter(|at| own.is_none_or(|sp| at.wrapping_sub(sp) < MAX_FRAME_BYTES)).and_then(self.word)
            }
            Value::Link => link,
            Value::Unknown => None,
        };
        let sp = value(sp).filter(|sp| own.is_none_or(|own| sp.wrapping_sub(own) < MAX_FRAME_BYTES));
        Some(Caller { pc: self.return_address(value(return_address)?)?, sp, fp: value(fp)? })
    }

    /// The caller, by the record that the frame pointer points to.
    fn by_record(&self, exit: Exit, here: &Caller, lowest: u64) -> Result<Caller, End> {
        let fp = here.fp;
        match fp {
            0 => return Err(End::Outermost),
            // A frame pointer of the boot, or another number: code without frame pointers uses this register freely.
            _ if !self.half.has_stack(fp) => return Err(End::Range),
            _ if !fp.is_multiple_of(ALIGNMENT) => return Err(End::Alignment),
            _ if fp < lowest => return Err(End::Loop),
            _ if fp - lowest > MAX_FRAME_BYTES => return Err(End::Range),
            // The function returns with the frame pointer that it has here: the record is not its own.
            _ if matches!(exit, Exit::Return { fp: Value::Fp(0), .. }) => return Err(End::NotText),
            _ => {}
        }
        let record = fp.wrapping_add_signed(self.of.record);
        let (next, pc) = (self.word)(record).zip((self.word)(record.wrapping_add(8))).ok_or(End::Range)?;
        if pc == 0 && next == 0 {
            return Err(End::Outermost);
        }
        let pc = self.return_address(pc).ok_or(End::NotText)?;
        Ok(Caller { pc, sp: self.of.has_sp_in_fp.then_some(fp), fp: next })
    }
}
