//! For kernels whose handlers are `extern "x86-interrupt"` functions: tells kprof which code is one.
//!
//! In: the interrupt descriptor table that is loaded, and the first bytes of its handlers. Out: the answer of
//! `Kernel::compiled_entry`. Runs in: the table is read once, in ordinary code; the lookup runs in NMIs, without a lock
//! and in at most nine steps. Nothing here reads a stack.
//!
//! ```text
//! static HANDLERS: Once<CompiledHandlers> = Once::new(); // call_once, when every gate is set
//!
//! fn compiled_entry(&self, address: u64) -> Option<CompiledEntry> {
//!     HANDLERS.get()?.find(address)
//! }
//! ```

use crate::gate;
use kprof::CompiledEntry;
use kprof::format::marker::Marker;

/// No handler is longer than this, unless the next one begins earlier. Nobody knows where a compiled function ends;
/// kprof looks at the stack before it takes the code for an entry.
const MAX_BYTES: u64 = 16 * 1024;
const VECTORS: usize = 256;

/// The handlers that the compiler has made, by address.
#[derive(Clone, Debug)]
pub struct CompiledHandlers {
    /// Where each begins, in order. Only the first `count` are meant.
    starts: [u64; VECTORS],
    entries: [CompiledEntry; VECTORS],
    count: usize,
}

impl CompiledHandlers {
    /// The handlers in the table that this CPU has loaded. Gates that are set later are not seen. Several vectors with
    /// one handler become an entry of unknown kind. Runs in: ordinary code.
    ///
    /// # Safety
    /// This CPU has loaded an interrupt descriptor table, and each present gate leads to code that can be read.
    pub unsafe fn of_loaded_table() -> Self {
        // SAFETY: the caller promises both.
        Self::of(
            |vector| unsafe { gate::handler(vector) },
            |address| unsafe { (address as *const [u8; 8]).read_unaligned() },
        )
    }

    /// The compiled ones among the handlers that `handler` knows, whose code `code` reads.
    fn of(handler: impl Fn(u8) -> Option<u64>, code: impl Fn(u64) -> [u8; 8]) -> Self {
        let none = CompiledEntry { marker: Marker::Interrupt(0), has_error_code: false };
        let mut found = Self { starts: [0; VECTORS], entries: [none; VECTORS], count: 0 };
        for vector in 0..=u8::MAX {
            let Some(start) = handler(vector) else { continue };
            if let Some(entry) = CompiledEntry::of(vector, &code(start)) {
                found.insert(start, entry);
            }
        }
        found
    }

    fn insert(&mut self, start: u64, entry: CompiledEntry) {
        let at = self.starts[..self.count].partition_point(|other| *other < start);
        if self.starts[..self.count].get(at) == Some(&start) {
            self.entries[at].marker = Marker::Interrupt(0);
            return;
        }
        self.starts[at..=self.count].rotate_right(1);
        self.entries[at..=self.count].rotate_right(1);
        (self.starts[at], self.entries[at]) = (start, entry);
        self.count += 1;
    }

    /// The handler that `address` may belong to: the last one that begins at or before it.
    pub fn find(&self, address: u64) -> Option<CompiledEntry> {
        let starts = self.starts.get(..self.count)?;
        let at = starts.partition_point(|start| *start <= address).checked_sub(1)?;
        (address.wrapping_sub(*starts.get(at)?) < MAX_BYTES).then_some(*self.entries.get(at)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x53, 0x41, 0x52];
    const WITH_CODE: [u8; 8] = [0x50, 0x55, 0x48, 0x89, 0xe5, 0x41, 0x53, 0x41];
    const STUB: [u8; 8] = [0x6a, 0x0e, 0x55, 0x48, 0x89, 0xe5, 0x51, 0x50];

    #[test]
    fn an_address_belongs_to_the_compiled_handler_before_it() {
        let gates = [(3, 0x5000, PLAIN), (14, 0x3000, WITH_CODE), (32, 0x4000, STUB), (33, 0x2000, PLAIN)];
        let shared = [(40, 0x9_0000, PLAIN), (41, 0x9_0000, PLAIN)];
        let of = |field: u64| gates.iter().chain(&shared).find(|gate| gate.1 == field).expect("a handler").2;
        let handlers = CompiledHandlers::of(
            |vector| gates.iter().chain(&shared).find(|gate| gate.0 == vector).map(|gate| gate.1),
            of,
        );
        let marker = |address| handlers.find(address).map(|entry| entry.marker);
        assert_eq!([0, 0x1fff].map(marker), [None; 2]);
        assert_eq!([0x2000, 0x2fff].map(marker), [Some(Marker::Interrupt(33)); 2]);
        assert_eq!([0x3000, 0x4fff].map(marker), [Some(Marker::Exception(14)); 2], "the stub is no compiled handler");
        assert_eq!([0x5000, 0x5000 + MAX_BYTES - 1].map(marker), [Some(Marker::Exception(3)); 2]);
        assert_eq!([0x5000 + MAX_BYTES, u64::MAX].map(marker), [None; 2]);
        assert_eq!(marker(0x9_0010), Some(Marker::Interrupt(0)), "which of the two it is, is not known");
        assert_eq!(handlers.find(0x3008).map(|entry| entry.has_error_code), Some(true));
    }

    #[test]
    fn every_vector_may_have_a_handler_of_its_own() {
        // In reverse order, so that each is inserted before the others.
        let address = |vector: u8| 0x10_0000 - 16 * u64::from(vector);
        let handlers = CompiledHandlers::of(|vector| Some(address(vector)), |_| PLAIN);
        for vector in 32..=u8::MAX {
            assert_eq!(handlers.find(address(vector) + 15).map(|entry| entry.marker), Some(Marker::Interrupt(vector)));
        }
    }
}
