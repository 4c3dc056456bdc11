//! How code of aarch64 or riscv64 ends from an instruction on: by a return, or, in an entry stub, by that of an
//! exception. Stage: capture.
//!
//! In: an address in code, and a function that reads code. Out: what the link register, the frame pointer and the
//! stack pointer are at the return, by what they were at the address. Instructions are followed, not executed: both
//! ways of a branch are taken; calls are taken to return with the same stack and frame pointer. A call that never
//! returns is followed by the code of another function, which returns to an unknown address, so this way has no answer.
//! Where no way has one, the called functions are looked at too: one that returns from an exception ends an entry stub.

use super::super::walk::Read;
use super::Processor;
use std::collections::{HashMap, HashSet};

/// Instructions that are followed from one address.
const MAX_STEPS: usize = 400;
/// Where nothing returns, this many calls, one in the other, are followed.
const MAX_CALLS: u32 = 2;
/// So many results are kept.
const MAX_KEPT: usize = 1 << 16;

/// A value, by the registers at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The stack pointer and this many bytes.
    Sp(i64),
    /// The frame pointer and this many bytes.
    Fp(i64),
    /// The word that the stack pointer and this many bytes point to.
    WordAtSp(i64),
    /// The word that the frame pointer and this many bytes point to.
    WordAtFp(i64),
    /// The link register.
    Link,
    Unknown,
}

impl Value {
    pub fn plus(self, bytes: i64) -> Self {
        match self {
            Self::Sp(at) => Self::Sp(at.wrapping_add(bytes)),
            Self::Fp(at) => Self::Fp(at.wrapping_add(bytes)),
            other if bytes == 0 => other,
            _ => Self::Unknown,
        }
    }
}

/// How code ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// To this address, with these registers.
    Return {
        link: Value,
        fp: Value,
        sp: Value,
    },
    /// It returns from an exception: this is an entry stub.
    Exception,
    /// All that is known of its end is a jump to an address in a register.
    Jump,
    Unknown,
}

/// What is known of the link register at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// It may be the return address.
    Anywhere,
    /// It is not: a call has written it.
    AfterCall,
}

/// Registers at an instruction that is followed.
#[derive(Clone, Copy)]
pub struct State {
    /// The instruction.
    pub at: u64,
    pub link: Value,
    pub fp: Value,
    pub sp: Value,
    /// Places on the stack that the code has written, and what: the frame pointer, the link register.
    pub saved: [Option<(Value, Value)>; 2],
    /// The function that was called last, if its address is in the instruction.
    pub called: Option<u64>,
    /// A register that has the upper part of an address of code, and this address.
    pub upper: Option<(u32, u64)>,
}

/// What comes after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Falls,
    /// The frame pointer has been set: the record is here.
    Record(Value),
    Jump(u64),
    Branch(u64),
    Return,
    Exception,
    /// A breakpoint. Compilers put it where nothing is executed; one that is executed is meant to return.
    Break,
    /// A jump to an unknown place.
    Indirect,
    /// What is no instruction.
    End,
}

impl State {
    /// A word is read.
    pub fn load(&self, place: Value) -> Value {
        let is_here = |(at, value): (Value, Value)| (at == place).then_some(value);
        let written = self.saved.iter().flatten().copied().find_map(is_here);
        written.unwrap_or(match place {
            // Below the stack pointer nothing is kept.
            Value::Sp(at) if at >= 0 => Value::WordAtSp(at),
            Value::Fp(at) => Value::WordAtFp(at),
            _ => Value::Unknown,
        })
    }

    /// The frame pointer (0) or the link register (1) is written to the stack.
    pub fn save(&mut self, place: Value, which: usize) {
        let value = if which == 0 { self.fp } else { self.link };
        self.saved[which] = matches!(place, Value::Sp(_) | Value::Fp(_)).then_some((place, value));
    }
}

/// What is known of code that was seen.
#[derive(Debug, Default)]
pub struct Exits(HashMap<(u64, Start), Exit>);

impl Exits {
    /// How the code at this address ends.
    pub fn of(&mut self, processor: &Processor, address: u64, start: Start, read: Read<'_>) -> Exit {
        if self.0.len() >= MAX_KEPT {
            self.0.clear();
        }
        *self.0.entry((address, start)).or_insert_with(|| exit(processor, address, start, MAX_CALLS, read))
    }
}

fn exit(processor: &Processor, address: u64, start: Start, calls: u32, read: Read<'_>) -> Exit {
    let link = if start == Start::Anywhere { Value::Link } else { Value::Unknown };
    let (fp, sp, saved) = (Value::Fp(0), Value::Sp(0), [None; 2]);
    let mut open = vec![State { at: address, link, fp, sp, saved, called: None, upper: None }];
    let (mut seen, mut called, mut left) = (HashSet::new(), Vec::new(), MAX_STEPS);
    let (mut found, mut by_record, mut is_stub, mut is_jump) = (None, None, false, false);
    while let Some(mut state) = open.pop() {
        while left > 0 && seen.insert(state.at) {
            left -= 1;
            let next = (processor.step)(&mut state, read);
            called.extend(state.called.take());
            match next {
                Next::Falls => {}
                Next::Break if left + 1 == MAX_STEPS => {}
                Next::Record(record) => {
                    let (fp, link) = (state.load(record), state.load(record.plus(8)));
                    let sp = if processor.has_sp_in_fp { state.fp } else { Value::Unknown };
                    if link != Value::Unknown && fp != Value::Unknown {
                        by_record.get_or_insert(Exit::Return { link, fp, sp });
                    }
                }
                Next::Jump(to) => state.at = to,
                Next::Branch(to) => open.push(State { at: to, ..state }),
                Next::Return if state.link == Value::Unknown => break,
                Next::Return => {
                    let exit = Exit::Return { link: state.link, fp: state.fp, sp: state.sp };
                    match found {
                        Some(before) if before != exit => return Exit::Unknown,
                        _ => found = Some(exit),
                    }
                    break;
                }
                Next::Exception => {
                    is_stub = true;
                    break;
                }
                Next::Indirect => {
                    is_jump = true;
                    break;
                }
                Next::Break | Next::End => break,
            }
        }
    }
    // A stub may end by the call of a function that returns from the exception.
    let mut is_called = |to: &u64| exit(processor, *to, Start::AfterCall, calls - 1, read) == Exit::Exception;
    match found.or(by_record) {
        None if is_stub || (calls > 0 && start == Start::AfterCall && called.iter().any(&mut is_called)) => {
            Exit::Exception
        }
        None if is_jump => Exit::Jump,
        found => found.unwrap_or(Exit::Unknown),
    }
}
