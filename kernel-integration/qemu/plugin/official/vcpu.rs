//! The vCPU that this thread runs: its registers by name, its memory. Stage: capture.
//!
//! In: nothing. Out: registers, memory. Runs in: QEMU's process, on the thread of the vCPU, before a block or when one
//! is translated.

use super::internal;
use crate::clock::current;
use crate::interface::{ByteArray, PAGE_BYTES, Processor, g_byte_array_new};
use crate::records::Registers as Record;
use crate::walk::Registers;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// QEMU's list of registers; a descriptor begins with the register and its name.
#[repr(C)]
struct Array {
    data: *mut u8,
    len: c_uint,
}

unsafe extern "C" {
    fn qemu_plugin_get_registers() -> *mut Array;
    fn qemu_plugin_read_register(register: *mut c_void, to: *mut ByteArray) -> c_int;
    fn qemu_plugin_read_memory_vaddr(address: u64, to: *mut ByteArray, bytes: usize) -> bool;
    fn g_array_get_element_size(array: *mut Array) -> c_uint;
    fn g_byte_array_set_size(array: *mut ByteArray, bytes: c_uint) -> *mut ByteArray;
}

/// The general registers of x86_64 in the order of the processor's encoding, then the others.
const X86: [&CStr; 20] = [
    c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi", c"r8", c"r9", c"r10", c"r11", c"r12", c"r13",
    c"r14", c"r15", c"rip", c"eflags", c"cs", c"efer",
];
const ARM: [&CStr; 5] = [c"pc", c"sp", c"x29", c"x30", c"cpsr"];
const RISCV: [&CStr; 6] = [c"pc", c"sp", c"fp", c"ra", c"priv", c"mstatus"];
const RSP: usize = 4;
const RBP: usize = 5;

static PROCESSOR: OnceLock<Processor> = OnceLock::new();
/// QEMU's handles of the registers; 0 for one that it does not have.
static HANDLES: OnceLock<Vec<usize>> = OnceLock::new();

thread_local! {
    /// The array that QEMU writes to.
    static BUFFER: Cell<*mut ByteArray> = const { Cell::new(std::ptr::null_mut()) };
}

/// Which registers are read.
pub fn choose(processor: Processor) {
    PROCESSOR.get_or_init(|| processor);
}

/// This thread's array, empty.
fn buffer() -> *mut ByteArray {
    BUFFER.with(|buffer| {
        if buffer.get().is_null() {
            // SAFETY: GLib's function returns a new array, which this thread keeps.
            buffer.set(unsafe { g_byte_array_new() });
        }
        // SAFETY: the array is this thread's own.
        unsafe { g_byte_array_set_size(buffer.get(), 0) }
    })
}

/// What QEMU has written to the array.
///
/// # Safety
/// The array is that of [`buffer`], and nothing is written to it meanwhile.
unsafe fn written<'a>(array: *mut ByteArray) -> &'a [u8] {
    // SAFETY: GLib's array has so many bytes at this place; null only if it has none.
    unsafe {
        match (*array).len as usize {
            0 => &[],
            bytes => std::slice::from_raw_parts((*array).data, bytes),
        }
    }
}

#[cold]
fn find() -> Vec<usize> {
    let names: &[&CStr] = match PROCESSOR.get() {
        Some(Processor::Arm) => &ARM,
        Some(Processor::Riscv) => &RISCV,
        _ => &X86,
    };
    // SAFETY: QEMU's function takes the thread of a vCPU. Its array has `len` descriptors, each of which begins with
    // two pointers, and the second is a C string. The array is leaked once.
    let all: Vec<(usize, &CStr)> = unsafe {
        let array = qemu_plugin_get_registers();
        let (bytes, len) = (g_array_get_element_size(array) as usize, (*array).len as usize);
        let word = |at: usize, number: usize| (*array).data.add(at * bytes).cast::<usize>().add(number).read();
        (0..len).map(|at| (word(at, 0), CStr::from_ptr(word(at, 1) as *const c_char))).collect()
    };
    names.iter().map(|name| all.iter().find(|(_, other)| other == name).map_or(0, |(handle, _)| *handle)).collect()
}

/// A vCPU on its own thread, between two translated blocks: its registers and its memory can be read.
pub struct Vcpu(());

impl Vcpu {
    /// The vCPU of this thread, for a function that QEMU calls before a block; QEMU itself knows which it is.
    ///
    /// # Safety
    /// The caller is called by QEMU on the thread of this vCPU, before a block.
    pub unsafe fn present(_: usize) -> Option<Self> {
        Some(Self(()))
    }

    /// A register by its place in the list of names; 0 if QEMU does not have it.
    pub fn register(&self, number: usize) -> u64 {
        let handle = HANDLES.get_or_init(find)[number];
        if handle == 0 {
            return 0;
        }
        let array = buffer();
        // SAFETY: the handle is QEMU's, and this is the thread of a vCPU. The array is this thread's own.
        let bytes = unsafe {
            qemu_plugin_read_register(handle as *mut c_void, array);
            written(array)
        };
        let mut value = [0; 8];
        value.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        u64::from_le_bytes(value)
    }

    pub fn registers(&self) -> Registers {
        let [rip, rflags, cs, efer] = [16, 17, 18, 19].map(|number| self.register(number));
        Registers { rip, rsp: self.register(RSP), rbp: self.register(RBP), rflags, cs, efer }
    }

    /// Those of an aarch64: what a walk begins with, and PSTATE.
    pub fn arm(&self) -> (Record, u64) {
        let [pc, sp, fp, link, pstate] = [0, 1, 2, 3, 4].map(|number| self.register(number));
        (Record { pc, sp, fp, link }, pstate)
    }

    /// Those of a riscv64: what a walk begins with, privilege and mstatus. `None` if QEMU does not tell the last two.
    pub fn riscv(&self) -> (Record, Option<(u64, u64)>) {
        let [pc, sp, fp, link] = [0, 1, 2, 3].map(|number| self.register(number));
        let is_told = HANDLES.get().is_some_and(|handles| handles[4] != 0 && handles[5] != 0);
        (Record { pc, sp, fp, link }, is_told.then(|| (self.register(4) & 3, self.register(5))))
    }

    /// Reads guest memory by the vCPU's present page tables. False if it is not mapped, or is not memory: to read from
    /// a device may change it, and QEMU ends if a clock is read in the middle of a block.
    pub fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let first = address & !(PAGE_BYTES - 1);
        let bytes = address - first + to.len() as u64;
        let page = |number: u64| first.wrapping_add(number * PAGE_BYTES);
        if !(0..bytes.div_ceil(PAGE_BYTES)).all(|number| internal::is_memory(page(number))) {
            return false;
        }
        let array = buffer();
        // SAFETY: this is the thread of a vCPU, and the array is this thread's own.
        let read = unsafe {
            if !qemu_plugin_read_memory_vaddr(address, array, to.len()) {
                return false;
            }
            written(array)
        };
        if read.len() == to.len() {
            to.copy_from_slice(read);
        }
        read.len() == to.len()
    }
}

/// The vCPU that this thread runs now; `None` if QEMU does not say.
///
/// # Safety
/// The caller is called by QEMU on the thread of a vCPU, when a block is translated or before one.
pub unsafe fn present() -> Option<Vcpu> {
    // SAFETY: QEMU's variable is a pointer to a vCPU, or null.
    unsafe { !current()?.read().is_null() }.then_some(Vcpu(()))
}

/// The general registers before each block.
#[derive(Default)]
pub struct Readings {
    /// How often a reading was wrong: never.
    pub wrong: u64,
}

impl Readings {
    /// A block is about to run on this vCPU.
    pub fn before(&mut self, _: usize) {}

    /// A general register, in the order of the processor's encoding.
    #[inline]
    pub fn register(&self, _: usize, number: usize) -> u64 {
        Vcpu(()).register(number)
    }
}
