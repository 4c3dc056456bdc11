//! The instructions of one function. Stage: probes, first.
//!
//! In: the code of a function of x86_64. Out: its instructions one after the other, and the addresses that it calls and
//! jumps to. Runs on the host. Never guesses: bytes that are no instruction end the list, and their address is
//! returned.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// A function.
pub struct Body<'a> {
    /// The address of its first byte, in the file.
    pub start: u64,
    /// Its bytes.
    pub code: &'a [u8],
    /// Its instructions, in the order of their addresses.
    pub instructions: Vec<Instruction>,
    /// The first address at which the bytes are no instruction.
    pub undecoded: Option<u64>,
}

impl<'a> Body<'a> {
    /// Decodes a function from its first byte to its last.
    pub fn decode(code: &'a [u8], start: u64) -> Self {
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let (mut instructions, mut undecoded) = (Vec::new(), None);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                undecoded = Some(instruction.ip());
                break;
            }
            instructions.push(instruction);
        }
        Self { start, code, instructions, undecoded }
    }

    /// The first address after the function.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.code.len() as u64)
    }

    /// Whether an address is one of the function's bytes.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end()).contains(&address)
    }

    /// The number of the instruction that begins at an address.
    pub fn at(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, Instruction::ip).ok()
    }

    /// The bytes of an instruction.
    pub fn bytes(&self, instruction: &Instruction) -> &[u8] {
        let from = (instruction.ip() - self.start) as usize;
        &self.code[from..][..instruction.len()]
    }

    /// The addresses outside of the function that it calls or jumps to.
    pub fn targets(&self) -> impl Iterator<Item = u64> {
        self.instructions.iter().filter_map(target).filter(|target| !self.contains(*target))
    }
}

/// The address of the pointer by which an instruction calls or jumps, if it contains that address. So are the calls of
/// code that was compiled for any address: the linker puts all pointers into one table.
pub fn pointer(instruction: &Instruction) -> Option<u64> {
    let is_indirect = matches!(instruction.flow_control(), FlowControl::IndirectCall | FlowControl::IndirectBranch);
    let is_fixed = instruction.op0_kind() == OpKind::Memory
        && instruction.memory_index() == Register::None
        && (instruction.is_ip_rel_memory_operand() || instruction.memory_base() == Register::None);
    (is_indirect && is_fixed).then(|| instruction.memory_displacement64())
}

/// Where a direct call or jump leads.
pub fn target(instruction: &Instruction) -> Option<u64> {
    let is_near = matches!(instruction.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16);
    is_near.then(|| instruction.near_branch_target())
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0xffff_ffff_8000_1000;

    #[test]
    fn calls_and_jumps_out_of_the_function_are_found() {
        // push rbp; call +0x100; lea rax, [rip+0x200]; mov rdi, -0x7ffffc00; call rax; jmp 1f; 1: jmp -0x100
        let code = [
            0x55, 0xe8, 0, 1, 0, 0, 0x48, 0x8d, 0x05, 0, 2, 0, 0, 0x48, 0xc7, 0xc7, 0, 4, 0, 0x80, 0xff, 0xd0, 0xeb, 0,
            0xe9, 0, 0xff, 0xff, 0xff,
        ];
        let body = Body::decode(&code, START);
        assert_eq!(body.undecoded, None);
        assert_eq!(body.targets().collect::<Vec<_>>(), [START + 0x106, START + 29 - 0x100]);
        assert_eq!((body.at(START + 1), body.at(START + 2), body.end()), (Some(1), None, START + 29));
        assert_eq!(body.bytes(&body.instructions[5]), [0xeb, 0]);
    }

    #[test]
    fn the_pointer_of_a_call_is_known_only_if_the_instruction_contains_its_address() {
        // call [rip+0x100]; jmp [rip+0x100]; call [-0x7ffff000]; call [rax]; call [rax*8 + 0x100]; call rax;
        // mov rax, [rip]
        let code = [
            0xff, 0x15, 0, 1, 0, 0, 0xff, 0x25, 0, 1, 0, 0, 0xff, 0x14, 0x25, 0, 0x10, 0, 0x80, 0xff, 0x10, 0xff, 0x14,
            0xc5, 0, 1, 0, 0, 0xff, 0xd0, 0x48, 0x8b, 0x05, 0, 0, 0, 0,
        ];
        let body = Body::decode(&code, START);
        let known: Vec<Option<u64>> = body.instructions.iter().map(pointer).collect();
        let fixed = [Some(START + 0x106), Some(START + 0x10c), Some(0xffff_ffff_8000_1000), None, None, None, None];
        assert_eq!(known, fixed);
    }

    #[test]
    fn bytes_that_are_no_instruction_are_told() {
        // push rbp; (06 is no instruction of x86_64); and: push rbp; a call that is cut off
        for code in [&[0x55, 0x06, 0xc3][..], &[0x55, 0xe8, 0]] {
            let body = Body::decode(code, START);
            assert_eq!((body.undecoded, body.instructions.len()), (Some(START + 1), 1));
        }
    }
}
