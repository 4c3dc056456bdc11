//! Finds the caller's return address at an instruction by following the code of its function. Stage: symbolize.
//!
//! In: the bytes of a function from its start. Out: where the return address is at one of its instructions ([`Frame`]):
//! at RSP, 8 bytes above RSP, above the function's own frame pointer, or deeper. From the start, each instruction is
//! followed to the next one and to the target of its jump. An instruction that is reached in two different states, or
//! not at all, has no answer.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// Where the return address to the caller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// In the word at `[rsp]`.
    CallerOnTop,
    /// In the word at `[rsp+8]`; the word at `[rsp]` is the caller's frame pointer.
    CallerAboveRbp,
    /// Above the word that the frame pointer points to: the function has its own frame.
    Own,
    /// Further up the stack, and the frame pointer does not lead there.
    Deeper,
}

/// Maximum number of instructions that are followed.
const MAX: usize = 20_000;

/// A depth of this value or more means "unknown". Known depths are smaller.
const UNKNOWN: i64 = i64::MAX / 4;

/// What the followed code has done to the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Distance in bytes of RSP below the return address.
    depth: i64,
    /// The depth at which rbp was saved.
    saved: Option<i64>,
    /// Whether rbp was then set to RSP.
    own: bool,
}

impl State {
    fn frame(self) -> Frame {
        match self {
            Self { own: true, .. } => Frame::Own,
            Self { depth: 0, .. } => Frame::CallerOnTop,
            Self { depth: 8, saved: Some(8), .. } => Frame::CallerAboveRbp,
            _ => Frame::Deeper,
        }
    }

    /// The state after an instruction; `None` if the state cannot be known.
    fn after(mut self, instruction: &Instruction) -> Option<Self> {
        let register = |index| match instruction.op_kind(index) {
            OpKind::Register => instruction.op_register(index).full_register(),
            _ => Register::None,
        };
        let to = if instruction.op_count() > 0 { register(0) } else { Register::None };
        let immediate = || instruction.try_immediate(1).ok().map(|value| value as i64);
        match (instruction.mnemonic(), to) {
            (Mnemonic::Push, Register::RBP) => {
                self.depth += 8;
                if !self.own {
                    self.saved = Some(self.depth);
                }
            }
            (Mnemonic::Push | Mnemonic::Pushfq, _) => self.depth += 8,
            (Mnemonic::Pop, Register::RBP) => {
                // If rbp was pushed again inside the frame, this pop changes nothing: rbp is still the function's own.
                if self.saved == Some(self.depth) || self.depth >= UNKNOWN {
                    (self.own, self.saved) = (false, None);
                }
                self.depth -= 8;
            }
            (Mnemonic::Pop, Register::RSP) => return None,
            (Mnemonic::Pop | Mnemonic::Popfq, _) => self.depth -= 8,
            (Mnemonic::Leave, _) => {
                self.depth = self.saved.filter(|_| self.own)? - 8;
                (self.own, self.saved) = (false, None);
            }
            (Mnemonic::Mov, Register::RBP) if register(1) == Register::RSP => {
                self.own = self.saved == Some(self.depth);
            }
            (Mnemonic::Mov, Register::RSP) if register(1) == Register::RBP && self.own => self.depth = self.saved?,
            (Mnemonic::Sub, Register::RSP) => self.depth += immediate()?,
            (Mnemonic::Add, Register::RSP) => self.depth -= immediate()?,
            (Mnemonic::Lea, Register::RSP) => {
                let offset = instruction.memory_displacement64() as i64;
                self.depth = match instruction.memory_base() {
                    _ if instruction.memory_index() != Register::None => return None,
                    Register::RSP => self.depth,
                    Register::RBP if self.own => self.saved?,
                    _ => return None,
                } - offset;
            }
            (Mnemonic::Cmp | Mnemonic::Test, _) => {}
            // RSP is aligned by an unknown amount or set to an unknown value. Only the frame pointer can restore it.
            (_, Register::RSP) => self.depth = 2 * UNKNOWN,
            // rbp is used for something else.
            (_, Register::RBP) if self.own || self.saved.is_none() => return None,
            _ => {}
        }
        Some(self)
    }
}

/// Finds the caller's return address at the instruction at `address`, in the function whose code is `code` and begins
/// at `start`.
pub fn follow(code: &[u8], start: u64, address: u64) -> Option<Frame> {
    let mut states: HashMap<u64, Option<State>> = HashMap::new();
    let mut open = vec![(start, State { depth: 0, saved: None, own: false })];
    while let Some((at, state)) = open.pop() {
        let Some(rest) = at.checked_sub(start).and_then(|offset| code.get(usize::try_from(offset).ok()?..)) else {
            continue;
        };
        let instruction = Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            continue;
        }
        let known = states.get(&at).copied();
        match known {
            Some(None) => continue,
            Some(Some(before)) if before == state => continue,
            // This instruction is reached in two different states. So the state is unknown here and in the code after
            // it.
            Some(Some(_)) => drop(states.insert(at, None)),
            None if states.len() == MAX => return None,
            None => drop(states.insert(at, Some(state))),
        }
        let Some(after) = state.after(&instruction) else { continue };
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch => open.push((instruction.near_branch_target(), after)),
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                open.push((instruction.near_branch_target(), after));
                open.push((next, after));
            }
            FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => {}
            _ => open.push((next, after)),
        }
    }
    states.get(&address).copied().flatten().map(State::frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0xffff_ffff_8000_1000;

    fn frames(code: &[u8], places: &[u64]) -> Vec<Option<Frame>> {
        places.iter().map(|place| follow(code, START, START + place)).collect()
    }

    const TOP: Option<Frame> = Some(Frame::CallerOnTop);
    const ABOVE: Option<Frame> = Some(Frame::CallerAboveRbp);
    const OWN: Option<Frame> = Some(Frame::Own);
    const DEEPER: Option<Frame> = Some(Frame::Deeper);

    #[test]
    fn a_shrink_wrapped_function_has_a_frame_in_its_middle_only() {
        // test edi, edi; je 2f; push rbp; mov rbp, rsp; push rbx; nop; pop rbx; pop rbp; add rax, 1; 2: ret
        let code = [0x85, 0xff, 0x74, 0x0c, 0x55, 0x48, 0x89, 0xe5, 0x53, 0x90, 0x5b, 0x5d, 0x48, 0x83, 0xc0, 1, 0xc3];
        let expected = [TOP, TOP, TOP, ABOVE, OWN, OWN, OWN, OWN, TOP, TOP];
        assert_eq!(frames(&code, &[0, 2, 4, 5, 8, 9, 10, 11, 12, 16]), expected);
    }

    #[test]
    fn leave_and_an_aligned_stack_come_back_by_the_frame_pointer() {
        // push rbp; mov rbp, rsp; and rsp, -32; sub rsp, 32; lea rsp, [rbp]; nop; leave; ret
        let code = [
            0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0, 0x48, 0x83, 0xec, 0x20, 0x48, 0x8d, 0x65, 0, 0x90, 0xc9,
            0xc3,
        ];
        assert_eq!(frames(&code, &[4, 8, 12, 16, 17, 18]), [OWN, OWN, OWN, OWN, OWN, TOP]);
    }

    #[test]
    fn code_that_moves_rsp_without_a_frame_is_deeper() {
        // sub rsp, 24; nop; add rsp, 24; ret
        let code = [0x48, 0x83, 0xec, 0x18, 0x90, 0x48, 0x83, 0xc4, 0x18, 0xc3];
        assert_eq!(frames(&code, &[0, 4, 5, 9]), [TOP, DEEPER, DEEPER, TOP]);
        // push rbx; nop; pop rbx; ret: the word on top of the stack is not rbp.
        assert_eq!(frames(&[0x53, 0x90, 0x5b, 0xc3], &[0, 1, 2, 3]), [TOP, DEEPER, DEEPER, TOP]);
    }

    #[test]
    fn what_two_ways_lead_to_differently_has_no_answer() {
        // test edi, edi; je 2f; push rax; 2: nop; ret
        let code = [0x85, 0xff, 0x74, 0x01, 0x50, 0x90, 0xc3];
        assert_eq!(frames(&code, &[4, 5, 6]), [TOP, None, None]);
        // ret; nop: the nop is not reached. jmp out of the function. No code at all.
        assert_eq!(frames(&[0xc3, 0x90], &[1]), [None]);
        assert_eq!(frames(&[0xe9, 0, 1, 0, 0, 0x90], &[0, 5]), [TOP, None]);
        assert_eq!(frames(&[], &[0]), [None]);
    }

    #[test]
    fn loops_end_and_nothing_else_is_followed_for_ever() {
        // 1: nop; jmp 1b. And: 1: push rax; jmp 1b, which has another state in each iteration.
        assert_eq!(frames(&[0x90, 0xeb, 0xfd], &[0, 1]), [TOP, TOP]);
        assert_eq!(frames(&[0x50, 0xeb, 0xfd], &[0, 1]), [None, None]);
    }
}
