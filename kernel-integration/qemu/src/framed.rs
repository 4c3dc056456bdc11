//! Whether the functions of a kernel have frame pointers, by their first instructions. Stage: symbolize.
//!
//! In: an ELF file without unwind tables. Out: how many of its larger functions begin with `push rbp; mov rbp, rsp`.
//! Nothing is decided by it: a stack is only short, not wrong, without frame pointers. A message tells the user why.

use object::{Architecture, Object, ObjectSection, ObjectSymbol, SymbolKind};

/// `push rbp; mov rbp, rsp`, in both encodings.
const BEGINS: [&[u8]; 2] = [&[0x55, 0x48, 0x89, 0xe5], &[0x55, 0x48, 0x8b, 0xec]];
/// `endbr64` may come first.
const FIRST_BYTES: usize = 8;
/// Smaller functions need no frame.
const MIN_BYTES: u64 = 64;
/// Kernels with fewer functions tell nothing.
const MIN_FUNCTIONS: usize = 8;
/// Kernels with frame pointers have them in nearly all of these functions.
const FEW_PERCENT: usize = 50;

/// What to tell of an x86_64 kernel that has no unwind tables, if stacks will lack callers.
pub fn warning(name: &str, data: &[u8]) -> Option<String> {
    let image = object::File::parse(data).ok().filter(|image| image.architecture() == Architecture::X86_64)?;
    let code = |symbol: &object::Symbol<'_, '_>| -> Option<Vec<u8>> {
        let section = image.section_by_index(symbol.section_index()?).ok()?;
        Some(section.data_range(symbol.address(), FIRST_BYTES as u64).ok()??.to_vec())
    };
    let functions = image.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() >= MIN_BYTES);
    let (with, all) = with_frame_pointers(functions.filter_map(|symbol| code(&symbol)));
    (all >= MIN_FUNCTIONS && with * 100 < all * FEW_PERCENT).then(|| {
        format!(
            "{name}: {with} of its {all} larger functions have a frame pointer, and it has no unwind tables: stacks \
             will lack callers. Compile with -C force-frame-pointers=yes, or with debug = true, which makes tables"
        )
    })
}

/// How many functions that begin with this code have a frame pointer, and how many there are.
fn with_frame_pointers(functions: impl Iterator<Item = Vec<u8>>) -> (usize, usize) {
    let has_frame = |code: &[u8]| BEGINS.iter().any(|begin| code.windows(begin.len()).any(|word| word == *begin));
    functions.fold((0, 0), |(with, all), code| (with + usize::from(has_frame(&code)), all + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_a_frame_pointer_if_it_begins_by_setting_it() {
        let code: [&[u8]; 5] = [
            &[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x41, 0x56],
            &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5],
            &[0x55, 0x48, 0x8b, 0xec, 0x53, 0x50, 0x90, 0x90],
            &[0x55, 0x41, 0x57, 0x41, 0x56, 0x53, 0x48, 0x83],
            &[],
        ];
        assert_eq!(with_frame_pointers(code.iter().map(|code| code.to_vec())), (3, 5));
    }

    #[test]
    fn nothing_is_said_of_what_is_no_kernel() {
        assert_eq!(warning("k", b"ffffffff80000000 T begin"), None, "a list of symbols");
        assert_eq!(warning("k", b""), None);
    }
}
