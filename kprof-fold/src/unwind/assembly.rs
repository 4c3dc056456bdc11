//! Recognizes assembly that moves the stack pointer, which nothing describes. Stage: unwind tables.
//!
//! In: the code of a function for x86_64. Out: whether it is right that a single row describes it; and where inline
//! assembly has pushed a word that it pops at once. A compiler describes each push of its own, and none of inline
//! assembly. An assembler describes a function that says nothing as if it pushed nothing.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

/// Whether no instruction moves the stack pointer, apart from calls and returns.
pub fn keeps_stack_pointer(code: &[u8], start: u64) -> bool {
    let mut factory = InstructionInfoFactory::new();
    Decoder::with_ip(64, code, start, DecoderOptions::NONE).iter().all(|instruction| !moves(&instruction, &mut factory))
}

/// Where one instruction has pushed a word that the next one pops, as in `pushfq; pop rax`: the addresses after each.
pub fn popped_at_once(code: &[u8], start: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut pushed = None;
    for instruction in &mut Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        let moved = match instruction.flow_control() {
            FlowControl::Next => instruction.stack_pointer_increment(),
            _ => 0,
        };
        if let (Some(after_push), 8) = (pushed, moved) {
            found.push((after_push, instruction.next_ip()));
        }
        pushed = (moved == -8).then_some(instruction.next_ip());
    }
    found
}

fn moves(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    use FlowControl::{Call, IndirectCall, Return};
    if matches!(instruction.flow_control(), Call | IndirectCall | Return) && !instruction.is_invalid() {
        return false;
    }
    let writes = |access| matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite);
    let used = factory.info(instruction).used_registers();
    used.iter().any(|used| used.register().full_register() == Register::RSP && writes(used.access()))
}

#[cfg(test)]
mod tests {
    use super::{keeps_stack_pointer, popped_at_once};

    #[test]
    fn code_that_moves_the_stack_pointer_is_recognized() {
        let ret = |code: &[u8]| [code, &[0xc3]].concat();
        let keeps = |code: &[u8]| keeps_stack_pointer(&ret(code), 0x1000);
        assert!(keeps(&[0x48, 0x89, 0xf8]), "mov rax, rdi");
        assert!(keeps(&[0xe8, 0, 0, 0, 0]), "call");
        assert!(keeps(&[0x48, 0x8b, 0x44, 0x24, 0x08]), "mov rax, [rsp+8]");
        assert!(!keeps(&[0x53]), "push rbx");
        assert!(!keeps(&[0x48, 0x83, 0xec, 0x08]), "sub rsp, 8");
        assert!(!keeps(&[0x48, 0x89, 0xfc]), "mov rsp, rdi");
        assert!(!keeps(&[0xc9]), "leave");
    }

    #[test]
    fn a_word_that_is_popped_at_once_is_found() {
        // pushfq; pop rcx; push rax; popfq; push rbx; nop; pop rbx; ret
        let code = [0x9c, 0x59, 0x50, 0x9d, 0x53, 0x90, 0x5b, 0xc3];
        assert_eq!(popped_at_once(&code, 0x1000), [(0x1001, 0x1002), (0x1003, 0x1004)]);
    }
}
