//! The code of docs/block-io.md. In: requests to a device. Out: hits with device, sector and size.

use super::{EVENTS, now_ns};
use kprof::Unit;
use kprof::format::block::{self, Request};
use kprof_events::Point;

static BLOCK_READ: Point = Point::new(block::READ, Unit::Nanoseconds);
static BLOCK_WRITE: Point = Point::new(block::WRITE, Unit::Nanoseconds);

pub fn write_point() -> &'static Point {
    &BLOCK_WRITE
}

pub fn read_block(sector: u64, bytes: u64) {
    let submitted_ns = now_ns();
    let completed_ns = now_ns();
    let request = Request { device: 0, sector, bytes };
    EVENTS.hit_with(&BLOCK_READ, completed_ns - submitted_ns, request.arguments());
}
