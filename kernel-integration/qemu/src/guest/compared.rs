//! Whether the kernel is where it was found. Stage: capture.
//!
//! In: a vCPU that is stopped, what is known of the kernel's place. Out: yes, no, or nothing: the vCPU may execute
//! other code. A few hundred bytes of the kernel's code are compared with what they were. If they differ, which they do
//! where a kernel has freed or patched its code, the kernel is looked for again.

use super::memory::Memory;
use crate::finder::Finder;
use crate::walk::Registers;

/// So many bytes are compared.
const BYTES: usize = 512;
/// Of 100 so many are the same.
const SAME_PERCENT: usize = 75;

/// Some of the kernel's code, with its address.
#[derive(Debug, Default)]
pub struct Compared(Option<(u64, Vec<u8>)>);

impl Compared {
    /// Whether the kernel is where it was found, if this vCPU executes its code. Without the kernel's file, and until
    /// it was found, there is nothing to compare.
    pub fn is_unmoved(&mut self, finder: Option<&mut Finder>, at: &Registers, memory: &Memory<'_>) -> Option<bool> {
        let Some(finder) = finder.filter(|finder| finder.is_placed()) else { return Some(true) };
        at.half(Finder::lower(Some(finder)))?;
        let read = |from: u64, to: &mut [u8]| memory.fill(from, to);
        let mut now = vec![0; BYTES];
        if let Some((address, before)) = &self.0
            && read(*address, &mut now)
            && 100 * now.iter().zip(before).filter(|(now, before)| now == before).count() >= BYTES * SAME_PERCENT
        {
            return Some(true);
        }
        let is_unmoved = finder.is_unmoved(at.rip, &read);
        let address = at.rip & !(BYTES as u64 - 1);
        if is_unmoved == Some(true) && read(address, &mut now) {
            self.0 = Some((address, now));
        }
        is_unmoved
    }
}
