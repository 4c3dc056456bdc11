//! Memory: the points of a kernel's heap, and what the host makes of them.
//!
//! In and out: names. Runs in: any. The record of a hit of either point has two arguments: the number of the
//! allocation, and its address. A free has the number of the allocation that it ends, so the two can be matched though
//! addresses are used again.

/// The point of an allocation, with its bytes.
pub const ALLOC: &str = "heap.alloc";
/// The point of a free, with the bytes of the allocation. Its hits have no histogram, and only the frees of
/// allocations that have a record get one.
pub const FREE: &str = "heap.free";
/// What the host calls the allocations that were not freed.
pub const LIVE: &str = "heap.live";
