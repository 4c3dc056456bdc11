//! Finds programs by the task that ran them, for profiles that name no images. Stage: symbolize.
//!
//! Different programs run at the same addresses, so an address alone does not identify the program. Each task with
//! symbols has a number, which goes into the upper byte of its user addresses; bit 63 stays clear. In: a task and the
//! words of a stack. Out: the same words, with the number of the task in its user addresses.

use crate::relocations::{NOWHERE, is_in_lower_half};
use std::collections::HashMap;

/// The number of the lowest bit that no user address has (SDM volume 1, canonical addressing with five levels).
const ADDRESS_BITS: u32 = 56;
/// Maximum number of tasks with symbols.
pub const MAX: usize = 127;

/// The tasks with symbols.
#[derive(Debug, Default)]
pub struct Users(HashMap<String, u64>);

impl Users {
    /// Adds a task and returns the address range of its program; `None` if there are too many tasks.
    pub fn add(&mut self, task: &str) -> Option<(u64, u64)> {
        let next = self.0.len() as u64 + 1;
        if next > MAX as u64 {
            return None;
        }
        let number = *self.0.entry(task.to_owned()).or_insert(next);
        Some((number << ADDRESS_BITS, (number + 1) << ADDRESS_BITS))
    }

    /// Whether there are no tasks with symbols.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts the task's number into the user addresses of a stack, so that they differ from those of other tasks.
    pub fn settle(&self, task: &str, words: &mut [u64]) {
        let Some(number) = self.0.get(task) else { return };
        let is_user = |word: &&mut u64| **word >> ADDRESS_BITS == 0;
        words.iter_mut().filter(is_user).for_each(|word| *word |= number << ADDRESS_BITS);
    }
}

/// The address as it was in the program, without the task's number; or in a kernel in the lower half of the address
/// space.
pub fn plain(address: u64) -> u64 {
    match address {
        ..NOWHERE => address & ((1 << ADDRESS_BITS) - 1),
        address if is_in_lower_half(address) => address - NOWHERE,
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_addresses_of_known_tasks_are_told_apart() {
        let mut users = Users::default();
        let (from, to) = users.add("init").expect("there is room");
        assert_ne!(users.add("sh"), Some((from, to)));
        assert_eq!(users.add("init"), Some((from, to)));
        let kernel = 0xffff_ffff_8000_0000;
        let mut words = [kernel, 0x401000];
        users.settle("other", &mut words);
        assert_eq!(words, [kernel, 0x401000]);
        users.settle("init", &mut words);
        assert_eq!((words[0], plain(words[0]), plain(words[1])), (kernel, kernel, 0x401000));
        assert_eq!([NOWHERE, NOWHERE + 1, NOWHERE + 0x20_1000].map(plain), [NOWHERE, NOWHERE + 1, 0x20_1000]);
        assert!((from..to).contains(&words[1]) && words[1] >> 63 == 0);
        (2..MAX).for_each(|number| assert!(users.add(&number.to_string()).is_some()));
        assert_eq!(users.add("one too many"), None);
    }
}
