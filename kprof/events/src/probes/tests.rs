//! Probes on code and stacks that are arrays: what is planted, what a breakpoint does, what is counted, what is
//! refused.

mod ends;
mod room;

use super::memory::ProbeMemory;
use super::{on_breakpoint, register};
use crate::EventSlot;
use crate::events::Events;
use crate::kernel::EventKernel;
use crate::points::{PointCounts, Taken};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use kprof::config::{Config, Setup};
use kprof::format::event::MAX_ARGUMENTS;
use kprof::format::record::EventHeader;
use kprof::internals::Ring;
use kprof::{Breakpoint, ControlFile, CpuSet, CpuSlot, Kernel, Profiler, Task, Trigger};

const CODE_BYTES: usize = 256;
const STACK_WORDS: usize = 64;
const INT3: u8 = 0xcc;

thread_local! {
    /// The CPU that this thread is, if it is one of its own.
    static OWN_CPU: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A kernel whose code is an array. It can write all of it but the last 16 bytes, and has an entry stub at 0xe0.
struct Array {
    code: &'static [AtomicU8; CODE_BYTES],
    /// Where the test's stack ends.
    stack_end: AtomicU64,
    /// The CPU that the test is on; all after the first have no slot, if the test does not ask for more.
    cpu: AtomicUsize,
}

impl Array {
    fn address(&self, offset: usize) -> u64 {
        self.code.as_ptr().expose_provenance() as u64 + offset as u64
    }
}

// SAFETY: there is one CPU, whose number no test changes during a hit; its stack is the test's, from the address that
// is asked for up to the test's own frame.
unsafe impl Kernel for Array {
    fn cpu(&self) -> usize {
        OWN_CPU.get().unwrap_or_else(|| self.cpu.load(Ordering::Relaxed))
    }
    fn signal(&self, _: &CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        let end = self.stack_end.load(Ordering::Relaxed);
        (address < end).then_some(address & !7..end)
    }
    fn is_entry_code(&self, address: u64) -> bool {
        address == self.address(0xe0)
    }
    const MARKED_ENTRIES: bool = true;
    fn task(&self) -> Task {
        Task { id: 7, idle: false }
    }
    fn sleep_ns(&self, _: u64) {}
}

impl EventKernel for Array {
    unsafe fn patch(&self, address: u64, byte: u8) -> bool {
        let offset = address.wrapping_sub(self.address(0)) as usize;
        let can = offset < CODE_BYTES - 16;
        if can {
            self.code[offset].store(byte, Ordering::Relaxed);
        }
        can
    }
}

struct Machine {
    events: &'static Events<Array>,
    profiler: &'static Profiler<Array>,
    control: Option<ControlFile>,
}

/// Functions at 0 (with a `ret` at 8 and jumps at 0x10 and 0x18) and at 0x40 (with a `ret` at 0x46).
fn machine() -> Machine {
    machine_of(1)
}

/// The same, with slots for this many CPUs.
fn machine_of(cpus: usize) -> Machine {
    let code: &'static [AtomicU8; CODE_BYTES] = Box::leak(Box::new([const { AtomicU8::new(0x90) }; CODE_BYTES]));
    let put = |at: usize, bytes: &[u8]| {
        code[at..].iter().zip(bytes).for_each(|(place, byte)| place.store(*byte, Ordering::Relaxed));
    };
    put(0, &[0x55]);
    put(8, &[0xc3]);
    put(0x10, &[0xe9, 0x2b, 0, 0, 0]);
    put(0x18, &[0xeb, 0x26]);
    put(0x20, &[0xe9, 0xff, 0xff, 0xff, 0x7f]);
    put(0x40, &[0x55]);
    put(0x46, &[0xc3]);
    put(0xe0, &[0x55]);
    put(0xf8, &[0x55]);
    put(0xfe, &[0xe9, 0]);
    let kernel = Array { code, stack_end: AtomicU64::new(0), cpu: AtomicUsize::new(0) };
    let profiler: &'static Profiler<Array> = Box::leak(Box::new(Profiler::new(kernel)));
    let events: &'static Events<Array> = Box::leak(Box::new(Events::new(profiler)));
    let words = || -> &'static mut [MaybeUninit<u64>] { vec![MaybeUninit::uninit(); 1024].leak() };
    let text = (events.kernel().address(0), events.kernel().address(CODE_BYTES));
    let config = Config { tsc_hz: 1_000_000_000, text, sampler_cpu: None, trigger: Trigger::Timer, ..Config::new() };
    let slots: &'static [CpuSlot] = (0..cpus).map(|_| CpuSlot::new()).collect::<Vec<_>>().leak();
    let event_slots: &'static [EventSlot] = (0..cpus).map(|_| EventSlot::new()).collect::<Vec<_>>().leak();
    events.init(|| event_slots, || Setup { slots, meta: words(), config }).unwrap();
    for cpu in 0..cpus {
        let places = || -> &'static [PointCounts] { (0..256).map(|_| PointCounts::new()).collect::<Vec<_>>().leak() };
        events.register_points(cpu, places).unwrap();
        events.register_events(cpu, words).unwrap();
    }
    let control = Some(profiler.open_control(1));
    Machine { profiler, events, control }
}

/// Runs one test with a lease at a time: the choices for points are those of the whole program.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn with_memory() -> Machine {
    with_memory_of(1)
}

fn with_memory_of(cpus: usize) -> Machine {
    let machine = machine_of(cpus);
    let memory: &'static ProbeMemory<2, 8, 2> = Box::leak(Box::new(ProbeMemory::new()));
    register(machine.events, memory).unwrap();
    machine
}

impl Machine {
    fn at(&self, offset: usize) -> u64 {
        self.events.kernel().address(offset)
    }

    fn byte(&self, offset: usize) -> u8 {
        self.events.kernel().code[offset].load(Ordering::Relaxed)
    }

    /// Writes one line to the control file; an `@` in it stands for the address of the code.
    fn write(&self, line: &str) -> Result<(), String> {
        let mut line = line.to_owned();
        while let Some(at) = line.find('@') {
            let end = line[at..].find(' ').map_or(line.len(), |end| at + end);
            let offset = usize::from_str_radix(&line[at + 1..end], 16).unwrap();
            line.replace_range(at..end, &format!("{:x}", self.at(offset)));
        }
        let control = self.control.as_ref().unwrap();
        control.write(line.as_bytes()).map(drop).map_err(|error| error.to_string())
    }

    /// A breakpoint at this offset, with this word of the stack on top. Returns the registers afterwards, with the
    /// program counter as an offset and the stack pointer as a number of a word.
    fn hit(&self, offset: usize, stack: &mut [u64; STACK_WORDS], word: usize) -> Option<(usize, usize)> {
        self.hit_with(offset, stack, word, [0; MAX_ARGUMENTS])
    }

    /// The same, with these values in the registers of arguments.
    fn hit_with(
        &self,
        offset: usize,
        stack: &mut [u64; STACK_WORDS],
        word: usize,
        registers: [u64; MAX_ARGUMENTS],
    ) -> Option<(usize, usize)> {
        let base = stack.as_mut_ptr().expose_provenance() as u64;
        self.events.kernel().stack_end.store(base + 8 * STACK_WORDS as u64, Ordering::Relaxed);
        let (pc, sp) = (self.at(offset + 1), base + 8 * word as u64);
        let mut at = Breakpoint { pc, sp, fp: base + 8 * 40 };
        // SAFETY: the stack is an array, of which nothing below `word` is in use, and the registers are returned.
        let is_probe = unsafe { on_breakpoint(self.events, &mut at, || registers) };
        assert!(is_probe || at == Breakpoint { pc, sp, fp: base + 8 * 40 }, "a foreign breakpoint changes nothing");
        is_probe.then(|| (at.pc.wrapping_sub(self.at(0)) as usize, ((at.sp - base) / 8) as usize))
    }

    /// What has been counted of the probe at this offset since the last call, with the hits that were lost.
    fn taken(&self, offset: usize) -> (u64, u64, u64) {
        let name = format!("probe.{:016x}", self.at(offset));
        let point = crate::points::POINTS.iter().find(|point| point.name() == name.as_str()).unwrap();
        let places = self.events.state.slots().iter().map(|slot| slot.points.get(point.offset()).unwrap());
        let taken: Vec<Taken> = places.map(PointCounts::take).collect();
        let hits = taken.iter().flat_map(|taken| taken.buckets).sum();
        (hits, taken.iter().map(|taken| taken.weight).sum(), point.take_lost().0)
    }

    fn events(&self) -> &'static Ring {
        self.events.state.slots()[0].records.stream().ring.get().unwrap()
    }
}

#[test]
fn a_call_is_counted_when_it_ends_and_each_instruction_is_emulated() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    assert_eq!(machine.hit(0, &mut stack, 20), None, "there is no memory in use yet");
    machine.write("probe @0 8 10 18").unwrap();
    assert_eq!([0, 8, 0x10, 0x18].map(|offset| machine.byte(offset)), [INT3; 4]);
    assert_eq!(machine.hit(4, &mut stack, 20), None, "another breakpoint");
    for (exit, target) in [(8, 0x30), (0x10, 0x40), (0x18, 0x40)] {
        stack[20] = machine.at(0x30);
        assert_eq!(machine.hit(0, &mut stack, 20), Some((1, 19)), "push rbp");
        assert_eq!(stack[19], stack.as_ptr() as u64 + 8 * 40);
        assert_eq!(machine.taken(0).0, 0, "a call that has not ended");
        let sp = if exit == 8 { 21 } else { 20 };
        assert_eq!(machine.hit(exit, &mut stack, 20), Some((target, sp)), "{exit:x}");
        let (hits, weight, lost) = machine.taken(0);
        assert!(hits == 1 && lost == 0 && weight < 60_000_000_000, "{hits} hits, {weight} ns, {lost} lost");
    }
    // A function that never returns, and one whose beginning was not seen.
    machine.write("probe @40").unwrap();
    machine.hit(0x40, &mut stack, 20);
    assert_eq!(machine.taken(0x40), (1, 0, 0));
    machine.hit(8, &mut stack, 30);
    assert_eq!(machine.taken(0), (0, 0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "its stack frames have no order in memory")]
fn a_record_has_the_function_and_its_callers() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    // Only this point: other tests run beside this one, and all profilers of a program have one list of points.
    let point = format!("probe.{:016x}", machine.at(0));
    machine.write(&format!("event {point} record")).unwrap();
    machine.write("probe @0 8").unwrap();
    for _ in 0..2 {
        (stack[20], stack[40], stack[41]) = (machine.at(0x30), 0, machine.at(0x48));
        machine.hit(0, &mut stack, 20);
        let from = machine.events().head();
        machine.hit(8, &mut stack, 20);
        let words = from + EventHeader::WORDS as u64..machine.events().head();
        let frames: Vec<_> = words.map(|at| machine.events().word(at)).collect();
        assert_eq!(frames, [9, 0x30, 0x48].map(|offset| machine.at(offset)));
    }
    machine.write(&format!("event {point} off")).unwrap();
}

#[test]
fn only_calls_that_meet_all_conditions_are_counted() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @0 8 if arg1 >= 4096 if arg6:i32 < 0").unwrap();
    stack[20] = machine.at(0x30);
    let minus_one = 0x5_ffff_ffff;
    let mut call = |first, sixth| {
        assert_eq!(machine.hit_with(0, &mut stack, 20, [first, 0, 0, 0, 0, sixth]), Some((1, 19)));
        assert_eq!(machine.hit(8, &mut stack, 20), Some((0x30, 21)));
        machine.taken(0).0
    };
    let calls = [(4096, minus_one), (4095, minus_one), (4096, 1), (u64::MAX, minus_one), (0, 0)];
    assert_eq!(calls.map(|(first, sixth)| call(first, sixth)), [1, 0, 0, 1, 0]);
    // A call that was not seen to end, such as one that has panicked, does not end with the next one.
    machine.hit_with(0, &mut stack, 20, [4096, 0, 0, 0, 0, minus_one]);
    machine.hit(0, &mut stack, 20);
    machine.hit(8, &mut stack, 20);
    assert_eq!(machine.taken(0), (0, 0, 0));
    // The conditions are those of the last command; a function without exits has them too.
    machine.write("probe @0 8").unwrap();
    machine.hit(0, &mut stack, 20);
    machine.hit(8, &mut stack, 20);
    assert_eq!(machine.taken(0).0, 1);
    machine.write("probe @40 if arg2 == 7").unwrap();
    for second in [6, 7, 8] {
        machine.hit_with(0x40, &mut stack, 20, [0, second, 0, 0, 0, 0]);
    }
    assert_eq!(machine.taken(0x40), (1, 0, 0));
}

#[test]
#[cfg_attr(miri, ignore = "its stack frames have no order in memory")]
fn a_record_has_the_arguments_with_which_the_call_began() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    let events = |from| -> Vec<u64> {
        (from + EventHeader::WORDS as u64..machine.events().head()).map(|at| machine.events().word(at)).collect()
    };
    for offset in [0, 0x40] {
        machine.write(&format!("event probe.{:016x} record", machine.at(offset))).unwrap();
    }
    machine.write("probe @0 8 args u64,i8,u16 if arg1 == 1").unwrap();
    machine.write("probe @40 args u64,u64,u64,u64,u64,u64").unwrap();
    // The second call is inside the first one; the registers at the end have other values.
    (stack[20], stack[30]) = (machine.at(0x30), machine.at(0x30));
    (stack[40], stack[41]) = (0, machine.at(0x48));
    machine.hit_with(0, &mut stack, 30, [1, 0xff, 0x12345, 0, 0, 0]);
    machine.hit_with(0, &mut stack, 20, [1, 2, 3, 0, 0, 0]);
    for (word, arguments) in [(20, [1, 2, 3]), (30, [1, u64::MAX, 0x2345])] {
        let from = machine.events().head();
        machine.hit_with(8, &mut stack, word, [9; 6]);
        assert_eq!(events(from), [&arguments[..], &[9, 0x30, 0x48].map(|at| machine.at(at))].concat());
    }
    let from = machine.events().head();
    machine.hit_with(0x40, &mut stack, 20, [1, 2, 3, 4, 5, u64::MAX]);
    assert_eq!(events(from)[..6], [1, 2, 3, 4, 5, u64::MAX]);
    for offset in [0, 0x40] {
        machine.write(&format!("event probe.{:016x} off", machine.at(offset))).unwrap();
    }
}

#[test]
fn a_hit_that_has_seen_the_probe_before_is_not_judged_by_the_conditions_of_the_next() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @40 if arg1 == 1").unwrap();
    let sp = stack.as_mut_ptr().expose_provenance() as u64 + 8 * 20;
    let mut at = Breakpoint { pc: machine.at(0x41), sp, fp: 0 };
    // Another CPU puts the probe anew, after this one has seen whose place it is.
    let registers = || {
        machine.write("probe @40 if arg1 == 2").unwrap();
        [2, 0, 0, 0, 0, 0]
    };
    // SAFETY: as in `hit`.
    assert!(unsafe { on_breakpoint(machine.events, &mut at, registers) });
    assert_eq!(machine.taken(0x40), (0, 0, 0));
    machine.hit_with(0x40, &mut stack, 20, [2, 0, 0, 0, 0, 0]);
    assert_eq!(machine.taken(0x40), (1, 0, 0));
}

#[test]
fn a_removed_probe_counts_nothing_and_a_cpu_in_between_goes_on() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @0 8").unwrap();
    machine.write("probe @40 6").unwrap();
    stack[20] = machine.at(0x30);
    machine.hit(0, &mut stack, 20);
    assert!(machine.write("unprobe @46").unwrap_err().contains("no probe on that function"));
    machine.write("unprobe @0").unwrap();
    assert_eq!([0, 8, 0x40, 0x46].map(|offset| machine.byte(offset)), [0x55, 0xc3, INT3, INT3]);
    // These have executed the `int3` before it was removed.
    assert_eq!(machine.hit(0, &mut stack, 20), Some((1, 19)));
    assert_eq!(machine.hit(8, &mut stack, 20), Some((0x30, 21)));
    assert_eq!(machine.taken(0), (0, 0, 0));
    // The call that began under the probe before does not end under this one.
    machine.write("probe @0 8").unwrap();
    machine.hit(8, &mut stack, 20);
    assert_eq!(machine.taken(0), (0, 0, 0));
    assert_eq!(machine.events.state.probes.planted(), 2);
    let states = || {
        let mut text = String::new();
        machine.control.as_ref().unwrap().read(&mut text).unwrap();
        [0, 0x40].map(|at| text.contains(&format!("point.probe.{:016x} ns count\n", machine.at(at))))
    };
    assert_eq!(states(), [true, true]);
    machine.write("unprobe all").unwrap();
    assert_eq!([0, 8, 0x40, 0x46].map(|offset| machine.byte(offset)), [0x55, 0xc3, 0x55, 0xc3]);
    assert_eq!((machine.events.state.probes.planted(), states()), (0, [false, false]));
}

#[test]
fn a_probe_that_is_put_again_has_the_exits_of_the_last_command() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @0 8 10").unwrap();
    machine.write("probe @0 18").unwrap();
    assert_eq!([0, 8, 0x10, 0x18].map(|offset| machine.byte(offset)), [INT3, 0xc3, 0xe9, INT3]);
    machine.hit(0, &mut stack, 20);
    machine.hit(0x18, &mut stack, 20);
    assert_eq!(machine.taken(0).0, 1);
    machine.write("unprobe all").unwrap();
    assert_eq!([0, 8, 0x10, 0x18].map(|offset| machine.byte(offset)), [0x55, 0xc3, 0xe9, 0xeb]);
}

#[test]
fn a_call_that_ends_at_an_earlier_time_of_another_cpu_took_no_time() {
    let machine = with_memory();
    let probes = &machine.events.state.probes;
    probes.set_clock(2_000_000_000);
    assert_eq!(
        [(5, 5), (1000, 5), (0, 2000), (0, u64::MAX)].map(|(begun, now)| probes.ns_between(begun, now)),
        [0, 0, 1000, u64::MAX / 2]
    );
}

#[test]
fn a_hit_inside_a_hit_is_emulated_and_lost() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @40").unwrap();
    machine.events.state.slots()[0].in_probe.store(true, Ordering::Relaxed);
    assert_eq!(machine.hit(0x40, &mut stack, 20), Some((0x41, 19)));
    assert_eq!(machine.taken(0x40), (0, 0, 1));
}

#[test]
fn calls_without_room_are_lost() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @0 8").unwrap();
    let depth = 20;
    (20..20 + depth).for_each(|word| assert!(machine.hit(0, &mut stack, word).is_some()));
    (20..20 + depth).for_each(|word| assert!(machine.hit(8, &mut stack, word).is_some()));
    let (hits, _, lost) = machine.taken(0);
    assert_eq!(hits + lost, depth as u64);
    assert!((4..=8).contains(&hits), "two sets of four: {hits} have room");
}

#[test]
fn probes_end_with_the_lease() {
    let _alone = alone();
    let mut machine = with_memory();
    machine.write("lease").unwrap();
    machine.write("probe @0 8").unwrap();
    machine.control = None;
    assert_eq!((machine.byte(0), machine.byte(8)), (0x55, 0xc3));
}

#[test]
fn a_lease_ends_only_the_probes_that_were_put_with_it() {
    let _alone = alone();
    let mut machine = with_memory();
    assert!(machine.write("unprobe lease").unwrap_err().contains("`lease` comes before `unprobe lease`"));
    machine.write("probe @0 8").unwrap();
    machine.write("lease").unwrap();
    // The first one was there before, and is put once more.
    ["probe @0 8", "probe @40 6", "unprobe lease"].iter().for_each(|line| machine.write(line).unwrap());
    assert_eq!([0, 8, 0x40, 0x46].map(|at| machine.byte(at)), [INT3, INT3, 0x55, 0xc3]);
    // Once it is removed, the lease has put it as any other.
    ["unprobe @0", "probe @0 8", "probe @40 6"].iter().for_each(|line| machine.write(line).unwrap());
    machine.control = None;
    assert_eq!([0, 8, 0x40, 0x46].map(|at| machine.byte(at)), [0x55, 0xc3, 0x55, 0xc3]);
}

#[test]
fn what_cannot_have_a_probe_is_refused_and_nothing_changes() {
    let machine = machine();
    assert!(machine.write("probe @0").unwrap_err().contains("gives no memory for probes"));
    assert_eq!(machine.write("unprobe all"), Ok(()));
    let machine = with_memory();
    let cases = [
        ("probe @0 9", "an exit is neither `ret` nor a direct `jmp`"),
        ("probe @0 40", "an exit is neither"),
        ("probe @8", "does not begin with `push rbp`"),
        ("probe @4", "does not begin with `push rbp`"),
        ("probe @0 20", "expected addresses in the kernel's text"),
        ("probe @0 fe", "expected addresses in the kernel's text"),
        ("probe 1000", "expected addresses in the kernel's text"),
        ("probe @e0", "entry stubs can have no probes"),
        ("probe @f8", "the kernel cannot write its code there"),
        ("unprobe @0", "there is no probe on that function"),
        ("probe @0 8\nprobe 1000", "line 2: expected addresses"),
    ];
    for (line, reason) in cases {
        let error = machine.write(line).unwrap_err();
        assert!(error.contains(reason), "{line}: {error}");
        assert_eq!((machine.byte(0), machine.byte(8)), (0x55, 0xc3), "{line}");
    }
    machine.write("probe @0 8").unwrap();
    assert_eq!(machine.write("probe @0 8"), Ok(()), "once more");
    assert!(machine.write("probe @40 8").is_err(), "distances from the address");
    assert!(machine.write(&format!("probe @40 {:x}", u64::MAX)).is_err());
    // Two functions, and six places.
    machine.write("probe @40 6").unwrap();
    machine.write("probe @0 8 10 18").unwrap();
    machine.events.kernel().code[0x80].store(0x55, Ordering::Relaxed);
    assert!(machine.write("probe @80").unwrap_err().contains("no room for another probe"));
    machine.write("unprobe @40").unwrap();
    machine.write("probe @80").unwrap();
    assert!(machine.write("probe @40 6").unwrap_err().contains("no room for another probe"));
}

#[test]
fn memory_belongs_to_one_profiler() {
    let memory: &'static ProbeMemory<2, 8, 2> = Box::leak(Box::new(ProbeMemory::new()));
    let (one, other) = (machine(), machine());
    assert_eq!(register(one.events, memory), Ok(()));
    let twice = Err(kprof::RegisterError::ProbesTwice);
    assert_eq!(register(other.events, memory), twice);
    assert_eq!(register(one.events, Box::leak(Box::new(ProbeMemory::<2, 8, 2>::new()))), twice);
}
