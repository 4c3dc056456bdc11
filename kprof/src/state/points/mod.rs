//! Points and what is counted of them: the state that hits, ctl commands and the sampler share.
//!
//! In: hits; ctl commands; the kernel's memory. Out: places to count in, the list of all points, the counts. Runs in:
//! any but NMI.

mod counts;
mod list;
mod memory;
mod point;

pub use counts::PointCounts;
pub(crate) use counts::Taken;
pub(crate) use list::POINTS;
pub(crate) use memory::PointMemory;
pub use point::Point;
