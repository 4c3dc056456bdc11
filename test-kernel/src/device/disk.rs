//! A virtio disk, by the driver of the crate virtio-drivers. Requests of several threads are in progress at a time.
//!
//! A request belongs to the thread that submits it: the thread waits until the device has completed it, and the
//! device's interrupt wakes it. The device may complete requests in any order; the token that the driver gives out with
//! a request and returns with its completion tells them apart. The thread also looks every few milliseconds, so that a
//! lost interrupt causes a delay and not a hang.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use virtio_drivers::device::blk::{BlkReq, BlkResp, SECTOR_SIZE, VirtIOBlk};
use virtio_drivers::transport::pci::PciTransport;

use super::pci::Found;
use super::virtio::{self, KernelHal};
use crate::cpu::clock;
use crate::errno::{Errno, Result};
use crate::lock::IrqLock;
use crate::profiling;
use crate::wait::{Reason, WaitQueue};

/// Bytes of a sector.
pub const SECTOR: usize = SECTOR_SIZE;
/// A request takes at most three of the queue's 16 places, so all of these fit.
const IN_PROGRESS: usize = 5;
const LOOK_AGAIN_NS: u64 = 5_000_000;

/// What a request does.
#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// A request and all memory of it that the device accesses.
struct Request {
    direction: Direction,
    header: BlkReq,
    data: Vec<u8>,
    answer: BlkResp,
    result: Result<()>,
}

struct Inner {
    driver: VirtIOBlk<KernelHal, PciTransport>,
    /// What the device works on, with the driver's token; the index is that of the place.
    submitted: [Option<(u16, Box<Request>)>; IN_PROGRESS],
    completed: [Option<Box<Request>>; IN_PROGRESS],
}

/// Room for one request.
struct Place {
    is_taken: AtomicBool,
    /// When the request was completed, since boot; 0: it was not.
    completed_ns: AtomicU64,
}

/// A disk.
pub struct Disk {
    number: u16,
    sectors: u64,
    inner: IrqLock<Inner>,
    places: [Place; IN_PROGRESS],
    free: WaitQueue,
    answered: WaitQueue,
}

impl Disk {
    /// Sets up the disk that was found. `number` tells it from other disks.
    pub fn new(found: Found, number: u16) -> Option<Self> {
        let driver = VirtIOBlk::new(found.transport).ok()?;
        virtio::route(found.interrupt_line);
        Some(Self {
            number,
            sectors: driver.capacity(),
            inner: IrqLock::new(Inner { driver, submitted: Default::default(), completed: Default::default() }),
            places: [const { Place { is_taken: AtomicBool::new(false), completed_ns: AtomicU64::new(0) } };
                IN_PROGRESS],
            free: WaitQueue::new(Reason::Device),
            answered: WaitQueue::new(Reason::Device),
        })
    }

    /// The number that tells it from other disks.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors * SECTOR as u64
    }

    /// Handles the device's interrupt.
    pub fn on_interrupt(&self) {
        let mut inner = self.inner.lock();
        inner.driver.ack_interrupt();
        let has_completed = self.complete(&mut inner);
        drop(inner);
        if has_completed {
            self.answered.wake();
        }
    }

    /// Reads whole sectors, with one request.
    ///
    /// # Errors
    /// EINVAL if that is not on the disk; EIO if the device refuses.
    pub fn read(&self, sector: u64, bytes: usize) -> Result<Vec<u8>> {
        self.request(Direction::Read, sector, alloc::vec![0; bytes])
    }

    /// Writes whole sectors, with one request.
    ///
    /// # Errors
    /// As for `read`.
    pub fn write(&self, sector: u64, data: Vec<u8>) -> Result<()> {
        self.request(Direction::Write, sector, data).map(drop)
    }

    /// Submits a request and waits for its completion. The thread that waits here has made the request, so the hit of
    /// the point after it has the right task and stack.
    #[inline(never)]
    fn request(&self, direction: Direction, sector: u64, data: Vec<u8>) -> Result<Vec<u8>> {
        let bytes = data.len();
        let end = sector.checked_add((bytes / SECTOR) as u64).filter(|end| *end <= self.sectors);
        if bytes == 0 || !bytes.is_multiple_of(SECTOR) || end.is_none() {
            return Err(Errno::EINVAL);
        }
        let number = self.take_place();
        let result = self.exchange(number, direction, sector, data);
        self.places[number].is_taken.store(false, Ordering::Release);
        self.free.wake();
        let (data, ns) = result?;
        match direction {
            Direction::Read => profiling::block_read(self.number, (sector, bytes), ns),
            Direction::Write => profiling::block_written(self.number, (sector, bytes), ns),
        }
        Ok(data)
    }

    fn take_place(&self) -> usize {
        let mut taken = 0;
        self.free.wait(|| {
            let take = |place: &Place| !place.is_taken.swap(true, Ordering::Acquire);
            self.places.iter().position(take).inspect(|number| taken = *number).is_some()
        });
        taken
    }

    /// Returns the data, and the time from submission to completion.
    fn exchange(&self, number: usize, direction: Direction, sector: u64, data: Vec<u8>) -> Result<(Vec<u8>, u64)> {
        let (header, answer) = (BlkReq::default(), BlkResp::default());
        let request = Box::new(Request { direction, header, data, answer, result: Err(Errno::EIO) });
        let place = &self.places[number];
        place.completed_ns.store(0, Ordering::Relaxed);
        let submitted_ns = self.submit(number, sector, request)?;
        let is_completed = || place.completed_ns.load(Ordering::Acquire) > 0;
        while !is_completed() {
            let deadline = clock::now_ns() + LOOK_AGAIN_NS;
            self.answered.wait_full(is_completed, Some(deadline), false);
            if !is_completed() && self.complete(&mut self.inner.lock()) {
                self.answered.wake();
            }
        }
        let request = self.inner.lock().completed[number].take().ok_or(Errno::EIO)?;
        request.result?;
        Ok((request.data, place.completed_ns.load(Ordering::Relaxed).saturating_sub(submitted_ns)))
    }

    /// Gives a request to the device. Returns when.
    fn submit(&self, number: usize, sector: u64, mut request: Box<Request>) -> Result<u64> {
        let mut inner = self.inner.lock();
        let submitted_ns = clock::now_ns();
        let Request { direction, header, data, answer, .. } = &mut *request;
        // SAFETY: all three are on the heap, and stay in `submitted`, where nobody accesses them, until `complete` has
        // got this token back from the device.
        let token = unsafe {
            match direction {
                Direction::Read => inner.driver.read_blocks_nb(sector as usize, header, data, answer),
                Direction::Write => inner.driver.write_blocks_nb(sector as usize, header, data, answer),
            }
        };
        let token = token.map_err(|_| Errno::EIO)?;
        inner.submitted[number] = Some((token, request));
        Ok(submitted_ns)
    }

    /// Takes all requests from the device that it has completed. Returns whether there was one. Runs in: any but NMI.
    fn complete(&self, inner: &mut Inner) -> bool {
        let mut has_completed = false;
        while let Some(token) = inner.driver.peek_used() {
            let is_meant = |place: &Option<(u16, Box<Request>)>| place.as_ref().is_some_and(|(of, _)| *of == token);
            let Some(number) = inner.submitted.iter().position(is_meant) else { break };
            let Some((_, mut request)) = inner.submitted[number].take() else { break };
            let Request { direction, header, data, answer, result } = &mut *request;
            // SAFETY: these are the buffers that were submitted with this token.
            let done = unsafe {
                match direction {
                    Direction::Read => inner.driver.complete_read_blocks(token, header, data, answer),
                    Direction::Write => inner.driver.complete_write_blocks(token, header, data, answer),
                }
            };
            *result = done.map_err(|_| Errno::EIO);
            inner.completed[number] = Some(request);
            self.places[number].completed_ns.store(clock::now_ns().max(1), Ordering::Release);
            has_completed = true;
        }
        has_completed
    }
}
