//! Stand-ins for the crates of the kernel that the drop-in uses: x86, hashbrown, arrayvec.

/// x86's `sidt` and its port functions.
#[cfg(target_arch = "x86_64")]
pub mod dtables {
    use std::sync::OnceLock;

    #[repr(C, packed)]
    pub struct DescriptorTablePointer<Entry> {
        pub limit: u16,
        pub base: *const Entry,
    }

    impl<Entry> Default for DescriptorTablePointer<Entry> {
        fn default() -> Self {
            Self {
                limit: 0,
                base: core::ptr::null(),
            }
        }
    }

    /// The gates of all CPUs: page fault, keyboard, a generic interrupt.
    pub fn gates() -> *mut u128 {
        static GATES: OnceLock<usize> = OnceLock::new();
        *GATES.get_or_init(|| {
            let mut gates = vec![0u128; 256];
            use crate::arch::interrupt::syscall::*;
            let gate = |stub: unsafe extern "C" fn()| {
                let address = stub as *const () as u128;
                address & 0xffff | (address >> 16 & 0xffff) << 48 | (address >> 32) << 64
            };
            gates[14] = gate(redox_check_page_stub);
            gates[33] = gate(redox_check_key_stub);
            gates[50] = gate(__generic_interrupts_start);
            Box::leak(gates.into_boxed_slice()).as_mut_ptr() as usize
        }) as *mut u128
    }

    /// # Safety
    /// None needed here.
    pub unsafe fn sidt<T>(idt: &mut DescriptorTablePointer<T>) {
        idt.base = gates().cast_const().cast();
    }
}

pub mod io {
    /// # Safety
    /// None needed here.
    pub unsafe fn inb(_port: u16) -> u8 {
        0
    }

    /// # Safety
    /// None needed here.
    pub unsafe fn outb(_port: u16, _value: u8) {}
}

pub type HashMap<K, V> = std::collections::HashMap<K, V, hash_map::DefaultHashBuilder>;

pub mod hash_map {
    pub type DefaultHashBuilder = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
}

#[derive(Clone, Copy)]
pub struct ArrayString<const N: usize>(pub &'static str);

impl<const N: usize> core::ops::Deref for ArrayString<N> {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}
