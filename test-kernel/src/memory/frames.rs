//! Page frames: 4 KiB pieces of the largest range of RAM. Each has a use count, because copy-on-write shares frames.
//!
//! Free frames form a list, linked by the first word of each frame. Frames that were never used are taken from the
//! front of the range. Runs in: anything except an NMI.

use core::ptr;
use core::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use super::{PAGE, page_ceil, page_floor, phys_to_virt};
use crate::info::BootInfo;
use crate::lock::IrqLock;
use crate::log;

struct Frames {
    /// Head of the list of free frames; 0 = none.
    free: u64,
    /// The first frame that was never used.
    next: u64,
    end: u64,
    first: u64,
    counts: &'static [AtomicU16],
}

static FRAMES: IrqLock<Frames> = IrqLock::new(Frames { free: 0, next: 0, end: 0, first: 0, counts: &[] });
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Takes the RAM between the kernel image and the initrd, which QEMU puts at the end of RAM.
#[inline(never)]
pub fn init(info: &BootInfo) {
    let start = page_ceil(super::paging::kernel_end_physical()).max(info.ram.0);
    let end = page_floor(info.initrd_start().unwrap_or(info.ram.1).min(info.ram.1));
    assert!(end > start, "no RAM between kernel and initrd");
    let count = ((end - start) / PAGE) as usize;
    let first = page_ceil(start + count as u64 * 2);
    // SAFETY: no other code uses this RAM, and it is mapped in the direct map (the boot tables map its first GiB).
    let counts = unsafe {
        ptr::write_bytes(phys_to_virt(start) as *mut u8, 0, count * 2);
        core::slice::from_raw_parts(phys_to_virt(start) as *const AtomicU16, count)
    };
    *FRAMES.lock() = Frames { free: 0, next: first, end, first, counts };
    log!("memory: {} MiB free", (end - first) >> 20);
}

/// Allocates a frame with undefined contents and a use count of one. Returns `None` if there is none left.
pub fn allocate() -> Option<u64> {
    let mut frames = FRAMES.lock();
    let frame = if frames.free != 0 {
        let frame = frames.free;
        // SAFETY: the first word of a free frame is the link to the next one.
        frames.free = unsafe { ptr::read(phys_to_virt(frame) as *const u64) };
        frame
    } else if frames.next < frames.end {
        frames.next += PAGE;
        frames.next - PAGE
    } else {
        return None;
    };
    count_of(&frames, frame).store(1, Ordering::Relaxed);
    IN_USE.fetch_add(1, Ordering::Relaxed);
    Some(frame)
}

/// Allocates a zeroed frame.
pub fn allocate_zeroed() -> Option<u64> {
    let frame = allocate()?;
    zero(frame);
    Some(frame)
}

/// Zeroes a frame.
#[inline(never)]
pub fn zero(frame: u64) {
    // SAFETY: the frame belongs to the caller, and the direct map covers it.
    unsafe { ptr::write_bytes(phys_to_virt(frame) as *mut u64, 0, (PAGE / 8) as usize) };
}

/// Allocates `count` contiguous frames that are never freed, for DMA, heap and rings. Their contents are undefined.
pub fn allocate_contiguous(count: u64) -> Option<u64> {
    let mut frames = FRAMES.lock();
    let start = frames.next;
    if frames.end - start < count * PAGE {
        return None;
    }
    frames.next += count * PAGE;
    Some(start)
}

fn count_of(frames: &Frames, frame: u64) -> &'static AtomicU16 {
    &frames.counts[((frame - frames.first) / PAGE) as usize]
}

/// Increments the use count of `frame`.
pub fn share(frame: u64) {
    count_of(&FRAMES.lock(), frame).fetch_add(1, Ordering::Relaxed);
}

/// Whether the use count of `frame` is one.
pub fn is_unique(frame: u64) -> bool {
    count_of(&FRAMES.lock(), frame).load(Ordering::Acquire) == 1
}

/// Decrements the use count of `frame`, and frees it at 0.
pub fn release(frame: u64) {
    let mut frames = FRAMES.lock();
    let before = count_of(&frames, frame).fetch_sub(1, Ordering::AcqRel);
    assert!(before != 0, "frame {frame:#x} released twice");
    if before == 1 {
        // SAFETY: the frame is no longer used. Its first word becomes the link to the next free frame.
        unsafe { ptr::write(phys_to_virt(frame) as *mut u64, frames.free) };
        frames.free = frame;
        IN_USE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many frames are in use.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}
