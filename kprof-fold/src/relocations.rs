//! Relocations: where the code was when a stack was recorded. Stage: fold, with the table of stacks.
//!
//! A file may have several boots, each with the kernel and its modules at other addresses. A change of addresses begins
//! a new range of stacks, and stacks of different ranges are always different stacks. Their addresses are converted to
//! those of the first boot, so that one set of symbols serves all boots. In: the first stack of each range, and how far
//! its code was moved. Out: converted addresses.

/// Number of a distinct stack within one profile.
pub type StackId = u32;

/// A range of code, and the number to add to its addresses to get those of the first boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The first address, and one past the last.
    pub range: (u64, u64),
    /// The number to add; the addition wraps around.
    pub by: u64,
}

/// An address in the kernel half where no code can be: it is not canonical. It is not a marker either.
pub const NOWHERE: u64 = 1 << 63;

/// From [`NOWHERE`] on this many addresses stand for kernel code in the lower half of the address space, as much lower
/// as [`NOWHERE`] is.
pub const LOWER_HALF: u64 = 1 << 62;

/// Whether an address stands for kernel code in the lower half. [`NOWHERE`] and the next one do not: they stand for
/// unknown code.
pub fn is_in_lower_half(address: u64) -> bool {
    (NOWHERE + 2..NOWHERE + LOWER_HALF).contains(&address)
}

#[derive(Clone, Debug)]
struct Relocation {
    first: StackId,
    boot: usize,
    /// The kernel's code, if it is in the lower half and its addresses in the file do not have bit 63.
    low_text: Option<(u64, u64)>,
    moves: Vec<Move>,
}

/// All ranges of stacks.
#[derive(Clone, Debug, Default)]
pub struct Relocations(Vec<Relocation>);

impl Relocations {
    /// Begins a new range: stacks from `first` on were recorded in this boot, whose kernel has its code in `low_text`
    /// if that is in the lower half.
    pub fn begin(&mut self, first: StackId, boot: usize, low_text: Option<(u64, u64)>) {
        self.0.push(Relocation { first, boot, low_text, moves: Vec::new() });
    }

    /// Sets that code of this boot was at another address than in the first boot.
    pub fn moved(&mut self, boot: usize, change: Move) {
        let relocations = self.0.iter_mut().filter(|relocation| relocation.boot == boot);
        relocations.for_each(|relocation| relocation.moves.push(change));
    }

    /// Converts the addresses of a stack to those of the first boot.
    #[inline]
    pub fn settle(&self, stack: StackId, words: &mut [u64]) {
        let before = self.0.partition_point(|relocation| relocation.first <= stack);
        let Some(relocation) = self.0[..before].last() else { return };
        if let Some((from, to)) = relocation.low_text {
            // As for `inside`, below.
            words.iter_mut().filter(|word| (from..=to).contains(*word)).for_each(|word| *word |= NOWHERE);
        }
        if relocation.moves.is_empty() {
            return;
        }
        for word in words {
            // A return address may be one past the end of its code, if the call is the last instruction.
            let inside = |one: &&Move| one.range.0 <= *word && *word <= one.range.1;
            let taken =
                |one: &&Move| (one.range.0.wrapping_add(one.by)..=one.range.1.wrapping_add(one.by)).contains(word);
            if let Some(found) = relocation.moves.iter().find(inside) {
                *word = word.wrapping_add(found.by);
            } else if relocation.moves.iter().any(|one| taken(&one)) {
                // The first boot had code at this address but this boot did not. The address must not get the name of
                // that code.
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
        let mut relocations = Relocations::default();
        relocations.begin(10, 1, None);
        relocations.begin(20, 2, None);
        relocations.begin(30, 1, Some((0xff, 0xff)));
        relocations.moved(1, Move { range: (0x100, 0x200), by: 0x1000 });
        relocations.moved(2, Move { range: (0x300, 0x400), by: 0u64.wrapping_sub(0x100) });
        let settled = |stack| {
            let mut words = [0xff, 0x100, 0x200, 0x201, 0x300];
            relocations.settle(stack, &mut words);
            words
        };
        assert_eq!(settled(9), [0xff, 0x100, 0x200, 0x201, 0x300]);
        assert_eq!(settled(10), [0xff, 0x1100, 0x1200, 0x201, 0x300]);
        assert_eq!(settled(29), [0xff, 0x100, NOWHERE + 1, NOWHERE + 1, 0x200]);
        assert_eq!(settled(99), [NOWHERE | 0xff, 0x1100, 0x1200, 0x201, 0x300]);
    }
}
