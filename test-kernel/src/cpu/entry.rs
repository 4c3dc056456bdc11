//! Entry stubs: the only entries into this kernel. All of them build the same frame.
//!
//! ```text
//! high   SS  RSP  RFLAGS  CS  RIP     pushed by the processor (the system call stub pushes the same five)
//!        marker                       which entry this is; it stands where a return address would
//!        RBP  <- rbp                  so the frame-pointer walk crosses the entry frame by itself
//!        RAX RCX RDX RBX RSI RDI R8 .. R15, error code
//! low    <- rsp = &TrapFrame
//! ```
//!
//! The marker replaces the hardware error code, or is pushed if there is none. The NMI stub first moves the hardware
//! frame away from the top of its stack, below the frames of the NMI that it interrupted, if any. So an `int3` in the
//! handler, whose `iret` allows the next NMI, is harmless at every instruction up to the last `iretq`. GS is swapped
//! only for four instructions of the system call stub, and is not trusted anywhere else.

use core::arch::{asm, global_asm};

use kprof::format::marker::{MARKER_PAGE, Marker};
use kprof::{EntryFrame, Interrupted, Registers};
use x86_64::VirtAddr;
use x86_64::registers::control::{Efer, EferFlags};
use x86_64::registers::model_specific::{KernelGsBase, LStar, SFMask, Star};
use x86_64::registers::rflags::RFlags;

use super::CPUS;
use super::gdt::{KERNEL_CODE, USER_CODE, USER_DATA};
use crate::memory::stacks;

/// Bytes from the stub of one vector to the next.
const STUB_BYTES: u64 = 32;
/// Vectors for which the processor pushes an error code (Intel SDM volume 3A, table 6-1).
const WITH_ERROR_CODE: u32 = 0x6022_7d00;

global_asm!(
    r#"
// In: the hardware frame on the stack, rbp and rax not yet saved. `eax` = error code afterwards.
.macro save_head marker, has_error
  .if \has_error
    push rbp
    push rax
    mov eax, [rsp + 16]
    mov qword ptr [rsp + 16], \marker
  .else
    push \marker
    push rbp
    push rax
    xor eax, eax
  .endif
    lea rbp, [rsp + 8]
.endm

.macro save_rest
    push rcx
    push rdx
    push rbx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    push rax
.endm

// The labels say where rbp is the interrupted code's again.
.macro restore_and_return name
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbx
    pop rdx
    pop rcx
    pop rax
    pop rbp
.L\name\()_popped:
    add rsp, 8
.L\name\()_iretq:
    iretq
.endm

.macro trap_stub vector
  .align {stub_bytes}
  trap_stub_\vector:
  .if \vector == 3
    jmp breakpoint_entry
  .else
  .if \vector < 32
    .if ({with_error} >> \vector) & 1
      save_head {page} + 0x200 + \vector, 1
    .else
      save_head {page} + 0x200 + \vector, 0
    .endif
  .else
    save_head {page} + 0x100 + \vector, 0
  .endif
    jmp trap_common
  .endif
  .type trap_stub_\vector, @function
  .size trap_stub_\vector, . - trap_stub_\vector
.endm

.text
.altmacro
.set vector, 0
.rept 256
  trap_stub %vector
  .set vector, vector + 1
.endr
.noaltmacro

.align 16
.global trap_common
trap_common:
    cld
    save_rest
    mov rdi, rsp
    call trap_enter
.type trap_common, @function
.size trap_common, . - trap_common
.global trap_return
trap_return:
    restore_and_return trap
.type trap_return, @function
.size trap_return, . - trap_return

.align 16
.global breakpoint_entry
breakpoint_entry:
// In kernel code the hardware frame is moved six words down. A probe emulates `push rbp`, which writes to the word
// below the interrupted RSP, where the processor has put its frame.
    test byte ptr [rsp + 8], 3
    jnz 2f
    push 0
  .rept 5
    push qword ptr [rsp + 40]
  .endr
2:
.Lbreakpoint_moved:
    save_head {page} + 0x203, 0
    cld
    save_rest
    mov rdi, rsp
    call breakpoint_enter
    test al, al
    jnz trap_return
    mov rdi, rsp
    call trap_enter
    jmp trap_return
.Lbreakpoint_end:
.type breakpoint_entry, @function
.size breakpoint_entry, . - breakpoint_entry

.align 16
.global syscall_entry
syscall_entry:
    swapgs
    mov gs:[0], rsp
    mov rsp, gs:[8]
.Lsyscall_on_stack:
    push {user_data}
    push gs:[0]
    swapgs
    push r11
    push {user_code}
    push rcx
.Lsyscall_saved:
    save_head {page} + 0x300, 0
    save_rest
    mov rdi, rsp
    call syscall_enter
    restore_and_return syscall
.type syscall_entry, @function
.size syscall_entry, . - syscall_entry

.align 16
.global nmi_entry
nmi_entry:
// The processor has put its frame at the top of this stack, as for every NMI. The frame must be moved before the next
// NMI comes, and none comes before an `iret`. The frame is moved below the top of this stack, or, if this NMI has
// interrupted another NMI, below the RSP of that one. The test is whether kernel code was running on this stack. At the
// first instructions of a system call RSP still has the value that the user has chosen. So the interrupted RIP is
// compared with the range of these instructions.
    push rax
    push rcx
    lea rax, [rsp - 8]
    test byte ptr [rsp + 24], 3
    jnz 3f
    mov rcx, [rsp + 16]
    cmp rcx, offset syscall_entry
    jb 2f
    cmp rcx, offset .Lsyscall_on_stack
    jb 3f
2:
    mov rcx, [rsp + 40]
    xor rcx, rsp
    test rcx, -{nmi_stack}
    jnz 3f
    mov rax, [rsp + 40]
    and rax, -16
3:
    mov rcx, [rsp + 48]
    mov [rax - 8], rcx
    mov rcx, [rsp + 40]
    mov [rax - 16], rcx
    mov rcx, [rsp + 32]
    mov [rax - 24], rcx
    mov rcx, [rsp + 24]
    mov [rax - 32], rcx
    mov rcx, [rsp + 16]
    mov [rax - 40], rcx
    mov qword ptr [rax - 48], {page} + 0x202
    mov [rax - 56], rbp
    mov rcx, [rsp + 8]
    mov [rax - 64], rcx
    mov rcx, [rsp]
    lea rsp, [rax - 64]
    lea rbp, [rsp + 8]
    xor eax, eax
    cld
    save_rest
    mov rdi, rsp
    call nmi_enter
    restore_and_return nmi
.type nmi_entry, @function
.size nmi_entry, . - nmi_entry
.Lentry_stubs_end:

.section .rodata
.align 8
// The places inside the stubs that `frame_at` knows. They are in a table, because a symbol for each would split the
// stubs in profiles.
.global entry_places
entry_places:
    .quad trap_stub_0, .Lentry_stubs_end - trap_stub_0, .Ltrap_popped, .Ltrap_iretq, .Lsyscall_popped
    .quad .Lsyscall_iretq, .Lnmi_popped, .Lnmi_iretq, .Lsyscall_saved
.global breakpoint_places
breakpoint_places:
    .quad breakpoint_entry, .Lbreakpoint_moved, .Lbreakpoint_end
.global trap_stub_table
trap_stub_table:
.altmacro
.set vector, 0
.macro trap_stub_address vector
    .quad trap_stub_\vector
.endm
.rept 256
  trap_stub_address %vector
  .set vector, vector + 1
.endr
.noaltmacro
.text
"#,
    page = const MARKER_PAGE as i64,
    user_data = const USER_DATA,
    user_code = const USER_CODE,
    nmi_stack = const stacks::STACK_BYTES,
    stub_bytes = const STUB_BYTES,
    with_error = const WITH_ERROR_CODE,
);

/// The registers of interrupted code, as every stub leaves them on the stack.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct TrapFrame {
    pub error: u64,
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rbx: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    pub rbp: u64,
    /// The entry's marker; its low byte is the vector.
    pub marker: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

// The stubs align the stack by this size.
static_assertions::const_assert_eq!(core::mem::size_of::<TrapFrame>() % 16, 0);

/// What the stub saved, in the profiler's words.
impl Interrupted for TrapFrame {
    #[inline(always)]
    fn registers(&self) -> Registers {
        let &TrapFrame { rip, cs, rflags, rsp, rbp, rcx, .. } = self;
        let (from_user, interrupts_on) = (cs & 3 != 0, rflags & RFlags::INTERRUPT_FLAG.bits() != 0);
        Registers { pc: rip, sp: rsp, fp: rbp, link: rcx, from_user, interrupts_on }
    }

    #[inline(always)]
    fn is_from_user(&self) -> bool {
        self.cs & 3 != 0
    }

    #[inline(always)]
    fn interrupts_off(&self) -> u64 {
        !self.rflags / RFlags::INTERRUPT_FLAG.bits()
    }
}

impl TrapFrame {
    /// Whether user code was interrupted.
    pub fn is_user(&self) -> bool {
        self.cs & 3 == 3
    }

    /// Where the profiler finds the entry frame: the address of the saved rbp, with the marker in the word above it.
    #[inline(always)]
    pub fn caller_entry_frame(&self) -> u64 {
        &raw const self.rbp as u64
    }

    /// The vector of this entry.
    pub fn vector(&self) -> u8 {
        self.marker as u8
    }
}

unsafe extern "C" {
    static trap_stub_table: [u64; 256];
    fn syscall_entry();
    #[cfg(feature = "profiling")]
    fn breakpoint_entry();
    fn nmi_entry();
    static entry_places: [u64; 9];
    static breakpoint_places: [u64; 3];
}

/// How far the hardware frame is above RSP at each instruction of `save_head`, by the offset of the instruction. The
/// last instruction sets rbp; after it the frame-pointer walk finds the entry frame by itself.
const HEAD: [(u64, u64); 5] = [(0, 0), (5, 8), (6, 16), (7, 24), (9, 24)];
/// As [`HEAD`], if the processor has pushed an error code.
const HEAD_WITH_ERROR: [(u64, u64); 5] = [(0, 8), (1, 16), (2, 24), (6, 24), (15, 24)];

/// The same for the instructions that move the hardware frame of a breakpoint. After them comes a `save_head`.
const MOVE: [(u64, u64); 8] = [(0, 0), (5, 0), (7, 0), (9, 8), (13, 16), (17, 24), (21, 32), (25, 40)];

/// Whether an address is code of a stub. Callable in an NMI.
#[inline(always)]
pub fn is_stub(address: u64) -> bool {
    // SAFETY: constant data of the assembly above.
    let [start, bytes, ..] = unsafe { &entry_places };
    address.wrapping_sub(*start) < *bytes
}

/// Where the interrupted registers are when the profiler interrupts a stub. Callable in an NMI.
#[cold]
pub fn frame_at(at: &Registers) -> Option<EntryFrame> {
    let at = *at;
    let address = |function: unsafe extern "C" fn()| function as *const () as u64;
    let rip = at.pc;
    // SAFETY: constant data of the assembly above.
    let [_, _, places @ .., syscall_saved] = unsafe { entry_places };
    let on_stack = |marker, above: u64| Some(EntryFrame::OnStack { marker, saved_at: at.sp + above });
    // An offset inside an instruction of the head has no answer. After the head, rbp is the stub's own.
    let in_head = |marker, table: &[(u64, u64); 5], offset: u64| match table.iter().find(|entry| entry.0 == offset) {
        Some(entry) => on_stack(marker, entry.1),
        None if offset < table[4].0 => None,
        None => Some(EntryFrame::Built),
    };
    // On the way out the marker is on the stack until `add rsp, 8`, and directly below RSP after it.
    let leaving = match places.iter().position(|place| *place == rip) {
        Some(popped) if popped % 2 == 0 => Some((8, at.sp)),
        Some(_) => Some((0, at.sp - 8)),
        None => None,
    };
    if let Some((above, marker_at)) = leaving {
        // SAFETY: inside the stub RSP points into this CPU's kernel or NMI stack, and the marker is still there. An NMI
        // that interrupts the stub writes its own frame below the marker or to another stack.
        let marker = unsafe { core::ptr::read_volatile(marker_at as *const u64) };
        let marker = match marker & 0xf00 {
            0x100 => Marker::Interrupt(marker as u8),
            0x200 => Marker::Exception(marker as u8),
            _ => Marker::Syscall,
        };
        return on_stack(marker, above);
    }
    // SAFETY: constant data of the assembly above.
    let [breakpoint, moved, breakpoint_end] = unsafe { breakpoint_places };
    if (breakpoint..moved).contains(&rip) {
        let above = MOVE.iter().find(|(offset, _)| *offset == rip - breakpoint).map(|(_, above)| *above);
        return above.and_then(|above| on_stack(Marker::Exception(3), above));
    }
    if (moved..breakpoint_end).contains(&rip) {
        return in_head(Marker::Exception(3), &HEAD, rip - moved);
    }
    if (address(syscall_entry)..syscall_saved).contains(&rip) {
        // `syscall` leaves the user's RIP in rcx.
        let interrupted = Registers { pc: at.link, from_user: true, interrupts_on: true, ..at };
        return Some(EntryFrame::InRegisters { marker: Marker::Syscall, interrupted });
    }
    if rip >= syscall_saved {
        // (The NMI stub follows in memory. No NMI can interrupt it before it has set rbp.)
        return in_head(Marker::Syscall, &HEAD, rip - syscall_saved);
    }
    let (vector, offset) = ((rip - stub(0)) / STUB_BYTES, (rip - stub(0)) % STUB_BYTES);
    match vector {
        0..32 if WITH_ERROR_CODE >> vector & 1 != 0 => {
            in_head(Marker::Exception(vector as u8), &HEAD_WITH_ERROR, offset)
        }
        0..32 => in_head(Marker::Exception(vector as u8), &HEAD, offset),
        32..256 => in_head(Marker::Interrupt(vector as u8), &HEAD, offset),
        _ => Some(EntryFrame::Built),
    }
}

/// The address of the stub of `vector`.
pub fn stub(vector: u8) -> u64 {
    match vector {
        2 => nmi_entry as *const () as u64,
        // SAFETY: the table is constant data of the assembly above.
        _ => unsafe { trap_stub_table[vector as usize] },
    }
}

/// The address of one of the instructions in the entry stubs that `frame_at` treats specially, or of any byte of the
/// stubs of system calls and breakpoints.
#[cfg(feature = "profiling")]
pub fn any_instruction(number: u64) -> u64 {
    // SAFETY: constant data of the assembly above.
    let [_, _, places @ ..] = unsafe { entry_places };
    let stub = if number >> 63 == 0 { syscall_entry } else { breakpoint_entry };
    places.get(number as usize % 16).copied().unwrap_or(stub as *const () as u64 + number / 16 % 96)
}

/// Points `syscall` at its stub and GS at this CPU's block.
pub fn init_syscall(cpu: usize) {
    // SAFETY: the selectors are those of our GDT (the `sysret` half is never used). The stub is made for `syscall`.
    unsafe {
        Star::write_raw(USER_DATA - 8, KERNEL_CODE);
        LStar::write(VirtAddr::new(syscall_entry as *const () as u64));
        SFMask::write(RFlags::INTERRUPT_FLAG | RFlags::DIRECTION_FLAG | RFlags::TRAP_FLAG | RFlags::ALIGNMENT_CHECK);
        Efer::update(|efer| efer.insert(EferFlags::SYSTEM_CALL_EXTENSIONS | EferFlags::NO_EXECUTE_ENABLE));
        KernelGsBase::write(VirtAddr::new(&raw const CPUS[cpu] as u64));
    }
}

/// Switches to user mode with the registers in `frame`. Everything on the kernel stack is discarded.
///
/// # Safety
/// `frame` must describe user code (user selectors), its address space must be loaded, and interrupts must be off.
pub unsafe fn enter_user(frame: &TrapFrame) -> ! {
    debug_assert!(frame.is_user());
    // As in a stub, rbp points to the saved rbp while registers are restored. The old rbp would point below the new
    // RSP, and a sample would be truncated there.
    // SAFETY: the caller's duty; `trap_return` pops exactly one TrapFrame.
    unsafe {
        asm!(
            "mov rbp, {1}", "mov rsp, {0}", "jmp trap_return",
            in(reg) frame, in(reg) frame.caller_entry_frame(), options(noreturn)
        )
    }
}
