//! Sets gates in the kernel's own interrupt descriptor table, which is found by `sidt`.
//!
//! In: a vector, a stub, an interrupt stack. Out: 16 bytes of the table. Runs in: ordinary code, once (for a table that
//! all CPUs share) or on each CPU (if each has its own). Source: Intel SDM volume 3A, 6.14.1.

use x86_64::instructions::tables::sidt;
use x86_64::registers::segmentation::{CS, Segment};

/// An interrupt gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The address of its stub.
    pub handler: u64,
    /// The kernel's code segment.
    pub selector: u16,
    /// The entry of the interrupt stack table, 1 to 7; 0 for none.
    pub ist: u8,
    /// The numerically highest privilege level (3: user code) from which `int` may use this gate.
    pub level: u8,
}

const PRESENT: u128 = 1 << 47;
/// An interrupt gate: interrupts are disabled in the stub.
const INTERRUPT_GATE: u128 = 0xe << 40;
const TYPE: u128 = 0x1f << 40;

impl Gate {
    /// Encodes the gate as the bytes of the table.
    pub const fn encode(self) -> u128 {
        let handler = self.handler as u128;
        (handler & 0xffff)
            | (self.selector as u128) << 16
            | (self.ist as u128 & 7) << 32
            | INTERRUPT_GATE
            | (self.level as u128 & 3) << 45
            | PRESENT
            | (handler >> 16) << 48
    }

    /// Decodes the bytes of the table; `None` if there is no gate, or another kind of gate (a trap gate leaves
    /// interrupts enabled).
    pub const fn decode(bytes: u128) -> Option<Self> {
        if bytes & PRESENT == 0 || bytes & TYPE != INTERRUPT_GATE {
            return None;
        }
        Some(Self {
            handler: (bytes & 0xffff) as u64 | (bytes >> 48 << 16) as u64,
            selector: (bytes >> 16) as u16,
            ist: (bytes >> 32) as u8 & 7,
            level: level(bytes),
        })
    }
}

/// The privilege level of a gate of any kind; 0 if there is no gate.
const fn level(bytes: u128) -> u8 {
    if bytes & PRESENT == 0 { 0 } else { (bytes >> 45) as u8 & 3 }
}

/// The table is too short for the vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort {
    /// The requested vector.
    pub vector: u8,
    /// How many gates the table has.
    pub gates: usize,
}

impl core::fmt::Display for TooShort {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { vector, gates } = self;
        write!(f, "the interrupt descriptor table has {gates} gates, none for vector {vector}")
    }
}

/// How many gates a table of this limit has.
const fn gates(limit: u16) -> usize {
    (limit as usize + 1) / size_of::<u128>()
}

/// The address of the gate of `vector` in the table that this CPU has loaded.
fn place(vector: u8) -> Result<*mut u128, TooShort> {
    let table = sidt();
    let gates = gates(table.limit);
    if usize::from(vector) >= gates {
        return Err(TooShort { vector, gates });
    }
    // The table need not be aligned.
    Ok((table.base.as_u64() as *mut u128).wrapping_add(vector.into()))
}

/// Reads the gate of a vector in this CPU's table.
///
/// # Errors
/// [`TooShort`]: the table ends before this gate.
///
/// # Safety
/// This CPU has loaded an interrupt descriptor table.
pub unsafe fn read(vector: u8) -> Result<Option<Gate>, TooShort> {
    // SAFETY: the processor reads the table at every interrupt, so it is mapped; `place` has seen that the gate is in
    // it.
    Ok(Gate::decode(unsafe { place(vector)?.read_unaligned() }))
}

/// The address that the gate of a vector leads to, in this CPU's table, also if the gate leaves interrupts enabled.
///
/// # Safety
/// This CPU has loaded an interrupt descriptor table.
pub(crate) unsafe fn handler(vector: u8) -> Option<u64> {
    // SAFETY: as in `read`.
    let bytes = unsafe { place(vector).ok()?.read_unaligned() };
    // Bit 40 tells a trap gate from an interrupt gate.
    Gate::decode(bytes & !(1 << 40)).map(|gate| gate.handler)
}

/// Sets the gate of a vector in this CPU's table: to a stub made by [`entry_stub`](crate::entry_stub), on the interrupt
/// stack `ist` (1 to 7; 0 for none), in the current code segment. The NMI's vector is 2, that of breakpoints 3. The
/// privilege level stays that of the gate that was there, so user code may use `int3` afterwards if it could before.
///
/// # Errors
/// [`TooShort`]: the table ends before this gate; nothing is changed.
///
/// # Safety
/// This CPU has loaded its interrupt descriptor table. The table is mapped writable at the address that it was loaded
/// with. During this call no other code writes to this gate, and no interrupt of this vector comes (no NMI may be sent
/// yet). With `ist`, that entry of the task state segment of every CPU that uses this table must have a stack of that
/// CPU's own before the first interrupt of this vector.
pub unsafe fn set(vector: u8, stub: unsafe extern "C" fn(), ist: u8) -> Result<(), TooShort> {
    let place = place(vector)?;
    // SAFETY: `place` has seen that the gate is in the table, which the processor reads, so it is mapped.
    let level = level(unsafe { place.read_unaligned() });
    let gate = Gate { handler: stub as *const () as u64, selector: CS::get_reg().0, ist, level };
    // SAFETY: the same gate; the caller promises that it may be written.
    unsafe { place.write_unaligned(gate.encode()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use x86_64::VirtAddr;
    use x86_64::structures::idt::InterruptDescriptorTable;

    const HANDLER: u64 = 0xffff_ffff_8123_4567;

    #[test]
    fn a_gate_is_the_one_that_the_x86_64_crate_builds() {
        let mut table = InterruptDescriptorTable::new();
        // SAFETY: the table is never loaded.
        unsafe { table.non_maskable_interrupt.set_handler_addr(VirtAddr::new(HANDLER)).set_stack_index(2) };
        // SAFETY: 256 gates of 16 bytes.
        let theirs = unsafe { (&raw const table).cast::<u128>().add(2).read_unaligned() };
        // The `x86_64` crate counts interrupt stacks from 0.
        let gate = Gate { handler: HANDLER, selector: CS::get_reg().0, ist: 3, level: 0 };
        assert_eq!(gate.encode(), theirs);
        assert_eq!(Gate::decode(theirs), Some(gate));
    }

    #[test]
    fn what_is_no_interrupt_gate_is_none() {
        let gate = Gate { handler: HANDLER, selector: 8, ist: 0, level: 3 };
        assert_eq!(Gate::decode(gate.encode()), Some(gate));
        assert_eq!(Gate::decode(0), None);
        assert_eq!(Gate::decode(gate.encode() & !PRESENT), None);
        let trap_gate = gate.encode() | 1 << 40;
        assert_eq!(Gate::decode(trap_gate), None);
        assert_eq!([trap_gate, trap_gate & !PRESENT].map(level), [3, 0], "a gate that replaces it keeps its level");
    }

    #[test]
    fn a_table_has_as_many_gates_as_fit_below_its_limit() {
        assert_eq!([0, 15, 0x1ff, 0xfff].map(gates), [0, 1, 32, 256]);
        let said = TooShort { vector: 200, gates: 32 }.to_string();
        assert_eq!(said, "the interrupt descriptor table has 32 gates, none for vector 200");
    }
}
