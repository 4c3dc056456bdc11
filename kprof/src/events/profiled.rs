//! A kernel whose profiler is found by its type.
//!
//! In: the kernel's `static`. Out: a reference to it. Runs in: any but NMI. For what is made in a constant and so
//! cannot be given a reference, as a raw lock of `lock_api`.

use crate::kernel::Kernel;
use crate::profiler::Profiler;

/// A kernel with one profiler, for [`RawLock`](crate::RawLock).
pub trait Profiled: Kernel + Sized {
    /// The profiler. Runs in: wherever the kernel waits for a lock or releases one; it only returns a reference.
    fn profiler() -> &'static Profiler<Self>;
}
