//! Where memory lies: the constants that everything else is computed from. It imports nothing.

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// Where physical memory is mapped.
pub const PHYSICAL_MAP: u64 = 0xffff_8000_0000_0000;
/// The first address that is not the user's.
pub const USER_END: u64 = 0x0000_7fff_ffff_f000;
/// Bytes of a kernel stack, and its alignment.
pub const STACK_BYTES: u64 = 32 * 1024;
/// Bytes at a stack's top that are kept free of frames.
pub const HEAD_BYTES: u64 = 64;
/// The last bytes of them: the pointer to the running thread.
pub const HEAD_POINTER_BYTES: u64 = 8;
