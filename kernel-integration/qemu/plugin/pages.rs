//! The guest's memory as one sample sees it. Stage: capture.
//!
//! In: a vCPU that does not run meanwhile. Out: bytes of its memory. Runs in: QEMU's process, on the vCPU's thread.
//! For each read QEMU walks the guest's page tables, and a sample reads hundreds of times, mostly code near its return
//! addresses: so each page is read once. A page must not be kept until the next sample: its bytes, or what is mapped
//! there, may be others then.

use super::qemu::{PAGE_BYTES, Vcpu};
use std::cell::RefCell;

const BYTES: usize = PAGE_BYTES as usize;
/// So many pages of a sample are kept; others are read each time.
const MAX_KEPT: usize = 64;

struct Page {
    address: u64,
    /// Whether it is memory.
    is_memory: bool,
    bytes: [u8; BYTES],
}

/// The pages of a sample. Their memory is used again for the next one.
#[derive(Default)]
pub struct Pages {
    pages: RefCell<Vec<Box<Page>>>,
    free: RefCell<Vec<Box<Page>>>,
}

impl Pages {
    /// Begins a sample of this vCPU: nothing is known of its memory.
    pub fn begin(&mut self) {
        self.free.get_mut().append(self.pages.get_mut());
    }

    /// Reads as [`Vcpu::read`] does.
    pub fn read(&self, vcpu: &Vcpu, address: u64, to: &mut [u8]) -> bool {
        let at = (address % PAGE_BYTES) as usize;
        if at + to.len() <= BYTES {
            return self.read_within(vcpu, address - at as u64, at, to);
        }
        if to.len() > BYTES {
            return vcpu.read(address, to);
        }
        let (first, second) = to.split_at_mut(BYTES - at);
        let page = address - at as u64;
        self.read_within(vcpu, page, at, first) && self.read_within(vcpu, page.wrapping_add(PAGE_BYTES), 0, second)
    }

    fn read_within(&self, vcpu: &Vcpu, address: u64, at: usize, to: &mut [u8]) -> bool {
        let mut pages = self.pages.borrow_mut();
        let known = pages.iter().position(|page| page.address == address);
        let page = match known {
            Some(number) => &pages[number],
            None if pages.len() >= MAX_KEPT => return vcpu.read(address + at as u64, to),
            None => {
                let new = || Box::new(Page { address, is_memory: false, bytes: [0; BYTES] });
                let mut page = self.free.borrow_mut().pop().unwrap_or_else(new);
                page.address = address;
                page.is_memory = vcpu.read(address, &mut page.bytes);
                pages.push(page);
                &pages[pages.len() - 1]
            }
        };
        if page.is_memory {
            to.copy_from_slice(&page.bytes[at..at + to.len()]);
        }
        page.is_memory
    }
}
