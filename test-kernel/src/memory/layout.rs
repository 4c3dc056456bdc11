//! The memory layout: constants from which everything else is computed. This file imports nothing.

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Where physical memory is mapped.
pub const PHYSICAL_MAP: u64 = 0xffff_8000_0000_0000;
/// The first address after user memory.
pub const USER_END: u64 = 0x0000_7fff_ffff_f000;
/// Bytes of a kernel stack, and its alignment.
pub const STACK_BYTES: u64 = 32 * 1024;
/// Bytes at the top of a stack that no frame uses (the stack's head).
pub const HEAD_BYTES: u64 = 64;
/// The last bytes of the head, which are the pointer to the running thread.
pub const HEAD_POINTER_BYTES: u64 = 8;
