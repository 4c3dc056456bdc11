//! How code ends from an instruction on: by `ret`, in an entry stub by `iret`, or never. Stage: capture.
//!
//! In: an address in code, and a function that reads code. Out: where the return address, or the words that the
//! processor has pushed at an interrupt, are then, as a distance from the stack pointer or the frame pointer that the
//! code has at that address; and where it restores the interrupted frame pointer from. The instructions are followed,
//! not executed: calls are taken to return with the same RSP and RBP, both ways of a branch are tried. What cannot be
//! followed is [`Exit::Unknown`]. Nothing is known of the code but its bytes. Runs in: QEMU's process, and in the tool.

use super::Read;
use super::length::{Instruction, MAX_BYTES, instruction};
use super::step::{Next, State, is_local};
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Instructions that are followed from one address.
const MAX_STEPS: usize = 400;
/// So many results are kept.
const MAX_KEPT: usize = 1 << 16;

/// An address on the stack, by a register at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Rsp(i64),
    Rbp(i64),
}

/// What the frame pointer is at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// What it was at the beginning.
    Same,
    /// The word at this place.
    At(Place),
    /// The place itself.
    Is(Place),
    Unknown,
}

/// How code ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The return address is at this place, and RBP is then the caller's.
    Return {
        to: Place,
        rbp: Frame,
    },
    /// RIP, CS, RFLAGS, RSP and SS of the interrupted code are at this place.
    Interrupt {
        words: Place,
        rbp: Frame,
        is_syscall: bool,
    },
    /// By an indirect jump, with RSP and RBP as at the beginning: a call in place of `ret`, or one case of several.
    Jump,
    /// By `sysret`: nothing is known of the stack.
    Syscall,
    /// Never: each way ends at an instruction that does not exist, as after a call that never returns, or is a loop.
    Never,
    Unknown,
}

/// What is known of code that was seen.
#[derive(Debug, Default)]
pub struct Exits {
    exits: HashMap<u64, Exit>,
    /// Whether code, the second address, uses the frame that a function, the first one, sets up.
    frames: HashMap<(u64, u64), bool>,
}

impl Place {
    pub fn plus(self, bytes: i64) -> Self {
        match self {
            Self::Rsp(at) => Self::Rsp(at.wrapping_add(bytes)),
            Self::Rbp(at) => Self::Rbp(at.wrapping_add(bytes)),
        }
    }

    /// The address, if the register is known.
    pub fn known(self, rsp: u64, rbp: Option<u64>) -> Option<u64> {
        match self {
            Self::Rsp(_) => Some(self.address(rsp, 0)),
            Self::Rbp(_) => rbp.map(|rbp| self.address(rsp, rbp)),
        }
    }

    pub fn address(self, rsp: u64, rbp: u64) -> u64 {
        match self {
            Self::Rsp(at) => rsp.wrapping_add_signed(at),
            Self::Rbp(at) => rbp.wrapping_add_signed(at),
        }
    }
}

/// What is met when code is followed.
enum Met<'a> {
    /// An instruction and its bytes, with the registers before it.
    Instruction(&'a State, &'a Instruction, &'a [u8]),
    End(Exit),
    /// Bytes that are no known instruction, or a way to code that is not known.
    Lost,
}

impl Exits {
    /// How the code at this address ends.
    pub fn of(&mut self, address: u64, read: Read<'_>) -> Exit {
        kept(&mut self.exits, address, || exit(address, read))
    }

    /// Whether RBP at this code is the frame that this function has set up: both come to the same instruction with an
    /// operand below RBP, the code with its RBP, the function with the frame. For code that never comes to `ret`. An
    /// entry stub that leaves RBP as it is has no such operand: what is below the interrupted frame is not its own.
    pub fn uses_frame_of(&mut self, function: u64, code: u64, read: Read<'_>) -> bool {
        kept(&mut self.frames, (function, code), || {
            // The return address is above the frame pointer that was pushed.
            let own = locals(function, Frame::Is(Place::Rsp(-8)), read);
            !own.is_disjoint(&locals(code, Frame::Same, read))
        })
    }
}

/// What is known of this code; found out, and kept, if nothing is known yet.
fn kept<K: Eq + Hash, V: Copy>(all: &mut HashMap<K, V>, code: K, find: impl FnOnce() -> V) -> V {
    if all.len() >= MAX_KEPT {
        all.clear();
    }
    *all.entry(code).or_insert_with(find)
}

/// The instructions from this address on that have an operand below RBP, where RBP is this.
fn locals(address: u64, rbp: Frame, read: Read<'_>) -> HashSet<u64> {
    let mut all = HashSet::new();
    follow(address, read, &mut |met| {
        if let Met::Instruction(state, one, bytes) = met
            && state.rbp == rbp
            && is_local(one, bytes)
        {
            all.insert(state.at);
        }
        true
    });
    all
}

fn exit(address: u64, read: Read<'_>) -> Exit {
    let (mut found, mut has_sysret, mut has_jump, mut is_lost) = (None, false, false, false);
    let is_complete = follow(address, read, &mut |met| {
        match (met, found) {
            (Met::Instruction(..), _) => {}
            (Met::Lost, _) => is_lost = true,
            (Met::End(Exit::Syscall), _) => has_sysret = true,
            (Met::End(Exit::Jump), _) => has_jump = true,
            // A stub has one way to the interrupted code, in one or more copies.
            (Met::End(exit), None) => found = Some(exit),
            (Met::End(exit), Some(before)) if exit == before => {}
            (Met::End(_), Some(_)) => found = Some(Exit::Unknown),
        }
        !matches!(found, Some(Exit::Return { .. } | Exit::Unknown))
    });
    match found {
        Some(Exit::Interrupt { words, rbp, .. }) => Exit::Interrupt { words, rbp, is_syscall: has_sysret },
        None if has_sysret => Exit::Syscall,
        None if has_jump => Exit::Jump,
        None if !is_lost && is_complete => Exit::Never,
        found => found.unwrap_or(Exit::Unknown),
    }
}

/// Follows the code from this address on as long as `meet` says so. False if there was more than it follows.
fn follow(address: u64, read: Read<'_>, meet: &mut dyn FnMut(Met<'_>) -> bool) -> bool {
    let mut open = vec![State { at: address, rsp: Some(Place::Rsp(0)), rbp: Frame::Same, saved: None }];
    let (mut seen, mut left) = (HashSet::new(), MAX_STEPS);
    while let Some(mut state) = open.pop() {
        while left > 0 && seen.insert(state.at) {
            left -= 1;
            let mut bytes = [0; MAX_BYTES];
            // Code may end before the bytes that an instruction may have at most.
            let is_read = read(state.at, &mut bytes) || read(state.at, &mut bytes[..1 + MAX_BYTES / 2]);
            let Some(one) = instruction(&bytes).filter(|_| is_read) else {
                meet(Met::Lost);
                break;
            };
            let bytes = &bytes[..one.length];
            meet(Met::Instruction(&state, &one, bytes));
            match state.step(&one, bytes) {
                Next::Falls => {}
                Next::Jump(to) => state.at = to,
                Next::Branch(to) => open.push(State { at: to, ..state }),
                Next::Stop => break,
                Next::End(exit) => {
                    if !meet(exit.map_or(Met::Lost, Met::End)) {
                        return true;
                    }
                    break;
                }
            }
        }
    }
    left > 0
}
