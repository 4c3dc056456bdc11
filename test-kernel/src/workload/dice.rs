//! Random stacks, on which code spins. They contain everything that the handler may find on a stack.
//!
//! In: a closure that orders an NMI. Out: nothing. The words of a stack are return addresses (after calls of every
//! form), markers with hardware frames, and frame pointers that lead up, down, to the NMI's own stack, or to no stack.
//! RSP points into these words. This is possible because an NMI has its own stack, and interrupts are off.

use core::arch::{asm, global_asm};
use core::hint::black_box;
use core::sync::atomic::Ordering;

use kprof::format::marker::MARKER_PAGE;

use crate::cpu::{self, ADDED_STACKS, NMI_STACK, STACKS};
use crate::memory::{module, paging, stacks};
use crate::random;

/// Number of words of a random or built stack.
pub const WORDS: usize = 96;
/// Turns of the spinning loop.
const SPINS: u64 = 500;

global_asm!(
    r#"
// Calls of every form, of which nothing but the addresses after them is used.
.text
.balign 16
.type call_forms, @function
call_forms:
    call call_forms
    call rax
    call r11
    call [rax]
    call [rax + 24]
    call [rsp + 8]
    call [rip + call_forms]
    call [rax + 4096]
    call [rax * 8 + 4096]
    call [rsp + 4096]
    ret
.size call_forms, . - call_forms
.section .rodata
.balign 8
call_form_ends:
    .quad 5, 7, 10, 12, 15, 19, 25, 31, 38, 45
.text
"#
);

unsafe extern "C" {
    fn call_forms();
    static call_form_ends: [u64; 10];
}

/// The addresses after the calls.
pub fn call_forms_ends() -> [u64; 10] {
    // SAFETY: constant data of the assembly above.
    unsafe { call_form_ends }.map(|end| call_forms as *const () as u64 + end)
}

/// A random one of these choices.
pub fn one_of<T: Copy>(choices: &[T]) -> T {
    choices[random::next() as usize % choices.len()]
}

/// A random address of kernel code or of the module's code; of the module's, perhaps one slightly after its end.
fn code() -> u64 {
    let (start, end) = paging::text_range();
    match random::next() % 4 {
        0 => start + random::next() % (end - start),
        1 => {
            let text = module::text();
            text.start + random::next() % (text.end - text.start + 64)
        }
        _ => one_of(&call_forms_ends()),
    }
}

/// Declares more stacks to be in use, as many as possible, and fills them with random words. Called once; the stacks
/// are never freed.
pub fn add_stacks() {
    for place in &cpu::this().stacks[ADDED_STACKS..] {
        place.store(stacks::allocate(), Ordering::Relaxed);
    }
    (NMI_STACK..STACKS).for_each(fill_other);
}

/// The address of the lowest words of a stack. On this stack no code runs, or only NMIs, which never reach these words.
pub fn lowest(place: usize) -> u64 {
    cpu::this().stacks[place].load(Ordering::Relaxed) + 64
}

/// Fills these words with random ones.
fn fill_other(place: usize) {
    let base = lowest(place);
    for index in 0..WORDS as u64 {
        // SAFETY: these are unused words of this CPU's own stack.
        unsafe { ((base + 8 * index) as *mut u64).write_volatile(word(base)) };
    }
}

/// A random address in the lowest words of such a stack.
pub fn other() -> u64 {
    lowest(NMI_STACK + random::next() as usize % (STACKS - NMI_STACK)) + 8 * (random::next() % WORDS as u64)
}

/// A random word for a stack whose words begin at `base`.
pub fn word(base: u64) -> u64 {
    let place = |base: u64| base + 8 * (random::next() % WORDS as u64);
    match random::next() % 16 {
        0..=4 => place(base),
        5..=9 => code(),
        10 => other(),
        11 => one_of(&[0, 1, base + 3, base + 8 * WORDS as u64, 0xdead_beef_0000_0000, u64::MAX]),
        12 => 0,
        _ => MARKER_PAGE | one_of(&[0x121, 0x20e, 0x300, 0x401, 0x500, 0x600]),
    }
}

/// Fills the words of a stack at `base` so that many chains of frames are valid for a while.
fn fill(words: &mut [u64], base: u64) {
    let mut at = 0;
    // Often there is a plain chain of random length first.
    let plain = one_of(&[0, 2 * (random::next() as usize % 30)]);
    while at < words.len() {
        if at < plain {
            (words[at], words[at + 1]) = (base + 8 * (at as u64 + 2), code());
            at += 2;
            continue;
        }
        let up = base + 8 * (at as u64 + 2 + 2 * (random::next() % 2));
        match (random::next() % 8, words.len() - at) {
            // A frame that leads to a frame above it.
            (0..=3, 2..) => {
                (words[at], words[at + 1]) = (up, code());
                at += 2;
            }
            // The frame of an entry stub: rbp, marker, hardware frame of kernel or user code.
            (4..=5, 7..) => {
                let marker = MARKER_PAGE | one_of(&[0x121, 0x20e, 0x300]);
                let cs = one_of(&[0x08, 0x08, 0x2b]);
                let rip = if cs == 0x08 { one_of(&[code(), code(), 7]) } else { one_of(&[0x40_0000, 0]) };
                let rsp = one_of(&[base + 8 * (at as u64 + 7), base, word(base)]);
                words[at..at + 7].copy_from_slice(&[one_of(&[up + 40, word(base)]), marker, rip, cs, 0x202, rsp, 0x10]);
                at += 7;
            }
            // The outermost frame.
            (6, 2..) => {
                (words[at], words[at + 1]) = (0, code());
                at += 2;
            }
            _ => {
                words[at] = word(base);
                at += 1;
            }
        }
    }
}

/// Fills a stack with random words and spins on it. `armed` orders the NMI. Interrupts must be off.
#[inline(never)]
pub fn throw(armed: impl FnOnce()) {
    let mut stack = [0; 1 + WORDS];
    let base = black_box(&mut stack)[1..].as_mut_ptr() as u64;
    fill(&mut stack[1..], base);
    stack[0] = one_of(&[0, 0, 0, code()]);
    fill_other(NMI_STACK + random::next() as usize % (STACKS - NMI_STACK));
    // rbp points to the first frame or has any value. The lowest word is any word, or a word that does not look like
    // code.
    let rsp = base + 8 * (random::next() % 8);
    let rbp = one_of(&[rsp, rsp + 16, rsp + 24, word(base)]);
    let (rsp, rbp) = one_of(&[(base - 8, base), (base - 8, base), (rsp, rbp)]);
    black_box(&mut stack);
    armed();
    spin(rsp, rbp);
    black_box(&mut stack);
}

/// Fills a stack with random words, many of which come from `caller`, and calls `work` with its address.
pub fn with_stack(caller: impl Fn() -> u64, work: impl FnOnce(u64)) {
    let mut stack = [0; WORDS];
    let base = black_box(&mut stack).as_mut_ptr() as u64;
    fill(&mut stack, base);
    for word in &mut stack[..16] {
        *word = one_of(&[*word, *word, caller()]);
    }
    fill_other(NMI_STACK + random::next() as usize % (STACKS - NMI_STACK));
    work(black_box(&mut stack).as_mut_ptr() as u64);
    black_box(&mut stack);
}

/// Spins on the running stack.
pub fn spin_here(armed: impl FnOnce()) {
    armed();
    for turn in 0..SPINS {
        black_box(turn);
    }
}

/// Spins on another stack.
pub fn spin(rsp: u64, rbp: u64) {
    // SAFETY: rsp and rbp are restored before anything uses them. An NMI has its own stack, and interrupts are off.
    unsafe {
        asm!(
            "push rbp",
            "mov r12, rsp",
            "mov rsp, {rsp}",
            "mov rbp, {rbp}",
            "2:",
            "dec {turns}",
            "jnz 2b",
            "mov rsp, r12",
            "pop rbp",
            rsp = in(reg) rsp,
            rbp = in(reg) rbp,
            turns = inout(reg) SPINS => _,
            out("r12") _,
        );
    }
}
