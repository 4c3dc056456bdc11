//! Code as an array of words, for the rules about the innermost caller.

use super::view::{NO_CODE, View};

/// Code that begins at [`CODE`]; around it are `nop`s of the processor that is tested.
pub(crate) struct Code {
    /// The whole text.
    pub(crate) bytes: Vec<u8>,
    /// How many bytes may still be searched.
    pub(crate) left: u64,
}

/// The address of the text.
pub(crate) const CODE: u64 = 0xffff_8000_0020_0000;

impl Code {
    /// 4096 bytes of `nop`s.
    pub(crate) fn new(nop: u32) -> Self {
        Self { bytes: nop.to_le_bytes().repeat(1024), left: 512 }
    }

    /// Writes instructions at an offset.
    pub(crate) fn set(&mut self, offset: u64, instructions: &[u32]) {
        let bytes: Vec<u8> = instructions.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
}

impl View for Code {
    fn stack_word(&self, _: u64) -> Option<u64> {
        None
    }

    fn code(&self, address: u64) -> [u8; 8] {
        let offset = address.checked_sub(CODE).map_or(usize::MAX, |offset| offset as usize);
        let bytes = self.bytes.get(offset..offset.saturating_add(8));
        bytes.map_or(NO_CODE, |bytes| bytes.try_into().expect("eight bytes"))
    }

    fn is_code(&self, address: u64) -> bool {
        self.code(address) != NO_CODE
    }

    fn may_search(&mut self, bytes: u64) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}
