//! A vCPU of QEMU 7.2 to 8.2: its registers and its memory, by functions that QEMU itself uses. Stage: capture.
//!
//! In: a vCPU's number. Out: its registers, its memory. Runs in: QEMU's process, on the thread of the vCPU. Written
//! from the published interface (QEMU 7.2, `docs/devel/tcg-plugins` and the exported symbols).

use super::riscv;
use crate::clock::{current, qemu_get_cpu};
use crate::interface::{ByteArray, CpuState, PAGE_BYTES, g_byte_array_new};
use crate::records::Registers as Record;
use crate::symbol::symbol;
use crate::walk::Registers;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

unsafe extern "C" {
    fn malloc_usable_size(object: *const c_void) -> usize;
    fn cpu_memory_rw_debug(cpu: *mut CpuState, address: u64, to: *mut c_void, bytes: usize, write: bool) -> c_int;
    fn cpu_get_phys_page_debug(cpu: *mut CpuState, address: u64) -> u64;
    fn cpu_physical_memory_is_io(address: u64) -> bool;
    fn g_byte_array_free(array: *mut ByteArray, free: c_int) -> *mut u8;
}

/// QEMU's function that appends a register, by GDB's number, to an array, and returns its bytes.
type ReadRegister = unsafe extern "C" fn(*mut CpuState, *mut ByteArray, c_int) -> c_int;
/// That of the emulated processor.
static READ_REGISTER: OnceLock<ReadRegister> = OnceLock::new();

/// Looks for the function that reads registers; false if this QEMU has none of this name.
pub fn has_registers(function: &CStr) -> bool {
    let found = symbol(function);
    // SAFETY: all functions of these names have this type, and QEMU is not unloaded.
    let found = found.map(|found| unsafe { std::mem::transmute::<NonNull<c_void>, ReadRegister>(found) });
    found.is_some_and(|found| *READ_REGISTER.get_or_init(|| found) as usize == found as usize)
}

/// The numbers of GDB's registers (`gdb-xml/i386-64bit.xml`).
const RBP: c_int = 6;
const RSP: c_int = 7;
const RIP: c_int = 16;
const RFLAGS: c_int = 17;
const CS: c_int = 18;
const EFER: c_int = 32;

/// The general registers in the order in which QEMU has them in memory, then RIP, as GDB's numbers.
const IN_MEMORY: [c_int; 17] = [0, 2, 3, 1, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16];
/// Where RSP is among them.
pub const RSP_IN_MEMORY: usize = 4;
/// So many of them must differ and be other than 0 for their place to be known.
const MIN_DISTINCT: usize = 5;

/// A vCPU on its own thread, between two translated blocks: its registers and its memory can be read.
pub struct Vcpu(*mut CpuState);

impl Vcpu {
    /// The vCPU with this number, for a function that QEMU calls on the thread of this vCPU.
    ///
    /// # Safety
    /// The caller is called by QEMU on the thread of this vCPU, before a block or as work that was asked for.
    pub unsafe fn present(index: usize) -> Option<Self> {
        // SAFETY: QEMU's function has no precondition but an initialized machine, which called this.
        let cpu = unsafe { qemu_get_cpu(index as c_int) };
        (!cpu.is_null()).then_some(Self(cpu))
    }

    pub fn registers(&self) -> Registers {
        let [rip, rsp, rbp, rflags, cs, efer] = self.by_number([RIP, RSP, RBP, RFLAGS, CS, EFER]);
        Registers { rip, rsp, rbp, rflags, cs, efer }
    }

    /// The stack pointer's place in QEMU's memory, which can be read faster than by [`registers`](Self::registers):
    /// where all general registers and RIP are in a row. `None` if that is nowhere, or at several places.
    pub fn place_of_rsp(&self) -> Option<*const u64> {
        let all = self.by_number(IN_MEMORY);
        let mut distinct: Vec<u64> = all.iter().copied().filter(|value| *value != 0).collect();
        distinct.sort_unstable();
        distinct.dedup();
        let (object, bytes) = self.object();
        // SAFETY: `object` says that this many bytes of the vCPU can be read. Only the vCPU's thread changes them, and
        // this is that thread. The allocator has aligned the object for any type.
        let object = unsafe { std::slice::from_raw_parts(object.cast::<u64>(), bytes / 8) };
        let mut found = object.windows(all.len()).filter(|window| *window == all);
        match (found.next(), found.next()) {
            (Some(place), None) if distinct.len() >= MIN_DISTINCT => Some(&raw const place[RSP_IN_MEMORY]),
            _ => None,
        }
    }

    /// A general register, in the order in which QEMU has them.
    pub fn general(&self, number: usize) -> u64 {
        self.by_number([IN_MEMORY[number]])[0]
    }

    /// Those of an aarch64: what a walk begins with, and PSTATE.
    pub fn arm(&self) -> (Record, u64) {
        let [fp, link, sp, pc, pstate] = self.by_number([29, 30, 31, 32, 33]);
        (Record { pc, sp, fp, link }, pstate)
    }

    /// Those of a riscv64: what a walk begins with, privilege and mstatus. `None` if QEMU does not tell the last two.
    pub fn riscv(&self) -> (Record, Option<(u64, u64)>) {
        let general: [u64; 32] = self.by_number(std::array::from_fn(|number| number as c_int));
        let [pc] = self.by_number([32]);
        (Record { pc, sp: general[2], fp: general[8], link: general[1] }, riscv::state(self, &general))
    }

    /// Where QEMU keeps the state of the vCPU, and its size in bytes. They do not change while this exists.
    pub fn object(&self) -> (*mut c_void, usize) {
        // SAFETY: the vCPU is an object from the C library's allocator.
        (self.0.cast(), unsafe { malloc_usable_size(self.0.cast()) })
    }

    /// Registers by GDB's numbers.
    pub fn by_number<const COUNT: usize>(&self, numbers: [c_int; COUNT]) -> [u64; COUNT] {
        // SAFETY: GLib's function returns a new array, which is freed below.
        let array = unsafe { g_byte_array_new() };
        let mut next = 0;
        let mut read = |register| {
            let Some(function) = READ_REGISTER.get() else { return 0 };
            // SAFETY: `present` promises the thread; the array is a GLib array of this function's own.
            let bytes = unsafe { function(self.0, array, register) };
            let bytes = usize::try_from(bytes).unwrap_or(0);
            let mut value = [0; 8];
            for (at, byte) in value.iter_mut().enumerate().take(bytes) {
                // SAFETY: QEMU has appended `bytes` bytes to the array.
                *byte = unsafe { (*array).data.add(next + at).read() };
            }
            next += bytes;
            u64::from_le_bytes(value)
        };
        let values = numbers.map(&mut read);
        // SAFETY: the array is from `g_byte_array_new` and not used any more.
        unsafe { g_byte_array_free(array, 1) };
        values
    }

    /// Reads guest memory by the vCPU's present page tables. False if it is not mapped, or is not memory: to read from
    /// a device may change it, and QEMU ends if a clock is read in the middle of a block.
    pub fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let first = address & !(PAGE_BYTES - 1);
        let bytes = address - first + to.len() as u64;
        // SAFETY: QEMU's functions read page tables and the map of physical memory; `present` promises the thread.
        let is_memory = |number: u64| unsafe {
            let page = cpu_get_phys_page_debug(self.0, first.wrapping_add(number * PAGE_BYTES));
            page != u64::MAX && !cpu_physical_memory_is_io(page)
        };
        if !(0..bytes.div_ceil(PAGE_BYTES)).all(is_memory) {
            return false;
        }
        // SAFETY: `to` has room for as many bytes as are asked for; `present` promises the thread.
        unsafe { cpu_memory_rw_debug(self.0, address, to.as_mut_ptr().cast(), to.len(), false) == 0 }
    }
}

/// The vCPU that this thread runs now; `None` if QEMU does not say.
///
/// # Safety
/// The caller is called by QEMU on the thread of a vCPU, outside of any block or before one.
pub unsafe fn present() -> Option<Vcpu> {
    // SAFETY: QEMU's variable is a pointer to a vCPU, or null.
    let cpu = unsafe { current()?.read() };
    (!cpu.is_null()).then_some(Vcpu(cpu))
}
