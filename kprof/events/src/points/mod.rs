//! Points and what is counted of them: the state that hits, ctl commands and the sampler share.
//!
//! In: hits; ctl commands; the kernel's memory. Out: places to count in, the list of all points, the counts, the rings
//! for records. Runs in: any but NMI.

mod asked;
mod chosen;
mod counts;
mod heap;
mod hits;
mod list;
#[cfg(feature = "locks")]
mod locks;
pub(crate) mod memory;
pub(crate) mod point;
pub(crate) mod records;
mod replaced;
mod samples;
mod waits;

pub(crate) use asked::Became;
pub use counts::PointCounts;
pub(crate) use counts::Taken;
pub(crate) use heap::{HEAP, Heap};
pub(crate) use hits::{handle, hit, own_frame, place, register};
pub(crate) use list::{POINTS, Wanted};
#[cfg(feature = "locks")]
pub(crate) use locks::{FAILED, HOLD, WAIT};
pub(crate) use memory::Offset;
pub use point::Point;
pub(crate) use point::{Role, UNLISTED};
pub(crate) use records::Writing;
pub(crate) use replaced::put_account_back;
pub use samples::AllocSample;
pub(crate) use samples::Sample;
pub(crate) use waits::{BLOCKED, LATENCY, OFF_CPU, WAITS};
