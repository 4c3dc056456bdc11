//! Registers that record each access: the simulated hardware of the unit tests.

use crate::apic::Registers;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read(u16),
    Write(u16, u32),
    WriteMsr(u32, u64),
    Fence,
}

/// The values that reads return, and a list of all accesses in order, except reads of MSRs.
#[derive(Default)]
pub(crate) struct Recorded {
    answers: RefCell<HashMap<u16, VecDeque<u32>>>,
    msrs: RefCell<HashMap<u32, u64>>,
    accesses: RefCell<Vec<Access>>,
}

impl Recorded {
    pub(crate) fn xapic() -> Self {
        let new = Self::default();
        new.answer_msr(0x1b, 0xfee0_0800);
        new
    }

    pub(crate) fn x2apic() -> Self {
        let new = Self::default();
        new.answer_msr(0x1b, 0xfee0_0c00);
        new
    }

    /// Sets the values of the next reads of a register; later reads return 0.
    pub(crate) fn answer(&self, offset: u16, values: &[u32]) {
        self.answers.borrow_mut().insert(offset, values.iter().copied().collect());
    }

    pub(crate) fn answer_msr(&self, msr: u32, value: u64) {
        self.msrs.borrow_mut().insert(msr, value);
    }

    /// Takes the accesses since the last call.
    pub(crate) fn taken(&self) -> Vec<Access> {
        self.accesses.take()
    }
}

impl Registers for &Recorded {
    fn read(&self, offset: u16) -> u32 {
        self.accesses.borrow_mut().push(Access::Read(offset));
        self.answers.borrow_mut().get_mut(&offset).and_then(VecDeque::pop_front).unwrap_or(0)
    }

    fn write(&self, offset: u16, value: u32) {
        self.accesses.borrow_mut().push(Access::Write(offset, value));
    }

    fn read_msr(&self, msr: u32) -> u64 {
        *self.msrs.borrow().get(&msr).unwrap_or_else(|| panic!("MSR {msr:x} is read, which this mode has not"))
    }

    fn write_msr(&self, msr: u32, value: u64) {
        assert!(*self.msrs.borrow().get(&0x1b).unwrap() >> 10 & 1 == 1, "MSR {msr:x} is written in xAPIC mode");
        self.accesses.borrow_mut().push(Access::WriteMsr(msr, value));
    }

    fn fence(&self) {
        self.accesses.borrow_mut().push(Access::Fence);
    }
}
