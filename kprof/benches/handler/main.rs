//! Time of the whole handler on the host with warm caches: ours, the reference and the minimal one, at 16 and 28
//! frames.
//!
//! `cargo bench -p kprof --features profiling --bench handler`. The ring is drained outside of the measurement.

mod common;

use common::{Ours, PlainRing, World, minimal, reference, walk_alone};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// Ticks between two drains: with at most 64 words each they fit into each of the rings.
const TICKS: u64 = 500;

/// Runs `tick` `count` times in batches, with a drain after each batch. Returns the time of the ticks without the
/// drains.
fn batches(count: u64, mut tick: impl FnMut(), mut drain: impl FnMut()) -> Duration {
    let (mut left, mut spent) = (count, Duration::ZERO);
    while left > 0 {
        let batch = left.min(TICKS);
        let start = Instant::now();
        (0..batch).for_each(|_| tick());
        spent += start.elapsed();
        drain();
        left -= batch;
    }
    spent
}

fn handlers(criterion: &mut Criterion) {
    let ours = std::cell::RefCell::new(Ours::new(false));
    for frames in [16, 28] {
        let mut world = World::new(frames);
        world.touch();
        let mut group = criterion.benchmark_group(format!("handler-{frames}-frames"));
        group.bench_function("ours", |bencher| {
            bencher.iter_custom(|count| {
                batches(count, || ours.borrow_mut().tick(black_box(&world.registers)), || ours.borrow_mut().drain())
            });
        });
        let ring = std::cell::RefCell::new(PlainRing::new());
        group.bench_function("reference", |bencher| {
            bencher.iter_custom(|count| {
                let tick = || reference(black_box(&world.registers), &mut ring.borrow_mut());
                batches(count, tick, || ring.borrow().drain())
            });
        });
        group.bench_function("reference-walk-alone", |bencher| {
            let mut buffer = MaybeUninit::uninit();
            bencher.iter(|| black_box(walk_alone(black_box(&world.registers), &mut buffer)));
        });
        group.bench_function("minimal", |bencher| {
            bencher.iter_custom(|count| {
                let tick = || minimal(black_box(&world.registers), &mut ring.borrow_mut());
                batches(count, tick, || ring.borrow().drain())
            });
        });
        group.finish();
    }
}

criterion_group!(benches, handlers);
criterion_main!(benches);
