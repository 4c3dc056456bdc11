//! A loadable module: an ELF file from the initrd, loaded at run time at the addresses for which it was linked.
//!
//! In: `boot/module` of the initrd. Out: its entry, and the description of the image for the profiler. The module is
//! loaded once and never unloaded. So checking whether an address is its code needs no lock: the range is set before
//! the first call into the module.

use core::sync::atomic::{AtomicU64, Ordering};

use elf::ElfBytes;
use elf::abi::{PF_X, PT_LOAD, PT_NOTE};
use elf::endian::LittleEndian;
use elf::note::Note;

use super::paging::{self, Access};
use super::{PAGE, frames, page_ceil, phys_to_virt};
use crate::info::info;

/// The address range for modules: after the kernel image, in the last 2 GiB of the address space.
const REGION: core::ops::Range<u64> = 0xffff_ffff_a000_0000..0xffff_ffff_b000_0000;

static TEXT_START: AtomicU64 = AtomicU64::new(0);
static TEXT_BYTES: AtomicU64 = AtomicU64::new(0);

/// Whether `address` is code of the module. Callable in an NMI.
#[inline(always)]
pub fn is_text(address: u64) -> bool {
    // The first comparison uses only constants and rejects nearly every address.
    address.wrapping_sub(REGION.start) < REGION.end - REGION.start
        && address.wrapping_sub(TEXT_START.load(Ordering::Relaxed)) < TEXT_BYTES.load(Ordering::Relaxed)
}

/// The range of the module's code; empty if none is loaded.
#[cfg(feature = "profiling")]
pub fn text() -> core::ops::Range<u64> {
    let start = TEXT_START.load(Ordering::Relaxed);
    start..start + TEXT_BYTES.load(Ordering::Relaxed)
}

/// Returns the module's entry. The first call loads the module and then calls `loaded`. Returns `None` if there is no
/// module, or if it is not for this kernel.
pub fn entry(loaded: impl FnOnce()) -> Option<extern "C" fn(u64) -> u64> {
    static ENTRY: spin::Once<Option<u64>> = spin::Once::new();
    let entry = (*ENTRY.call_once(|| load(file()?).inspect(|_| loaded())))?;
    // SAFETY: this is the entry of an image that was loaded at its own address, and it has this signature.
    Some(unsafe { core::mem::transmute::<u64, extern "C" fn(u64) -> u64>(entry) })
}

/// The module's file in the initrd. It is searched only once, because the initrd is long.
fn file() -> Option<&'static [u8]> {
    static FILE: spin::Once<Option<&'static [u8]>> = spin::Once::new();
    *FILE.call_once(|| {
        let initrd = info().initrd;
        Some(cpio_reader::iter_files(initrd).find(|entry| entry.name() == "boot/module")?.file())
    })
}

/// The range of the module's code and its build id, if it is loaded.
pub fn image() -> Option<((u64, u64), &'static [u8])> {
    let (start, bytes) = (TEXT_START.load(Ordering::Relaxed), TEXT_BYTES.load(Ordering::Acquire));
    if bytes == 0 {
        return None;
    }
    let file = ElfBytes::<LittleEndian>::minimal_parse(file()?).ok()?;
    Some(((start, start + bytes), build_id(&file).unwrap_or_default()))
}

fn load(bytes: &[u8]) -> Option<u64> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(bytes).ok()?;
    let segments = file.segments()?;
    for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD && segment.p_memsz > 0) {
        let (start, end) = (segment.p_vaddr, page_ceil(segment.p_vaddr.checked_add(segment.p_memsz)?));
        // Only segments with code and constants are allowed. Writable segments are refused.
        if segment.p_flags & PF_X == 0 || start % PAGE != 0 || !REGION.contains(&start) || !REGION.contains(&end) {
            return None;
        }
        let data = file.segment_data(&segment).ok()?;
        for (page, part) in (start..end).step_by(PAGE as usize).zip(data.chunks(PAGE as usize)) {
            let frame = frames::allocate_zeroed()?;
            // SAFETY: this is a new frame in the direct map that no other code uses. A part is not longer than a page.
            unsafe { core::ptr::copy_nonoverlapping(part.as_ptr(), phys_to_virt(frame) as *mut u8, part.len()) };
            paging::map_kernel(page, frame, Access::ReadExecute);
        }
        TEXT_START.store(start, Ordering::Relaxed);
        TEXT_BYTES.store(segment.p_memsz, Ordering::Release);
    }
    Some(file.ehdr.e_entry)
}

/// The description of the build id's note.
fn build_id<'a>(file: &ElfBytes<'a, LittleEndian>) -> Option<&'a [u8]> {
    let note = file.segments()?.iter().find(|segment| segment.p_type == PT_NOTE)?;
    file.segment_data_as_notes(&note).ok()?.find_map(|note| match note {
        Note::GnuBuildId(id) => Some(id.0),
        _ => None,
    })
}
