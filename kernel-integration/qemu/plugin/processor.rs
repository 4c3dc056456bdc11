//! The guest's processor: its registers, and the words of a sample. Stage: capture.
//!
//! In: the name that QEMU has for it, a vCPU. Out: the words of a sample, the same for all: time, address, flags with
//! bit 9 set if interrupts are on, privilege level (0 kernel, 3 user), stack. Runs in: QEMU's process, on the vCPU's
//! thread.

use super::Arguments;
use super::place::Finder;
use super::qemu::Vcpu;
use super::records::{self, Registers, aarch64, riscv64};
use super::seen::Seen;
use super::symbol::symbol;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

/// The interrupt flag, as in RFLAGS.
const INTERRUPTS_ON: u64 = 1 << 9;
const USER: u64 = 3;
/// PSTATE: interrupts are masked; 32 bits; the mode, of which these bits are the exception level.
const MASKED: u64 = 1 << 7;
const IS_NARROW: u64 = 1 << 4;
const LEVEL: u64 = 3 << 2;
/// mstatus, and its interrupt bits by privilege.
const MSTATUS: c_int = 0x300;
const SUPERVISOR: u64 = 1;
const MACHINE: u64 = 3;
const FETCH: bool = true;

/// A processor whose guests are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    X86,
    Arm,
    Riscv,
}

/// What is known of the guest's code, and of QEMU's vCPUs.
pub struct Walks {
    seen: Seen,
    records: records::exit::Exits,
    /// Where QEMU's vCPU has the general registers of riscv64, with which its state begins.
    state: Option<usize>,
}

impl Walks {
    pub fn new(arguments: &Arguments) -> Result<Self, String> {
        Ok(Self { seen: Seen::new(arguments)?, records: Default::default(), state: None })
    }

    /// The search for the kernel's place, if it has found nothing.
    pub fn not_placed(&self) -> Option<&Finder> {
        self.seen.not_placed()
    }

    /// Forgets where everything was, because the guest has rebooted.
    pub fn restart(&mut self) {
        self.seen.restart();
        self.records = records::exit::Exits::default();
    }
}

impl Processor {
    pub fn of(target: &str) -> Option<Self> {
        match target {
            "x86_64" => Some(Self::X86),
            "aarch64" => Some(Self::Arm),
            "riscv64" => Some(Self::Riscv),
            _ => None,
        }
    }

    /// QEMU's function that reads its registers.
    pub fn reader(self) -> &'static CStr {
        match self {
            Self::X86 => c"x86_cpu_gdb_read_register",
            Self::Arm => c"aarch64_cpu_gdb_read_register",
            Self::Riscv => c"riscv_cpu_gdb_read_register",
        }
    }

    /// Looks for the kernel where this vCPU is, if it is asked for and not found yet. What was found now.
    #[inline]
    pub fn look<'a>(self, vcpu: &Vcpu, walks: &'a mut Walks) -> Option<&'a Finder> {
        if self == Self::X86 {
            return walks.seen.look(vcpu);
        }
        walks.seen.not_placed()?;
        let (at, _, level, _) = if self == Self::Arm { arm(vcpu) } else { riscv(vcpu, &mut walks.state) };
        walks.seen.look_at(vcpu, (level != USER).then_some(at.pc))
    }

    /// Whether this vCPU is in user mode.
    pub fn is_user(self, vcpu: &Vcpu, walks: &mut Walks) -> bool {
        match self {
            Self::X86 => vcpu.registers().is_user(),
            Self::Arm => arm(vcpu).2 == USER,
            Self::Riscv => riscv(vcpu, &mut walks.state).2 == USER,
        }
    }

    /// The words of a sample, as they are sent.
    pub fn words(self, vcpu: &Vcpu, time: u64, walks: &mut Walks) -> Vec<u64> {
        let (at, flags, level, rules) = match self {
            Self::X86 => return walks.seen.sample(vcpu, time),
            Self::Arm => arm(vcpu),
            Self::Riscv => riscv(vcpu, &mut walks.state),
        };
        let half = walks.seen.half(at.pc).filter(|_| level != USER);
        let mut words = vec![time, half.map_or(at.pc, |half| half.written(at.pc)), flags, level];
        if let Some(half) = half {
            let Walks { seen, records: exits, .. } = walks;
            seen.pages.begin();
            let read = |address, to: &mut [u8]| seen.pages.read(vcpu, address, to);
            let known = records::Known { half, exits, tables: seen.tables() };
            let stack = records::walk(rules, &at, &read, &read, known);
            words.extend([stack.candidate, stack.end as u64]);
            words.extend(stack.callers);
        }
        words
    }
}

type State = (Registers, u64, u64, &'static records::Processor);

fn arm(vcpu: &Vcpu) -> State {
    let [fp, link, sp, pc, pstate] = vcpu.by_number([29, 30, 31, 32, 33]);
    // Code of 32 bits has other registers: it is unknown code.
    let pc = if pstate & IS_NARROW == 0 { pc } else { 0 };
    let is_user = pstate & LEVEL == 0 && (pstate & IS_NARROW == 0 || pstate & 0xf == 0);
    let flags = if pstate & MASKED == 0 { INTERRUPTS_ON } else { 0 };
    (Registers { pc, sp, fp, link }, flags, if is_user { USER } else { 0 }, &aarch64::PROCESSOR)
}

fn riscv(vcpu: &Vcpu, place: &mut Option<usize>) -> State {
    let general: [u64; 32] = vcpu.by_number(std::array::from_fn(|number| number as c_int));
    let [pc] = vcpu.by_number([32]);
    let (privilege, mstatus) = state_of_riscv(vcpu, &general, place).unwrap_or((SUPERVISOR, u64::MAX));
    let is_on = match privilege {
        SUPERVISOR | MACHINE => mstatus >> privilege & 1 == 1,
        _ => true,
    };
    let at = Registers { pc, sp: general[2], fp: general[8], link: general[1] };
    let level = if privilege == 0 { USER } else { 0 };
    (at, if is_on { INTERRUPTS_ON } else { 0 }, level, &riscv64::PROCESSOR)
}

/// Privilege and mstatus. QEMU's functions take its state of the processor, which begins with the general registers:
/// it is where the vCPU's object has all of them in a row. `None` if that is nowhere, or QEMU has no such functions.
fn state_of_riscv(vcpu: &Vcpu, general: &[u64; 32], known: &mut Option<usize>) -> Option<(u64, u64)> {
    let (object, bytes) = vcpu.object();
    // SAFETY: this many bytes of the object can be read, and do not change meanwhile; it is aligned for any type.
    let words = unsafe { std::slice::from_raw_parts(object.cast::<u64>(), bytes / 8) };
    let is_here = |at: &usize| words.get(*at..*at + general.len()).is_some_and(|here| here == general);
    // Registers that are nearly all 0, as at the start, are found anywhere.
    let is_told_apart = || general.iter().filter(|value| **value != 0).count() >= 4;
    let at = match known.filter(is_here) {
        Some(at) => at,
        None if is_told_apart() => (0..words.len()).find(is_here)?,
        None => return None,
    };
    *known = Some(at);
    let level = symbol(c"riscv_cpu_mmu_index")?;
    let csr = symbol(c"riscv_csrrw_debug")?;
    // SAFETY: the place is within the object.
    let state = unsafe { object.cast::<u64>().add(at) }.cast::<c_void>();
    let mut mstatus = 0;
    // SAFETY: the functions have these types in QEMU 7.2 to 8.2, whose state of the processor begins with the general
    // registers. The first gives the privilege of code, the second one reads: no bit is written with a mask of 0.
    unsafe {
        let level = std::mem::transmute::<NonNull<c_void>, extern "C" fn(*mut c_void, bool) -> c_int>(level);
        let csr = std::mem::transmute::<
            NonNull<c_void>,
            extern "C" fn(*mut c_void, c_int, *mut u64, u64, u64) -> c_int,
        >(csr);
        csr(state, MSTATUS, &raw mut mstatus, 0, 0);
        Some((level(state, FETCH) as u64 & 3, mstatus))
    }
}
