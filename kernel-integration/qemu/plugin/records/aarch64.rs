//! What one instruction of aarch64 does to x29, x30 and SP (Arm Architecture Reference Manual, C4.1). Stage: capture.
//!
//! In: an instruction, and the registers before it. Out: the same after it, and what comes next. Whatever writes one of
//! them in another way makes it unknown.

use super::super::walk::Read;
use super::Processor;
use super::exit::{Next, State, Value};

/// Its rules: the procedure call standard's frame record is at x29; signatures are in bits 48 to 54 and 56 to 63.
pub const PROCESSOR: Processor =
    Processor { step, follows_a_call, record: 0, has_sp_in_fp: false, signature: 0xffff << 48 };

const FP: u32 = 29;
const LINK: u32 = 30;
/// SP, or the register that is always 0.
const SP: u32 = 31;

fn instruction(at: u64, read: Read<'_>) -> Option<u32> {
    let mut bytes = [0; 4];
    read(at, &mut bytes).then(|| u32::from_le_bytes(bytes))
}

/// `bl`, `blr`, and `blr` of a signed address.
fn is_call(code: u32) -> bool {
    code >> 26 == 0b10_0101 || code & 0xfeff_f000 == 0xd63f_0000
}

fn follows_a_call(address: u64, read: Read<'_>) -> bool {
    address.is_multiple_of(4) && instruction(address.wrapping_sub(4), read).is_some_and(is_call)
}

/// The number in `bits` bits of the instruction from `from` on, with its sign.
fn signed(code: u32, from: u32, bits: u32) -> i64 {
    i64::from((code << (32 - from - bits)) as i32 >> (32 - bits))
}

fn step(state: &mut State, read: Read<'_>) -> Next {
    let Some(code) = instruction(state.at, read) else { return Next::End };
    let to = |distance: i64| state.at.wrapping_add_signed(distance * 4);
    let next = match code {
        // ret, also of a signed address
        0xd65f_03c0 | 0xd65f_0bff | 0xd65f_0fff => return Next::Return,
        0xd69f_03e0 | 0xd69f_0bff | 0xd69f_0fff => return Next::Exception,
        // Other jumps to an address in a register; udf.
        _ if code & 0xfe9f_f000 == 0xd61f_0000 && !is_call(code) => return Next::Indirect,
        _ if code >> 16 == 0 => return Next::End,
        // brk, hlt
        _ if code & 0xff00_001f == 0xd400_0000 => Next::Break,
        _ if code >> 26 == 0b00_0101 => Next::Jump(to(signed(code, 0, 26))),
        // b.cond, cbz, cbnz; tbz, tbnz
        _ if code & 0xff00_0000 == 0x5400_0000 || code & 0x7e00_0000 == 0x3400_0000 => {
            Next::Branch(to(signed(code, 5, 19)))
        }
        _ if code & 0x7e00_0000 == 0x3600_0000 => Next::Branch(to(signed(code, 5, 14))),
        _ => Next::Falls,
    };
    state.at = state.at.wrapping_add(4);
    if next != Next::Falls {
        return next;
    }
    if is_call(code) {
        state.link = Value::Unknown;
        state.called = (code >> 26 == 0b10_0101).then(|| state.at.wrapping_add_signed(signed(code, 0, 26) * 4 - 4));
        return Next::Falls;
    }
    let (target, base) = (code & 31, code >> 5 & 31);
    // add, sub with a constant
    if code & 0xbf80_0000 == 0x9100_0000 {
        let number = i64::from(code >> 10 & 0xfff) << if code >> 22 & 1 == 1 { 12 } else { 0 };
        let value = read_register(state, base).plus(if code >> 30 & 1 == 1 { -number } else { number });
        write(state, target, value);
        let is_set = target == FP && base == SP && matches!(value, Value::Sp(_));
        return if is_set { Next::Record(value) } else { Next::Falls };
    }
    match code {
        _ if code & 0x3a00_0000 == 0x2800_0000 => pair(state, code),
        _ if code & 0x3a00_0000 == 0x3800_0000 => one(state, code),
        // Other loads and stores.
        _ if code & 0x0a00_0000 == 0x0800_0000 => write_unless_sp(state, target),
        // Arithmetic of vectors; msr and hints, which write no general register.
        _ if code & 0x0e00_0000 == 0x0e00_0000 || code & 0xffe0_0000 == 0xd500_0000 => {}
        // and, orr, eor with a constant; add, sub with an extended register: they may write SP.
        _ if code & 0x1f80_0000 == 0x1200_0000 && code >> 29 & 3 != 3 || code & 0x3fe0_0000 == 0x0b20_0000 => {
            write(state, target, Value::Unknown);
        }
        _ => write_unless_sp(state, target),
    }
    Next::Falls
}

fn read_register(state: &State, register: u32) -> Value {
    match register {
        FP => state.fp,
        LINK => state.link,
        SP => state.sp,
        _ => Value::Unknown,
    }
}

fn write(state: &mut State, register: u32, value: Value) {
    match register {
        FP => state.fp = value,
        LINK => state.link = value,
        SP => state.sp = value,
        _ => {}
    }
}

/// 31 is the register that is always 0.
fn write_unless_sp(state: &mut State, register: u32) {
    if register != SP {
        write(state, register, Value::Unknown);
    }
}

/// A register is loaded from a place, or stored there.
fn access(state: &mut State, register: u32, place: Value, is_load: bool) {
    match register {
        FP | LINK if is_load => write(state, register, state.load(place)),
        FP => state.save(place, 0),
        LINK => state.save(place, 1),
        _ => {}
    }
}

/// `ldp`, `stp`.
fn pair(state: &mut State, code: u32) {
    let (base, is_vector, is_load) = (code >> 5 & 31, code >> 26 & 1 == 1, code >> 22 & 1 == 1);
    let size = if is_vector { 4 << (code >> 30) } else { 4 << (code >> 31) };
    let distance = signed(code, 15, 7) * size;
    let before = read_register(state, base);
    // 1: the address is that before the addition.
    let (mode, after) = (code >> 23 & 3, before.plus(distance));
    let place = if mode == 1 { before } else { after };
    if !is_vector && size == 8 {
        access(state, code & 31, place, is_load);
        access(state, code >> 10 & 31, place.plus(8), is_load);
    } else if !is_vector && is_load {
        write_unless_sp(state, code & 31);
        write_unless_sp(state, code >> 10 & 31);
    }
    if mode == 1 || mode == 3 {
        write(state, base, after);
    }
}

/// `ldr`, `str` of one register.
fn one(state: &mut State, code: u32) {
    let (target, base, is_vector) = (code & 31, code >> 5 & 31, code >> 26 & 1 == 1);
    let is_whole = code >> 30 == 3 && !is_vector;
    let before = read_register(state, base);
    let (place, mode) = match (code >> 24 & 1, code >> 21 & 1) {
        (1, _) => (before.plus(i64::from(code >> 10 & 0xfff) * 8), 0),
        (_, 0) => {
            let (mode, distance) = (code >> 10 & 3, signed(code, 12, 9));
            (if mode == 1 { before } else { before.plus(distance) }, mode)
        }
        // With a register as distance, and atomic operations.
        _ => (Value::Unknown, 0),
    };
    match code >> 22 & 3 {
        0 if is_whole && place != Value::Unknown => access(state, target, place, false),
        1 if is_whole => access(state, target, place, true),
        0 if code >> 21 & 1 == 0 || code >> 24 & 1 == 1 => {}
        _ if is_vector => {}
        _ => write_unless_sp(state, target),
    }
    if mode & 1 == 1 {
        write(state, base, before.plus(signed(code, 12, 9)));
    }
}
