//! One virtio queue with requests that wait for their answers. The 9p client needs no more.
//!
//! A request blocks its thread, and the device's interrupt wakes it. The thread also checks every few milliseconds, so
//! that a lost interrupt causes a delay and not a hang.

use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::PciTransport;
use virtio_drivers::transport::{InterruptStatus, Transport};
use virtio_drivers::{BufferDirection, Hal, PhysAddr};

use crate::cpu::{self, apic, clock, ioapic};
use crate::errno::{Errno, Result};
use crate::lock::IrqLock;
use crate::memory::{PAGE, frames, paging, phys_to_virt, virt_to_phys};
use crate::wait::{Reason, WaitQueue};

/// The features that this kernel supports: only the modern interface.
pub const FEATURES: Features = Features::VERSION_1;

bitflags::bitflags! {
    /// Feature bits (virtio 1.2, section 6).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Features: u64 {
        /// The device has the modern interface.
        const VERSION_1 = 1 << 32;
    }
}

const QUEUE_SIZE: usize = 16;
const LOOK_AGAIN_NS: u64 = 5_000_000;

/// Memory for the crate virtio-drivers: contiguous frames, which are accessed through the direct map.
pub struct KernelHal;

// SAFETY: `dma_alloc` returns whole zeroed frames that no other code uses. Every virtual address that is returned is
// that of its physical address in the direct map, which is never unmapped.
unsafe impl Hal for KernelHal {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        let start = frames::allocate_contiguous(pages as u64).expect("no memory for a virtio queue");
        let address = phys_to_virt(start) as *mut u8;
        // SAFETY: these are new frames, mapped in the direct map.
        unsafe { address.write_bytes(0, pages * PAGE as usize) };
        (start, NonNull::new(address).expect("the direct map is not at 0"))
    }

    unsafe fn dma_dealloc(_physical: PhysAddr, _address: NonNull<u8>, _pages: usize) -> i32 {
        // Queues are never freed.
        0
    }

    unsafe fn mmio_phys_to_virt(physical: PhysAddr, bytes: usize) -> NonNull<u8> {
        let address = paging::map_device(physical, bytes as u64);
        NonNull::new(address as *mut u8).expect("the direct map is not at 0")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> PhysAddr {
        // Buffers come from the heap, which is in the direct map.
        virt_to_phys(buffer.cast::<u8>().as_ptr() as u64)
    }

    unsafe fn unshare(_physical: PhysAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {}
}

/// Lets the interrupts of a device come to the CPU for devices. Several devices may have the same line.
pub fn route(interrupt_line: u8) {
    let target = cpu::for_devices().apic_id.load(Ordering::Relaxed);
    ioapic::route_level(interrupt_line as u32, apic::FIRST_DEVICE, target);
}

struct Inner {
    transport: PciTransport,
    queue: VirtQueue<KernelHal, QUEUE_SIZE>,
}

/// A device with one request queue.
pub struct Device {
    inner: IrqLock<Inner>,
    /// Whether a request is in progress. There is only one at a time.
    busy: AtomicBool,
    free: WaitQueue,
    answered: WaitQueue,
    done: AtomicBool,
}

impl Device {
    /// Sets up queue 0 after the features were negotiated. Interrupts come on `interrupt_line`.
    pub fn new(mut transport: PciTransport, interrupt_line: u8) -> Option<Self> {
        let queue = VirtQueue::new(&mut transport, 0, false, false).ok()?;
        transport.finish_init();
        route(interrupt_line);
        Some(Self {
            inner: IrqLock::new(Inner { transport, queue }),
            busy: AtomicBool::new(false),
            free: WaitQueue::new(Reason::Device),
            answered: WaitQueue::new(Reason::Device),
            done: AtomicBool::new(false),
        })
    }

    /// Handles the device's interrupt.
    pub fn on_interrupt(&self) {
        let mut inner = self.inner.lock();
        if inner.transport.ack_interrupt().contains(InterruptStatus::QUEUE_INTERRUPT) {
            drop(inner);
            self.done.store(true, Ordering::Release);
            self.answered.wake();
        }
    }

    /// Sends `request` and waits for the answer, which is written to `answer`. Returns its length.
    ///
    /// # Errors
    /// EIO if the device refuses.
    pub fn request(&self, request: &[u8], answer: &mut Vec<u8>) -> Result<usize> {
        self.free.wait(|| self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok());
        let result = self.exchange(request, answer);
        self.busy.store(false, Ordering::Release);
        self.free.wake();
        result
    }

    fn exchange(&self, request: &[u8], answer: &mut Vec<u8>) -> Result<usize> {
        self.done.store(false, Ordering::Relaxed);
        let token = {
            let mut inner = self.inner.lock();
            // SAFETY: both buffers stay in place until the answer has come, because this function waits for it.
            let token = unsafe { inner.queue.add(&[request], &mut [answer.as_mut_slice()]) }.map_err(|_| Errno::EIO)?;
            inner.transport.notify(0);
            token
        };
        loop {
            let deadline = clock::now_ns() + LOOK_AGAIN_NS;
            self.answered.wait_full(|| self.done.load(Ordering::Acquire), Some(deadline), false);
            let mut inner = self.inner.lock();
            if inner.queue.can_pop() {
                // SAFETY: these are the buffers given to `add` above, for the only request in progress.
                let bytes = unsafe { inner.queue.pop_used(token, &[request], &mut [answer.as_mut_slice()]) };
                return bytes.map(|bytes| bytes as usize).map_err(|_| Errno::EIO);
            }
            drop(inner);
            self.done.store(false, Ordering::Relaxed);
        }
    }
}
