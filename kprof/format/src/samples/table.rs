//! The callers that the samples of a chunk have defined so far, by number.
//!
//! ```text
//! words   │ address │ callers 0 .... │ address │ callers 1 .. │ ... not used │
//!           address: the first address of the last sample with these callers
//! ```
//!
//! In: callers. Out: whole stacks. Runs in: any; the same in writer and reader. Never longer than its two arrays: when
//! one of them is full, all callers are forgotten.

use core::ops::Range;

/// The greatest number of callers that have a number at the same time.
const STACKS: usize = 256;
/// Stands for the number of a sample that there is not.
const NONE: usize = STACKS;
/// The greatest number of words of all of them, with a word for each first address.
const WORDS: usize = 8192;

/// The table. Its words are numbers where samples are read, and undecoded bytes where they are written.
#[derive(Clone, Debug)]
pub(super) struct Table<W> {
    words: [W; WORDS],
    /// Where each stack begins in `words`, and its length; 0 if the number is not used. Number [`NONE`] never is.
    stacks: [(u16, u16); STACKS + 1],
    count: usize,
    used: usize,
    /// The number of the callers of the sample before, or [`NONE`].
    last: usize,
}

impl<W: Copy + Default> Default for Table<W> {
    fn default() -> Self {
        Self { words: [W::default(); WORDS], stacks: [(0, 0); STACKS + 1], count: 0, used: 0, last: NONE }
    }
}

impl<W: Copy + Default> Table<W> {
    /// Forgets everything, as at the beginning of a chunk.
    pub fn reset(&mut self) {
        self.stacks[..self.count].fill((0, 0));
        (self.count, self.used, self.last) = (0, 0, NONE);
    }

    /// The stack of this number: the first address that it had last, and its callers. `None` if the number is not used.
    pub fn stack(&mut self, number: u8) -> Option<(&mut W, &[W])> {
        let callers = usize::from(self.stacks[usize::from(number)].1).checked_sub(1)?;
        self.stack_of(number, callers)
    }

    /// The stack of this number if it has so many callers.
    #[inline(always)]
    pub fn stack_of(&mut self, number: u8, callers: usize) -> Option<(&mut W, &[W])> {
        let (start, length) = self.stacks[usize::from(number)];
        if usize::from(length) != callers + 1 {
            return None;
        }
        let start = usize::from(start);
        let (first, callers) = self.words.get_mut(start..start + callers + 1)?.split_first_mut()?;
        Some((first, &*callers))
    }

    /// Notes that the sample before has the callers of this number.
    #[inline(always)]
    pub fn follow(&mut self, number: u8) {
        self.last = usize::from(number);
    }

    /// The stack of the sample before, with its first address; empty if there is none.
    pub fn last(&self) -> &[W] {
        &self.words[self.last_range()]
    }

    fn last_range(&self) -> Range<usize> {
        let (start, length) = self.stacks[self.last];
        usize::from(start)..usize::from(start) + usize::from(length)
    }

    /// The first address of the sample before; 0 if there is none.
    pub fn first(&self) -> W {
        self.last().first().copied().unwrap_or_default()
    }

    /// Makes room for so many new callers. The sample before has no callers if all are forgotten.
    pub fn make_room(&mut self, callers: usize) {
        if self.count == STACKS || WORDS - self.used <= callers {
            self.reset();
        }
    }

    /// Adds a stack of one address and so many callers, for which there is room. `fill` gets the stack, in which the
    /// outer `common` words are those of the sample before. Returns its number, unless `fill` fails.
    ///
    /// # Panics
    /// If there is no room, or if the sample before has fewer callers than `common`.
    pub fn add<E>(
        &mut self,
        callers: usize,
        common: usize,
        fill: impl FnOnce(&mut [W]) -> Result<(), E>,
    ) -> Result<u8, E> {
        let (start, end) = (self.used, self.used + 1 + callers);
        let last_end = self.last_range().end;
        self.words.copy_within(last_end - common..last_end, end - common);
        fill(&mut self.words[start..end])?;
        self.stacks[self.count] = (start as u16, (end - start) as u16);
        (self.count, self.used) = (self.count + 1, end);
        Ok((self.count - 1) as u8)
    }
}
