//! Time of the whole handler, native, hot: ours and the reference in turn, many short batches, at 16 and 28 frames.
//!
//! `cargo bench -p kprof --features profiling --bench paired`. One line for each depth: frames, nanoseconds of ours, of the
//! reference, of the bare minimum, and the median of the ratios of neighbouring batches.

#[path = "handler/common.rs"]
mod common;

use common::{Ours, PlainRing, World, minimal, reference};
use std::hint::black_box;
use std::time::Instant;

/// Ticks of a batch: with 64 words each they fit into any of the rings.
const TICKS: u32 = 400;
const PAIRS: usize = 2000;

fn main() {
    let mut ours = Ours::new();
    let mut ring = PlainRing::new();
    println!("frames     ours reference   minimal  ours/reference");
    for frames in [16, 28] {
        let mut world = World::new(frames);
        world.touch();
        let registers = black_box(&world.registers);
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..PAIRS {
            let mine = batch(|| ours.tick(registers));
            ours.drain();
            let theirs = batch(|| reference(registers, &mut ring));
            ring.drain();
            let least = batch(|| minimal(registers, &mut ring));
            ring.drain();
            for (times, time) in times.iter_mut().zip([mine, theirs, least, mine / theirs]) {
                times.push(time);
            }
        }
        let [mine, theirs, least, ratio] = times.map(median);
        println!("{frames:6} {mine:8.1} {theirs:9.1} {least:9.1}  {ratio:14.3}");
    }
}

/// Nanoseconds a tick.
fn batch(mut tick: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..TICKS).for_each(|_| tick());
    start.elapsed().as_nanos() as f64 / f64::from(TICKS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
