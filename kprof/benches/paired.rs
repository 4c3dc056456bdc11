//! Time of the whole handler on the host with warm caches, at 16 and 28 frames. Our handler and the reference (the
//! method of the profiler from which kprof descends) take turns in many short batches.
//!
//! `cargo bench -p kprof --features profiling --bench paired`. It prints one line for each depth: frames, nanoseconds
//! of ours, of the reference and of the minimal handler, and the median ratio of neighbouring batches, all of the round
//! in which the reference was fastest. Each depth is measured with the same stack at every tick. In lines with
//! `-changing` each tick has another one of 20 stacks. In lines with `-many` it is another one of 300, which are more
//! than the handler's frame cache can hold.

#[path = "handler/common.rs"]
mod common;

use common::{Ours, PlainRing, World, minimal, reference};
use std::hint::black_box;
use std::time::Instant;

/// Ticks of a batch: with at most 64 words each they fit into each of the rings.
const TICKS: u32 = 400;
/// Pairs of a round, and rounds. Other work on the processor disturbs some of the rounds more than others.
const PAIRS: usize = 400;
const ROUNDS: usize = 10;

fn main() {
    let mut ours = Ours::new(false);
    let mut ring = PlainRing::new();
    println!("frames             ours reference   minimal  ours/reference");
    for (frames, stacks, name) in [
        (16, 1, "16"),
        (28, 1, "28"),
        (16, 20, "16-changing"),
        (28, 20, "28-changing"),
        (16, 300, "16-many"),
        (28, 300, "28-many"),
    ] {
        let (mut world, all) = World::changing(frames, stacks);
        world.touch();
        let all = black_box(&all[..]);
        // The stacks come in an order that a branch predictor does not learn.
        let order: Vec<usize> = (0..TICKS as usize).map(|tick| (tick * tick * 7 + tick / 3) % stacks).collect();
        let mut pair = || {
            let mine = batch(&order, |place| ours.tick(&all[place]));
            ours.drain();
            let theirs = batch(&order, |place| reference(&all[place], &mut ring));
            ring.drain();
            let least = batch(&order, |place| minimal(&all[place], &mut ring));
            ring.drain();
            [mine, theirs, least, mine / theirs]
        };
        let rounds = (0..ROUNDS).map(|_| {
            let mut times = [const { Vec::new() }; 4];
            for _ in 0..PAIRS {
                times.iter_mut().zip(pair()).for_each(|(times, time)| times.push(time));
            }
            times.map(median)
        });
        // The reference's time alone says which round was disturbed least, so the choice favors neither of the two.
        let [mine, theirs, least, ratio] = rounds.min_by(|one, other| one[1].total_cmp(&other[1])).expect("a round");
        println!("{name:<12} {mine:8.1} {theirs:9.1} {least:9.1}  {ratio:14.3}");
    }
}

/// Runs a batch and returns the nanoseconds per tick.
fn batch(order: &[usize], mut tick: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    order.iter().for_each(|place| tick(*place));
    start.elapsed().as_nanos() as f64 / f64::from(TICKS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
