//! Plants and removes probes.
//!
//! In: the commands `probe` and `unprobe`, checked first and carried out later. Out: an `int3` in place of the first
//! byte of each instruction, or that byte again. Runs in: ordinary code, under the writer's lock. Other CPUs may
//! execute the code meanwhile: one byte is written at a time, so they execute the `int3` or the instruction.

use super::calls;
use super::memory::{Memory, ProbeMemory};
use super::places::{self, Instruction, JUMPS, PUSH_RBP, Place, RET};
use super::probe::{Installed, KernelText, Probe};
use crate::events::Events;
use crate::kernel::EventKernel;
use crate::points::POINTS;
use crate::state::State;
use core::ptr;
use core::sync::atomic::Ordering;
use kprof::format::command::{Command, ProbePlaces, Removed};
use kprof::format::point::PointState;
use kprof::internals::{OWNER_WAIT_US, Patience};
use kprof::{CommandError, RegisterError};

const INT3: u8 = 0xcc;

/// Gives the profiler the memory for probes.
pub(crate) fn register<K: EventKernel, const FUNCTIONS: usize, const PLACES: usize, const CALLS: usize>(
    events: &'static Events<K>,
    memory: &'static ProbeMemory<FUNCTIONS, PLACES, CALLS>,
) -> Result<(), RegisterError> {
    if !events.state.is_installed() {
        return Err(RegisterError::NoSlot(0));
    }
    let mut result = Err(RegisterError::ProbesTwice);
    let probes = &events.state.probes;
    if probes.memory.get().is_none()
        && let Some(memory) = memory.take()
    {
        probes.memory.call_once(|| {
            result = Ok(());
            Installed { memory, text: events }
        });
    }
    result
}

/// How much memory the `probe` lines of one write need.
#[derive(Clone, Copy, Default)]
pub(crate) struct Planned {
    probes: usize,
    places: usize,
    /// The function of the last line.
    last: u64,
    /// [`Probe::last_used`] of what the first line has asked for.
    since: Option<u64>,
}

impl Planned {
    /// Whether the last of these lines puts a probe on this function.
    pub(crate) fn plants(&self, address: u64) -> bool {
        self.probes > 0 && self.last == address
    }
}

const NO_ROOM: CommandError =
    CommandError::State("no room for another probe: an `unprobe` in a write before makes some");
const IN_USE: CommandError = CommandError::State(
    "removed probes keep their room until their counts are read and their hits have ended: try again",
);

impl State {
    /// Checks that a probe can be put on this function, after those that are `planned`. Nothing changes but that
    /// removed probes may lose their room. `by_lease`: it is to end with the lease.
    pub(crate) fn check_probe(
        &self,
        wanted: ProbePlaces<'_>,
        by_lease: bool,
        planned: &mut Planned,
    ) -> Result<(), CommandError> {
        let Some(installed) = self.probes.memory.get() else {
            return Err(CommandError::State("this kernel gives no memory for probes (`register_probes`)"));
        };
        let known = installed.probe_on(wanted.entry).map(|(_, probe)| probe);
        if by_lease && known.is_some_and(|known| known.is_of_others()) && !installed.has(wanted) {
            return Err(CommandError::State(
                "somebody else has a probe there, with other exits, arguments or conditions",
            ));
        }
        self.check_place(installed, wanted.entry, known, true, planned)?;
        for exit in wanted.exits() {
            self.check_place(installed, exit, known, false, planned)?;
        }
        let use_number = self.probes.next_use();
        let since = *planned.since.get_or_insert(use_number);
        if let Some(known) = known {
            known.last_used.store(use_number, Ordering::Relaxed);
        }
        planned.probes += usize::from(known.is_none());
        planned.last = wanted.entry;
        self.make_room(installed, planned, since)
    }

    /// Frees what removed probes have kept, if these lines need it.
    fn make_room(&self, installed: &Installed, planned: &Planned, since: u64) -> Result<(), CommandError> {
        let Memory { probes, places, .. } = installed.memory;
        let free = || probes.iter().filter(|probe| probe.point.function() == 0).count();
        if free() >= planned.probes && places::room(places) >= planned.places {
            return Ok(());
        }
        places::leave_unowned(places);
        if !self.has_no_hit() {
            return Err(IN_USE);
        }
        places::free_left(places);
        let last_used = |probe: &&Probe| probe.last_used.load(Ordering::Relaxed);
        let can_go = |probe: &&Probe| probe.point.function() != 0 && !probe.is_planted() && last_used(probe) < since;
        while free() < planned.probes {
            let oldest = probes.iter().filter(can_go).min_by_key(last_used).ok_or(NO_ROOM)?;
            if !self.retire(&oldest.point) {
                return Err(IN_USE);
            }
        }
        if places::room(places) >= planned.places { Ok(()) } else { Err(NO_ROOM) }
    }

    /// Whether no CPU handles a hit any more that has begun before this call. Waits for them.
    pub(super) fn has_no_hit(&self) -> bool {
        let mut patience = Patience::us(OWNER_WAIT_US, self.tsc_hz());
        let mut ends = |is_over: &dyn Fn() -> bool| loop {
            if is_over() || !patience.go_on() {
                return is_over();
            }
        };
        // With the order of these loads and that of `Place::owner`, a hit that begins later sees no removed probe.
        self.slots().iter().all(|slot| ends(&|| !slot.in_probe.load(Ordering::SeqCst)))
            && ends(&|| self.guests.are_gone())
    }

    /// Checks one instruction of a function. `known` is the function's probe, if it has or had one.
    fn check_place(
        &self,
        installed: &Installed,
        address: u64,
        known: Option<&'static Probe>,
        is_entry: bool,
        planned: &mut Planned,
    ) -> Result<(), CommandError> {
        if let Some(place) = places::find(installed.memory.places, address) {
            // That of a probe that was removed belongs to nobody, and may have to leave the table for another line.
            planned.places += usize::from(place.owner() == 0);
            let is_others = installed.memory.probe_of(place.owner()).is_some_and(|owner| !is_same(known, owner));
            let is_fit = !is_others && is_entry == place.instruction().begins();
            return if is_fit { Ok(()) } else { Err(CommandError::State("the instruction belongs to another probe")) };
        }
        if installed.text.is_stub(address) {
            return Err(CommandError::State("entry stubs can have no probes"));
        }
        let instruction = match self.instruction_at(address)? {
            Some(instruction) if is_entry == (instruction == Instruction::Push) => instruction,
            _ if is_entry => return Err(CommandError::State("the function does not begin with `push rbp`")),
            _ => return Err(CommandError::State("an exit is neither `ret` nor a direct `jmp`")),
        };
        planned.places += 1;
        // SAFETY: the byte that is there already.
        match unsafe { installed.text.patch(address, instruction.opcode()) } {
            true => Ok(()),
            false => Err(CommandError::State("the kernel cannot write its code there (`EventKernel::patch`)")),
        }
    }

    /// A byte of the kernel's code.
    fn code_byte(&self, address: u64) -> Result<u8, CommandError> {
        let text = self.config().map_or((0, 0), |config| config.text);
        if !(text.0..text.1).contains(&address) {
            return Err(CommandError::Value("addresses in the kernel's text"));
        }
        // SAFETY: by the promise of `Kernel` every page of `Config::text` is mapped and readable for ever.
        Ok(unsafe { (address as *const u8).read_volatile() })
    }

    /// Decodes an instruction, if it is one that a probe can replace.
    pub(super) fn instruction_at(&self, address: u64) -> Result<Option<Instruction>, CommandError> {
        let opcode = self.code_byte(address)?;
        match opcode {
            PUSH_RBP => return Ok(Some(Instruction::Push)),
            RET => return Ok(Some(Instruction::Return)),
            _ => {}
        }
        let Some((_, bytes)) = JUMPS.into_iter().find(|(jump, _)| *jump == opcode) else { return Ok(None) };
        let mut distance = [0; 4];
        for (index, byte) in distance.iter_mut().take(bytes).enumerate() {
            *byte = self.code_byte(address.wrapping_add(1 + index as u64))?;
        }
        let distance = if bytes == 1 { i32::from(distance[0] as i8) } else { i32::from_le_bytes(distance) };
        let target = address.wrapping_add(1 + bytes as u64).wrapping_add_signed(distance.into());
        // It must be code.
        self.code_byte(target)?;
        Ok(Some(Instruction::Jump { opcode, target }))
    }

    /// Puts a probe on a function, which was checked. `by_lease`: it ends with the lease.
    pub(crate) fn plant(&self, wanted: ProbePlaces<'_>, by_lease: bool) {
        let Some(installed) = self.probes.memory.get() else { return };
        let memory = installed.memory;
        if self.probes.planted() == 0 {
            self.probes.set_clock(self.tsc_hz());
        }
        // One that is not used has the function 0.
        let probe = installed.probe_on(wanted.entry).or_else(|| installed.probe_on(0));
        let Some((number, probe)) = probe else { return };
        if by_lease && probe.is_of_others() {
            // The same probe, which stays when the lease ends; that its point counts ends then, if it was off.
            probe.by_lease.store(true, Ordering::Relaxed);
            if !probe.point.is_on() {
                POINTS.choose_by_lease(&probe.point, PointState::Count);
            }
            return;
        }
        if probe.is_planted() {
            // It may have other exits.
            installed.remove(probe);
        }
        let point = &probe.point;
        if point.is_unlisted() {
            point.name_after(wanted.entry);
            POINTS.list(point);
        }
        // A choice for its name (`event probe.* record`) may be in force already.
        let [state, base] = POINTS.chosen(point).map(|state| match state {
            PointState::Off => PointState::Count,
            chosen => chosen,
        });
        if !by_lease {
            point.choose(base, false);
        }
        point.choose(state, true);
        probe.asked.set(wanted);
        probe.has_exits.store(wanted.exits().next().is_some(), Ordering::Relaxed);
        // The exits first: a call whose beginning is seen is also seen to end.
        for address in wanted.exits().chain([wanted.entry]) {
            let add = || places::add(memory.places, address, self.instruction_at(address).ok()??);
            if let Some(place) = places::find(memory.places, address).or_else(add) {
                installed.set(place, probe.owner(number));
            }
        }
        probe.by_lease.store(by_lease, Ordering::Relaxed);
        probe.by_others.store(!by_lease, Ordering::Relaxed);
        self.shared.note_setting(format_args!("{}", Command::Probe(wanted.without_exits())));
        self.note_point(point);
    }

    /// Removes probes. One that the holder of the lease and somebody else have put stays, if only the lease's end.
    pub(crate) fn remove_probes(&self, removed: Removed) {
        let Some(installed) = self.probes.memory.get() else { return };
        let is_one = |probe: &&Probe| match removed {
            Removed::All | Removed::OfLease => true,
            Removed::One(address) => probe.point.function() == address,
        };
        for probe in installed.memory.probes.iter().filter(is_one) {
            let was_planted = probe.is_planted();
            probe.by_lease.store(false, Ordering::Relaxed);
            if removed != Removed::OfLease {
                probe.by_others.store(false, Ordering::Relaxed);
            }
            if was_planted && !probe.is_planted() {
                installed.remove(probe);
                probe.last_used.store(self.probes.next_use(), Ordering::Relaxed);
            }
        }
        self.shared.note_setting(format_args!("unprobe {removed}"));
    }

    /// Removes the probes that end with the lease, if there are any.
    pub(crate) fn end_lease_of_probes(&self) {
        let probes = self.probes.memory.get().map_or(&[][..], |installed| installed.memory.probes);
        if probes.iter().any(|probe| probe.by_lease.load(Ordering::Relaxed)) {
            self.remove_probes(Removed::OfLease);
        }
    }

    /// Whether there is a probe on this function.
    pub(crate) fn has_probe(&self, address: u64) -> bool {
        let found = self.probes.memory.get().and_then(|installed| installed.probe_on(address));
        found.is_some_and(|(_, probe)| probe.is_planted())
    }
}

impl<K: EventKernel> KernelText for Events<K> {
    unsafe fn patch(&self, address: u64, byte: u8) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.kernel().patch(address, byte) }
    }

    fn is_stub(&self, address: u64) -> bool {
        self.kernel().is_entry_code(address)
    }
}

fn is_same(one: Option<&Probe>, other: &Probe) -> bool {
    one.is_some_and(|one| ptr::eq(one, other))
}

impl Installed {
    /// The probe that this function has, or had last, and its number.
    fn probe_on(&self, address: u64) -> Option<(usize, &'static Probe)> {
        self.memory.probes.iter().enumerate().find(|(_, probe)| probe.point.function() == address)
    }

    /// Whether the probe of this function has the exits, arguments and conditions of the command.
    fn has(&self, wanted: ProbePlaces<'_>) -> bool {
        let Some((number, probe)) = self.probe_on(wanted.entry) else { return false };
        let is_its_own = |place: &Place| place.owner() == probe.owner(number);
        let has = |address| places::find(self.memory.places, address).is_some_and(is_its_own);
        let count = self.memory.places.iter().filter(|place| is_its_own(place)).count();
        probe.asked.is(wanted) && wanted.exits().all(has) && wanted.exits().count() + 1 == count
    }

    /// Puts the instructions of a probe back, if they are replaced, and switches its point off.
    fn remove(&self, probe: &'static Probe) {
        let is_its_own =
            |place: &&Place| self.memory.probe_of(place.owner()).is_some_and(|other| ptr::eq(other, probe));
        let its_own = || self.memory.places.iter().filter(is_its_own);
        // The function's first instruction first, so that no more calls are seen to begin.
        let is_entry = |place: &&Place| place.instruction().begins();
        its_own().filter(is_entry).for_each(|place| self.set(place, 0));
        its_own().filter(|place| !is_entry(place)).for_each(|place| self.set(place, 0));
        probe.generation.fetch_add(1, Ordering::Relaxed);
        // A CPU that has seen the owner before may still note a call: it is forgotten with the next probe's.
        let is_gone = |owner| self.memory.probe_of(owner).is_none_or(|probe| !probe.is_of_generation(owner));
        calls::forget(self.memory.calls, is_gone);
        // So that ctl shows which functions have a probe.
        probe.point.choose(PointState::Off, false);
    }

    /// Puts the `int3` of a place there, for this owner; or the instruction, if it is 0.
    fn set(&self, place: &Place, owner: u64) {
        let byte = if owner != 0 { INT3 } else { place.instruction().opcode() };
        // The owner first, so that the first hit counts. After the removal it is only emulated.
        place.set_owner(owner);
        self.memory.changes.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the place was checked: the byte is the first one of an instruction that `on_breakpoint` emulates, or
        // an `int3` in its place. It is one byte, so no CPU executes a part of it. The check has written to it before.
        unsafe { self.text.patch(place.address(), byte) };
    }
}
