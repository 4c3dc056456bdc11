//! Entry stubs: the assembly between the processor's entry and a Rust function, for the NMI and for other vectors.
//!
//! In: a name, a marker, a Rust function. Out: a naked function, whose address is set in a gate. Runs in: the interrupt
//! itself. It uses no GS, no lock, and no stack but the one from the gate. A kernel with split page tables (KPTI) must
//! switch CR3 first, so it needs its own stub.
//!
//! ```text
//!   SS  RSP  RFLAGS  CS  RIP     by the processor, which has aligned the stack to 16 bytes
//!   marker                       in the place of a return address: the unwinder walks across it
//!   rbp  <- rbp
//!   rcx  <- rdi = &SavedFrame    then the other registers that a Rust function may change
//! ```
//!
//! Every stub is [`STUB_BYTES`] long, so [`is_stub`] is one comparison, and no label is needed at its end. A directive
//! puts the stub into `.text`. Without it, link-time optimization may place the stub in read-only data, and it then
//! only runs if that is executable.

use kprof::{Interrupted, Registers};

/// The length of every stub made by [`entry_stub`](crate::entry_stub).
pub const STUB_BYTES: u64 = 128;

/// Bit 9 of RFLAGS: interrupts are on.
const INTERRUPT_FLAG: u64 = 1 << 9;

/// What a stub has saved. The other saved registers are at lower addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SavedFrame {
    /// The register of the interrupted code.
    pub rcx: u64,
    /// The register of the interrupted code.
    pub rbp: u64,
    /// Which entry this is: see [`kprof::format::marker::Marker`].
    pub marker: u64,
    /// Pushed by the processor, like all fields after it.
    pub rip: u64,
    /// Its lowest two bits are the privilege level.
    pub cs: u64,
    /// Flags.
    pub rflags: u64,
    /// The interrupted code's stack pointer.
    pub rsp: u64,
    /// Stack segment.
    pub ss: u64,
}

impl Interrupted for SavedFrame {
    #[inline(always)]
    fn registers(&self) -> Registers {
        let Self { rip, cs, rflags, rsp, rbp, rcx, .. } = *self;
        let (from_user, interrupts_on) = (cs & 3 != 0, rflags & INTERRUPT_FLAG != 0);
        Registers { pc: rip, sp: rsp, fp: rbp, link: rcx, from_user, interrupts_on }
    }

    #[inline(always)]
    fn is_from_user(&self) -> bool {
        self.cs & 3 != 0
    }

    #[inline(always)]
    fn interrupts_off(&self) -> u64 {
        !self.rflags / INTERRUPT_FLAG
    }
}

/// Whether `address` is code of the stub that begins at `stub`.
#[inline(always)]
pub fn is_stub(stub: unsafe extern "C" fn(), address: u64) -> bool {
    address.wrapping_sub(stub as *const () as u64) < STUB_BYTES
}

/// Makes an entry stub: `entry_stub!(pub nmi_entry, Marker::Exception(2), nmi);` is a function `nmi_entry` for the gate
/// of vector 2, which calls `extern "C" fn nmi(frame: &SavedFrame)`.
///
/// Not for vectors at which the processor pushes an error code. The Rust function, and all that it calls, must not
/// change the vector registers; code for `x86_64-unknown-none` does not. For an NMI: nothing in the handler may return
/// by `iret`, so no exception may happen in it. Otherwise the next NMI would come on the same stack.
#[macro_export]
macro_rules! entry_stub {
    ($(#[$attribute:meta])* $visibility:vis $name:ident, $marker:expr, $handler:path) => {
        const _: extern "C" fn(&$crate::entry::SavedFrame) = $handler;
        $(#[$attribute])*
        #[doc = "An entry stub: for a gate, not to be called."]
        #[unsafe(naked)]
        #[unsafe(link_section = ".text.kprof_entry")]
        $visibility unsafe extern "C" fn $name() {
            ::core::arch::naked_asm!(
                "2:",
                "push {marker}",
                "push rbp",
                "mov rbp, rsp",
                "push rcx; push rax; push rdx; push rsi; push rdi; push r8; push r9; push r10; push r11",
                "cld",
                "lea rdi, [rbp - 8]",
                "call {handler}",
                "pop r11; pop r10; pop r9; pop r8; pop rdi; pop rsi; pop rdx; pop rax; pop rcx",
                "pop rbp",
                "add rsp, 8",
                "iretq",
                // Pads the stub from its first instruction on to the common length.
                ".skip {bytes} - (. - 2b), 0xcc",
                marker = const { ($marker).encode() as i64 as i32 },
                handler = sym $handler,
                bytes = const $crate::entry::STUB_BYTES,
            )
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::arch::asm;
    use core::cell::Cell;
    use kprof::format::marker::Marker;

    std::thread_local!(static SEEN: Cell<Option<SavedFrame>> = const { Cell::new(None) });

    extern "C" fn handler(frame: &SavedFrame) {
        SEEN.set(Some(*frame));
        // The registers that a Rust function may change, so the stub must restore them. SAFETY: changes only registers
        // that it declares.
        unsafe {
            asm!("", out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _, out("r8") _, out("r9") _,
                out("r10") _, out("r11") _);
        }
    }

    entry_stub!(stub, Marker::Interrupt(0xe0), handler);

    /// Interrupts itself as the processor would: pushes the five words and enters the stub, whose `iretq` returns here.
    fn interrupt(value: u64) -> [u64; 3] {
        let [mut rcx, mut r11, mut rax] = [value, value + 1, value + 2];
        // SAFETY: the stub returns to the label by the frame made here, with every register as it was. The red zone of
        // this target lies above the frame: rsp has been moved below it.
        unsafe {
            asm!(
                "mov r12, rsp", "sub rsp, 256", "and rsp, -16",
                "mov r13, ss", "push r13", "push r12", "pushfq", "mov r13, cs", "push r13",
                "lea r13, [rip + 2f]", "push r13",
                "jmp {stub}",
                "2: mov rsp, r12",
                stub = sym stub, inout("rcx") rcx, inout("r11") r11, inout("rax") rax,
                out("r12") _, out("r13") _,
            );
        }
        [rcx, r11, rax]
    }

    #[test]
    #[cfg_attr(miri, ignore = "runs assembly")]
    fn a_stub_hands_over_what_it_interrupted_and_puts_every_register_back() {
        assert_eq!(interrupt(7), [7, 8, 9]);
        let frame = SEEN.take().expect("the handler was called");
        assert_eq!(frame.rcx, 7);
        assert_eq!(frame.marker, 0xffff_ffff_ffff_f1e0);
        assert_eq!(frame.registers().sp, frame.rsp);
        let local = 0_u64;
        assert!(frame.rsp.abs_diff(&raw const local as u64) < 1 << 16, "rsp is that of the interrupted code");
        let own = interrupt as *const () as u64;
        assert!(frame.rip.wrapping_sub(own) < 4096, "rip is in the interrupted function");
    }

    #[test]
    #[cfg_attr(miri, ignore = "runs assembly")]
    fn a_stub_is_where_code_is_and_has_its_length() {
        let start = stub as *const () as u64;
        assert!(is_stub(stub, start) && is_stub(stub, start + STUB_BYTES - 1));
        assert!(!is_stub(stub, start - 1) && !is_stub(stub, start + STUB_BYTES));
        // SAFETY: the bytes of the stub, which is this program's code.
        let code = unsafe { core::slice::from_raw_parts(start as *const u8, STUB_BYTES as usize) };
        let iretq = code.windows(2).rposition(|pair| pair == [0x48, 0xcf]).expect("it returns");
        assert!(code[iretq + 2..].iter().all(|byte| *byte == 0xcc), "what follows is filled up");
        assert_eq!(section_of(start), ".text");
    }

    /// The section of this program that contains an address, according to its own ELF file.
    fn section_of(address: u64) -> String {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let number = |at: u64, bytes: usize| {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&file[at as usize..at as usize + bytes]);
            u64::from_le_bytes(word)
        };
        let path = std::fs::read_link("/proc/self/exe").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let first = maps.lines().find(|line| line.ends_with(path.to_str().unwrap())).unwrap();
        let address = address - u64::from_str_radix(first.split_once('-').unwrap().0, 16).unwrap();
        // Offset of the section headers, length of one, their number, and the index of the one with their names
        // (ELF-64, figure 3).
        let [headers, each, count, names] =
            [(0x28, 8), (0x3a, 2), (0x3c, 2), (0x3e, 2)].map(|(at, size)| number(at, size));
        let header = |index: u64| headers + each * index;
        let holds = |at: &u64| (number(at + 16, 8)..number(at + 16, 8) + number(at + 32, 8)).contains(&address);
        let found = (1..count).map(header).find(holds).expect("the address is in a section");
        let name = &file[(number(header(names) + 24, 8) + number(found, 4)) as usize..];
        String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap()).into_owned()
    }
}
