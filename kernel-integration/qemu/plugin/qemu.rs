//! QEMU as the plugin sees it: plugin interface version 1, and functions that QEMU itself uses. Stage: capture.
//!
//! In: nothing. Out: declarations, and safe functions that read a vCPU. Runs in: QEMU's process. Written from the
//! published interface (QEMU 7.2, `docs/devel/tcg-plugins` and the exported symbols); QEMU 9.0 and later refuse plugins
//! of version 1. Never reads a vCPU from another thread than its own.

use super::symbol::symbol;
use super::walk::Registers;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// A vCPU.
#[repr(C)]
pub struct CpuState {
    opaque: [u8; 0],
}

/// GLib's array of bytes.
#[repr(C)]
struct ByteArray {
    data: *mut u8,
    len: c_uint,
}

/// A translated block.
#[repr(C)]
pub struct Block {
    opaque: [u8; 0],
}

/// An instruction of a block that is being translated.
#[repr(C)]
pub struct Instruction {
    opaque: [u8; 0],
}

/// The operation of inline code: adds to a word, without a lock.
pub const ADD: c_int = 0;

/// QEMU's number of this plugin.
pub type Id = u64;
/// Called with the plugin's number and the number of a vCPU.
pub type OnVcpu = extern "C" fn(Id, c_uint);
/// Called before a translated block runs, with the number of its vCPU.
pub type OnBlock = extern "C" fn(c_uint, *mut c_void);

unsafe extern "C" {
    pub fn qemu_plugin_register_vcpu_init_cb(id: Id, call: OnVcpu);
    pub fn qemu_plugin_register_vcpu_idle_cb(id: Id, call: OnVcpu);
    pub fn qemu_plugin_register_vcpu_resume_cb(id: Id, call: OnVcpu);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: extern "C" fn(Id, *mut Block));
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(block: *mut Block, call: OnBlock, flags: c_int, data: *mut c_void);
    pub fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_register_vcpu_insn_exec_inline(
        instruction: *mut Instruction,
        operation: c_int,
        to: *mut c_void,
        add: u64,
    );
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
    fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    fn qemu_plugin_insn_vaddr(instruction: *const Instruction) -> u64;
    fn icount_get_raw() -> i64;
    fn icount_to_ns(instructions: i64) -> i64;
    fn qemu_clock_get_ns(clock: c_int) -> i64;
    fn malloc_usable_size(object: *const c_void) -> usize;
    pub fn qemu_plugin_register_atexit_cb(id: Id, call: extern "C" fn(Id, *mut c_void), data: *mut c_void);
    fn qemu_get_cpu(index: c_int) -> *mut CpuState;
    fn async_run_on_cpu(cpu: *mut CpuState, call: extern "C" fn(*mut CpuState, u64), data: u64);
    fn cpu_memory_rw_debug(cpu: *mut CpuState, address: u64, to: *mut c_void, bytes: usize, write: bool) -> c_int;
    fn cpu_get_phys_page_debug(cpu: *mut CpuState, address: u64) -> u64;
    fn cpu_physical_memory_is_io(address: u64) -> bool;
    fn g_byte_array_new() -> *mut ByteArray;
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

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// A vCPU on its own thread, between two translated blocks: its registers and its memory can be read.
pub struct Vcpu(*mut CpuState);

impl Vcpu {
    /// The vCPU with this number, for a function that QEMU calls on the thread of this vCPU.
    ///
    /// # Safety
    /// The caller is called by QEMU on the thread of this vCPU, before a block or as work that was asked for.
    pub unsafe fn present(index: u32) -> Option<Self> {
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

/// Asks QEMU to call `call` on the vCPU's own thread, between two blocks. False if there is no such vCPU.
pub fn ask(index: u32, call: extern "C" fn(*mut CpuState, u64)) -> bool {
    // SAFETY: QEMU's functions take any thread; the queue of a vCPU has its own lock.
    unsafe {
        let cpu = qemu_get_cpu(index as c_int);
        if !cpu.is_null() {
            async_run_on_cpu(cpu, call, u64::from(index));
        }
        !cpu.is_null()
    }
}

/// Address and bytes of an instruction.
///
/// # Safety
/// QEMU has given the instruction for a block that is being translated.
pub unsafe fn instruction(of: *const Instruction) -> (u64, Vec<u8>) {
    // SAFETY: QEMU's array of the instruction's bytes has as many bytes as the instruction.
    unsafe {
        let bytes = std::slice::from_raw_parts(qemu_plugin_insn_data(of).cast::<u8>(), qemu_plugin_insn_size(of));
        (qemu_plugin_insn_vaddr(of), bytes.to_vec())
    }
}

/// The instructions that QEMU has counted, for a QEMU that was told to.
pub fn counted() -> u64 {
    // SAFETY: QEMU's function takes any thread.
    unsafe { icount_get_raw() as u64 }
}

/// QEMU's variable for the vCPU of a thread.
const CURRENT: &CStr = c"current_cpu";
/// QEMU's number of the guest's clock.
const VIRTUAL: c_int = 1;

/// The guest's clock when `executed` instructions have begun, for a QEMU that counts instructions. An instruction that
/// faulted is in it twice. QEMU refuses to read its clock within a block. Without a vCPU of this thread it gives the
/// clock as it was when the thread began to run blocks; what was skipped while all vCPUs were idle does not change
/// until then.
///
/// # Safety
/// The caller is called by QEMU, and if this is on the thread of a vCPU, outside of any block or before one.
pub unsafe fn time(executed: u64) -> u64 {
    // SAFETY: as in `present`. The variable is this thread's own, and has its value again before QEMU's code runs on.
    unsafe {
        let Some(place) = symbol(CURRENT) else { return executed };
        let place = place.cast::<*mut CpuState>();
        let cpu = place.replace(std::ptr::null_mut());
        let skipped = qemu_clock_get_ns(VIRTUAL) - icount_to_ns(icount_get_raw());
        place.write(cpu);
        (skipped + icount_to_ns(executed as i64)).unsigned_abs()
    }
}

/// The vCPU that this thread runs now; `None` if QEMU does not say.
///
/// # Safety
/// The caller is called by QEMU on the thread of a vCPU, outside of any block or before one.
pub unsafe fn present() -> Option<Vcpu> {
    let place = symbol(CURRENT)?.cast::<*mut CpuState>();
    // SAFETY: QEMU's variable is a pointer to a vCPU, or null.
    let cpu = unsafe { place.read() };
    (!cpu.is_null()).then_some(Vcpu(cpu))
}
