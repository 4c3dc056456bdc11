//! Memory: the points of a kernel's heap, and what the host makes of them.
//!
//! In and out: names. Runs in: any. The record of a hit of either point has two arguments: the number of the
//! allocation, and its address. A free has the number of the allocation that it ends, so the two can be matched though
//! addresses are used again. The upper 16 bits of the number are those of a time: a new time begins whenever frees
//! begin or end to be watched. Nobody knows which allocations of an earlier time still exist.

/// The point of an allocation, with its bytes.
pub const ALLOC: &str = "heap.alloc";
/// The point of a free, with the bytes of the allocation. Its hits have no histogram, and only the frees of
/// allocations that have a record get one.
pub const FREE: &str = "heap.free";
/// What the host calls the allocations that were not freed.
pub const LIVE: &str = "heap.live";

/// The bits of an allocation's number below those of its time.
const TIME_SHIFT: u32 = 48;

/// The time in which an allocation was made, from its number.
pub const fn time_of(number: u64) -> u64 {
    number >> TIME_SHIFT
}

/// The first number of the time that this number belongs to.
pub const fn first_of_time(number: u64) -> u64 {
    time_of(number) << TIME_SHIFT | 1
}

/// The first number of the next time.
pub const fn first_of_next_time(number: u64) -> u64 {
    (time_of(number) + 1) << TIME_SHIFT | 1
}
