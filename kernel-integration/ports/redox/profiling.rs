//! kprof in the Redox kernel, step 1: this file replaces `src/profiling.rs`. Only `Cargo.toml` changes besides it.
//!
//! In: the calls that the kernel makes today (set-up from the MADT code and from each CPU, the loop of the sampler CPU,
//! the NMI entry, reads of `profiling-N`, the switch `IS_PROFILING`). Out: Redox's raw words, which a read frees, so
//! that Redox's own `profiled` still works; and the account in the kernel's log when sampling ends. The CPU with the
//! highest number samples the others. Runs in: ordinary code. In code marked NMI there is no lock, no allocation, no
//! print, no page fault, no unbounded loop.
//!
//! `Cargo.toml`: `kprof = { git = "...", optional = true, default-features = false, features = ["profiling"] }` and
//! `profiling = ["dep:kprof"]`. Settings: the constants below, and in the kernel's environment `KPROF_HZ=`,
//! `KPROF_START=1` (samples from the start), `KPROF_KEYS=1` (the keys A and B start and stop). Names and signatures are
//! those of the kernel at 663e664.

#[cfg(all(feature = "profiling", not(target_arch = "x86_64")))]
compile_error!("kprof samples x86_64 only: build the kernel without the feature `profiling`");

use crate::cpu_set::LogicalCpuId;

/// For step 2 (`step2.rs`).
#[cfg(feature = "profiling")]
#[allow(unused_imports)]
pub use sampling::PROFILER;
#[cfg(feature = "profiling")]
pub use sampling::{
    DBG_ID_MAP, IS_PROFILING, RingBuffer, allocate, cpu_exists, drain_buffer, init, lookup_dbg_id,
    maybe_run_profiling_helper_forever, maybe_setup_timer, nmi_handler, ready_for_profiling, serio_command,
};

#[cfg(not(feature = "profiling"))]
#[allow(unused_imports)]
pub use without::*;

/// The replacement without the feature. Not every architecture calls all of its functions.
#[cfg(not(feature = "profiling"))]
#[allow(dead_code, clippy::missing_safety_doc)]
mod without {
    use super::LogicalCpuId;

    pub enum RingBuffer {}
    pub unsafe fn allocate(_total_cpu_count: u32) {}
    pub unsafe fn init() {}
    pub fn ready_for_profiling() {}
    pub fn maybe_run_profiling_helper_forever(_cpu_id: LogicalCpuId) {}
    pub fn serio_command(_index: usize, _data: u8) {}
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn nmi_handler(_stack: &crate::arch::interrupt::InterruptStack) {}
}

#[cfg(feature = "profiling")]
mod sampling {
    use alloc::{boxed::Box, vec::Vec};
    use core::arch::{naked_asm, x86_64::_rdtsc};
    use core::mem::{MaybeUninit, offset_of};
    use core::ops::Range;
    use core::ptr::{addr_of, addr_of_mut, null_mut};
    use core::slice;
    use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

    use kprof::clock::{Calibration, Moment, Reference};
    use kprof::format::marker::Marker;
    use kprof::{
        CallerEntryFrame, Config, CpuSet, CpuSlot, DEFAULT_RING_WORDS, EntryFrame, Kernel, NmiToken, Profiler,
        ReadError, Registers, Setup, Task,
    };
    use spin::{Mutex, Once};

    use super::LogicalCpuId;
    use crate::arch::device::{hpet::MAIN_COUNTER_OFFSET, local_apic::the_local_apic};
    use crate::arch::interrupt::{self, InterruptStack, syscall};
    use crate::arch::{CurrentRmmArch, gdt::pcr, idt::Idt};
    use crate::ipi::IpiKind;
    use crate::memory::{PAGE_SIZE, RmmA, RmmArch, TableKind, VirtualAddress};
    use crate::percpu::{ALL_PERCPU_BLOCKS, PercpuBlock};
    use crate::sync::CleanLockToken;
    use crate::syscall::{error::*, usercopy::UserSliceWo};

    /// Words of a CPU's ring: 256 KiB. A power of two.
    const RING_WORDS: usize = DEFAULT_RING_WORDS;
    /// Ticks per second, unless `KPROF_HZ` says otherwise.
    const HZ: u32 = 1000;
    /// Maximum number of frames: as many as a raw record can have, so that no stack is truncated there without a mark.
    const DEPTH: u16 = 240;
    /// Step 2 (`step2.rs` is in the kernel): ctl lets a writer of `wait MS` sleep, and generic interrupts show their
    /// vector.
    const STEP_2: bool = false;
    /// Step 2, early start: the boot CPU waits until the sampler has calibrated its clocks, and is sampled from there
    /// on.
    const EARLY_START: bool = false;
    /// Bytes that a read copies at a time. A raw record has at most 2040.
    const READ_BYTES: usize = 16 * 1024;
    const META_WORDS: usize = 4096;
    const NMI_STACK_BYTES: usize = 16 * 1024;
    /// The entry of the interrupt stack table for NMIs. The kernel uses the first one for double fault and machine
    /// check.
    const NMI_IST: usize = 2;
    /// Vector of the sampler CPU's timer.
    const TIMER_VECTOR: u8 = 32;
    /// Kernel stacks are 16 pages of the linear map, aligned to their size; the boot CPU's first one is in the image.
    const STACK_BYTES: u64 = 16 * PAGE_SIZE as u64;
    const BOOT_STACK_BYTES: u64 = 128 * 1024;

    pub static PROFILER: Profiler<Port> = Profiler::new(Port);
    /// One for each CPU except the last, which is the sampler. Empty if nothing is sampled.
    static RINGS: Once<&'static [RingBuffer]> = Once::new();
    static IS_SET_UP: AtomicBool = AtomicBool::new(false);
    /// Whether the sampler CPU is sampling or has logged that it cannot.
    static IS_DECIDED: AtomicBool = AtomicBool::new(false);
    /// Whether sampling is wanted. The kernel's ctl file sets it, and the sampler CPU follows it.
    pub static IS_PROFILING: AtomicBool = AtomicBool::new(false);
    /// Names of contexts by debug id, kept by the rest of the kernel.
    pub static DBG_ID_MAP: crate::sync::RwLock<crate::sync::L1, Names> =
        crate::sync::RwLock::new(Names::with_hasher(hashbrown::hash_map::DefaultHashBuilder::new()));
    type Names = hashbrown::HashMap<u32, arrayvec::ArrayString<32>>;

    /// The data of this file for each sampled CPU. The per-CPU block refers to it.
    pub struct RingBuffer {
        /// The ring's memory, until the CPU is ready and kprof takes it.
        words: AtomicPtr<MaybeUninit<u64>>,
        is_ready: AtomicBool,
        /// Debug id of the CPU's idle context (`[kmain]`), and the end of the stack that it boots on.
        idle_id: AtomicU32,
        boot_stack_end: AtomicU64,
        /// The RSP that the present NMI has interrupted.
        interrupted_rsp: AtomicU64,
        reading: Mutex<Reading>,
    }

    impl RingBuffer {
        fn new() -> Self {
            let words = Box::leak(Box::<[u64]>::new_uninit_slice(RING_WORDS));
            let bytes = alloc::vec![0; READ_BYTES].into_boxed_slice();
            Self {
                words: AtomicPtr::new(words.as_mut_ptr()),
                is_ready: AtomicBool::new(false),
                idle_id: AtomicU32::new(u32::MAX),
                boot_stack_end: AtomicU64::new(0),
                interrupted_rsp: AtomicU64::new(0),
                reading: Mutex::new(Reading { bytes, next: 0, end: 0 }),
            }
        }
    }

    /// Records that are being copied to user memory. They stay here until the copy has succeeded.
    struct Reading {
        bytes: Box<[u8]>,
        next: usize,
        end: usize,
    }

    impl Reading {
        /// The number of bytes of the unread whole records that fit into `room`.
        fn whole_records(&self, room: usize) -> usize {
            let (unread, mut whole) = (&self.bytes[self.next..self.end], 0);
            // The lowest byte of a record's first word is its length in words.
            while let Some(words) = unread.get(whole) {
                let end = whole + usize::from(*words) * 8;
                if end > room {
                    break;
                }
                whole = end;
            }
            whole
        }
    }

    fn rings() -> &'static [RingBuffer] {
        RINGS.get().copied().unwrap_or(&[])
    }

    /// The CPU that samples: the last one, if there are at least two.
    fn sampler() -> Option<LogicalCpuId> {
        let sampled = rings().len() as u32;
        (sampled > 0).then_some(LogicalCpuId::new(sampled))
    }

    /// Whether `profiling-N` exists.
    pub fn cpu_exists(cpu: LogicalCpuId) -> bool {
        (cpu.get() as usize) < rings().len()
    }

    /// # Safety
    /// Called once, on the boot CPU, before the others start.
    pub unsafe fn allocate(total_cpu_count: u32) {
        let sampled = total_cpu_count.saturating_sub(1);
        RINGS.call_once(|| Box::leak((0..sampled).map(|_| RingBuffer::new()).collect::<Vec<_>>().into_boxed_slice()));
        if sampled == 0 {
            warn!("kprof: nothing is sampled: one CPU is set apart to sample, and there is only one (QEMU: -smp 2)");
        } else {
            info!("kprof: CPU {sampled} samples {sampled} CPU(s), {} KiB of ring each", RING_WORDS * 8 / 1024);
        }
    }

    /// # Safety
    /// Called on each CPU, on its first stack, after it has loaded its tables.
    pub unsafe fn init() {
        let percpu = PercpuBlock::current();
        if RINGS.get().is_none() {
            warn!("kprof: nothing is sampled: the CPUs are not known (no MADT, or no feature multi_core)");
            return;
        }
        let Some(ring) = rings().get(percpu.cpu_id.get() as usize) else { return };
        if percpu.cpu_id.get() == 0 {
            STUBS.call_once(find_stubs);
        }
        // SAFETY: these are this CPU's own blocks, and interrupts are off. The stack exists before the table refers to
        // it.
        unsafe {
            ring.boot_stack_end.store(addr_of!((*pcr()).tss.rsp).cast::<u64>().read_unaligned(), Ordering::Relaxed);
            addr_of!(percpu.profiling).cast_mut().write(Some(ring));
            let stack = Box::leak(Box::<[u128]>::new_uninit_slice(NMI_STACK_BYTES / 16));
            let end = stack.as_ptr_range().end as u64;
            addr_of_mut!((*pcr()).tss.ist).cast::<u64>().add(NMI_IST - 1).write_unaligned(end);
            // Byte 4 of a gate is its entry of the interrupt stack table (SDM volume 3A, 6.14.1).
            descriptor_table().cast_mut().cast::<u8>().add(2 * 16 + 4).write_volatile(NMI_IST as u8);
        }
        if EARLY_START && percpu.cpu_id.get() == 0 {
            ring.is_ready.store(true, Ordering::SeqCst);
            while !IS_DECIDED.load(Ordering::SeqCst) {
                core::hint::spin_loop();
            }
        }
    }

    /// The interrupt descriptor table of this CPU, as 16-byte gates.
    fn descriptor_table() -> *const u128 {
        let mut pointer = x86::dtables::DescriptorTablePointer::<u128>::default();
        // SAFETY: kernel code.
        unsafe { x86::dtables::sidt(&mut pointer) };
        pointer.base
    }

    /// Called on each CPU, in its idle context, before it runs other contexts. From now on it gets ticks.
    pub fn ready_for_profiling() {
        let percpu = PercpuBlock::current();
        let Some(ring) = percpu.profiling else { return };
        // SAFETY: no lock is held here, because the CPU has just created its first context, which is its idle one.
        let mut token = unsafe { CleanLockToken::new() };
        let idle = crate::context::current().read(token.token()).debug_id;
        ring.idle_id.store(idle, Ordering::Relaxed);
        ring.is_ready.store(true, Ordering::SeqCst);
        hand_over(percpu.cpu_id.get() as usize, ring);
    }

    /// Gives a ready CPU's ring to kprof, if kprof is set up. The CPU and the sampler both call it; the later call does
    /// it.
    fn hand_over(cpu: usize, ring: &RingBuffer) {
        if !IS_SET_UP.load(Ordering::SeqCst) || !ring.is_ready.load(Ordering::SeqCst) {
            return;
        }
        let words = ring.words.swap(null_mut(), Ordering::SeqCst);
        if !words.is_null() {
            // SAFETY: these are RING_WORDS words that were leaked for this. The swap gives them out only once.
            let registered = PROFILER.register(cpu, || unsafe { slice::from_raw_parts_mut(words, RING_WORDS) });
            if let Err(error) = registered {
                error!("kprof: cpu {cpu} is not sampled: {error}");
            }
        }
    }

    /// Sets the sampler CPU's gates. Its timer has its own handler, so that kprof numbers the ticks and chooses the
    /// intervals. The gate for TLB shootdowns stays. All other interrupts are for CPUs that run contexts; here they
    /// only wake the CPU.
    pub fn maybe_setup_timer(idt: &mut Idt, cpu_id: LogicalCpuId) {
        if sampler() != Some(cpu_id) {
            return;
        }
        for vector in (33..255).filter(|vector| *vector != IpiKind::Tlb as usize) {
            idt.entries[vector].set_func(interrupt::ipi::wakeup);
        }
        idt.entries[TIMER_VECTOR as usize].set_func(timer_entry);
        idt.set_reserved_mut(TIMER_VECTOR, true);
    }

    /// The timer's entry, only on the sampler CPU, which never leaves the kernel.
    #[unsafe(naked)]
    unsafe extern "C" fn timer_entry() {
        unsafe extern "C" fn acknowledge() {
            // SAFETY: in the handler of an interrupt that the local APIC has delivered.
            unsafe { the_local_apic().eoi() };
        }
        naked_asm!(
            "push rax; push rcx; push rdx; push rsi; push rdi; push r8; push r9; push r10; push r11",
            "cld; call {acknowledge}",
            "pop r11; pop r10; pop r9; pop r8; pop rdi; pop rsi; pop rdx; pop rcx; pop rax; iretq",
            acknowledge = sym acknowledge,
        )
    }

    /// Called on each CPU. It does not return on the sampler CPU.
    pub fn maybe_run_profiling_helper_forever(cpu_id: LogicalCpuId) {
        if sampler() != Some(cpu_id) {
            return;
        }
        // SAFETY: no other code uses this CPU's timer.
        unsafe {
            the_local_apic().set_lvt_timer(u32::from(TIMER_VECTOR));
            the_local_apic().set_div_conf(0b1011);
        }
        // When the boot CPU is ready, there are clocks and (except with an early start) the environment. This does not
        // wait for any other CPU.
        while !rings()[0].is_ready.load(Ordering::SeqCst) {
            sleep(ROUGH_COUNT);
        }
        let clock = match calibrate() {
            Ok(clock) => clock,
            Err(error) => {
                error!("kprof: nothing is sampled: neither HPET nor PIT count: {error}");
                IS_DECIDED.store(true, Ordering::SeqCst);
                loop {
                    sleep(u32::MAX);
                }
            }
        };
        let env = |name| if EARLY_START { None } else { env(name) };
        let hz = env("KPROF_HZ").and_then(|hz| hz.parse().ok()).filter(|hz| (1..=20_000).contains(hz)).unwrap_or(HZ);
        info!(
            "kprof: {hz} Hz, TSC {} Hz, timer {} Hz; `echo 1 > /scheme/debug/ctl-profiling` starts",
            clock.tsc_hz, clock.timer_hz
        );
        TIMER_HZ.store(clock.timer_hz, Ordering::Relaxed);
        if let Err(error) = PROFILER.init(|| setup(cpu_id, clock.tsc_hz, hz)) {
            error!("kprof: nothing is sampled: {error}");
        }
        // The names of contexts that already exist. Step 2 sends those of later ones.
        // SAFETY: this CPU holds no lock.
        let mut token = unsafe { CleanLockToken::new() };
        for (id, name) in DBG_ID_MAP.read(token.token()).iter() {
            PROFILER.task_name(u64::from(*id), name);
        }
        IS_SET_UP.store(true, Ordering::SeqCst);
        for (cpu, ring) in rings().iter().enumerate() {
            hand_over(cpu, ring);
        }
        if EARLY_START || env("KPROF_START") == Some("1") {
            IS_PROFILING.store(true, Ordering::SeqCst);
        }
        PROFILER.run_sampler(cpu_id.get() as usize);
    }

    fn setup(sampler: LogicalCpuId, tsc_hz: u64, hz: u32) -> Setup {
        use crate::kernel_executable_offsets::{__text_end, __text_start, KERNEL_OFFSET};
        let slots = (0..=sampler.get()).map(|_| CpuSlot::new()).collect::<Vec<_>>();
        let anchors = [("__generic_interrupts_start", interrupt::irq::__generic_interrupts_start as *const () as u64)];
        Setup {
            slots: Box::leak(slots.into_boxed_slice()),
            meta: Box::leak(Box::<[u64]>::new_uninit_slice(META_WORDS)),
            config: Config {
                sampler_cpu: Some(sampler.get() as usize),
                hz,
                // SAFETY: reads a counter.
                seed: unsafe { _rdtsc() },
                boot: boot_id(),
                include_user: true,
                can_wait: STEP_2,
                depth: DEPTH,
                tsc_hz,
                load: KERNEL_OFFSET() as u64,
                text: (__text_start() as u64, __text_end() as u64),
                anchors: Box::leak(Box::new(anchors)),
                ..Config::new()
            },
        }
    }

    /// A number that differs at each boot. If a recording is continued in a file, it distinguishes the boots.
    fn boot_id() -> u64 {
        // SAFETY: this CPU holds no lock.
        let mut token = unsafe { CleanLockToken::new() };
        // SAFETY: reads a counter.
        (crate::time::realtime(&mut token) as u64).rotate_left(32) ^ unsafe { _rdtsc() } | 1
    }

    /// The value of a line of the kernel's environment.
    fn env(name: &str) -> Option<&'static str> {
        let text = core::str::from_utf8(crate::startup::init_env()).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::trim)
    }

    /// Called for keys of QEMU's window. Keys A and B start and stop sampling if `KPROF_KEYS=1` is set.
    pub fn serio_command(index: usize, data: u8) {
        let wanted = match (index, data) {
            (0, 30) => true,
            (0, 48) => false,
            _ => return,
        };
        if env("KPROF_KEYS") == Some("1") {
            IS_PROFILING.store(wanted, Ordering::SeqCst);
        }
    }

    // --- Code that runs in an NMI ---

    /// # Safety
    /// Called only by the NMI entry, with the interrupted registers.
    pub unsafe fn nmi_handler(stack: &InterruptStack) {
        let Some(ring) = PercpuBlock::current().profiling else { return };
        let (iret, rsp) = (&stack.iret, stack.iret.rsp as u64);
        ring.interrupted_rsp.store(rsp, Ordering::Relaxed);
        let at = Registers {
            rip: iret.rip as u64,
            cs: iret.cs as u64,
            rflags: iret.rflags as u64,
            rsp,
            rbp: stack.preserved.rbp as u64,
            rcx: stack.scratch.rcx as u64,
        };
        // SAFETY: the caller's promise.
        PROFILER.on_nmi(&unsafe { NmiToken::new() }, &at);
    }

    /// This kernel's implementation of `kprof::Kernel`, which documents what each function must return.
    pub struct Port;

    // SAFETY: `cpu` is the per-CPU block's number, found by the descriptor table. `stack_range` declares only the part
    // of that CPU's own stack above the interrupted RSP. This stack is completely mapped, and in use until the NMI
    // returns. The kernel's text is mapped for ever, and there are no modules. `read_user` reads only pages that the
    // page tables map for the user. No lock is taken.
    unsafe impl Kernel for Port {
        /// The NMI entry finds the per-CPU block by the descriptor table and does not trust GS.
        fn cpu(&self) -> usize {
            PercpuBlock::current().cpu_id.get() as usize
        }

        /// Signals one CPU after the other, so that they are not interrupted at the same instant. The random pauses in
        /// between take up to a quarter of the interval in total. If they would be too short to sleep, there are none.
        fn signal(&self, cpus: &CpuSet<'_>) {
            let longest = GAP_COUNT.load(Ordering::Relaxed) / (4 * rings().len() as u64);
            for (number, cpu) in cpus.iter().enumerate() {
                if number > 0 && longest > TIMER_HZ.load(Ordering::Relaxed) / 50_000 {
                    // SAFETY: reads a counter.
                    sleep((unsafe { _rdtsc() } % longest).max(1) as u32);
                }
                // SAFETY: a ready CPU's block is never freed, and its APIC id was set before it was ready.
                let id = unsafe { ALL_PERCPU_BLOCKS[cpu].load(Ordering::Acquire).as_ref() }
                    .and_then(|percpu| percpu.misc_arch_info.apic_id_opt.get());
                if let Some(id) = id {
                    // The id has the form of its register (in xAPIC mode in the top byte), as the command needs it.
                    let command = u64::from(id.get()) << 32 | 0x4400;
                    // SAFETY: this sends an NMI to a CPU that is ready for it.
                    unsafe { the_local_apic().set_icr(command) };
                }
            }
        }

        /// The range from the interrupted RSP up to the end of its stack. Nothing else is ever read.
        fn stack_range(&self, address: u64) -> Option<Range<u64>> {
            let ring = PercpuBlock::current().profiling?;
            let start = ring.interrupted_rsp.load(Ordering::Relaxed) & !7;
            let (linear_map, boot_end) = (RmmA::PHYS_OFFSET as u64, ring.boot_stack_end.load(Ordering::Relaxed));
            let end = if (linear_map..linear_map + crate::PML4_SIZE as u64).contains(&start) {
                (start & !(STACK_BYTES - 1)) + STACK_BYTES
            } else if (boot_end - BOOT_STACK_BYTES..boot_end).contains(&start) {
                boot_end
            } else {
                return None;
            };
            (start..end).contains(&address).then_some(start..end)
        }

        fn task(&self) -> Task {
            let percpu = PercpuBlock::current();
            let idle = percpu.profiling.map_or(u32::MAX, |ring| ring.idle_id.load(Ordering::Relaxed));
            // Before the first switch there is no id. The idle context is running, or, before it is created, the boot.
            let id = match percpu.switch_internals.current_dbg_id.load(Ordering::Relaxed) {
                u32::MAX => idle,
                id => id,
            };
            Task { id: u64::from(id), idle: id == idle && id != u32::MAX }
        }

        fn read_user(&self, address: u64) -> Option<u64> {
            let address = address as usize;
            if !address.is_multiple_of(8) || address >= crate::USER_END_OFFSET {
                return None;
            }
            // SAFETY: this only reads tables. Those of the user half do not change while a CPU uses them, because code
            // that changes them waits for this CPU's answer to a TLB shootdown.
            let mapper = unsafe { rmm::PageMapper::<CurrentRmmArch, ()>::current(TableKind::User, ()) };
            let (frame, flags) = mapper.translate(VirtualAddress::new(address & !(PAGE_SIZE - 1)))?;
            // The frame may belong to a device. The linear map may not contain it.
            let page = RmmA::phys_to_virt(frame);
            if !flags.has_user() || mapper.translate(page).is_none() {
                return None;
            }
            // SAFETY: the word is mapped and aligned.
            Some(unsafe { ((page.data() + address % PAGE_SIZE) as *const u64).read_volatile() })
        }

        /// Whether the address is in the stub of the system call, or in the stubs of exceptions and interrupts.
        fn is_entry_code(&self, address: u64) -> bool {
            syscall_stub().contains(&address) || generic_stubs().contains(&address) || stub_around(address).is_some()
        }

        /// Describes samples in the syscall stub, where RBP is the user's. Samples in the other stubs are truncated.
        /// These stubs do not change RBP, so it is always that of the interrupted code.
        fn entry_frame(&self, at: &Registers) -> Option<EntryFrame> {
            if !syscall_stub().contains(&at.rip) {
                return None;
            }
            if at.rsp < crate::USER_END_OFFSET as u64 {
                return Some(EntryFrame::InRegisters { marker: Marker::Syscall });
            }
            // SAFETY: this is this CPU's own task state segment.
            let top = unsafe { addr_of!((*pcr()).tss.rsp).cast::<u64>().read_unaligned() };
            let rip_at = top.wrapping_sub(5 * 8);
            (at.rsp <= rip_at).then_some(EntryFrame::OnStack { marker: Marker::Syscall, rip_at })
        }

        fn caller_entry_frame(&self, return_address: u64, frame_pointer: u64) -> Option<CallerEntryFrame> {
            let (marker, rip_above) = if syscall_stub().contains(&return_address) {
                (Marker::Syscall, offset_of!(InterruptStack, iret))
            } else {
                stub_around(return_address).map(|stub| (stub.marker, stub.rip_above))?
            };
            // SAFETY: the unwinder has found this word inside a stack. The stub does not change RBP, so the Rust
            // function that it calls saves the interrupted one.
            let rbp = unsafe { (frame_pointer as *const u64).read_volatile() };
            Some(CallerEntryFrame { marker, rip_at: frame_pointer + 16 + rip_above as u64, rbp })
        }

        fn sleep_ns(&self, ns: u64) {
            follow_switch();
            IS_DECIDED.store(true, Ordering::Release);
            let count = u128::from(ns) * u128::from(TIMER_HZ.load(Ordering::Relaxed)) / 1_000_000_000;
            let count = count.clamp(1, u128::from(u32::MAX)) as u32;
            GAP_COUNT.store(u64::from(count), Ordering::Relaxed);
            sleep(count);
        }
    }

    /// The entry stubs of exceptions and interrupts, by address.
    static STUBS: Once<Vec<Stub>> = Once::new();

    struct Stub {
        code: Range<u64>,
        marker: Marker,
        /// The distance of the interrupted RIP above the registers that the stub has saved.
        rip_above: usize,
    }

    /// The stub that contains an address.
    fn stub_around(address: u64) -> Option<&'static Stub> {
        let stubs = STUBS.get()?;
        let stub = stubs[..stubs.partition_point(|stub| stub.code.start <= address)].last()?;
        stub.code.contains(&address).then_some(stub)
    }

    /// Finds the stubs by the boot CPU's gates. Those of exceptions, of its timer (32) and of the generic interrupts
    /// save all registers. Those of its other interrupts and of interrupts between CPUs save the nine that a function
    /// may change.
    fn find_stubs() -> Vec<Stub> {
        let (all, nine) = (offset_of!(InterruptStack, iret), size_of::<interrupt::handler::ScratchRegisters>());
        let generic = generic_stubs();
        let stub_of = |vector: u8| {
            // SAFETY: the table has 256 gates.
            let gate = unsafe { descriptor_table().add(usize::from(vector)).read_unaligned() };
            let start = (gate as u64 & 0xffff) | (gate >> 32) as u64 & 0xffff_ffff_ffff_0000;
            let (marker, rip_above) = match vector {
                0..32 => (Marker::Exception(vector), all),
                32 => (Marker::Interrupt(vector), all),
                _ => (Marker::Interrupt(vector), nine),
            };
            (start != 0 && !generic.contains(&start)).then(|| stub_at(start, marker, rip_above))?
        };
        let mut stubs: Vec<Stub> = (0..=u8::MAX).filter(|vector| *vector != 2).filter_map(stub_of).collect();
        // The generic entries push their number and jump to one stub: `push imm8` (2 bytes), `jmp rel32` (SDM volume
        // 2). In that stub the vector is not known. The stub of step 2 leaves it where the unwinder finds it by itself.
        // SAFETY: this is kernel text, with 8 bytes for each entry.
        let [.., jump, a, b, c, d, _] = unsafe { (generic.start as *const [u8; 8]).read() };
        if jump == 0xe9 && !STEP_2 {
            let target = (generic.start + 7).wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
            stubs.extend(stub_at(target, Marker::Interrupt(0), all));
        }
        stubs.sort_by_key(|stub| stub.code.start);
        stubs.dedup_by_key(|stub| stub.code.start);
        stubs
    }

    fn generic_stubs() -> Range<u64> {
        interrupt::irq::__generic_interrupts_start as *const () as u64
            ..interrupt::irq::__generic_interrupts_end as *const () as u64
    }

    /// A stub ends with `iretq`.
    fn stub_at(start: u64, marker: Marker, rip_above: usize) -> Option<Stub> {
        // SAFETY: this is kernel text. A stub is shorter than this, and there is more text after it.
        let code = unsafe { slice::from_raw_parts(start as *const u8, 512) };
        let end = code.windows(2).position(|pair| pair == [0x48, 0xcf])?;
        Some(Stub { code: start..start + end as u64 + 2, marker, rip_above })
    }

    fn syscall_stub() -> Range<u64> {
        let address = |place: unsafe extern "C" fn()| place as *const () as u64;
        address(syscall::syscall_instruction)..address(syscall::__syscall_instruction_end)
    }

    // --- The sampler CPU ---

    static TIMER_HZ: AtomicU64 = AtomicU64::new(0);
    /// The timer's count for the last sleep between ticks.
    static GAP_COUNT: AtomicU64 = AtomicU64::new(0);
    /// Whether sampling is on, as far as the sampler CPU knows.
    static IS_RUNNING: AtomicBool = AtomicBool::new(false);

    /// Sleeps until the timer has counted down from `count`, or another interrupt comes.
    fn sleep(count: u32) {
        // SAFETY: no other code uses this CPU's timer.
        unsafe { the_local_apic().set_init_count(count) };
        halt();
    }

    fn halt() {
        // SAFETY: the sampler CPU has handlers for all interrupts that may come.
        unsafe {
            interrupt::enable_and_halt();
            interrupt::disable();
        }
    }

    fn timer_left() -> bool {
        // SAFETY: this only reads a register of this CPU's APIC.
        unsafe { the_local_apic().cur_count() != 0 }
    }

    /// Starts and stops sampling as written to ctl. At the end of a recording it writes the account to the log.
    fn follow_switch() {
        let wanted = IS_PROFILING.load(Ordering::SeqCst);
        if IS_RUNNING.swap(wanted, Ordering::Relaxed) == wanted {
            return;
        }
        if wanted {
            info!("kprof: sampling");
        }
        if let Err(error) = if wanted { PROFILER.start() } else { PROFILER.stop() } {
            error!("kprof: {error}");
        }
        if wanted {
            return;
        }
        let mut account = alloc::string::String::new();
        if PROFILER.write_status(&mut account).is_ok() {
            for line in account.lines().filter(|line| line.starts_with("cpu.")) {
                info!("kprof: {line}");
            }
        }
    }

    /// The first count for the timer. The slowest known timer takes 50 ms for it, the fastest 1 ms.
    const ROUGH_COUNT: u32 = 1_200_000;

    /// Measures the frequencies of TSC and timer by sleeping, against the HPET, otherwise against the PIT.
    fn calibrate() -> Result<Calibration, kprof::clock::BadSleep> {
        let twice = |reference: Reference, read: &dyn Fn() -> u64| {
            let measure = |count: u32| {
                // SAFETY: reads a counter.
                let moment = || Moment { reference: read(), tsc: unsafe { _rdtsc() } };
                let before = moment();
                sleep(count);
                // Other interrupts wake this CPU too. Then it halts again for the rest of the time.
                while timer_left() {
                    halt();
                }
                Calibration::of(before, moment(), reference, u64::from(count))
            };
            let count = (measure(ROUGH_COUNT)?.timer_hz / 50).min(u64::from(u32::MAX)) as u32;
            // A virtual CPU may be suspended at any moment. The median of five measurements has the right TSC
            // frequency. Of those that agree with it, the quickest one was not woken late.
            let mut rounds = (0..5).map(|_| measure(count)).collect::<Result<Vec<_>, _>>()?;
            rounds.sort_unstable_by_key(|round| round.tsc_hz);
            let middle = rounds[2];
            let agrees = |round: &Calibration| round.tsc_hz.abs_diff(middle.tsc_hz) <= middle.tsc_hz / 100;
            Ok(rounds.into_iter().filter(agrees).max_by_key(|round| round.timer_hz).unwrap_or(middle))
        };
        if let Some(ref hpet) = *crate::acpi::ACPI_TABLE.hpet.read() {
            // SAFETY: the kernel has mapped the registers of the HPET. The first one has the length of a count in
            // femtoseconds.
            let (facts, counter) = unsafe { (hpet.read_u64(0), || hpet.read_u64(MAIN_COUNTER_OFFSET)) };
            let hz = 1_000_000_000_000_000 / (facts >> 32).max(1);
            let bits = if facts & 1 << 13 != 0 { 64 } else { 32 };
            if let Ok(clock) = twice(Reference { hz, bits }, &counter) {
                return Ok(clock);
            }
        }
        // Channel 2, which can drive the speaker, counts down from 65535 without sound. The kernel uses channel 0.
        // SAFETY: these are the PIT's ports.
        unsafe {
            x86::io::outb(0x61, x86::io::inb(0x61) & !2 | 1);
            [(0x43, 0xb0), (0x42, 0xff), (0x42, 0xff)].into_iter().for_each(|(port, byte)| x86::io::outb(port, byte));
        }
        let pit = || {
            // SAFETY: this latches the count and reads its two bytes.
            let count = unsafe {
                x86::io::outb(0x43, 0x80);
                u16::from_le_bytes([x86::io::inb(0x42), x86::io::inb(0x42)])
            };
            u64::from(!count)
        };
        twice(Reference { hz: 1_193_182, bits: 16 }, &pit)
    }

    // --- Reads ---

    /// Reads whole records of one CPU, as Redox's raw words. If a copy to user memory fails, the next read gets them.
    pub fn drain_buffer(cpu_num: LogicalCpuId, buf: UserSliceWo) -> Result<usize> {
        let cpu = cpu_num.get() as usize;
        let ring = rings().get(cpu).ok_or(Error::new(EBADFD))?;
        // Only one reader at a time is allowed, because two readers would each get a part of the records.
        let mut reading = ring.reading.try_lock().ok_or(Error::new(EBUSY))?;
        let mut done = 0;
        while let Some(rest) = buf.advance(done) {
            if reading.next == reading.end {
                let read = PROFILER.open_stream(cpu, 0).and_then(|stream| stream.read(&mut reading.bytes));
                (reading.next, reading.end) = match read {
                    Ok(bytes) => (0, bytes),
                    // The CPU is not ready yet.
                    Err(ReadError::NoStream) => (0, 0),
                    Err(_) => return Err(Error::new(EBUSY)),
                };
            }
            let whole = reading.whole_records(rest.len());
            if whole == 0 {
                let is_too_small = done == 0 && reading.next < reading.end && buf.len() > 0;
                return if is_too_small { Err(Error::new(EINVAL)) } else { Ok(done) };
            }
            let from = reading.next;
            match rest.copy_common_bytes_from_slice(&reading.bytes[from..from + whole]) {
                Ok(_) => (done, reading.next) = (done + whole, from + whole),
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// The name of a context that runs or has run.
    pub fn lookup_dbg_id(id: u32, token: &mut CleanLockToken) -> Option<arrayvec::ArrayString<32>> {
        DBG_ID_MAP.read(token.token()).get(&id).copied()
    }
}
