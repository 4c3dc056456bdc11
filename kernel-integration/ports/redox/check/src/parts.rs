//! Stand-ins for the kernel's other modules that the drop-in uses.

pub mod acpi {
    use std::time::Instant;

    /// An HPET with 100 MHz that counts the host's time.
    pub struct Hpet(pub Instant);

    impl Hpet {
        /// # Safety
        /// None needed here.
        pub unsafe fn read_u64(&self, offset: usize) -> u64 {
            match offset {
                0 => 10_000_000 << 32 | 1 << 13,
                0xf0 => (self.0.elapsed().as_nanos() / 10) as u64,
                other => panic!("register {other:#x}"),
            }
        }
    }

    /// As the kernel's spin lock.
    pub struct HpetLock(std::sync::OnceLock<Option<Hpet>>);

    impl HpetLock {
        pub fn read(&self) -> &Option<Hpet> {
            self.0.get_or_init(|| Some(Hpet(Instant::now())))
        }
    }

    pub struct Acpi {
        pub hpet: HpetLock,
    }

    pub static ACPI_TABLE: Acpi = Acpi {
        hpet: HpetLock(std::sync::OnceLock::new()),
    };
}

pub mod context {
    use std::sync::Arc;

    use crate::sync::{LockToken, RwLock, L1};

    pub struct Context {
        pub debug_id: u32,
        pub pid: usize,
        pub wake: Option<u128>,
    }

    impl Context {
        pub fn block(&mut self, _reason: &'static str) {}
    }

    /// How many times a context has begun to sleep.
    pub static SLEEPS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

    /// Sleeps until the context's wake time, and clears that time. Here it takes ten milliseconds.
    pub fn switch(_token: &mut crate::sync::CleanLockToken) {
        SLEEPS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(10));
        WOKEN.with(|context| context.write(LockToken::default()).wake = None);
    }

    thread_local! {
        static WOKEN: Arc<RwLock<L1, Context>> =
            Arc::new(RwLock::new(Context { debug_id: idle_id(crate::machine::cpu()), pid: 7, wake: None }));
    }

    /// The idle context of the CPU, with the id that the tests have given it.
    pub fn current() -> Arc<RwLock<L1, Context>> {
        let context = WOKEN.with(Arc::clone);
        context.write(LockToken::default()).debug_id = idle_id(crate::machine::cpu());
        context
    }

    pub fn idle_id(cpu: usize) -> u32 {
        1000 + cpu as u32
    }

    pub type Token<'a> = LockToken<'a>;
}

pub mod cpu_set {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LogicalCpuId(u32);

    impl LogicalCpuId {
        pub const fn new(inner: u32) -> Self {
            Self(inner)
        }

        pub const fn get(self) -> u32 {
            self.0
        }
    }
}

pub mod ipi {
    #[derive(Clone, Copy)]
    #[repr(u8)]
    pub enum IpiKind {
        Wakeup = 0x40,
        Tlb = 0x41,
    }
}

#[allow(non_snake_case)]
pub mod kernel_executable_offsets {
    use crate::arch::interrupt::syscall::{
        redox_check_entry_end, redox_check_entry_start, redox_check_text_end,
        redox_check_text_start,
    };

    pub fn __entry_start() -> usize {
        redox_check_entry_start as *const () as usize
    }

    pub fn __entry_end() -> usize {
        redox_check_entry_end as *const () as usize
    }

    pub fn KERNEL_OFFSET() -> usize {
        __text_start()
    }

    pub fn __text_start() -> usize {
        redox_check_text_start as *const () as usize
    }

    pub fn __text_end() -> usize {
        redox_check_text_end as *const () as usize
    }
}

pub mod memory {
    pub use crate::arch::CurrentRmmArch as RmmA;

    pub const PAGE_SIZE: usize = 4096;

    #[derive(Clone, Copy)]
    pub struct PhysicalAddress(pub usize);

    impl PhysicalAddress {
        pub fn data(&self) -> usize {
            self.0
        }
    }

    /// A piece of ordinary memory.
    pub struct MemoryArea {
        pub base: PhysicalAddress,
        pub size: usize,
    }

    /// All of the host's memory, below which the tests place the frames of devices.
    pub fn areas() -> &'static [MemoryArea] {
        &[MemoryArea {
            base: PhysicalAddress(1 << 32),
            size: usize::MAX >> 1,
        }]
    }

    #[derive(Clone, Copy)]
    pub enum TableKind {
        User,
        Kernel,
    }

    /// rmm's `Arch`.
    pub trait RmmArch {
        const PHYS_OFFSET: usize;
        fn table(kind: TableKind) -> PhysicalAddress;
    }

    impl RmmArch for RmmA {
        const PHYS_OFFSET: usize = crate::USER_END_OFFSET;

        /// With some bits that are no address, as CR3 may have.
        fn table(_kind: TableKind) -> PhysicalAddress {
            PhysicalAddress((crate::machine::user_tables() - Self::PHYS_OFFSET) | 0x18)
        }
    }
}

pub mod percpu {
    #[cfg(target_arch = "x86_64")]
    use std::cell::Cell;
    use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

    #[cfg(target_arch = "x86_64")]
    use crate::arch::device::local_apic::ApicId;
    use crate::cpu_set::LogicalCpuId;

    pub struct ContextSwitchPercpu {
        pub current_dbg_id: AtomicU32,
    }

    #[cfg(target_arch = "x86_64")]
    pub struct ArchPercpuMisc {
        pub apic_id_opt: Cell<Option<ApicId>>,
    }

    pub struct PercpuBlock {
        pub cpu_id: LogicalCpuId,
        pub switch_internals: ContextSwitchPercpu,
        #[cfg(feature = "profiling")]
        pub profiling: Option<&'static crate::profiling::RingBuffer>,
        #[cfg(target_arch = "x86_64")]
        pub misc_arch_info: ArchPercpuMisc,
    }

    pub static ALL_PERCPU_BLOCKS: [AtomicPtr<PercpuBlock>; 8] =
        [const { AtomicPtr::new(core::ptr::null_mut()) }; 8];

    impl PercpuBlock {
        /// A CPU whose APIC id is its number, in the form of its register in xAPIC mode.
        pub fn new(cpu_id: LogicalCpuId) -> Self {
            Self {
                cpu_id,
                switch_internals: ContextSwitchPercpu {
                    current_dbg_id: AtomicU32::new(u32::MAX),
                },
                #[cfg(feature = "profiling")]
                profiling: None,
                #[cfg(target_arch = "x86_64")]
                misc_arch_info: ArchPercpuMisc {
                    apic_id_opt: Cell::new(Some(ApicId(cpu_id.get() << 24))),
                },
            }
        }

        pub fn current() -> &'static Self {
            let block = ALL_PERCPU_BLOCKS[crate::machine::cpu()].load(Ordering::SeqCst);
            // SAFETY: `power_on` has leaked the block, so it is never freed.
            unsafe { block.as_ref() }.expect("power_on has made this CPU")
        }
    }
}

pub mod startup {
    use std::sync::OnceLock;

    /// The kernel's environment; a test sets it before anything else.
    pub static ENV: OnceLock<&'static str> = OnceLock::new();

    pub fn init_env() -> &'static [u8] {
        ENV.get().copied().unwrap_or_default().as_bytes()
    }
}

pub mod sync {
    use std::marker::PhantomData;
    use std::sync::{RwLockReadGuard, RwLockWriteGuard};

    pub struct CleanLockToken(());
    #[derive(Default)]
    pub struct LockToken<'a>(PhantomData<&'a ()>);
    pub struct L1;

    impl CleanLockToken {
        /// # Safety
        /// No lock is held.
        #[allow(clippy::new_without_default)]
        pub unsafe fn new() -> Self {
            Self(())
        }

        pub fn token(&mut self) -> LockToken<'_> {
            LockToken(PhantomData)
        }
    }

    pub struct RwLock<L, T>(std::sync::RwLock<T>, PhantomData<fn(L)>);

    impl<L, T> RwLock<L, T> {
        pub const fn new(value: T) -> Self {
            Self(std::sync::RwLock::new(value), PhantomData)
        }

        pub fn read<'a>(&'a self, _token: LockToken<'a>) -> RwLockReadGuard<'a, T> {
            self.0.read().unwrap()
        }

        pub fn write<'a>(&'a self, _token: LockToken<'a>) -> RwLockWriteGuard<'a, T> {
            self.0.write().unwrap()
        }
    }
}

pub mod syscall {
    pub mod error {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Error(pub i32);
        pub type Result<T, E = Error> = core::result::Result<T, E>;
        pub const EINTR: i32 = 4;
        pub const EIO: i32 = 5;
        pub const EAGAIN: i32 = 11;
        pub const EFAULT: i32 = 14;
        pub const EBUSY: i32 = 16;
        pub const ENODEV: i32 = 19;
        pub const EINVAL: i32 = 22;
        pub const EBADFD: i32 = 77;

        impl Error {
            pub fn new(number: i32) -> Self {
                Self(number)
            }
        }
    }

    pub mod usercopy {
        use super::error::{Error, Result, EFAULT, EINVAL};

        /// A user's buffer to read from.
        #[derive(Clone, Copy)]
        pub struct UserSliceRo<'a>(pub &'a [u8]);

        impl UserSliceRo<'_> {
            #[allow(clippy::len_without_is_empty)]
            pub fn len(&self) -> usize {
                self.0.len()
            }

            pub fn copy_to_slice(self, slice: &mut [u8]) -> Result<()> {
                if self.0.len() != slice.len() {
                    return Err(Error::new(EINVAL));
                }
                slice.copy_from_slice(self.0);
                Ok(())
            }
        }

        /// A user's buffer in host memory. At the address null every copy fails.
        #[derive(Clone, Copy)]
        pub struct UserSliceWo {
            base: *mut u8,
            len: usize,
        }

        impl UserSliceWo {
            pub fn of(buffer: &mut [u8]) -> Self {
                Self {
                    base: buffer.as_mut_ptr(),
                    len: buffer.len(),
                }
            }

            pub fn unmapped(len: usize) -> Self {
                Self {
                    base: core::ptr::null_mut(),
                    len,
                }
            }

            pub fn is_empty(&self) -> bool {
                self.len == 0
            }

            pub fn len(&self) -> usize {
                self.len
            }

            pub fn advance(self, by: usize) -> Option<Self> {
                let len = self.len.checked_sub(by)?;
                Some(Self {
                    base: if self.base.is_null() {
                        self.base
                    } else {
                        self.base.wrapping_add(by)
                    },
                    len,
                })
            }

            pub fn copy_common_bytes_from_slice(self, slice: &[u8]) -> Result<usize> {
                if self.base.is_null() {
                    return Err(Error::new(EFAULT));
                }
                let bytes = slice.len().min(self.len);
                // SAFETY: this is the buffer given to `of`, which the test still has.
                unsafe { self.base.copy_from_nonoverlapping(slice.as_ptr(), bytes) };
                Ok(bytes)
            }
        }
    }
}

pub mod time {
    /// Nanoseconds since some moment.
    pub fn monotonic(_token: &mut crate::sync::CleanLockToken) -> u128 {
        static START: std::sync::LazyLock<std::time::Instant> =
            std::sync::LazyLock::new(std::time::Instant::now);
        START.elapsed().as_nanos()
    }

    /// Nanoseconds since 1970.
    pub fn realtime(_token: &mut crate::sync::CleanLockToken) -> u128 {
        std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()
    }
}
