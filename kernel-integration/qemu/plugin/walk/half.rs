//! In which half of the address space the kernel runs. Stage: capture.
//!
//! In: the sampled address, and where the kernel's code is, if it runs in the lower half. Out: which addresses may be
//! its code and its stack, and how an address is written. In a profile every address of kernel code has bit 63 set: it
//! is set in those of the lower half, too, so that they are not taken for user code. Such an address is not canonical,
//! so no code can be there. Runs in: QEMU's process, and in the tool.

/// The lowest address in the upper half; and what is added to those of kernel code in the lower half.
pub const UPPER: u64 = 1 << 63;

/// The half, and in the lower one the first address of the kernel's code and one past the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Upper,
    Lower(u64, u64),
}

impl Half {
    /// The half of a kernel that is sampled at this address. In the lower half there may be other code in kernel mode
    /// (firmware, boot loaders): it is not the kernel's unless it is between these two addresses.
    pub fn of(address: u64, (start, end): (u64, u64)) -> Option<Self> {
        match () {
            () if address >= UPPER => Some(Self::Upper),
            () if start <= address && address < end => Some(Self::Lower(start, end)),
            () => None,
        }
    }

    /// Whether the kernel's code may be at this address. A return address may be one past the end.
    pub fn has_code(self, address: u64) -> bool {
        match self {
            Self::Upper => address >= UPPER,
            Self::Lower(start, end) => start <= address && address <= end,
        }
    }

    /// Whether a stack of the kernel may be at this address. One of a kernel in the lower half may be anywhere.
    pub fn has_stack(self, address: u64) -> bool {
        match self {
            Self::Upper => address >= UPPER,
            Self::Lower(..) => address != 0,
        }
    }

    /// An address of the kernel's code as it is written.
    pub fn written(self, address: u64) -> u64 {
        match self {
            Self::Upper => address,
            Self::Lower(..) => address | UPPER,
        }
    }
}
