//! What the plugin interface does not tell, by functions and variables that QEMU itself uses. Stage: capture.
//!
//! In: QEMU's symbols. Out: whether several vCPUs share a thread, and which of them runs; whether an address is a
//! device's. QEMU 10.0 and 11.1 have these symbols. Runs in: QEMU's process.
//!
//! If vCPUs share a thread, QEMU takes the number of the vCPU that has translated a block for a constant in it. So the
//! numbers that it gives are wrong for blocks that several vCPUs execute, and inline code must not depend on them: see
//! [`scores`](super::scores).

use crate::clock::{current, qemu_get_cpu};
use crate::interface::CpuState;
use crate::symbol::symbol;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

/// How many vCPUs the machine can have.
static MAX_VCPUS: AtomicUsize = AtomicUsize::new(1);
/// Whether several vCPUs share a thread. It is known from the first translation on.
static SHARES: OnceLock<bool> = OnceLock::new();
/// Where the thread of all vCPUs has the present one; the one that was seen there last, and its number.
static PLACE: AtomicPtr<*mut CpuState> = AtomicPtr::new(std::ptr::null_mut());
static LAST: AtomicPtr<CpuState> = AtomicPtr::new(std::ptr::null_mut());
static NUMBER: AtomicUsize = AtomicUsize::new(0);
static DEVICES: OnceLock<(IsDevice, Page)> = OnceLock::new();

type IsIo = extern "C" fn(u64) -> bool;
type IsIoOf = extern "C" fn(*mut c_void, u64) -> bool;
type Physical = extern "C" fn(*mut CpuState, u64) -> u64;
type Translate = extern "C" fn(u64, *mut u64) -> bool;

/// How devices are told from memory: by QEMU's function for physical addresses, with the address space if it takes one.
enum IsDevice {
    At(IsIo),
    Of(IsIoOf, usize),
}

/// How a page is found: by the interface (from version 5 on), or by QEMU's own function.
enum Page {
    Official(Translate),
    Own(Physical),
}

/// Looks for the symbols.
pub fn prepare(max_vcpus: usize) -> Result<(), String> {
    MAX_VCPUS.store(max_vcpus.max(1), Relaxed);
    // SAFETY: functions of these names have these types in all versions that have them.
    let (at, of, translate, physical) = unsafe {
        (
            symbol(c"cpu_physical_memory_is_io").map(|it| std::mem::transmute::<NonNull<c_void>, IsIo>(it)),
            symbol(c"address_space_is_io").map(|it| std::mem::transmute::<NonNull<c_void>, IsIoOf>(it)),
            symbol(c"qemu_plugin_translate_vaddr").map(|it| std::mem::transmute::<NonNull<c_void>, Translate>(it)),
            symbol(c"cpu_get_phys_page_debug").map(|it| std::mem::transmute::<NonNull<c_void>, Physical>(it)),
        )
    };
    let memory = symbol(c"address_space_memory").map(|memory| memory.as_ptr() as usize);
    let is_device = at.map(IsDevice::At).or(of.zip(memory).map(|(of, memory)| IsDevice::Of(of, memory)));
    let page = translate.map(Page::Official).or(physical.map(Page::Own));
    let found = is_device.zip(page).ok_or("this QEMU does not export how devices are told from memory")?;
    DEVICES.get_or_init(|| found);
    match (symbol(c"qemu_tcg_mttcg_enabled"), symbol(c"mttcg_enabled"), current()) {
        (None, None, _) => Err("this QEMU does not export whether its vCPUs share a thread".to_owned()),
        (_, _, None) => Err("this QEMU does not export which vCPU runs".to_owned()),
        _ => Ok(()),
    }
}

/// Whether several vCPUs share a thread. Asked when QEMU translates a block, and later.
pub fn shares() -> bool {
    *SHARES.get_or_init(|| {
        let is_multi = match (symbol(c"qemu_tcg_mttcg_enabled"), symbol(c"mttcg_enabled")) {
            // SAFETY: the function has this type.
            (Some(it), _) => unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn() -> bool>(it)() },
            // SAFETY: the variable is a `bool`, which QEMU does not change when the machine runs.
            (None, Some(it)) => unsafe { it.cast::<u8>().read() != 0 },
            (None, None) => false,
        };
        let shares = MAX_VCPUS.load(Relaxed) > 1 && !is_multi;
        if let Some(place) = current().filter(|_| shares) {
            PLACE.store(place.as_ptr(), Relaxed);
        }
        shares
    })
}

/// The vCPU that executes a block, of which QEMU says that it is `cpu`.
#[inline]
pub fn number(cpu: c_uint) -> usize {
    let place = PLACE.load(Relaxed);
    if place.is_null() {
        return cpu as usize;
    }
    // SAFETY: the place is the variable of the thread of all vCPUs, which is this thread: blocks run on no other one.
    let now = unsafe { place.read() };
    if now == LAST.load(Relaxed) { NUMBER.load(Relaxed) } else { other(now) }
}

#[cold]
fn other(now: *mut CpuState) -> usize {
    // SAFETY: QEMU's function gives null for a vCPU that is not there.
    let is_now = |index: &usize| unsafe { qemu_get_cpu(*index as c_int) == now };
    let number = (0..MAX_VCPUS.load(Relaxed)).find(is_now).unwrap_or(usize::MAX);
    NUMBER.store(number, Relaxed);
    LAST.store(now, Relaxed);
    number
}

/// Whether the page of this address is mapped, and is memory. On the thread of a vCPU.
pub fn is_memory(page: u64) -> bool {
    let Some((is_device, how)) = DEVICES.get() else { return false };
    let physical = match how {
        Page::Official(translate) => {
            let mut physical = 0;
            translate(page, &raw mut physical).then_some(physical)
        }
        Page::Own(physical) => current().and_then(|place| {
            // SAFETY: the variable is this thread's own.
            let cpu = unsafe { place.read() };
            (!cpu.is_null()).then(|| physical(cpu, page)).filter(|page| *page != u64::MAX)
        }),
    };
    physical.is_some_and(|at| match is_device {
        IsDevice::At(is_io) => !is_io(at),
        IsDevice::Of(is_io, memory) => !is_io(*memory as *mut c_void, at),
    })
}

/// Whether all vCPUs are on one thread, as an only one is.
pub fn is_one_thread() -> bool {
    MAX_VCPUS.load(Relaxed) == 1 || shares()
}
