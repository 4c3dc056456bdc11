//! Where CPU 1 is, and who has called it: a shadow of its calls, returns and entries, made from the instructions that
//! it executes one by one.
//!
//! In: each instruction and where the next one is. Out: the stack that a sample there must have. Knows nothing of frame
//! pointers. Sources: Arm Architecture Reference Manual, C6.2 (BL, BLR, RET, ERET); the RISC-V Instruction Set Manual,
//! volume I, 2.5.1 (which jumps are calls and returns) and 27.5 (compressed ones), volume II, 3.3.2 (SRET).

use anyhow::{Result, ensure};

/// What an instruction does to the stack of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Nothing.
    Next,
    /// Calls; its length in bytes.
    Call(u64),
    /// Returns to the caller.
    Return,
    /// Ends an entry.
    Leave,
}

/// What the instruction in this word does on aarch64.
pub fn on_aarch64(word: u32) -> Flow {
    let is_call = word & 0xfc00_0000 == 0x9400_0000 || word & 0xffff_fc1f == 0xd63f_0000;
    match word {
        _ if is_call => Flow::Call(4),
        0xd65f_03c0 => Flow::Return,
        0xd69f_03e0 => Flow::Leave,
        _ => Flow::Next,
    }
}

/// The same on riscv64. The link register is x1.
pub fn on_riscv64(word: u32) -> Flow {
    let short = word & 0xffff;
    if word & 3 != 3 {
        // c.jr ra; c.jalr.
        let is_call = short & 0xf07f == 0x9002 && short & 0x0f80 != 0;
        return match short {
            0x8082 => Flow::Return,
            _ if is_call => Flow::Call(2),
            _ => Flow::Next,
        };
    }
    let links = word >> 7 & 31 == 1;
    match word & 0x7f {
        0x6f | 0x67 if links => Flow::Call(4),
        _ if word == 0x8067 => Flow::Return,
        _ if word == 0x1020_0073 => Flow::Leave,
        _ => Flow::Next,
    }
}

/// The calls from one entry, or from the beginning of the kernel.
#[derive(Clone, Debug, Default)]
struct Level {
    /// Return addresses, outermost first.
    calls: Vec<u64>,
    /// How this entry came about: its marker, and the interrupted instruction if that was kernel code.
    entry: Option<(u64, Option<u64>)>,
}

/// The shadow.
#[derive(Clone, Debug)]
pub struct Path {
    levels: Vec<Level>,
}

impl Path {
    /// At the first instruction of a function, which returns to `back`.
    pub fn new(back: u64) -> Self {
        Self { levels: vec![Level { calls: vec![back], entry: None }] }
    }

    /// A call that returns to `back`.
    pub fn call(&mut self, back: u64) {
        self.top().calls.push(back);
    }

    /// A return to `pc`. At the end of user mode one return can leave several entries.
    ///
    /// # Errors
    /// If nobody has called from there.
    pub fn back(&mut self, pc: u64) -> Result<()> {
        while self.top().calls.last() != Some(&pc) {
            ensure!(self.is_entry(), "a return to {pc:x}, which has not called");
            self.levels.pop();
        }
        self.top().calls.pop();
        Ok(())
    }

    /// An entry with this marker.
    pub fn enter(&mut self, marker: u64, interrupted: Option<u64>) {
        self.levels.push(Level { calls: Vec::new(), entry: Some((marker, interrupted)) });
    }

    /// The end of an entry.
    ///
    /// # Errors
    /// If there is none.
    pub fn leave(&mut self) -> Result<()> {
        ensure!(self.is_entry(), "the end of an entry that has not begun");
        self.levels.pop();
        Ok(())
    }

    /// Whether an entry has begun that has not ended.
    pub fn is_entry(&self) -> bool {
        self.levels.last().is_some_and(|level| level.entry.is_some())
    }

    /// Whether everything has returned.
    pub fn is_over(&self) -> bool {
        matches!(&self.levels[..], [level] if level.calls.is_empty())
    }

    /// Where the function that runs returns to, if it has been called.
    pub fn caller(&self) -> Option<u64> {
        self.levels.last()?.calls.last().copied()
    }

    /// The callers, innermost first: return addresses, markers, and interrupted instructions after them.
    pub fn callers(&self) -> Vec<u64> {
        let mut words = Vec::new();
        for level in self.levels.iter().rev() {
            words.extend(level.calls.iter().rev());
            match level.entry {
                Some((marker, Some(interrupted))) => words.extend([marker, interrupted]),
                // The stack of user code is not recorded.
                Some((marker, None)) => {
                    words.push(marker);
                    return words;
                }
                None => {}
            }
        }
        words
    }

    fn top(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the first level stays")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_returns_of_both_processors_are_known() {
        use Flow::{Call, Leave, Next, Return};
        // bl, blr x8, ret, eret, b, br x8
        let arm = [0x9400_0001, 0xd63f_0100, 0xd65f_03c0, 0xd69f_03e0, 0x1400_0001, 0xd61f_0100].map(on_aarch64);
        assert_eq!(arm, [Call(4), Call(4), Return, Leave, Next, Next]);
        // jal ra, jalr ra (a5), ret, sret, j, jr a5; c.jalr a5, c.jr ra, c.jr a5, c.ebreak, c.add
        let risc = [0x0000_00ef, 0x0007_80e7, 0x8067, 0x1020_0073, 0x0000_006f, 0x0007_8067].map(on_riscv64);
        assert_eq!(risc, [Call(4), Call(4), Return, Leave, Next, Next]);
        let short = [0x9782, 0x8082, 0x8782, 0x9002, 0x97ba].map(on_riscv64);
        assert_eq!(short, [Call(2), Return, Next, Next, Next]);
    }

    #[test]
    fn callers_are_there_across_an_entry_and_end_at_one_from_user_mode() {
        let mut path = Path::new(10);
        path.call(20);
        path.enter(0xf1, Some(30));
        path.call(40);
        assert_eq!((path.callers(), path.caller()), (vec![40, 0xf1, 30, 20, 10], Some(40)));
        path.back(40).unwrap();
        path.leave().unwrap();
        assert_eq!(path.callers(), [20, 10]);
        path.enter(0xf3, None);
        path.call(50);
        assert_eq!(path.callers(), [50, 0xf3]);
        // User mode ends in a function of its last entry, which returns to the kernel code before it.
        path.back(20).unwrap();
        assert!(path.callers() == [10] && !path.is_over());
        assert!(path.back(11).is_err() && path.leave().is_err());
    }

    #[test]
    fn everything_has_returned_when_the_first_function_has() {
        let mut path = Path::new(10);
        path.back(10).unwrap();
        assert!(path.is_over());
    }
}
