//! Where things are: stacks, code, entry stubs, the device tree. In: a CPU's number, an address, a key. Out: addresses,
//! numbers. The processor's `boot.rs` has the memory itself. Runs in: any, NMI included; never writes.

use crate::boot;
use core::ops::Range;

pub const MAX_CPUS: usize = 4;
pub const STACK_BYTES: usize = 64 * 1024;
pub const USER_STACK_BYTES: usize = 4 * 1024;

unsafe extern "C" {
    static stacks: u8;
    static user_stacks: u8;
    static stubs: u8;
    static stubs_end: u8;
    pub static text_start: u8;
    pub static text_end: u8;
}

/// The stack of a CPU.
pub fn stack(cpu: usize) -> Range<u64> {
    let start = &raw const stacks as u64 + (cpu * STACK_BYTES) as u64;
    start..start + STACK_BYTES as u64
}

/// The end of the stack that a CPU has in user mode, as the kernel sees it.
pub fn user_stack(cpu: usize) -> u64 {
    &raw const user_stacks as u64 + ((cpu + 1) * USER_STACK_BYTES) as u64
}

/// Whether an address is in an entry stub.
pub fn is_stub(address: u64) -> bool {
    (&raw const stubs as u64..&raw const stubs_end as u64).contains(&address)
}

/// The bytes of the device tree (Devicetree Specification, 5.2: the second word is their number).
pub fn device_tree() -> &'static [u8] {
    let tree = boot::device_tree();
    // SAFETY: QEMU has put the tree into RAM, all of which is mapped, and nothing writes there.
    unsafe { core::slice::from_raw_parts(tree.cast(), u32::from_be(tree.add(1).read_volatile()) as usize) }
}

/// The number after `key` on the kernel's command line, which is in the device tree.
pub fn number(key: &[u8]) -> Option<u64> {
    let tree = device_tree();
    let digits = &tree[tree.windows(key.len()).position(|at| at == key)? + key.len()..];
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| 10 * number + u64::from(digit - b'0')))
}
