//! Property tests: for any contents of stacks and registers, a walk reads only inside the declared ranges, ends, and
//! says why it ended.
//!
//! The machine's memory panics at every read that is misaligned or outside of a declared stack, so a walk that returns
//! has made no such read. Under `--cfg kprof_break_bounds` these tests must fail. A case is made from one seed, which
//! proptest prints; letting proptest draw each word was a hundred times slower.

use super::*;
use crate::format::marker::MARKER_PAGE;
use crate::format::unwind::Rule;
use crate::intervals::Intervals;
use proptest::prelude::*;

const OTHER: u64 = STACK + 0x10_0000;

struct Dice(Intervals);

impl Dice {
    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        // An interval is uniform over half its period plus one.
        self.0.next(2 * limit - 2, true) - (2 * limit - 2 - (2 * limit - 2) / 4)
    }

    /// A word of one of the kinds that are likely to cause errors.
    fn word(&mut self) -> u64 {
        match self.below(16) {
            0..=4 => STACK + 8 * self.below(66),
            5 => OTHER + 8 * self.below(66),
            6..=9 => TEXT + self.below(TEXT_BYTES as u64),
            10 => Marker::Interrupt(self.below(256) as u8).encode(),
            11 => [Marker::Syscall.encode(), Marker::Exception(14).encode()][self.below(2) as usize],
            12 => MARKER_PAGE + self.below(0x1000),
            13 => STACK - 64 + self.below(0x300),
            14 => [0, 8, 0x33, u64::MAX, 1 << 47, STACK + 512][self.below(6) as usize],
            _ => self.0.word(),
        }
    }

    fn machine(&mut self) -> Machine {
        let mut machine = Machine::new(0);
        machine.stacks = [STACK, OTHER].map(|base| (base, (0..64).map(|_| self.word()).collect())).into();
        for byte in &mut machine.text {
            *byte = [0x55, 0xe8, 0xc3, 0xff, 0x48, 0x5d, 0xd0, self.0.word() as u8][self.below(8) as usize];
        }
        machine.depth = 1 + self.below(80) as usize;
        machine.user_frames = self.below(2) == 1;
        let has_error_code = self.below(2) == 1;
        machine.compiled =
            (self.below(2) == 1).then_some(CompiledEntry { marker: Marker::Exception(14), has_error_code });
        if self.below(4) == 0 {
            // Any bytes are rules, but those whose first bits are 0 have none.
            let rules: Vec<Rule> = (0..256).map(|_| Rule::decode(self.0.word() as u32 & 0x000f_07ff)).collect();
            machine.table = Some(super::table::table(&rules));
        }
        machine
    }

    fn registers(&mut self) -> Registers {
        let from_user = self.below(8) == 0;
        Registers {
            pc: self.word(),
            sp: self.word(),
            fp: self.word(),
            link: self.word(),
            from_user,
            interrupts_on: true,
        }
    }
}

const CASES: u32 = if cfg!(miri) { 2 } else { 20_000 };

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_wild_chain_ends_inside_its_bounds(seed in any::<u64>()) {
        let mut dice = Dice(Intervals::new(seed));
        let machine = dice.machine();
        for _ in 0..8 {
            let at = dice.registers();
            let (stack, _) = machine.walk(&at);
            let frames = stack.iter().filter(|word| **word < MARKER_PAGE).count();
            prop_assert!(frames < machine.depth, "{frames} frames with depth {}", machine.depth);
            prop_assert!(stack.len() as u64 <= 16 + 3 * machine.depth as u64);
            // Two words per frame, and a few for the innermost caller and the entry frames, all of them at most twice:
            // the number of reads is bounded.
            prop_assert!(core::mem::take(&mut *machine.read.lock().unwrap()).len() <= 30 * (machine.depth + 10));
            // The truncation marker is the last word.
            let truncated = stack.iter().position(|word| matches!(Marker::decode(*word), Some(Marker::Truncated(_))));
            prop_assert!(truncated.is_none_or(|at| at + 1 == stack.len()));
            // Every address before the user marker is text.
            let kernel = stack.iter().take_while(|word| **word != Marker::User.encode());
            for word in kernel.filter(|word| **word < MARKER_PAGE && !at.from_user) {
                prop_assert!((TEXT..TEXT + TEXT_BYTES as u64).contains(word), "{word:#x} is not text");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs thousands of walks; the ones above are enough for Miri")]
fn the_dice_reach_every_stop_reason_and_every_border() {
    let mut seen = HashMap::new();
    let mut dice = Dice(Intervals::new(1));
    for _ in 0..3_000 {
        let (machine, at) = (dice.machine(), dice.registers());
        let (stack, _) = machine.walk(&Registers { sp: STACK, fp: STACK + 8 * dice.below(60), from_user: false, ..at });
        for word in stack.iter().filter(|word| **word >= MARKER_PAGE) {
            *seen.entry(*word & !0xff | *word & if *word >> 8 & 15 == 4 { 0xff } else { 0 }).or_insert(0) += 1;
        }
    }
    let mut expected: Vec<u64> = TruncationReason::ALL.into_iter().map(truncated).collect();
    expected.extend([Marker::Interrupt(0), Marker::Exception(0), Marker::Syscall, Marker::User].map(Marker::encode));
    expected.push(Marker::Candidate.encode());
    for marker in expected {
        assert!(seen.contains_key(&marker), "{:?} was never reached: {seen:x?}", Marker::decode(marker));
    }
}

#[test]
fn a_kernel_that_declares_the_wrong_range_is_not_believed() {
    // Invalid ranges: two that do not contain the address asked for, misaligned and reversed ones, empty ones, one
    // too short for a frame. The frame pointers fit each of them, so both the fast path and the slow path must check
    // the range itself.
    let stack = STACK..STACK + 512;
    let lies = [
        OTHER..OTHER + 512,
        stack.start - 496..stack.start + 16,
        stack.start..stack.end - 4,
        stack.end..stack.start,
        stack.end..stack.end,
        stack.start..0,
        stack.start..8,
        stack.start + 16..stack.start + 24,
    ];
    for lie in lies {
        for rbp in [STACK, STACK + 80, STACK + 84, u64::MAX - 15, !7] {
            let mut machine = Machine::new(64);
            machine.frame(STACK + 80, 0, TEXT + 0x200);
            machine.lie = Some(lie.clone());
            let (stack, _) = machine.walk(&registers(STACK + 16, rbp));
            assert_eq!(stack, [truncated(TruncationReason::Range)], "{lie:x?}, {rbp:#x}");
            assert!(machine.read.lock().unwrap().is_empty());
        }
    }
}

#[test]
fn the_callers_of_running_code_are_not_taken_from_a_wrong_range() {
    let mut machine = Machine::new(64);
    let stack = STACK..STACK + 512;
    let frames = [
        (stack.clone(), STACK + 80, true),
        (stack.clone(), STACK + 84, false),
        (stack.clone(), STACK + 504, false),
        (OTHER..OTHER + 512, STACK + 80, false),
        (stack.start..0, u64::MAX - 15, false),
        (stack.start..8, !7, false),
    ];
    for (range, frame, is_right) in frames {
        machine.lie = Some(range.clone());
        // Without places, no frame is read.
        let run = crate::unwind::callers(&machine, &machine, &TextCell::new(), frame, &[]);
        assert_eq!(run.is_some(), is_right, "{range:x?}, {frame:#x}");
    }
}
