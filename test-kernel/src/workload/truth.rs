//! Work whose distribution is known by counting: `cargo xtask truth` compares the profile with it.
//!
//! `/kernel/truth-a` and `/kernel/truth-b` run a mix of pieces so many rounds; each piece is a function whose time is
//! its own. Zero rounds: each piece is run alone, interrupts off, between two looks at the instruction clock, and the
//! log says `truth: MIX PIECE INSTRUCTIONS`. No sample has a part in these figures.

use core::arch::asm;
use core::hint::black_box;
use core::sync::atomic::AtomicU8;

use x86_64::instructions::interrupts::without_interrupts;

use crate::cpu::clock;
use crate::log;

/// A function whose share is known.
struct Piece {
    name: &'static str,
    run: fn(),
}

/// The vector of `interrupts`.
pub const VECTOR: u8 = 240;

/// Times that a piece is measured; the least counts, as nothing makes it shorter.
const TRIES: usize = 5;

macro_rules! pieces {
    ($($run:ident),* $(,)?) => { [$(Piece { name: stringify!($run), run: $run }),*] };
}

/// The first mix: everything that a sampler may get wrong.
#[inline(never)]
pub fn mix_a(rounds: u64) {
    mix(
        "a",
        rounds,
        &pieces![
            blocks_of_2,
            blocks_of_20,
            blocks_of_200,
            blocks_of_3000,
            leaves,
            recursion,
            shallow_caller,
            deep_caller,
            interrupts_off,
            copied_bytes,
            interrupts,
            host_of_inlined,
        ],
    );
    black_box(rounds);
}

/// Another mix, for another CPU at the same time.
#[inline(never)]
pub fn mix_b(rounds: u64) {
    mix("b", rounds, &pieces![blocks_of_20, blocks_of_20_too, blocks_of_3000]);
    black_box(rounds);
}

#[inline(always)]
fn mix(name: &str, rounds: u64, pieces: &[Piece]) {
    for _ in 0..rounds {
        for piece in pieces {
            (piece.run)();
        }
    }
    if rounds == 0 {
        let nothing = instructions(empty);
        for piece in pieces {
            // The call is the mix's.
            log!("truth: {name} {} {}", piece.name, instructions(piece.run) - nothing + EMPTY);
        }
        let parts =
            [("short_leaf", short_leaf as fn(), 10), ("long_leaf", long_leaf, 10), ("shared_leaf", shared_leaf, 1)];
        for (part, run, calls) in parts {
            log!("truth: {name} {part} {}", (instructions(run) - nothing + EMPTY) * calls);
        }
        log!("truth: {name} inlined_part {}", instructions(inlined_alone) - nothing);
        log!("truth: {name} [interrupt] {}", interrupt_time());
    }
}

/// Instructions from before the call to after the return.
fn instructions(run: fn()) -> u64 {
    // All are called alike, the empty one too: by an address that the compiler does not know.
    let once = |_| {
        without_interrupts(|| {
            let run = black_box(run);
            let start = clock::tsc();
            run();
            clock::tsc() - start
        })
    };
    (0..TRIES).map(once).min().unwrap_or(0)
}

/// Instructions of the empty function: frame pointer in two, out, return.
const EMPTY: u64 = 4;

#[inline(never)]
fn empty() {}

/// `$count` blocks of `$size` instructions each, the last two of which are the loop.
macro_rules! blocks {
    ($name:ident, $size:literal, $count:literal) => {
        #[inline(never)]
        fn $name() {
            // SAFETY: registers that are named, nothing else.
            unsafe {
                asm!(
                    "2:", ".rept {size} - 2", "add {sum:e}, 1", ".endr", "dec {count:e}", "jnz 2b",
                    size = const $size, sum = inout(reg) 0 => _, count = inout(reg) $count => _,
                    options(nomem, nostack)
                );
            }
        }
    };
}

blocks!(blocks_of_2, 2, 500);
blocks!(blocks_of_20, 20, 40);
blocks!(blocks_of_20_too, 20, 120);
blocks!(blocks_of_200, 200, 4);
blocks!(blocks_of_3000, 3000, 1);

/// A straight run of additions. One behind a call: so that it is no jump, which would leave no caller.
macro_rules! straight {
    ($count:literal) => {
        // SAFETY: a register that is named, nothing else.
        unsafe {
            asm!(".rept {count}", "add {sum:e}, 1", ".endr", count = const $count, sum = inout(reg) 0 => _, options(nomem, nostack));
        }
    };
}

/// Two leaf functions of one block each.
#[inline(never)]
fn leaves() {
    for _ in 0..10 {
        short_leaf();
        long_leaf();
    }
    straight!(1);
}

#[inline(never)]
fn short_leaf() {
    straight!(6);
}

#[inline(never)]
fn long_leaf() {
    straight!(50);
}

#[inline(never)]
fn recursion() {
    deeper(10);
    straight!(1);
}

#[inline(never)]
fn deeper(left: u32) {
    straight!(60);
    if left > 0 {
        deeper(left - 1);
    }
    straight!(20);
}

/// The same leaf by a short way and by a long one: most of the time is the same function's, and the caller tells.
#[inline(never)]
fn shallow_caller() {
    shared_leaf();
    straight!(1);
}

#[inline(never)]
fn deep_caller() {
    downwards(20);
    straight!(1);
}

#[inline(never)]
fn downwards(left: u32) {
    if left == 0 {
        shared_leaf();
    } else {
        downwards(left - 1);
    }
    black_box(left);
}

#[inline(never)]
fn shared_leaf() {
    straight!(600);
}

/// Most of it with interrupts off.
#[inline(never)]
fn interrupts_off() {
    without_interrupts(|| straight!(1000));
}

/// So many that a round of the first mix has 12 500 instructions: the gaps between ticks vary by two rounds then, and
/// no sample depends on the one before.
const COPIED_BYTES: usize = 854;

/// Under counted instructions each byte counts.
#[inline(never)]
fn copied_bytes() {
    static FROM: [AtomicU8; COPIED_BYTES] = [const { AtomicU8::new(1) }; COPIED_BYTES];
    static TO: [AtomicU8; COPIED_BYTES] = [const { AtomicU8::new(0) }; COPIED_BYTES];
    // SAFETY: both arrays have as many bytes and do not overlap; nobody reads what is written.
    unsafe {
        asm!("rep movsb", inout("rcx") COPIED_BYTES => _, inout("rsi") FROM.as_ptr() => _, inout("rdi") TO.as_ptr() => _);
    }
}

/// Three interrupts of a vector that does nothing.
#[inline(never)]
fn interrupts() {
    for _ in 0..3 {
        interrupt();
        straight!(200);
    }
}

/// Interrupts of that vector, and two instructions for each.
#[inline(never)]
pub fn interrupts_alone(count: u64) {
    // SAFETY: the handler of this vector does nothing and returns; registers that are named.
    unsafe { asm!("2:", "int {}", "dec {count}", "jnz 2b", const VECTOR, count = inout(reg) count.max(1) => _) };
}

#[inline(always)]
fn interrupt() {
    // SAFETY: the handler of this vector does nothing and returns.
    unsafe { asm!("int {}", const VECTOR, options(nomem)) };
}

/// What the three interrupts cost without the function around them.
fn interrupt_time() -> u64 {
    #[inline(never)]
    fn without() {
        for _ in 0..3 {
            straight!(200);
        }
    }
    // An `int` is the function's; what follows until its `iret` has come back is the interrupt's.
    instructions(interrupts) - instructions(without) - 3
}

/// A function with another one in its middle.
#[inline(never)]
fn host_of_inlined() {
    straight!(200);
    inlined_part();
    straight!(100);
}

#[inline(always)]
fn inlined_part() {
    straight!(500);
}

#[inline(never)]
fn inlined_alone() {
    inlined_part();
}
