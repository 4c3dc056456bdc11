//! Points with the feature off: empty types.
//!
//! In: nothing. Out: zero-sized types, so that a static takes no memory. Runs in: nowhere.

use kprof::format::point::{Unit, is_name};

/// A place in the kernel whose hits are counted; empty.
#[derive(Debug)]
pub struct Point;

impl Point {
    /// A point with this name and unit.
    ///
    /// # Panics
    /// If the name is not 1 to 64 visible ASCII characters without `*`; for a `static`, the compiler says so.
    pub const fn new(name: &'static str, _: Unit) -> Self {
        assert!(is_name(name), "the name of a point is 1 to 64 visible ASCII characters without `*`");
        Self
    }

    /// Always `false`.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        false
    }
}

/// Memory for what one CPU counts of one point; empty.
#[derive(Debug, Default)]
pub struct PointCounts;

impl PointCounts {
    /// Nothing.
    pub const fn new() -> Self {
        Self
    }
}

const _: () = assert!(size_of::<PointCounts>() + size_of::<Point>() == 0, "a static takes no memory");
