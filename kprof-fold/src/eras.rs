//! Eras: where the code lay when a stack was seen. Stage: fold, beside the table of stacks.
//!
//! A file may hold several boots, each with the kernel and its modules at other addresses. Stacks of different eras are
//! never one stack; their addresses are given out as if all had run where the first boot had its code, so that one set
//! of symbols serves all. In: the first stack of each era, and how far code has moved. Out: moved addresses.

/// Number of a distinct stack within one profile.
pub type StackId = u32;

/// Code from one address to just before another, and what is to be added to get where the first boot had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// First address, and the one behind the last.
    pub range: (u64, u64),
    /// Wraps around.
    pub by: u64,
}

/// An address where no code can be, in the kernel's half: not canonical, and none of the markers.
pub const NOWHERE: u64 = 1 << 63;

#[derive(Clone, Debug)]
struct Era {
    first: StackId,
    boot: usize,
    moves: Vec<Move>,
}

/// All eras but the first, which needs no moves.
#[derive(Clone, Debug, Default)]
pub struct Eras(Vec<Era>);

impl Eras {
    /// The next stack is `first`, and was seen in this boot.
    pub fn begin(&mut self, first: StackId, boot: usize) {
        self.0.push(Era { first, boot, moves: Vec::new() });
    }

    /// Code of this boot lay elsewhere.
    pub fn moved(&mut self, boot: usize, change: Move) {
        let eras = self.0.iter_mut().filter(|era| era.boot == boot);
        eras.for_each(|era| era.moves.push(change));
    }

    /// Moves the addresses of a stack.
    #[inline]
    pub fn settle(&self, stack: StackId, words: &mut [u64]) {
        if self.0.is_empty() {
            return;
        }
        let before = self.0.partition_point(|era| era.first <= stack);
        let Some(era) = self.0[..before].last() else { return };
        for word in words {
            // A return address may lie just behind its code.
            let inside = |one: &&Move| one.range.0 <= *word && *word <= one.range.1;
            let taken =
                |one: &&Move| (one.range.0.wrapping_add(one.by)..=one.range.1.wrapping_add(one.by)).contains(word);
            if let Some(found) = era.moves.iter().find(inside) {
                *word = word.wrapping_add(found.by);
            } else if era.moves.iter().any(|one| taken(&one)) {
                // The first boot had code here; this one had none.
                *word = NOWHERE + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_era_moves_its_own_code_and_nothing_else() {
        let mut eras = Eras::default();
        eras.begin(10, 1);
        eras.begin(20, 2);
        eras.begin(30, 1);
        eras.moved(1, Move { range: (0x100, 0x200), by: 0x1000 });
        eras.moved(2, Move { range: (0x300, 0x400), by: 0u64.wrapping_sub(0x100) });
        let settled = |stack| {
            let mut words = [0xff, 0x100, 0x200, 0x201, 0x300];
            eras.settle(stack, &mut words);
            words
        };
        assert_eq!(settled(9), [0xff, 0x100, 0x200, 0x201, 0x300]);
        assert_eq!(settled(10), [0xff, 0x1100, 0x1200, 0x201, 0x300]);
        assert_eq!(settled(29), [0xff, 0x100, NOWHERE + 1, NOWHERE + 1, 0x200]);
        assert_eq!(settled(99), settled(10));
    }
}
