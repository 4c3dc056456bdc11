//! By which instructions a function is left. Stage: probes, second.
//!
//! In: a function, and the constant data of its file. Out: the offsets of all instructions that leave it, or the reason
//! why not all of them are known. Runs on the host. Never misses a path: every instruction is followed to the next
//! ones, and jump tables are read. A function with code that is not reached so is refused, because the control flow to
//! that code is not understood.

use super::body::{Body, target};
use super::switch;
use super::unsupported::Unsupported;
use crate::symbols::frame::{Frame, follow};
use iced_x86::{Code, FlowControl, Instruction, Mnemonic};

/// The first instruction of a function that can be probed: `push rbp`.
const PUSH_RBP: u8 = 0x55;
/// `ret`.
const RET: [u8; 1] = [0xc3];
/// The first byte of a direct `jmp`: with a distance of four bytes, and of one.
const JMP: [u8; 2] = [0xe9, 0xeb];

/// The offsets of the instructions that leave the function, in ascending order. `constant` gives the bytes of the file
/// from an address on, if they cannot change.
///
/// # Errors
/// Why the function cannot be probed.
pub fn exits<'a>(body: &Body<'_>, constant: &impl Fn(u64) -> Option<&'a [u8]>) -> Result<Vec<u64>, Unsupported> {
    if body.code.first() != Some(&PUSH_RBP) {
        return Err(Unsupported::FirstInstruction);
    }
    if let Some(address) = body.undecoded {
        return Err(Unsupported::Undecoded(address - body.start));
    }
    let (mut reached, mut open) = (vec![false; body.instructions.len()], vec![0]);
    let mut exits = Vec::new();
    while let Some(number) = open.pop() {
        if std::mem::replace(&mut reached[number], true) {
            continue;
        }
        let instruction = &body.instructions[number];
        let way = way(body, number, constant)?;
        if way.is_exit {
            exits.push(instruction.ip() - body.start);
        }
        for address in way.next {
            open.push(body.at(address).ok_or(Unsupported::IntoInstruction(instruction.ip() - body.start))?);
        }
    }
    let missed = body.instructions.iter().zip(&reached).find(|(one, reached)| !**reached && !is_padding(one));
    if let Some((instruction, _)) = missed {
        return Err(Unsupported::Unreached(instruction.ip() - body.start));
    }
    exits.sort_unstable();
    let is_wrong = |exit: &&u64| {
        let frame = follow(body.code, body.start, body.start + **exit);
        frame.is_some_and(|frame| frame != Frame::CallerOnTop)
    };
    exits.iter().find(is_wrong).map_or(Ok(()), |exit| Err(Unsupported::ReturnAddress(*exit)))?;
    Ok(exits)
}

/// Where an instruction leads.
struct Way {
    /// It leaves the function.
    is_exit: bool,
    /// The addresses in the function that may come next.
    next: Vec<u64>,
}

impl Way {
    fn to(next: Vec<u64>) -> Self {
        Self { is_exit: false, next }
    }

    fn out() -> Self {
        Self { is_exit: true, next: Vec::new() }
    }
}

fn way<'a>(body: &Body<'_>, number: usize, constant: &impl Fn(u64) -> Option<&'a [u8]>) -> Result<Way, Unsupported> {
    let instruction = &body.instructions[number];
    let at = instruction.ip() - body.start;
    let next = instruction.next_ip();
    let is_within = |address: u64| body.contains(address) && address != body.start;
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::Interrupt if next < body.end() => Ok(Way::to(vec![next])),
        FlowControl::Next | FlowControl::Interrupt => Err(Unsupported::RunsOn),
        FlowControl::Call if target(instruction).is_some_and(is_within) => Err(Unsupported::CallsInside(at)),
        // A call at the very end is one that never returns. The compiler leaves no code after it.
        FlowControl::Call | FlowControl::IndirectCall => {
            Ok(Way::to(if next < body.end() { vec![next] } else { Vec::new() }))
        }
        FlowControl::UnconditionalBranch => match target(instruction) {
            Some(target) if is_within(target) => Ok(Way::to(vec![target])),
            // A jump to the first instruction is a call of the function by itself, in the place of a return.
            Some(_) if JMP.contains(&body.bytes(instruction)[0]) => Ok(Way::out()),
            _ => Err(Unsupported::OtherJump(at)),
        },
        FlowControl::ConditionalBranch => match target(instruction) {
            Some(target) if is_within(target) && next < body.end() => Ok(Way::to(vec![target, next])),
            Some(target) if is_within(target) => Err(Unsupported::RunsOn),
            _ => Err(Unsupported::ConditionalJump(at)),
        },
        FlowControl::IndirectBranch => match switch::targets(body, number, constant) {
            Some(targets) => Ok(Way::to(targets)),
            None => Err(Unsupported::IndirectJump(at)),
        },
        FlowControl::Return if body.bytes(instruction) == RET => Ok(Way::out()),
        FlowControl::Return => Err(Unsupported::OtherReturn(at)),
        // `ud2`: the code never gets further.
        FlowControl::Exception => Ok(Way::to(Vec::new())),
        FlowControl::XbeginXabortXend => Err(Unsupported::Transaction(at)),
    }
}

/// Instructions that fill the space between pieces of code.
fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Ud2)
        || instruction.code() == Code::Xchg_rm16_r16
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0xffff_ffff_8000_1000;
    const TABLE: u64 = 0xffff_ffff_8000_2000;

    fn of(code: &[u8]) -> Result<Vec<u64>, Unsupported> {
        let table: Vec<u8> = [START + 16, START + 19].into_iter().flat_map(u64::to_le_bytes).collect();
        // The compiler may have put it anywhere; the life of the bytes is that of the file.
        let table: &'static [u8] = table.leak();
        exits(&Body::decode(code, START), &|address| (address == TABLE).then_some(table))
    }

    #[test]
    fn returns_and_tail_calls_are_exits() {
        // push rbp; mov rbp, rsp; test edi, edi; je 1f; pop rbp; ret; 1: pop rbp; jmp +0x100
        let code = [0x55, 0x48, 0x89, 0xe5, 0x85, 0xff, 0x74, 2, 0x5d, 0xc3, 0x5d, 0xe9, 0, 1, 0, 0];
        assert_eq!(of(&code), Ok(vec![9, 11]));
        // The same with a tail call of itself; and with a short jump to another function.
        let mut itself = code;
        itself[12..].copy_from_slice(&(-16i32).to_le_bytes());
        assert_eq!(of(&itself), Ok(vec![9, 11]));
        assert_eq!(of(&[0x55, 0x5d, 0xeb, 0x10]), Ok(vec![2]));
        // push rbp; pop rbp; ret; padding
        assert_eq!(of(&[0x55, 0x5d, 0xc3, 0xcc, 0x90, 0x66, 0x90]), Ok(vec![2]));
    }

    #[test]
    fn a_function_that_never_returns_has_no_exits() {
        // push rbp; 1: hlt; jmp 1b. push rbp; call; ud2. push rbp; call.
        for code in [&[0x55, 0xf4, 0xeb, 0xfd][..], &[0x55, 0xe8, 0, 1, 0, 0, 0x0f, 0x0b], &[0x55, 0xe8, 0, 1, 0, 0]] {
            assert_eq!(of(code), Ok(vec![]), "{code:x?}");
        }
    }

    #[test]
    fn a_jump_table_of_the_function_is_followed() {
        // push rbp; cmp eax, 1; ja 3f; jmp [rax*8 + TABLE]; 3: jmp 2f; nop; 1: pop rbp; ret; nop; 2: pop rbp; ret
        let code = [
            0x55, 0x83, 0xf8, 1, 0x77, 7, 0xff, 0x24, 0xc5, 0, 0x20, 0, 0x80, 0xeb, 4, 0x90, 0x5d, 0xc3, 0x90, 0x5d,
            0xc3,
        ];
        assert_eq!(of(&code), Ok(vec![17, 20]));
        // A third piece of code after a table of two entries: what leads there is not known.
        assert_eq!(of(&[&code[..], &[0x5d, 0xc3]].concat()), Err(Unsupported::Unreached(21)));
    }

    #[test]
    fn each_other_way_out_is_a_reason() {
        use Unsupported::*;
        let cases: [(&[u8], Unsupported); 26] = [
            (&[], FirstInstruction),
            // ret; endbr64, push rbp; push rbp in two bytes
            (&[0xc3], FirstInstruction),
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3], FirstInstruction),
            (&[0xff, 0xf5, 0x5d, 0xc3], FirstInstruction),
            // 06; a call that is cut off
            (&[0x55, 0x06, 0x5d, 0xc3], Undecoded(1)),
            (&[0x55, 0xe8, 0, 0], Undecoded(1)),
            // jmp rax; jmp [rax]
            (&[0x55, 0x5d, 0xff, 0xe0], IndirectJump(2)),
            (&[0x55, 0x5d, 0xff, 0x20], IndirectJump(2)),
            // je to another function; je to the start; loop to another function
            (&[0x55, 0x5d, 0x74, 0x10, 0xc3], ConditionalJump(2)),
            (&[0x55, 0x5d, 0x74, 0xfc, 0xc3], ConditionalJump(2)),
            (&[0x55, 0x5d, 0xe2, 0x10, 0xc3], ConditionalJump(2)),
            // jmp with a prefix
            (&[0x55, 0x5d, 0x3e, 0xe9, 0, 1, 0, 0], OtherJump(2)),
            // ret 8; rep ret; retf; iretq; sysretq
            (&[0x55, 0x5d, 0xc2, 8, 0], OtherReturn(2)),
            (&[0x55, 0x5d, 0xf3, 0xc3], OtherReturn(2)),
            (&[0x55, 0x5d, 0xcb], OtherReturn(2)),
            (&[0x55, 0x5d, 0x48, 0xcf], OtherReturn(2)),
            (&[0x55, 0x5d, 0x48, 0x0f, 0x07], OtherReturn(2)),
            // je into its own second byte; jmp into the middle of a mov
            (&[0x55, 0x74, 0xff, 0x5d, 0xc3], IntoInstruction(1)),
            (&[0x55, 0xeb, 1, 0x48, 0x89, 0xe5, 0x5d, 0xc3], IntoInstruction(1)),
            // call 1f; 1: pop rax; pop rbp; ret
            (&[0x55, 0xe8, 0, 0, 0, 0, 0x58, 0x5d, 0xc3], CallsInside(1)),
            // xbegin
            (&[0x55, 0xc7, 0xf8, 0, 0, 0, 0, 0x5d, 0xc3], Transaction(1)),
            // pop rbp, and nothing after it; je back, and nothing after it
            (&[0x55, 0x5d], RunsOn),
            (&[0x55, 0x90, 0x74, 0xfd], RunsOn),
            // ret; pop rbp; ret
            (&[0x55, 0x5d, 0xc3, 0x5d, 0xc3], Unreached(3)),
            // ret with rbp still on the stack; tail call after `sub rsp, 8`
            (&[0x55, 0xc3], ReturnAddress(1)),
            (&[0x55, 0x5d, 0x48, 0x83, 0xec, 8, 0xe9, 0, 1, 0, 0], ReturnAddress(6)),
        ];
        for (code, why) in cases {
            assert_eq!(of(code), Err(why), "{code:x?}");
        }
    }

    #[test]
    fn a_function_that_changes_the_stack_is_refused() {
        // push rbp; mov [rdi], rsp; mov rsp, rsi; pop rbp; ret
        let code = [0x55, 0x48, 0x89, 0x27, 0x48, 0x89, 0xf4, 0x5d, 0xc3];
        assert_eq!(of(&code), Err(Unsupported::ReturnAddress(8)));
    }
}
