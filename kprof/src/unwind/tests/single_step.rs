//! Single-steps a small call tree on the real CPU with the trap flag, and walks the stack at every instruction.
//!
//! The expected stack comes from a shadow stack: a step over `call` pushes the word at [rsp], a step over `ret` pops.
//! The tree contains the hard cases: function entry, after the push, at `ret`, a frameless leaf, an early return before
//! the frame, a tail call, a naked stub with an ordinary `push rbp` in its middle, and calls through a register. A
//! wrong caller fails the test as a missing one does.

use super::*;
use crate::unwind::Direct;
use core::arch::global_asm;
use core::sync::atomic::AtomicUsize;

global_asm!(
    ".balign 16",
    "kprof_step_start:",
    // The trampoline: rbp 0 ends the chain; the trap flag is on from the instruction after popfq.
    "kprof_step_enter:",
    "push rbp",
    "push rbx",
    "xor ebp, ebp",
    "pushfq",
    "or qword ptr [rsp], 0x100",
    "popfq",
    "call kprof_step_root",
    "pushfq",
    "and qword ptr [rsp], 0xfffffffffffffeff",
    "popfq",
    "pop rbx",
    "pop rbp",
    "ret",
    // Has a frame; calls every other function.
    "kprof_step_root:",
    "push rbp",
    "mov rbp, rsp",
    "push rbx",
    "sub rsp, 24",
    "call kprof_step_framed",
    "call kprof_step_leaf",
    "xor edi, edi",
    "call kprof_step_wrapped",
    "mov edi, 1",
    "call kprof_step_wrapped",
    "call kprof_step_tail",
    "call kprof_step_stub",
    "lea rbx, [rip + kprof_step_framed]",
    "call rbx",
    "lea rax, [rip + kprof_step_wrapped]",
    "xor edi, edi",
    "call rax",
    "lea rax, [rip + kprof_step_leaf]",
    "mov [rsp], rax",
    "call [rsp]",
    "add rsp, 24",
    "pop rbx",
    "pop rbp",
    "ret",
    "kprof_step_framed:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 16",
    "call kprof_step_leaf",
    "nop",
    "call kprof_step_small",
    "leave",
    "ret",
    "kprof_step_small:",
    "endbr64",
    "push rbp",
    "mov rbp, rsp",
    "nop",
    "pop rbp",
    "ret",
    "kprof_step_leaf:",
    "lea rax, [rdi + 1]",
    "imul rax, rax",
    "add rax, 7",
    "ret",
    "kprof_step_wrapped:",
    "test edi, edi",
    "je 2f",
    "push rbp",
    "mov rbp, rsp",
    "push rbx",
    "call kprof_step_small",
    "mov rax, rbx",
    "pop rbx",
    "pop rbp",
    "2:",
    "ret",
    "kprof_step_tail:",
    "push rbp",
    "mov rbp, rsp",
    "call kprof_step_small",
    "pop rbp",
    "jmp kprof_step_framed",
    "kprof_step_stub:",
    "nop",
    "push rbp",
    "nop",
    "lea rax, [rsp + 8]",
    "pop rbp",
    "nop",
    "ret",
    "kprof_step_end:",
);

unsafe extern "C" {
    fn kprof_step_enter();
    static kprof_step_start: u8;
    static kprof_step_end: u8;
    static kprof_step_leaf: u8;
    static kprof_step_wrapped: u8;
}

/// The end of the stack that the tree runs on.
static TOP: AtomicUsize = AtomicUsize::new(0);
static STEPS: Mutex<Steps> =
    Mutex::new(Steps { shadow: Vec::new(), previous: None, wrong: Vec::new(), walks: 0, candidates: Vec::new() });

struct Steps {
    shadow: Vec<u64>,
    previous: Option<u64>,
    wrong: Vec<String>,
    walks: usize,
    /// The addresses at which a candidate was returned instead of a caller.
    candidates: Vec<u64>,
}

struct Host;

// SAFETY: `TOP` is an address in the stack of the stepped thread. The system has mapped that stack as a whole, and it
// is far longer than the 4096 bytes below `TOP` that are declared. The text is a section of this program.
unsafe impl Kernel for Host {
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, _cpus: &crate::CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        let top = TOP.load(Ordering::Relaxed) as u64;
        let range = top - 4096..top;
        range.contains(&address).then_some(range)
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 0, idle: false }
    }
    fn sleep_ns(&self, _ns: u64) {}
}

fn text() -> (u64, u64) {
    (&raw const kprof_step_start as u64, &raw const kprof_step_end as u64)
}

extern "C" fn on_trap(_signal: i32, _info: *mut libc::siginfo_t, task: *mut libc::c_void) {
    // SAFETY: the kernel passes a ucontext_t to a handler installed with SA_SIGINFO.
    let registers = unsafe { &(*task.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let register = |index: i32| registers[index as usize] as u64;
    let at = Registers {
        pc: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        fp: register(libc::REG_RBP),
        interrupts_on: true,
        ..Registers::default()
    };
    let (start, end) = text();
    if (start..end).contains(&at.pc) {
        STEPS.lock().unwrap().step(&at);
    }
}

impl Steps {
    fn step(&mut self, at: &Registers) {
        match self.previous.replace(at.pc) {
            // The first trap comes after the first call.
            None => self.shadow.push(word(at.sp)),
            Some(previous) => {
                // SAFETY: the previous instruction lies in the code of the test's call tree; the bytes after it belong
                // to this program too.
                match unsafe { (previous as *const [u8; 3]).read() } {
                    [0xe8, ..] => self.shadow.push(word(at.sp)),
                    [0xff, modrm, _] if modrm >> 3 & 7 == 2 => self.shadow.push(word(at.sp)),
                    [0xc3, ..] => drop(self.shadow.pop()),
                    _ => {}
                }
            }
        }
        if self.shadow.is_empty() {
            return;
        }
        let places: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
        let mut walk = Walk {
            kernel: &Host,
            memory: Direct,
            text: Text::new(text()),
            sink: Sink::over(&places),
            frames_left: 63,
            scan_left: MAX_SCANNED,
            stacks: Stacks::new(),
            user_frames: false,
            in_interrupt: false,
        };
        walk.run(at);
        assert!(!walk.sink.is_full(), "room for every walk");
        self.walks += 1;
        let found = words(&places, walk.sink.words());
        let truth: Vec<u64> = self.shadow.iter().rev().copied().collect();
        if found == truth {
            return;
        }
        match &found[..] {
            [marker, rest @ ..] if *marker == Marker::Candidate.encode() && (rest == truth || rest[1..] == truth) => {
                self.candidates.push(if rest == truth { at.pc } else { 0 });
            }
            _ => self.wrong.push(format!("rip +{:#x}: {found:x?} is not {truth:x?}", at.pc - text().0)),
        }
    }
}

fn word(address: u64) -> u64 {
    // SAFETY: rsp of the stepped code points to its stack.
    unsafe { (address as *const u64).read() }
}

#[test]
fn every_instruction_of_a_call_tree_has_its_caller_and_none_is_wrong() {
    let local = 0_u64;
    TOP.store((&raw const local as usize & !7) + 16, Ordering::Relaxed);
    // SAFETY: a zeroed sigaction is a valid one; the handler has the signature for SA_SIGINFO.
    let old = unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        let mut old = core::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGTRAP, &action, &mut old), 0);
        old
    };
    // SAFETY: the tree keeps all callee-saved registers and leaves the trap flag off.
    unsafe { kprof_step_enter() };
    // SAFETY: restores the previous action.
    assert_eq!(unsafe { libc::sigaction(libc::SIGTRAP, &old, core::ptr::null_mut()) }, 0);

    let steps = STEPS.lock().unwrap();
    assert!(
        steps.wrong.is_empty(),
        "{} of {} walks wrong:\n{}",
        steps.wrong.len(),
        steps.walks,
        steps.wrong.join("\n")
    );
    assert!(steps.walks > 90, "only {} instructions were stepped", steps.walks);
    // For code without a frame that was called through a register, the host decides: it knows where functions begin,
    // and their CFI. No other case may be left to the host.
    let frameless = [&raw const kprof_step_leaf as u64, &raw const kprof_step_wrapped as u64];
    let needed: Vec<u64> = steps.candidates.iter().copied().filter(|rip| *rip != 0).collect();
    for rip in &needed {
        assert!(
            frameless.iter().any(|start| (*start..start + 12).contains(rip)),
            "candidate at +{:#x}",
            rip - text().0
        );
    }
    assert!(needed.len() <= 7, "{needed:x?}");
}
