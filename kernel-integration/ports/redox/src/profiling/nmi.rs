//! Code that runs in an NMI: the handler, and what kprof asks about the interrupted code.
//!
//! In: the interrupted registers. Out: kprof's answers. No lock, no allocation, no print, no page
//! fault, no unbounded loop.

use core::{ops::Range, sync::atomic::Ordering};

use kprof::{
    format::marker::Marker, CallerEntryFrame, CpuSet, EntryFrame, Interrupted, Kernel, NmiToken,
    Profiler, Registers, Task,
};

use super::{cpu::top_of_stack, sampler};
use crate::{
    arch::{
        gdt::GDT_KERNEL_CODE,
        interrupt::InterruptStack,
        profiling::{entries, user_memory},
    },
    percpu::PercpuBlock,
};

pub static PROFILER: Profiler<Port> = Profiler::new(Port);

/// Bit 9 of RFLAGS: interrupts are on.
const INTERRUPT_FLAG: usize = 1 << 9;

/// The registers that the NMI's entry has saved. kprof reads most samples from four of them.
struct Saved<'a>(&'a InterruptStack);

impl Interrupted for Saved<'_> {
    #[inline(always)]
    fn registers(&self) -> Registers {
        let (iret, preserved, scratch) = (&self.0.iret, &self.0.preserved, &self.0.scratch);
        Registers {
            pc: iret.rip as u64,
            sp: iret.rsp as u64,
            fp: preserved.rbp as u64,
            link: scratch.rcx as u64,
            from_user: iret.cs & 3 != 0,
            interrupts_on: iret.rflags & INTERRUPT_FLAG != 0,
        }
    }

    #[inline(always)]
    fn is_from_user(&self) -> bool {
        self.0.iret.cs & 3 != 0
    }

    #[inline(always)]
    fn interrupts_off(&self) -> u64 {
        (!self.0.iret.rflags / INTERRUPT_FLAG) as u64
    }
}

/// # Safety
/// Called only by the NMI entry, with the interrupted registers.
pub unsafe fn nmi_handler(stack: &InterruptStack) {
    let Some(ring) = PercpuBlock::current().profiling else {
        return;
    };
    ring.last_page.forget();
    if stack.iret.cs & 3 == 0 {
        ring.set_stack(stack.iret.rsp as u64);
    } else {
        ring.set_no_stack();
    }
    // SAFETY: the caller's promise.
    PROFILER.on_nmi(&unsafe { NmiToken::new() }, &Saved(stack));
}

/// This kernel's implementation of `kprof::Kernel`, which documents what each function must return.
pub struct Port;

// SAFETY: `cpu` is the per-CPU block's number, found by the descriptor table. `stack_range` declares
// only the part of that CPU's own stack above the interrupted RSP. This stack is completely mapped,
// and in use until the NMI returns. The kernel's text is mapped for ever, and there are no modules.
// `read_user` and `read_user_frame` read only pages that the page tables map for the user. No lock is taken.
unsafe impl Kernel for Port {
    /// The NMI entry finds the per-CPU block by the descriptor table and does not trust GS.
    #[inline(always)]
    fn cpu(&self) -> usize {
        PercpuBlock::current().cpu_id.get() as usize
    }

    fn signal(&self, cpus: &CpuSet<'_>) {
        sampler::signal(cpus);
    }

    /// The part of the interrupted stack from its RSP up to its end; no other stack is read. `_address`
    /// is not needed: kprof refuses a range that does not contain it.
    #[inline(always)]
    fn stack_range(&self, _address: u64) -> Option<Range<u64>> {
        Some(PercpuBlock::current().profiling?.stack_range())
    }

    #[inline(always)]
    fn task(&self) -> Task {
        let percpu = PercpuBlock::current();
        let idle_of = |ring: &super::RingBuffer| ring.idle_id.load(Ordering::Relaxed);
        let idle = percpu.profiling.map_or(u32::MAX, idle_of);
        let current = &percpu.switch_internals.current_dbg_id;
        let (id, idle) = match current.load(Ordering::Relaxed) {
            // Before the first switch there is no id. The idle context is running, or, before it is
            // created, the boot.
            u32::MAX => (idle, idle != u32::MAX),
            id => (id, id == idle),
        };
        Task {
            id: u64::from(id),
            idle,
        }
    }

    fn read_user(&self, address: u64) -> Option<u64> {
        user_memory::read(&PercpuBlock::current().profiling?.last_page, address)
    }

    #[inline(always)]
    fn read_user_frame(&self, frame: u64) -> Option<[u64; 2]> {
        user_memory::read_frame(&PercpuBlock::current().profiling?.last_page, frame)
    }

    #[inline(always)]
    fn is_entry_code(&self, address: u64) -> bool {
        entries::contains(address)
    }

    /// The stubs do not change RBP, so it is always that of the interrupted code.
    fn entry_frame(&self, at: &Registers) -> Option<EntryFrame> {
        let marker = entries::find(at.pc)?.marker;
        if marker == Marker::Syscall && entries::is_rip_in_rcx(at.sp, top_of_stack()) {
            // SAFETY: the interrupted instruction is in the stub, which is mapped and not at the end
            // of the text.
            let code = unsafe { (at.pc as *const [u8; 3]).read_unaligned() };
            // The stub shifts RCX up, and the next instruction shifts it back. In between RCX is
            // not the user's RIP.
            let is_shifted = code == entries::SHIFT_RCX_BACK;
            let interrupted = Registers {
                pc: at.link,
                from_user: true,
                interrupts_on: true,
                ..*at
            };
            return (!is_shifted).then_some(EntryFrame::InRegisters {
                marker,
                interrupted,
            });
        }
        // SAFETY: `hardware_frame` reads aligned words of the interrupted stack only.
        let word = |address: u64| unsafe { (address as *const u64).read_volatile() };
        let stack = PercpuBlock::current().profiling?.stack_range();
        let kernel_cs = (GDT_KERNEL_CODE as u64) << 3;
        let saved_at = entries::hardware_frame(at.sp, top_of_stack(), &stack, kernel_cs, word)?;
        Some(EntryFrame::OnStack { marker, saved_at })
    }

    fn caller_entry_frame(
        &self,
        return_address: u64,
        frame_pointer: u64,
    ) -> Option<CallerEntryFrame> {
        let entry = entries::find(return_address)?;
        let saved_at = frame_pointer.wrapping_add(16).wrapping_add(entry.rip_above);
        Some(CallerEntryFrame {
            marker: entry.marker,
            saved_at,
            // The stub does not change RBP, so the Rust function that it calls saves the interrupted one.
            fp_at: frame_pointer,
        })
    }

    fn sleep_ns(&self, ns: u64) {
        sampler::sleep_ns(ns);
    }
}
