//! Whether the kernel is where it was found. Stage: capture.
//!
//! In: a vCPU that is stopped, what is known of the kernel's place. Out: yes, no, or nothing: the vCPU may execute
//! other code. A few hundred bytes of the kernel's code are compared with what they were, in the round trip of each
//! sample. If they differ, which they do where a kernel has freed or patched its code, the kernel is looked for again.

use super::memory::Memory;
use crate::finder::Finder;
use crate::packet::{read_reply, read_request};
use crate::walk::Registers;

/// So many bytes are compared.
const BYTES: usize = 512;
/// Of 100 this many are the same.
const SAME_PERCENT: usize = 75;

/// Some of the kernel's code, with its address.
#[derive(Debug, Default)]
pub struct Compared(Option<(u64, Vec<u8>)>);

impl Compared {
    /// Asks for the bytes; for none if there is nothing to compare.
    pub fn request(&self) -> String {
        self.0.as_ref().map_or_else(|| read_request(0, 0), |(address, _)| read_request(*address, BYTES as u64))
    }

    /// Whether these are the bytes, as a reply has them.
    pub fn is_same(&self, reply: &str) -> bool {
        let now = read_reply(reply, BYTES as u64).unwrap_or_default();
        self.0.as_ref().is_some_and(|(_, before)| is_same(&now, before))
    }

    /// Whether the kernel is where it was found, if this vCPU executes its code. Without the kernel's file, and until
    /// it was found, there is nothing to compare.
    pub fn is_unmoved(&mut self, finder: Option<&mut Finder>, at: &Registers, memory: &Memory<'_>) -> Option<bool> {
        let Some(finder) = finder.filter(|finder| finder.is_placed()) else { return Some(true) };
        at.half(Finder::lower(Some(finder)))?;
        let read = |from: u64, to: &mut [u8]| memory.fill(from, to);
        let mut now = vec![0; BYTES];
        if let Some((address, before)) = &self.0
            && read(*address, &mut now)
            && is_same(&now, before)
        {
            return Some(true);
        }
        let is_unmoved = finder.is_unmoved(at.rip, &read);
        if is_unmoved == Some(true) {
            self.begin(at, memory);
        }
        is_unmoved
    }

    /// The kernel is where it was found, and this vCPU executes its code: that is compared from now on.
    pub fn begin(&mut self, at: &Registers, memory: &Memory<'_>) {
        let (address, mut code) = (at.rip & !(BYTES as u64 - 1), vec![0; BYTES]);
        if memory.fill(address, &mut code) {
            self.0 = Some((address, code));
        }
    }
}

fn is_same(now: &[u8], before: &[u8]) -> bool {
    100 * now.iter().zip(before).filter(|(now, before)| now == before).count() >= BYTES * SAME_PERCENT
}
