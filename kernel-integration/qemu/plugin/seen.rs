//! What the plugin knows of the kernel: where it runs, its unwind tables, how its code ends. Stage: capture.
//!
//! In: `place=FILE` and `slide=N` (see `place/`), `tables=FILE` (see `walk/tables.rs`), vCPUs. Out: the words of
//! samples. Runs in: QEMU's process, on a vCPU's thread, before a block or between two.

use super::Arguments;
use super::pages::Pages;
use super::place::{File, Finder};
use super::qemu::Vcpu;
use super::walk::half::Half;
use super::walk::{self, Exits, Registers, Tables};

#[derive(Default)]
pub struct Seen {
    exits: Exits,
    /// The memory of the present sample.
    pub pages: Pages,
    finder: Option<Finder>,
    tables: Option<Tables>,
}

impl Seen {
    pub fn new(arguments: &Arguments) -> Result<Self, String> {
        let read = |path: &str| std::fs::read(path).map_err(|error| format!("{path}: {error}"));
        let file = arguments.word("place").map(read).transpose()?;
        let given = arguments.word("slide").and_then(|text| text.parse().ok());
        let finder = file.map(|bytes| Finder::new(File::read(&bytes), given, u64::MAX));
        let tables = arguments.word("tables").map(read).transpose()?.map(|bytes| Tables::read(&bytes));
        Ok(Self { finder, tables, ..Self::default() })
    }

    /// Looks for the kernel where this vCPU is, if it is not found yet: at this instruction in kernel mode. What was
    /// found now.
    pub fn look_at(&mut self, vcpu: &Vcpu, at: Option<u64>) -> Option<&Finder> {
        let finder = self.finder.as_mut().filter(|finder| !finder.is_placed())?;
        let read = |address, to: &mut [u8]| vcpu.read(address, to);
        let slide = finder.slide(at?, &read)?;
        self.tables.iter_mut().for_each(|tables| tables.slide = Some(slide));
        Some(finder)
    }

    /// Forgets where everything was, because the guest has rebooted.
    pub fn restart(&mut self) {
        self.exits = Exits::default();
        self.finder.iter_mut().for_each(Finder::restart);
        self.tables.iter_mut().for_each(|tables| tables.slide = None);
    }

    /// The kernel's unwind tables, if stacks are found by them.
    pub fn tables(&self) -> Option<&Tables> {
        self.tables.as_ref()
    }

    /// The search, if it has found nothing.
    pub fn not_placed(&self) -> Option<&Finder> {
        self.finder.as_ref().filter(|finder| !finder.is_placed())
    }

    /// The half that the kernel is in, if this address in kernel mode is that of its code.
    pub fn half(&self, address: u64) -> Option<Half> {
        Half::of(address, Finder::lower(self.finder.as_ref()))
    }

    /// The words of a sample, as they are sent.
    pub fn sample(&mut self, vcpu: &Vcpu, time: u64) -> Vec<u64> {
        let at: Registers = vcpu.registers();
        let half = at.half(Finder::lower(self.finder.as_ref()));
        let mut words = vec![time, half.map_or(at.rip, |half| half.written(at.rip)), at.rflags, at.cs];
        if let Some(half) = half {
            self.pages.begin();
            let read = |address, to: &mut [u8]| self.pages.read(vcpu, address, to);
            let stack = walk::walk(&at, half, &read, &read, &mut self.exits, self.tables.as_ref());
            words.extend([stack.candidate, stack.end as u64]);
            words.extend(stack.callers);
        }
        words
    }
}
