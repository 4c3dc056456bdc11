//! Work whose distribution is known by counting instructions. `cargo xtask truth` compares profiles with it.
//!
//! `/kernel/truth-a` and `/kernel/truth-b` run a number of rounds of a mix of pieces. Each piece is a function whose
//! time is counted separately. With zero rounds each piece is run alone with interrupts off; the instruction clock is
//! read before and after it, and the log says `truth: MIX PIECE INSTRUCTIONS`. These figures do not depend on any
//! sample.

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

/// How often a piece is measured. The minimum is used, because disturbances only make a piece longer. Where QEMU shares
/// turns, another CPU runs after each few thousand instructions, so most tries are disturbed.
const TRIES: usize = 100;

macro_rules! pieces {
    ($($run:ident),* $(,)?) => { [$(Piece { name: stringify!($run), run: $run }),*] };
}

/// The first mix, with everything that a sampler may measure wrongly.
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
            // The call instruction belongs to the mix and not to the piece.
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
    // All functions are called in the same way, also the empty one: through an address that the compiler does not know.
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

/// Instructions of the empty function: two that set the frame pointer, one that restores it, and the return.
const EMPTY: u64 = 4;

#[inline(never)]
fn empty() {}

/// `$count` blocks of `$size` instructions each. The last two instructions of a block are the loop.
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

/// A sequence of additions. One addition after a call prevents that the call becomes a tail call, which would have no
/// caller on the stack.
macro_rules! straight {
    ($count:literal) => {
        // SAFETY: the code only changes the declared register.
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

/// The same leaf is called here, and through more frames in `deep_caller`. Only the callers distinguish the two.
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

/// Most of its time is with interrupts off.
#[inline(never)]
fn interrupts_off() {
    without_interrupts(|| straight!(1000));
}

/// With this number a round of the first mix has 12 500 instructions. The intervals between ticks then vary by two
/// rounds, so that no sample depends on the one before it.
const COPIED_BYTES: usize = 854;

/// Copies bytes; under `-icount` each byte counts as an instruction.
#[inline(never)]
fn copied_bytes() {
    static FROM: [AtomicU8; COPIED_BYTES] = [const { AtomicU8::new(1) }; COPIED_BYTES];
    static TO: [AtomicU8; COPIED_BYTES] = [const { AtomicU8::new(0) }; COPIED_BYTES];
    // SAFETY: both arrays have this many bytes and do not overlap. The copy is never read.
    unsafe {
        asm!("rep movsb", inout("rcx") COPIED_BYTES => _, inout("rsi") FROM.as_ptr() => _, inout("rdi") TO.as_ptr() => _);
    }
}

/// Three interrupts of a vector whose handler does nothing.
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
    // SAFETY: the handler of this vector does nothing and returns. The code only changes the declared registers.
    unsafe { asm!("2:", "int {}", "dec {count}", "jnz 2b", const VECTOR, count = inout(reg) count.max(1) => _) };
}

#[inline(always)]
fn interrupt() {
    // SAFETY: the handler of this vector does nothing and returns.
    unsafe { asm!("int {}", const VECTOR, options(nomem)) };
}

/// The instructions of the three interrupts without those of the function around them.
fn interrupt_time() -> u64 {
    #[inline(never)]
    fn without() {
        for _ in 0..3 {
            straight!(200);
        }
    }
    // An `int` belongs to the function. The instructions after it, up to and including `iret`, belong to the interrupt.
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
