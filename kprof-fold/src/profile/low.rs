//! Kernels whose code is in the lower half of the address space. Stage: read.
//!
//! In: the header of a boot. Out: where its code is. Every address of code in the lower half gets bit 63, because
//! everywhere else an address without this bit is user code; the header's own text stays as it is. A file from outside
//! the guest has the bit already.

use super::Boot;
use crate::relocations::{LOWER_HALF, NOWHERE};
use kprof_format::fact::Fact;
use kprof_format::line::{Hex, Range, Value as _};

fn raise(address: &mut u64) {
    if *address < LOWER_HALF {
        *address |= NOWHERE;
    }
}

impl Boot {
    /// The range of the kernel's code, if its addresses in the file do not have bit 63.
    pub fn low_text(&self) -> Option<(u64, u64)> {
        let Range(from, to) = Range::of(self.fact(Fact::Text)?)?;
        (0 < from && from < to && to <= LOWER_HALF).then_some((from, to))
    }

    /// Sets bit 63 in all that the kernel has told of its own code in the lower half.
    pub fn raise_low_code(&mut self) {
        let Some((from, to)) = self.low_text() else { return };
        let is_code = |address: &u64| (from..=to).contains(address);
        for lockup in &mut self.lockups {
            let raised = |(mut address, ticks)| {
                raise(&mut address);
                (address, ticks)
            };
            lockup.places = std::mem::take(&mut lockup.places).into_iter().map(raised).collect();
            let words = lockup.stacks.iter_mut().flat_map(|stack| &mut stack.words);
            words.filter(|word| is_code(word)).for_each(raise);
        }
        self.anchors.iter_mut().for_each(|(_, address)| raise(address));
    }

    /// The address where the kernel was loaded.
    pub fn load(&self) -> Option<u64> {
        let load = Hex::of(self.fact(Fact::Load)?).map(|load| load.0).filter(|load| *load > 0)?;
        Some(self.raised(load))
    }

    /// The range of the kernel's code.
    pub fn text(&self) -> Option<(u64, u64)> {
        let Range(from, to) = Range::of(self.fact(Fact::Text)?).filter(|Range(from, to)| from < to)?;
        Some((self.raised(from), self.raised(to)))
    }

    /// An address of the header, with bit 63 if the kernel's code is in the lower half.
    fn raised(&self, mut address: u64) -> u64 {
        if self.low_text().is_some() {
            raise(&mut address);
        }
        address
    }
}
