//! The functions of the guest, as the tool has found them in its symbols. Stage: capture.
//!
//! In: a file of triples of words (first address, one past the last, number with `OF_USER`); those of the kernel and
//! those of user programs are each sorted, and none overlaps another of its kind. Out: the number of the function that
//! an address is in.

/// The number for code of the kernel that is in no function.
pub const UNKNOWN: u32 = 0;
/// The number for code of user programs that is in no function.
pub const USER: u32 = 1;
/// Is set in the third word for functions of user programs.
pub const OF_USER: u64 = 1 << 32;

/// A function's range, and its number.
#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    end: u64,
    number: u32,
}

/// The words of a file that the tool has written for the plugin.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect()
}

/// All functions.
#[derive(Debug, Default)]
pub struct Functions {
    kernel: Vec<Function>,
    user: Vec<Function>,
}

impl Functions {
    /// Reads the file's bytes.
    pub fn read(bytes: &[u8]) -> Self {
        let mut functions = Self::default();
        for all in words(bytes).as_chunks::<3>().0 {
            let list = if all[2] & OF_USER == 0 { &mut functions.kernel } else { &mut functions.user };
            list.push(Function { start: all[0], end: all[1], number: all[2] as u32 });
        }
        functions
    }

    /// The kernel runs higher than its file says: moves the functions that begin in this range.
    pub fn slide(&mut self, (from, to): (u64, u64), by: u64) {
        for function in self.kernel.iter_mut().filter(|function| (from..to).contains(&function.start)) {
            (function.start, function.end) = (function.start.wrapping_add(by), function.end.wrapping_add(by));
        }
        self.kernel.sort_unstable_by_key(|function| function.start);
    }

    /// The number of the function at an address, and whether it begins there.
    pub fn at(&self, address: u64, is_user: bool) -> (u32, bool) {
        let list = if is_user { &self.user } else { &self.kernel };
        let after = list.partition_point(|function| function.start <= address);
        match list[..after].last() {
            Some(function) if address < function.end => (function.number, function.start == address),
            _ if is_user => (USER, false),
            _ => (UNKNOWN, false),
        }
    }
}
