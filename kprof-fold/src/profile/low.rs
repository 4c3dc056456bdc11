//! Kernels whose code is in the lower half of the address space. Stage: read.
//!
//! In: the header of a boot. Out: the range of such code. What is read of it gets bit 63 in every address, because
//! everywhere else an address without this bit is user code. A file from outside the guest has the bit already.

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
        let Some((mut from, mut to)) = self.low_text() else { return };
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
        [&mut from, &mut to].into_iter().for_each(raise);
        self.header.insert(Fact::Text.name().to_owned(), Range(from, to).to_string());
        if let Some(Hex(mut load)) = self.fact(Fact::Load).and_then(Hex::of).filter(|load| load.0 > 0) {
            raise(&mut load);
            self.header.insert(Fact::Load.name().to_owned(), format!("{load:x}"));
        }
    }
}
