//! What one instruction of riscv64 does to s0, ra and sp (RISC-V Instruction Set Manual, volume I, chapters 2 and 27).
//! Stage: capture.
//!
//! In: an instruction, and the registers before it. Out: the same after it, and what comes next. Whatever writes one of
//! them in another way makes it unknown.

use super::super::walk::Read;
use super::Processor;
use super::exit::{Next, State, Value};

/// Its rules: s0 is the caller's stack pointer, and the frame record is below it.
pub const PROCESSOR: Processor = Processor { step, follows_a_call, record: -16, has_sp_in_fp: true, signature: 0 };

const RA: u32 = 1;
const SP: u32 = 2;
const FP: u32 = 8;

fn half(at: u64, read: Read<'_>) -> Option<u32> {
    let mut bytes = [0; 2];
    read(at, &mut bytes).then(|| u32::from(u16::from_le_bytes(bytes)))
}

/// `jal` and `jalr` that write ra, and `c.jalr`.
fn follows_a_call(address: u64, read: Read<'_>) -> bool {
    if !address.is_multiple_of(2) {
        return false;
    }
    let [first, second] = [4, 2].map(|before| half(address.wrapping_sub(before), read));
    let long = first.zip(second).map_or(0, |(low, high)| low | high << 16);
    long & 0xfff == 0x0ef || long & 0x7fff == 0x00e7 || second.is_some_and(is_short_call)
}

fn is_short_call(code: u32) -> bool {
    code & 0xf07f == 0x9002 && code != 0x9002
}

/// Bits of an instruction put together to a number: from, number of bits, to.
fn gather(code: u32, parts: &[(u32, u32, u32)]) -> i64 {
    parts.iter().fold(0, |sum, (from, bits, to)| sum | i64::from(code >> from & ((1 << bits) - 1)) << to)
}

/// A number of this many bits, with its sign.
fn signed(number: i64, bits: u32) -> i64 {
    number << (64 - bits) >> (64 - bits)
}

fn step(state: &mut State, read: Read<'_>) -> Next {
    let Some(low) = half(state.at, read) else { return Next::End };
    if low & 3 != 3 {
        return short(state, low);
    }
    let Some(high) = half(state.at.wrapping_add(2), read) else { return Next::End };
    let (code, at) = (low | high << 16, state.at);
    state.at = at.wrapping_add(4);
    let (rd, kind, base) = (code >> 7 & 31, code >> 12 & 7, code >> 15 & 31);
    let number = signed(i64::from(code >> 20), 12);
    match (code & 0x7f, kind) {
        // addi, ld, sd
        (0x13, 0) => return write(state, rd, value(state, base).plus(number)),
        (0x03, 3) => return write(state, rd, state.load(value(state, base).plus(number))),
        (0x23, 3) => {
            let distance = signed(gather(code, &[(7, 5, 0), (25, 7, 5)]), 12);
            save(state, value(state, base).plus(distance), code >> 20 & 31);
        }
        // Other stores; fence; numbers with a fraction, which are in other registers.
        (0x23 | 0x0f | 0x07 | 0x27 | 0x43 | 0x47 | 0x4b | 0x4f, _) => {}
        (0x63, _) => {
            let distance = gather(code, &[(8, 4, 1), (25, 6, 5), (7, 1, 11), (31, 1, 12)]);
            return Next::Branch(at.wrapping_add_signed(signed(distance, 13)));
        }
        (0x6f, _) => {
            let distance = gather(code, &[(21, 10, 1), (20, 1, 11), (12, 8, 12), (31, 1, 20)]);
            if rd == 0 {
                return Next::Jump(at.wrapping_add_signed(signed(distance, 21)));
            }
            call(state, rd);
            state.called = Some(at.wrapping_add_signed(signed(distance, 21)));
        }
        (0x67, 0) if rd == 0 => return jump(state, base, number),
        (0x67, 0) => {
            let upper = state.upper.filter(|(register, _)| *register == base);
            call(state, rd);
            state.called = upper.map(|(_, upper)| upper.wrapping_add_signed(number));
        }
        (0x17, _) => {
            let upper = at.wrapping_add_signed(signed(i64::from(code & 0xffff_f000), 32));
            write(state, rd, Value::Unknown);
            state.upper = Some((rd, upper));
        }
        // mret, sret; what compilers put where nothing is executed; ebreak
        (0x73, _) if matches!(code, 0x3020_0073 | 0x1020_0073) => return Next::Exception,
        (0x73, _) if code == 0xc000_1073 => return Next::End,
        (0x73, _) if code == 0x0010_0073 => return Next::Break,
        _ => return write(state, rd, Value::Unknown),
    }
    Next::Falls
}

/// An instruction of two bytes.
fn short(state: &mut State, code: u32) -> Next {
    let at = state.at;
    state.at = at.wrapping_add(2);
    let (rd, rs2) = (code >> 7 & 31, code >> 2 & 31);
    let (upper, lower) = (8 + (code >> 7 & 7), 8 + (code >> 2 & 7));
    let six = signed(gather(code, &[(2, 5, 0), (12, 1, 5)]), 6);
    let word = gather(code, &[(10, 3, 3), (5, 2, 6)]);
    match (code & 3, code >> 13) {
        (0, 0) if code == 0 => return Next::End,
        // Compressed addi4spn, ld and sd.
        (0, 0) => {
            let number = gather(code, &[(11, 2, 4), (7, 4, 6), (6, 1, 2), (5, 1, 3)]);
            return write(state, lower, state.sp.plus(number));
        }
        (0, 3) => return write(state, lower, state.load(value(state, upper).plus(word))),
        (0, 7) => save(state, value(state, upper).plus(word), lower),
        // Other loads and stores.
        (0, 2 | 4) => return write(state, lower, Value::Unknown),
        (0, _) | (2, 1 | 5 | 6) => {}
        // c.addi, c.addi16sp
        (1, 0) => return write(state, rd, value(state, rd).plus(six)),
        (1, 3) if rd == SP => {
            let number = gather(code, &[(6, 1, 4), (2, 1, 5), (5, 1, 6), (3, 2, 7), (12, 1, 9)]);
            return write(state, SP, state.sp.plus(signed(number, 10)));
        }
        (1, 4) => return write(state, upper, Value::Unknown),
        // c.j; c.beqz, c.bnez
        (1, 5) => {
            let parts = [(3, 3, 1), (11, 1, 4), (2, 1, 5), (7, 1, 6), (6, 1, 7), (9, 2, 8), (8, 1, 10), (12, 1, 11)];
            return Next::Jump(at.wrapping_add_signed(signed(gather(code, &parts), 12)));
        }
        (1, 6 | 7) => {
            let distance = gather(code, &[(3, 2, 1), (10, 2, 3), (2, 1, 5), (5, 2, 6), (12, 1, 8)]);
            return Next::Branch(at.wrapping_add_signed(signed(distance, 9)));
        }
        // c.ldsp, c.sdsp
        (2, 3) => {
            let distance = gather(code, &[(5, 2, 3), (12, 1, 5), (2, 3, 6)]);
            return write(state, rd, state.load(state.sp.plus(distance)));
        }
        (2, 7) => save(state, state.sp.plus(gather(code, &[(10, 3, 3), (7, 3, 6)])), rs2),
        // c.jr, c.jalr; c.ebreak; c.mv
        (2, 4) if code >> 12 & 1 == 0 && rs2 == 0 => return jump(state, rd, 0),
        (2, 4) if code == 0x9002 => return Next::Break,
        (2, 4) if is_short_call(code) => call(state, RA),
        (2, 4) if code >> 12 & 1 == 0 => return write(state, rd, value(state, rs2)),
        _ => return write(state, rd, Value::Unknown),
    }
    Next::Falls
}

fn value(state: &State, register: u32) -> Value {
    match register {
        RA => state.link,
        SP => state.sp,
        FP => state.fp,
        _ => Value::Unknown,
    }
}

fn write(state: &mut State, register: u32, value: Value) -> Next {
    if state.upper.is_some_and(|(upper, _)| upper == register) {
        state.upper = None;
    }
    match register {
        RA => state.link = value,
        SP => state.sp = value,
        FP => state.fp = value,
        _ => {}
    }
    match value {
        Value::Sp(_) if register == FP => Next::Record(value.plus(PROCESSOR.record)),
        _ => Next::Falls,
    }
}

fn save(state: &mut State, place: Value, register: u32) {
    match register {
        FP => state.save(place, 0),
        RA => state.save(place, 1),
        _ => {}
    }
}

/// A call with t0 is one of the functions that save and restore registers, with their own use of the stack.
fn call(state: &mut State, rd: u32) {
    state.link = Value::Unknown;
    if rd != RA {
        (state.sp, state.fp) = (Value::Unknown, Value::Unknown);
    }
}

fn jump(state: &State, base: u32, number: i64) -> Next {
    match state.upper {
        _ if base == RA && number == 0 => Next::Return,
        Some((register, upper)) if register == base => Next::Jump(upper.wrapping_add_signed(number)),
        _ => Next::Indirect,
    }
}
