//! Reads and writes of disks, made by three functions at the same time: the kernel itself counts them, and never asks
//! the profiler.
//!
//! In: two disks, on which each word of eight bytes is its own offset, with the number of the disk in the highest byte.
//! Two threads read the first disk, one in large requests from its beginning, the other single pages from its end. A
//! third one writes pages of the second disk, each once, so that every word is inverted. Every word that was read is
//! checked: a completion that went to another request would show. The log gets a line for each function: `known: POINT
//! FUNCTION DEVICE REQUESTS BYTES NANOSECONDS`, the last from before the first request to after the last.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::cpu::clock;
use crate::device::disk::{Disk, SECTOR};
use crate::errno::{Errno, Result};
use crate::fs::block::{MAX_REQUEST, disks};
use crate::log;
use crate::task::thread;
use crate::wait::{Reason, WaitQueue};

const PAGE: usize = 4096;
const WORD: usize = size_of::<u64>();

/// What one function has done.
#[derive(Clone, Copy, Default)]
struct Done {
    requests: u64,
    bytes: u64,
    is_wrong: bool,
}

static ENDED: WaitQueue = WaitQueue::new(Reason::Device);

/// Runs all three. Each makes this many requests.
///
/// # Errors
/// ENODEV if there are not two disks; EIO if something that was read is wrong.
pub fn run(requests: u64) -> Result<()> {
    let mut disks = disks();
    let [Some(first), Some(second)] = [disks.next(), disks.next()] else { return Err(Errno::ENODEV) };
    let (running, wrong) = (Arc::new(AtomicUsize::new(3)), Arc::new(AtomicUsize::new(0)));
    let start = |what: &'static str, disk: &'static Disk, work: fn(&Disk, u64) -> Result<Done>| {
        let (running, wrong) = (running.clone(), wrong.clone());
        thread::spawn_kernel("block-work", move || {
            let begun_ns = clock::now_ns();
            let done = work(disk, requests).unwrap_or(Done { is_wrong: true, ..Done::default() });
            let ns = clock::now_ns() - begun_ns;
            log!("known: {what} {} {} {} {ns}", disk.number(), done.requests, done.bytes);
            wrong.fetch_add(done.is_wrong as usize, Ordering::Relaxed);
            running.fetch_sub(1, Ordering::Release);
            ENDED.wake();
        });
    };
    start("block.read read_in_order", first, read_in_order);
    start("block.read read_backwards", first, read_backwards);
    start("block.write write_once", second, write_once);
    ENDED.wait(|| running.load(Ordering::Acquire) == 0);
    if wrong.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Errno::EIO) }
}

#[inline(never)]
fn read_in_order(disk: &Disk, requests: u64) -> Result<Done> {
    let all = disk.bytes() / MAX_REQUEST as u64;
    read_each(disk, MAX_REQUEST, (0..requests).map(|request| request % all))
}

#[inline(never)]
fn read_backwards(disk: &Disk, requests: u64) -> Result<Done> {
    let all = disk.bytes() / PAGE as u64;
    read_each(disk, PAGE, (0..requests).map(|request| all - 1 - request % all))
}

/// Reads pieces of this size, by their numbers.
fn read_each(disk: &Disk, bytes: usize, numbers: impl Iterator<Item = u64>) -> Result<Done> {
    let mut done = Done::default();
    for number in numbers {
        let offset = number * bytes as u64;
        let data = disk.read(offset / SECTOR as u64, bytes)?;
        let (words, _) = data.as_chunks::<WORD>();
        let mut expected = (offset..).step_by(WORD).map(|offset| word(disk, offset));
        done.is_wrong |= !words.iter().all(|word| Some(u64::from_le_bytes(*word)) == expected.next());
        done.add(data.len());
    }
    Ok(done)
}

#[inline(never)]
fn write_once(disk: &Disk, requests: u64) -> Result<Done> {
    let mut done = Done::default();
    for number in 0..requests.min(disk.bytes() / PAGE as u64) {
        let offset = number * PAGE as u64;
        let words = (offset..offset + PAGE as u64).step_by(WORD).map(|offset| !word(disk, offset));
        let data: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        disk.write(offset / SECTOR as u64, data)?;
        done.add(PAGE);
    }
    Ok(done)
}

/// The word of a disk at this offset.
fn word(disk: &Disk, offset: u64) -> u64 {
    u64::from(disk.number()) << 56 | offset
}

impl Done {
    fn add(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes as u64;
    }
}
