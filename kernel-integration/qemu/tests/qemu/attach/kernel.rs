//! A kernel for the scripted stub: an ELF file with code at an address, and one function.

use super::stub::{TEXT, code};

/// Bytes of its code.
pub const BYTES: u64 = 0x2000;

/// The file: a header, one segment, then sections `.text`, `.symtab`, `.strtab` (which has all names).
pub fn elf() -> Vec<u8> {
    let names = b"\0.text\0.symtab\0.strtab\0work\0";
    let (text, symbols) = (64 + 56_u64, 64 + 56 + BYTES);
    let strings = symbols + 48;
    let sections = (strings + names.len() as u64).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let mut put = |words: &[(u64, usize)]| {
        words.iter().for_each(|(word, bytes)| file.extend(&word.to_le_bytes()[..*bytes]));
        file.len()
    };
    // An executable file of x86_64.
    put(&[(2, 2), (62, 2), (1, 4), (TEXT, 8), (64, 8), (sections, 8), (0, 4), (64, 2), (56, 2), (1, 2), (64, 2)]);
    put(&[(4, 2), (3, 2)]);
    // Loaded, executable.
    put(&[(1, 4), (5, 4), (text, 8), (TEXT, 8), (0, 8), (BYTES, 8), (BYTES, 8), (4096, 8)]);
    let bytes: Vec<(u64, usize)> = (0..BYTES).map(|offset| (u64::from(code(offset)), 1)).collect();
    put(&bytes);
    // The symbol without a name, and a global function in section 1.
    put(&[(0, 8), (0, 8), (0, 8), (23, 4), (0x12, 1), (0, 1), (1, 2), (TEXT, 8), (BYTES, 8)]);
    let string: Vec<(u64, usize)> = names.iter().map(|byte| (u64::from(*byte), 1)).collect();
    let length = put(&string) as u64;
    put(&(length..sections).map(|_| (0, 1)).collect::<Vec<_>>());
    for [name, kind, flags, address, offset, size, link, info, align, entry] in [
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [1, 1, 6, TEXT, text, BYTES, 0, 0, 16, 0],
        [7, 2, 0, 0, symbols, 48, 3, 1, 8, 24],
        [15, 3, 0, 0, strings, names.len() as u64, 0, 0, 1, 0],
    ] {
        put(&[(name, 4), (kind, 4), (flags, 8), (address, 8), (offset, 8), (size, 8), (link, 4), (info, 4)]);
        put(&[(align, 8), (entry, 8)]);
    }
    file
}
