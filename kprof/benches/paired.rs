//! Time of the whole handler, native, hot: ours and the reference in turn, many short batches, at 16 and 28 frames.
//!
//! `cargo bench -p kprof --features profiling --bench paired`. One line for each depth: frames, nanoseconds of ours, of
//! the reference, of the bare minimum, and the median of the ratios of neighbouring batches. Once with one stack, again
//! and again, and once (`-changing`) with another one at each tick, of more than the handler's frame cache can know.

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
    println!("frames             ours reference   minimal  ours/reference");
    for (frames, stacks, name) in [(16, 1, "16"), (28, 1, "28"), (16, 20, "16-changing"), (28, 20, "28-changing")] {
        let (mut world, all) = World::changing(frames, stacks);
        world.touch();
        let all = black_box(&all[..]);
        // By a number that no branch predictor learns: a step of 7 in a list of changing order.
        let order: Vec<usize> = (0..TICKS as usize).map(|tick| (tick * tick * 7 + tick / 3) % stacks).collect();
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..PAIRS {
            let mine = batch(&order, |place| ours.tick(&all[place]));
            ours.drain();
            let theirs = batch(&order, |place| reference(&all[place], &mut ring));
            ring.drain();
            let least = batch(&order, |place| minimal(&all[place], &mut ring));
            ring.drain();
            for (times, time) in times.iter_mut().zip([mine, theirs, least, mine / theirs]) {
                times.push(time);
            }
        }
        let [mine, theirs, least, ratio] = times.map(median);
        println!("{name:<12} {mine:8.1} {theirs:9.1} {least:9.1}  {ratio:14.3}");
    }
}

/// Nanoseconds a tick.
fn batch(order: &[usize], mut tick: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    order.iter().for_each(|place| tick(*place));
    start.elapsed().as_nanos() as f64 / f64::from(TICKS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
