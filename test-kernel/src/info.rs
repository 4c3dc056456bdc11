//! The information from the loader: command line, initrd, memory. `boot` reads it once; all other code can ask for it.
//!
//! In: the start_info block, parsed by `boot/pvh.rs`. Out: options of the command line, addresses. This is one of the
//! lowest modules: it imports only constants.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::memory::layout::PHYSICAL_MAP;

/// The information from the loader, as kernel addresses and as slices that stay valid for ever.
pub struct BootInfo {
    /// The kernel command line.
    pub command_line: &'static str,
    /// The initrd, empty when there is none.
    pub initrd: &'static [u8],
    /// Physical address of the ACPI root pointer.
    pub rsdp: u64,
    /// The largest usable range of RAM: physical start and end.
    pub ram: (u64, u64),
}

static INFO: spin::Once<BootInfo> = spin::Once::new();
static EPOCH_S: AtomicU64 = AtomicU64::new(0);

/// Stores the information from the loader. Called once, at the beginning of the boot.
pub fn keep(read: impl FnOnce() -> BootInfo) -> &'static BootInfo {
    let info = INFO.call_once(read);
    EPOCH_S.store(info.number("epoch", 0), Ordering::Relaxed);
    info
}

/// The information from the loader.
///
/// # Panics
/// If `kmain` has not stored it yet.
pub fn info() -> &'static BootInfo {
    INFO.get().expect("start_info has been read")
}

/// Seconds from 1970 to the boot, from `epoch=` on the command line; 0 without it.
pub fn epoch_s() -> u64 {
    EPOCH_S.load(Ordering::Relaxed)
}

impl BootInfo {
    /// The physical start of the initrd, if there is one.
    pub fn initrd_start(&self) -> Option<u64> {
        (!self.initrd.is_empty()).then(|| self.initrd.as_ptr() as u64 - PHYSICAL_MAP)
    }

    /// The value of `key=value` on the command line.
    pub fn option(&self, key: &str) -> Option<&'static str> {
        self.command_line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// The value of `key=number`, or `default` if it is missing or not a number.
    pub fn number(&self, key: &str, default: u64) -> u64 {
        self.option(key).and_then(|text| text.parse().ok()).unwrap_or(default)
    }
}
