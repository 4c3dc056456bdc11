//! The callers that the samples of a chunk have defined so far, by number.
//!
//! ```text
//! words   │ address │ callers 0 .... │ address │ callers 1 .. │ ... not used │
//!           address: the first address of the last sample with these callers
//! ```
//!
//! In: callers. Out: whole stacks. Runs in: any; the same in writer and reader. Never longer than its two arrays: when
//! one of them is full, all callers are forgotten.

/// The greatest number of callers that have a number at the same time.
const STACKS: usize = 256;
/// The greatest number of words of all of them, with a word for each first address.
const WORDS: usize = 8192;

/// The table. Its words are numbers where samples are read, and undecoded bytes where they are written.
#[derive(Clone, Debug)]
pub(super) struct Table<W> {
    words: [W; WORDS],
    /// Where each stack begins in `words`, and its length.
    stacks: [(u16, u16); STACKS],
    count: usize,
    used: usize,
    /// Beginning and length of the stack of the sample before, in `words`.
    last: (u16, u16),
    /// The first address of the sample before.
    pub first: W,
}

impl<W: Copy + Default> Default for Table<W> {
    fn default() -> Self {
        let first = W::default();
        Self { words: [first; WORDS], stacks: [(0, 0); STACKS], count: 0, used: 0, last: (0, 0), first }
    }
}

impl<W: Copy + Default> Table<W> {
    /// Forgets everything, as at the beginning of a chunk.
    pub fn reset(&mut self) {
        (self.count, self.used, self.last, self.first) = (0, 0, (0, 0), W::default());
    }

    /// The stack of this number: the first address that it had last, and its callers. `None` if the number is not used.
    #[inline(always)]
    pub fn stack(&mut self, number: u8) -> Option<(&mut W, &[W])> {
        if usize::from(number) >= self.count {
            return None;
        }
        let (start, length) = self.stacks[usize::from(number)];
        let stack = self.words.get_mut(usize::from(start)..)?.get_mut(..usize::from(length))?;
        stack.split_first_mut().map(|(first, callers)| (first, &*callers))
    }

    /// Notes that the sample before has the callers of this number, and this first address.
    #[inline(always)]
    pub fn follow(&mut self, number: u8, first: W) {
        (self.last, self.first) = (self.stacks[usize::from(number)], first);
    }

    /// The stack of the sample before, with the first address that its callers had last; empty if there is none.
    pub fn last(&self) -> &[W] {
        let (start, length) = self.last;
        &self.words[usize::from(start)..][..usize::from(length)]
    }

    /// Makes room for so many new callers. The sample before has no callers if all are forgotten.
    pub fn make_room(&mut self, callers: usize) {
        if self.count == STACKS || WORDS - self.used <= callers {
            (self.count, self.used, self.last) = (0, 0, (0, 0));
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
        let last_end = usize::from(self.last.0) + usize::from(self.last.1);
        self.words.copy_within(last_end - common..last_end, end - common);
        fill(&mut self.words[start..end])?;
        self.stacks[self.count] = (start as u16, (end - start) as u16);
        (self.count, self.used) = (self.count + 1, end);
        Ok((self.count - 1) as u8)
    }
}
