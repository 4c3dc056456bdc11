//! The guest's processor: its registers, and the words of a sample. Stage: capture.
//!
//! In: the name that QEMU has for it, a vCPU. Out: the words of a sample, the same for all: time, address, flags with
//! bit 9 set if interrupts are on, privilege level (0 kernel, 3 user), stack. Runs in: QEMU's process, on the vCPU's
//! thread.

use super::Arguments;
use super::place::Finder;
pub use super::qemu::Processor;
use super::qemu::Vcpu;
use super::records::{self, Registers, aarch64, riscv64};
use super::seen::Seen;

/// The interrupt flag, as in RFLAGS.
const INTERRUPTS_ON: u64 = 1 << 9;
const USER: u64 = 3;
/// PSTATE: interrupts are masked; 32 bits; the mode, of which these bits are the exception level.
const MASKED: u64 = 1 << 7;
const IS_NARROW: u64 = 1 << 4;
const LEVEL: u64 = 3 << 2;
/// The interrupt bits of mstatus, by privilege.
const SUPERVISOR: u64 = 1;
const MACHINE: u64 = 3;

/// What is known of the guest's code, and of QEMU's vCPUs.
pub struct Walks {
    pub seen: Seen,
    records: records::exit::Exits,
}

impl Walks {
    pub fn new(arguments: &Arguments) -> Result<Self, String> {
        Ok(Self { seen: Seen::new(arguments)?, records: Default::default() })
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

    /// Looks for the kernel where this vCPU is, if it is asked for and not found yet. What was found now.
    #[inline]
    pub fn look<'a>(self, vcpu: &Vcpu, seen: &'a mut Seen) -> Option<&'a Finder> {
        seen.not_placed()?;
        let (pc, is_user) = match self {
            Self::X86 => {
                let at = vcpu.registers();
                (at.rip, at.is_user())
            }
            Self::Arm | Self::Riscv => {
                let (at, _, level, _) = if self == Self::Arm { arm(vcpu) } else { riscv(vcpu) };
                (at.pc, level == USER)
            }
        };
        seen.look_at(vcpu, (!is_user).then_some(pc))
    }

    /// Whether this vCPU is in user mode.
    pub fn is_user(self, vcpu: &Vcpu) -> bool {
        match self {
            Self::X86 => vcpu.registers().is_user(),
            Self::Arm => arm(vcpu).2 == USER,
            Self::Riscv => riscv(vcpu).2 == USER,
        }
    }

    /// The words of a sample, as they are sent.
    pub fn words(self, vcpu: &Vcpu, time: u64, walks: &mut Walks) -> Vec<u64> {
        let (at, flags, level, rules) = match self {
            Self::X86 => return walks.seen.sample(vcpu, time),
            Self::Arm => arm(vcpu),
            Self::Riscv => riscv(vcpu),
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
    let (at, pstate) = vcpu.arm();
    // Code of 32 bits has other registers: it is unknown code.
    let pc = if pstate & IS_NARROW == 0 { at.pc } else { 0 };
    let is_user = pstate & LEVEL == 0 && (pstate & IS_NARROW == 0 || pstate & 0xf == 0);
    let flags = if pstate & MASKED == 0 { INTERRUPTS_ON } else { 0 };
    (Registers { pc, ..at }, flags, if is_user { USER } else { 0 }, &aarch64::PROCESSOR)
}

fn riscv(vcpu: &Vcpu) -> State {
    let (at, state) = vcpu.riscv();
    let (privilege, mstatus) = state.unwrap_or((SUPERVISOR, u64::MAX));
    let is_on = match privilege {
        SUPERVISOR | MACHINE => mstatus >> privilege & 1 == 1,
        _ => true,
    };
    let level = if privilege == 0 { USER } else { 0 };
    (at, if is_on { INTERRUPTS_ON } else { 0 }, level, &riscv64::PROCESSOR)
}
