//! The bare kernel for aarch64 and riscv64 where its NMIs do not arrive: a core that masks FIQs, an interrupt
//! controller that gives the kernel no group 0, firmware that does not hand machine-mode interrupts over.
//!
//! In: the kernel's ELF file, in which instructions are replaced. Out: checks that the kernel comes to its end, that
//! `check` and `kprof-fold doctor` say what is missing and what the other trigger does not see, and that no sample is
//! made up.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};

use crate::profile::bare::{Boot, Processor};
use crate::run;

/// Instructions, the bits of the first one that count, and what stands in their place.
pub(super) type Change = (&'static [u32], u32, &'static [u32]);

/// What is wrong with a machine.
pub(super) struct Fault {
    /// The name of its check.
    pub(super) name: &'static str,
    processor: &'static str,
    changes: &'static [Change],
    /// What `check` says.
    check: &'static str,
    /// What `doctor` says.
    doctor: &'static str,
}

/// The bits of an instruction of aarch64 without its first register.
pub(super) const NO_REGISTER: u32 = !0x1f;
pub(super) const NOP: u32 = 0xd503_201f;

pub(super) const FAULTS: [Fault; 3] = [
    Fault {
        name: "a GIC without group 0",
        processor: "aarch64",
        // msr ICC_IGRPEN0_EL1, x
        changes: &[(&[0xd518_ccc0], NO_REGISTER, &[NOP])],
        check: "or does the GIC give this kernel no group 0?",
        doctor: "does the GIC give the kernel no group 0?",
    },
    Fault {
        name: "a core that masks FIQs",
        processor: "aarch64",
        changes: &[
            // msr daifclr, #1; msr daifclr, #3 becomes #2; msr daif, x; isb becomes msr daifclr, #2; isb.
            (&[0xd503_41ff], !0, &[NOP]),
            (&[0xd503_43ff], !0, &[0xd503_42ff]),
            (&[0xd51b_4220, 0xd503_3fdf], NO_REGISTER, &[0xd503_42ff]),
            // isb; msr elr_el1, x0; msr spsr_el1, xzr: user mode with F set in x4.
            (&[0xd503_3fdf, 0xd518_4020, 0xd518_401f], !0, &[0xd280_0804, 0xd518_4020, 0xd518_4004]),
        ],
        check: "does the core mask FIQs,",
        doctor: "Does the core mask FIQs,",
    },
    Fault {
        name: "firmware that keeps machine-mode interrupts",
        processor: "riscv64",
        // csrwi mie, 8 becomes csrwi mie, 0.
        changes: &[(&[0x3044_5073], !0, &[0x3040_5073])],
        check: "does code in machine mode hand this kernel software interrupts?",
        doctor: "Is there code in machine mode",
    },
];

/// What both add.
const LEFT: &str = "has no samples of code that runs with interrupts masked";
/// Rounds of the kernel's storm: more than the second for which `check` waits.
const ROUNDS: u32 = 200;

impl Fault {
    pub(super) fn is_of(&self, processor: Processor) -> bool {
        self.processor == processor.name
    }

    /// Boots the kernel `elf` with this fault.
    ///
    /// # Errors
    /// If the kernel does not come to its end, or something is not said.
    pub(super) fn check(&self, processor: Processor, qemu: &Path, fold: &Path, elf: &Path) -> Result<()> {
        let file = |name: &str| -> PathBuf {
            run::root().join(format!("target/bare/{}-{}.{name}", self.processor, self.name.replace(' ', "-")))
        };
        let (changed, serial) = (file("elf"), file("log"));
        std::fs::write(&changed, change(self.changes, std::fs::read(elf)?)?)?;
        let machine = Boot {
            cpus: 2,
            is_counted: true,
            seed: 1,
            hz: 1000,
            storm: Some(ROUNDS),
            misses: None,
            offers_cycles: true,
        };
        processor.boot(qemu, &changed, machine, &serial)?;
        let log = String::from_utf8_lossy(&std::fs::read(&serial)?).into_owned();
        for words in ["bare: kprof: the NMI sent to cpu 1 does not arrive", self.check, LEFT] {
            ensure!(log.contains(words), "the log does not say: {words}");
        }
        let doctor = Command::new(fold).arg("doctor").arg(&serial).arg(elf).output()?;
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        for words in ["took none", self.doctor, LEFT, "no kernel sample at all"] {
            ensure!(doctor.status.code() == Some(1) && said.contains(words), "doctor does not say: {words}: {said}");
        }
        Ok(())
    }
}

/// The kernel with other instructions in all places that have these.
pub(super) fn change(changes: &[Change], mut elf: Vec<u8>) -> Result<Vec<u8>> {
    let word = |elf: &[u8], at: usize| {
        elf.get(at..at + 4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    for (old, bits, new) in changes {
        let is_old = |elf: &[u8], at: usize| {
            let mut old = old.iter().enumerate();
            old.all(|(index, old)| {
                let bits = if index == 0 { *bits } else { !0 };
                word(elf, at + 4 * index).is_some_and(|word| word & bits == *old)
            })
        };
        // Instructions of riscv64 are multiples of two bytes.
        let places: Vec<usize> = (0..elf.len()).step_by(2).filter(|at| is_old(&elf, *at)).collect();
        if places.is_empty() {
            bail!("the kernel has no instruction {:08x}", old[0]);
        }
        for at in places {
            new.iter().enumerate().for_each(|(index, word)| {
                elf[at + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
            });
        }
    }
    Ok(elf)
}
