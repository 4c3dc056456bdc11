//! The stack of a vCPU by frame pointers or unwind tables, and across interrupts. Stage: capture.
//!
//! In: registers, and functions that read the guest's stack and its code. Out: the words of a stack, without the first
//! one: a caller that only the host can judge, callers, markers, and why the walk ended. Runs in: QEMU's process, on
//! the vCPU's thread; and in the tool, for `attach`. Every return address in a stack follows a call instruction.
//! Whether code is an entry stub, and where the processor's five words are then, is told by the code itself: see
//! `exit.rs`. A walk goes on across them if they are what a processor pushes; otherwise it ends.

mod calls;
mod cross;
mod entry;
pub mod exit;
pub mod half;
pub mod length;
pub mod step;
pub mod tables;
mod unwound;

use calls::{called, follows_a_call, follows_a_far_return, may_call, place_of_return_address};
use entry::has_entry_frame;
use exit::{Exit, Frame};
use half::Half;

pub use exit::Exits;
pub use tables::Tables;

/// The registers that a sample needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    pub rip: u64,
    pub rsp: u64,
    pub rbp: u64,
    pub rflags: u64,
    pub cs: u64,
    pub efer: u64,
}

/// EFER: the processor is in long mode (SDM volume 3, 2.2.1).
pub const LONG_MODE: u64 = 1 << 10;

impl Registers {
    pub fn is_user(&self) -> bool {
        self.cs & 3 == 3
    }

    pub fn is_in_long_mode(&self) -> bool {
        self.efer & LONG_MODE != 0
    }

    /// The half that the kernel is in, if this is its code. `lower` is where that would be in the lower half. Firmware
    /// and boot loaders may be in another mode, where bytes of code mean something else.
    pub fn half(&self, lower: (u64, u64)) -> Option<Half> {
        Half::of(self.rip, lower).filter(|_| self.is_in_long_mode() && !self.is_user())
    }
}

/// Why a walk ended. The numbers are those of kprof's markers; 0 is the outermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    Outermost = 0,
    Depth = 1,
    Range = 2,
    Alignment = 3,
    Loop = 4,
    NotText = 5,
    Entry = 6,
}

/// The most callers of a stack.
pub const MAX_CALLERS: usize = 128;
/// Frames lie within one stack: the next one is at most this far away.
const MAX_FRAME_BYTES: u64 = 64 * 1024;

/// kprof's markers (see `kprof-format`): a page of addresses, the kind in bits 8 to 11.
pub const MARKERS: u64 = 0xffff_ffff_ffff_f000;
pub const INTERRUPT: u64 = MARKERS | 0x100;
pub const SYSCALL: u64 = MARKERS | 0x300;
pub const USER: u64 = MARKERS | 0x500;
pub const CANDIDATE: u64 = MARKERS | 0x600;

/// A stack.
#[derive(Debug)]
pub struct Stack {
    /// The caller of a function that has no frame of its own yet, or no longer; 0 if there is none.
    pub candidate: u64,
    /// Callers; after the marker of an entry, the interrupted instruction and its callers. Vector 0 is one that is not
    /// known.
    pub callers: Vec<u64>,
    pub end: End,
}

/// Reads guest memory. False if it is not mapped.
pub type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// Walks from these registers, which are those of a kernel in this half, by frame pointers, or by the kernel's tables.
/// Code may be read from a copy: it is asked for by another function.
pub fn walk(
    at: &Registers,
    half: Half,
    read_stack: Read<'_>,
    read_code: Read<'_>,
    exits: &mut Exits,
    tables: Option<&Tables>,
) -> Stack {
    let word = |address| {
        let mut bytes = [0; 8];
        read_stack(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let mut walk = Walk { half, word: &word, read_code, exits, words: Vec::new() };
    if let Some(tables) = tables {
        let end = walk.by_tables(*at, tables);
        return Stack { candidate: 0, callers: walk.words, end };
    }
    let (mut candidate, mut at) = (0, *at);
    loop {
        // In an entry stub, or from the caller of a function without a frame on.
        let end = walk.cross(at.rip, at.rsp, at.rbp, true).unwrap_or_else(|| {
            let caller = walk.caller_without_frame(&at);
            match caller {
                Some((caller, _)) if walk.is_certain(at.rip, caller) => walk.push(caller),
                Some((caller, _)) if walk.words.is_empty() => candidate = half.written(caller),
                Some((caller, _)) => walk.words.extend([CANDIDATE, half.written(caller)]),
                None => {}
            }
            walk.callers(&at, caller)
        });
        match end {
            Ok(interrupted) if walk.words.len() < MAX_CALLERS => at = interrupted,
            end => return Stack { candidate, callers: walk.words, end: end.err().unwrap_or(End::Depth) },
        }
    }
}

struct Walk<'a> {
    half: Half,
    word: &'a dyn Fn(u64) -> Option<u64>,
    read_code: Read<'a>,
    exits: &'a mut Exits,
    words: Vec<u64>,
}

impl Walk<'_> {
    /// Adds an address of the kernel's code.
    fn push(&mut self, address: u64) {
        self.words.push(self.half.written(address));
    }

    fn follows_a_call(&self, address: u64) -> bool {
        self.half.has_code(address) && follows_a_call(address, self.read_code)
    }

    /// Whether code is that of an outermost function, by the word that would be its return address and follows no call
    /// in the kernel: it was called by the boot, which runs below 4 GiB; or the boot has entered it by a far
    /// return, and pushed the address after that as its return address; or it never returns, so a thread began with it
    /// by a jump, and the word is whatever was on its stack.
    fn is_root(&mut self, code: u64, word: u64) -> bool {
        (word >> 32 == 0 && follows_a_call(word, self.read_code))
            || (self.half.has_code(word) && follows_a_far_return(word, self.read_code))
            || self.exits.of(code, self.read_code) == Exit::Never
    }

    /// The caller of a function that has no frame of its own, and RSP after the return to it. By the code up to `ret`,
    /// or by the instructions that every function begins and ends with.
    fn caller_without_frame(&mut self, at: &Registers) -> Option<(u64, u64)> {
        let place = match self.exits.of(at.rip, self.read_code) {
            Exit::Return { to, .. } => {
                Some(to.address(at.rsp, at.rbp)).filter(|place| *place != at.rbp.wrapping_add(8))
            }
            // Whether it is a call in place of `ret` is for the host to decide.
            Exit::Jump => Some(at.rsp),
            _ => place_of_return_address(at, self.read_code),
        }?;
        let caller = (self.word)(place).filter(|caller| self.follows_a_call(*caller))?;
        Some((caller, place.wrapping_add(8)))
    }

    fn is_certain(&mut self, code: u64, caller: u64) -> bool {
        let exit = self.exits.of(code, self.read_code);
        matches!(exit, Exit::Return { .. }) && may_call(caller, code, self.read_code)
    }

    /// Goes on over functions without frames, as far as their callers are certain: the code up to `ret` says where
    /// the return address is, and the call before that is not one of other code.
    fn frameless(&mut self, code: &mut (u64, u64), frame: u64) -> Option<Result<Registers, End>> {
        while self.words.len() < MAX_CALLERS {
            let Exit::Return { to, rbp: Frame::Same } = self.exits.of(code.0, self.read_code) else { break };
            let place = to.address(code.1, frame);
            let is_before = place >= code.1 && place < frame;
            let caller = is_before.then_some(place).and_then(self.word);
            let caller = caller.filter(|it| self.half.has_code(*it) && may_call(*it, code.0, self.read_code));
            let Some(caller) = caller else { break };
            self.push(caller);
            *code = (caller, place.wrapping_add(8));
            if let Some(crossed) = self.cross(code.0, code.1, frame, false) {
                return Some(crossed);
            }
        }
        None
    }

    /// Callers up to the next entry, or to the end. `first` is the caller of the function that has no frame.
    fn callers(&mut self, at: &Registers, first: Option<(u64, u64)>) -> Result<Registers, End> {
        let (mut frame, mut before) = (at.rbp, at.rsp);
        // The code that uses this frame, and RSP there.
        let mut code = (at.rip, at.rsp);
        if let Some((caller, rsp)) = first {
            if let Some(crossed) = self.cross(caller, rsp, frame, false) {
                return crossed;
            }
            code = (caller, rsp);
            if let Some(crossed) = self.frameless(&mut code, frame) {
                return crossed;
            }
        }
        while self.words.len() < MAX_CALLERS {
            let end = match frame {
                // 0, or the user's.
                _ if !self.half.has_stack(frame) => Some(End::Outermost),
                _ if frame % 8 != 0 => Some(End::Alignment),
                _ if frame < before => Some(End::Loop),
                _ if frame - before > MAX_FRAME_BYTES => Some(End::Range),
                // The words may be old ones in a function's own frame.
                _ if has_entry_frame(self.half, before, frame, self.word) && !self.owns(code, frame) => {
                    Some(End::Entry)
                }
                _ => None,
            };
            let (next, caller) = match (end, (self.word)(frame), (self.word)(frame.wrapping_add(8))) {
                (Some(end), ..) => return Err(end),
                (None, Some(next), Some(caller)) => (next, caller),
                _ => return Err(End::Range),
            };
            if caller == 0 && next == 0 {
                return Err(End::Outermost);
            }
            if !self.follows_a_call(caller) {
                return Err(if self.is_root(code.0, caller) { End::Outermost } else { End::NotText });
            }
            self.push(caller);
            (before, frame) = (frame + 16, next);
            code = (caller, before);
            if let Some(crossed) = self.cross(caller, before, frame, false) {
                return crossed;
            }
            if let Some(crossed) = self.frameless(&mut code, frame) {
                return crossed;
            }
        }
        Err(End::Depth)
    }

    /// Whether the frame is that of the function that this code is in: the code says that its return address is next to
    /// this frame pointer; or, if the code never returns, the call before that return address calls the function, and
    /// the code uses the frame that the function has set up.
    fn owns(&mut self, (code, rsp): (u64, u64), frame: u64) -> bool {
        let place = frame.wrapping_add(8);
        match self.exits.of(code, self.read_code) {
            Exit::Return { to, .. } => to.address(rsp, frame) == place,
            _ => (self.word)(place).is_some_and(|caller| {
                called(caller, self.read_code).any(|it| self.exits.uses_frame_of(it, code, self.read_code))
            }),
        }
    }
}
