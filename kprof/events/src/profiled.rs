//! A kernel whose events are found by its type.
//!
//! In: the kernel's `static`. Out: a reference to it. Runs in: any but NMI. For what is made in a constant and so
//! cannot be given a reference, as a raw lock of `lock_api`.

use super::events::Events;
use crate::kernel::EventKernel;

/// A kernel whose events are in one static, for [`RawLock`](crate::RawLock).
pub trait Profiled: EventKernel + Sized {
    /// The events. Runs in: wherever the kernel waits for a lock or releases one; it only returns a reference.
    fn events() -> &'static Events<Self>;
}
