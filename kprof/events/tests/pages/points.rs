//! The code of docs/points.md. In: what the kernel does. Out: hits of its points.

use super::{EVENTS, MAX_CPUS, now_ns, ring_memory};
use kprof::Unit;
use kprof_events::{Point, PointCounts};

static READ_DONE: Point = Point::new("block.read", Unit::Nanoseconds);

static COUNTS: [[PointCounts; 4]; MAX_CPUS] = [const { [const { PointCounts::new() }; 4] }; MAX_CPUS];

pub fn register(cpu: usize) -> Result<(), kprof::RegisterError> {
    EVENTS.register_points(cpu, || &COUNTS[cpu])?;
    EVENTS.register_events(cpu, || ring_memory(cpu))?;
    Ok(())
}

pub fn read_done(elapsed_ns: u64, sector: u64, device: u64) {
    EVENTS.hit(&READ_DONE, elapsed_ns);
    EVENTS.hit_with(&READ_DONE, elapsed_ns, [sector, device]);
}

static CALLS: [Point; 2] =
    [Point::new("syscall.read", Unit::Nanoseconds), Point::new("syscall.write", Unit::Nanoseconds)];

pub fn system_call(number: usize, registers: [u64; 2], dispatch: fn(usize, [u64; 2]) -> u64) -> u64 {
    let point = CALLS.get(number).filter(|point| point.is_on());
    let begun = point.map(|_| now_ns());
    let result = dispatch(number, registers);
    if let (Some(point), Some(begun_ns)) = (point, begun) {
        EVENTS.hit(point, now_ns() - begun_ns);
    }
    result
}
