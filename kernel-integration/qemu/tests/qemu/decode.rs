//! Compares what the plugin knows of an instruction with a complete decoder. An instruction that the plugin calls sure
//! must not access memory, jump or fault. A block must end, or continue, as the decoder says.

use crate::plugin::decode::{Ending, ending, is_sure};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind};

const AT: u64 = 0xffff_ffff_8020_0000;

/// Every opcode of one and two bytes, with every byte after it, with each of these before it.
fn each_instruction(mut check: impl FnMut(&[u8], &Instruction)) -> usize {
    let prefixes: [&[u8]; 8] = [&[], &[0x48], &[0x41], &[0x66], &[0xf3], &[0xf2], &[0xf0], &[0xf3, 0x48]];
    let mut count = 0;
    for prefix in prefixes {
        for opcode in 0..512_u16 {
            for after in 0..=255_u8 {
                let mut bytes = prefix.to_vec();
                if opcode > 255 {
                    bytes.push(0x0f);
                }
                bytes.extend([opcode as u8, after, 0x11, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09]);
                let instruction = Decoder::with_ip(64, &bytes, AT, DecoderOptions::NONE).decode();
                if !instruction.is_invalid() {
                    check(&bytes[..instruction.len()], &instruction);
                    count += 1;
                }
            }
        }
    }
    count
}

#[test]
fn a_sure_instruction_touches_no_memory_does_not_jump_and_cannot_fault() {
    let mut factory = InstructionInfoFactory::new();
    let mut sure = 0;
    let count = each_instruction(|bytes, instruction| {
        if !is_sure(bytes) {
            return;
        }
        sure += 1;
        let info = factory.info(instruction);
        let is_hint = matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
        assert!(is_hint || info.used_memory().is_empty(), "{bytes:x?} {instruction:?}");
        assert_eq!(instruction.flow_control(), FlowControl::Next, "{bytes:x?}");
        assert!(!matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv), "{bytes:x?}");
        assert!(!instruction.is_privileged() && !instruction.has_lock_prefix(), "{bytes:x?}");
        // What the system decides on, and moves to and from its registers.
        let operands = (0..instruction.op_count()).filter(|at| instruction.op_kind(*at) == OpKind::Register);
        let mut registers = operands.map(|at| instruction.op_register(at));
        assert!(registers.all(|register| register.is_gpr()), "{bytes:x?} {instruction:?}");
    });
    assert!(count > 100_000 && sure > count / 20, "{sure} of {count}");
}

#[test]
fn blocks_go_on_as_their_last_instruction_says() {
    each_instruction(|bytes, instruction| {
        let (ending, target) = ending(bytes, AT);
        let expected = match instruction.flow_control() {
            FlowControl::ConditionalBranch => Ending::Branch,
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => Ending::Jump,
            FlowControl::IndirectBranch => Ending::JumpIndirect,
            FlowControl::Call if instruction.is_call_near() => Ending::Call,
            FlowControl::Call if matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter) => {
                Ending::ToKernel
            }
            FlowControl::IndirectCall => Ending::CallIndirect,
            FlowControl::Return => match instruction.mnemonic() {
                Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq => Ending::InterruptReturn,
                Mnemonic::Sysret | Mnemonic::Sysretq | Mnemonic::Sysexit | Mnemonic::Sysexitq => Ending::ToUser,
                Mnemonic::Ret | Mnemonic::Retf => Ending::Return,
                // Those of virtual machines, enclaves and system management.
                _ => return,
            },
            // The beginning of a transaction: QEMU has none.
            FlowControl::XbeginXabortXend => return,
            _ if instruction.is_string_instruction() && bytes.iter().take(2).any(|byte| *byte & 0xfe == 0xf2) => {
                Ending::Branch
            }
            _ => Ending::Falls,
        };
        // `66` in front of a near call or jump: processors disagree about its length.
        if bytes[0] == 0x66 && matches!(expected, Ending::Call | Ending::Jump | Ending::Branch) {
            return;
        }
        assert_eq!(ending, expected, "{bytes:x?} {instruction:?}");
        match ending {
            Ending::Call | Ending::Jump => assert_eq!(target, instruction.near_branch_target(), "{bytes:x?}"),
            Ending::Branch if !instruction.is_string_instruction() => {
                assert_eq!(target, instruction.near_branch_target(), "{bytes:x?}");
            }
            Ending::Branch => assert_eq!(target, AT),
            _ => {}
        }
    });
}
