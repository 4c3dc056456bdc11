//! The stack of a vCPU by frame pointers. Stage: capture.
//!
//! In: registers, and functions that read the guest's stack and its code. Out: the words of a stack, without the first
//! one: a caller that only the host can judge, callers, and why the walk ended. Runs in: QEMU's process, on the vCPU's
//! thread; and in the tool, for `attach`. Never writes a return address that does not follow a call instruction, and
//! never goes on across an interrupt's frame.

/// The registers that a sample needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Registers {
    pub rip: u64,
    pub rsp: u64,
    pub rbp: u64,
    pub rflags: u64,
    pub cs: u64,
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
/// How much of a frame is searched for an interrupt's frame.
const MAX_SEARCHED_BYTES: u64 = 1024;

/// A stack.
#[derive(Debug)]
pub struct Stack {
    /// The caller of a function that has no frame of its own yet, or no longer; 0 if there is none.
    pub candidate: u64,
    pub callers: Vec<u64>,
    pub end: End,
}

pub fn is_kernel(address: u64) -> bool {
    address >> 63 != 0
}

/// Reads guest memory. False if it is not mapped.
pub type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// Walks from these registers. Code may be read from a copy: it is asked for by another function.
pub fn walk(at: &Registers, read_stack: Read<'_>, read_code: Read<'_>) -> Stack {
    let word = |address| {
        let mut bytes = [0; 8];
        read_stack(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    };
    let mut stack = Stack { candidate: 0, callers: Vec::new(), end: End::Depth };
    let follows_a_call = |address: u64| is_kernel(address) && follows_a_call(address, read_code);
    stack.candidate =
        place_of_return_address(at, read_code).and_then(word).filter(|it| follows_a_call(*it)).unwrap_or(0);
    let (mut frame, mut before) = (at.rbp, at.rsp);
    while stack.callers.len() < MAX_CALLERS {
        let end = match frame {
            0 => Some(End::Outermost),
            // The interrupted code's frame pointer was the user's.
            _ if !is_kernel(frame) => Some(End::Outermost),
            _ if frame % 8 != 0 => Some(End::Alignment),
            _ if frame < before => Some(End::Loop),
            _ if frame - before > MAX_FRAME_BYTES => Some(End::Range),
            _ if has_entry_frame(before, frame, &word) => Some(End::Entry),
            _ => None,
        };
        let (next, caller) = match (end, word(frame), word(frame.wrapping_add(8))) {
            (Some(end), ..) => {
                stack.end = end;
                return stack;
            }
            (None, Some(next), Some(caller)) => (next, caller),
            _ => {
                stack.end = End::Range;
                return stack;
            }
        };
        if caller == 0 && next == 0 {
            stack.end = End::Outermost;
            return stack;
        }
        if !follows_a_call(caller) {
            stack.end = End::NotText;
            return stack;
        }
        stack.callers.push(caller);
        (before, frame) = (frame + 16, next);
    }
    stack
}

/// Where the return address is if the instruction is one of those at which a function has no frame of its own: the
/// two at its beginning, and `ret`.
fn place_of_return_address(at: &Registers, read: Read<'_>) -> Option<u64> {
    let mut code = [0; 5];
    let has_before = read(at.rip.wrapping_sub(1), &mut code);
    match code {
        // push rbp
        [_, 0x55, ..] if has_before => Some(at.rsp),
        // endbr64, which precedes it
        [_, 0xf3, 0x0f, 0x1e, 0xfa] if has_before => Some(at.rsp),
        // push rbp was done; mov rbp, rsp (both encodings)
        [0x55, 0x48, 0x89, 0xe5, _] | [0x55, 0x48, 0x8b, 0xec, _] if has_before => Some(at.rsp + 8),
        // ret
        [_, 0xc3, ..] if has_before => Some(at.rsp),
        _ => None,
    }
}

/// Whether the instruction before this address is a call (SDM volume 2, CALL): `E8 rel32`, or `FF /2` with any operand.
fn follows_a_call(address: u64, read: Read<'_>) -> bool {
    let mut code = [0; 7];
    if !read(address.wrapping_sub(7), &mut code) {
        return false;
    }
    // The length of `FF /2` by its operand: register or memory, then with 8 or 32 bits of displacement.
    let is_indirect = |bytes: usize| {
        let [opcode, operand, ..] = code[7 - bytes..] else { return false };
        let (mode, has_sib) = (operand >> 6, operand & 7 == 4 && operand >> 6 != 3);
        let displacement = match mode {
            0 if operand & 7 == 5 || has_sib && code[7 - bytes + 2..].first().is_some_and(|sib| sib & 7 == 5) => 4,
            0 | 3 => 0,
            1 => 1,
            _ => 4,
        };
        opcode == 0xff && operand >> 3 & 7 == 2 && bytes == 2 + usize::from(has_sib) + displacement
    };
    code[2] == 0xe8 || (2..=7).any(is_indirect)
}

/// Whether the five words that an interrupt or exception pushes (SDM volume 3, 6.14.2) are between two frames. A walk
/// across them would leave out the interrupted function.
fn has_entry_frame(from: u64, to: u64, word: &dyn Fn(u64) -> Option<u64>) -> bool {
    let to = to.min(from.saturating_add(MAX_SEARCHED_BYTES));
    let is_one = |at: u64| {
        let read = |number: u64| word(at + 8 * number);
        let (Some(rip), Some(cs), Some(rflags), Some(rsp), Some(ss)) = (read(0), read(1), read(2), read(3), read(4))
        else {
            return false;
        };
        let is_selector = |value: u64| value < 0x200 && matches!(value & 3, 0 | 3);
        // Bit 1 is always set; bits 3, 5, 15 and those above 21 never are.
        let is_flags = rflags & 0xffff_ffff_ffc0_802a == 2;
        let is_user = cs & 3 == 3 && ss & 3 == 3 && !is_kernel(rip);
        let is_interrupted_kernel = cs & 3 == 0 && cs != 0 && is_kernel(rip) && is_kernel(rsp);
        is_selector(cs) && is_selector(ss) && is_flags && (is_user || is_interrupted_kernel)
    };
    (from..to.saturating_sub(39)).step_by(8).any(is_one)
}
