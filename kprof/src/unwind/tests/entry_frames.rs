//! Walks across interrupt, exception and syscall entries, from inside entry stubs, and into user code.

use super::*;

const INTERRUPT: u64 = Marker::Interrupt(33).encode();

/// A handler on its own stack, two frames deep, that interrupted the registers in `hardware`.
fn interrupted(machine: &mut Machine, marker: u64, rip: u64, cs: u64, rsp: u64, rbp: u64) -> Registers {
    let irq = STACK + 0x10_0000;
    machine.stacks.push((irq, vec![0; 64]));
    machine.frame(irq + 80, irq + 200, TEXT + 0x800);
    machine.frame(irq + 200, rbp, marker);
    machine.hardware_frame(irq + 216, rip, cs, rsp);
    Registers { pc: TEXT + 0x700, interrupts_on: false, ..registers(irq + 16, irq + 80) }
}

/// A system call stub that has not saved the user's registers yet: `syscall` has left the user's RIP in rcx.
fn at_syscall(rcx: u64) -> EntryFrame {
    let interrupted = Registers { pc: rcx, fp: 0x7fff_0010, from_user: true, ..Registers::default() };
    EntryFrame::InRegisters { marker: Marker::Syscall, interrupted }
}

#[test]
fn an_interrupt_in_the_kernel_is_crossed_to_the_other_stack() {
    let mut machine = Machine::new(64);
    machine.frame(STACK + 80, 0, TEXT + 0x200);
    let at = interrupted(&mut machine, INTERRUPT, TEXT + 0x100, 8, STACK + 16, STACK + 80);
    let (stack, in_interrupt) = machine.walk(&at);
    assert_eq!(stack, [TEXT + 0x800, INTERRUPT, TEXT + 0x100, TEXT + 0x200]);
    assert!(in_interrupt);
}

#[test]
fn interrupted_code_in_its_prologue_keeps_its_caller() {
    let mut machine = Machine::new(64);
    // main (frame at +80) has called f, which is about to push rbp.
    machine.code(0x300 - 5, &[0xe8, 0, 0, 0, 0]);
    machine.code(0x100, &[0x55, 0x48, 0x89, 0xe5]);
    machine.set(STACK + 16, TEXT + 0x300);
    machine.frame(STACK + 80, 0, TEXT + 0x200);
    let at = interrupted(&mut machine, INTERRUPT, TEXT + 0x100, 8, STACK + 16, STACK + 80);
    let (stack, _) = machine.walk(&at);
    assert_eq!(stack, [TEXT + 0x800, INTERRUPT, TEXT + 0x100, TEXT + 0x300, TEXT + 0x200]);
}

#[test]
fn interrupted_code_is_above_what_its_entry_has_saved_or_on_a_stack_that_was_not_left() {
    let mut machine = Machine::new(64);
    machine.frame(STACK + 80, STACK + 200, TEXT + 0x200);
    machine.frame(STACK + 200, STACK + 400, INTERRUPT);
    machine.frame(STACK + 400, 0, TEXT + 0x400);
    let loop_ends = truncated(TruncationReason::Loop);
    for (rsp, end) in [(224, TEXT + 0x400), (216, loop_ends), (16, loop_ends)] {
        machine.hardware_frame(STACK + 216, TEXT + 0x100, 8, STACK + rsp);
        let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
        assert_eq!(stack, [TEXT + 0x200, INTERRUPT, TEXT + 0x100, end], "interrupted at {rsp}");
    }
    // The interrupt came on another stack, and the entry above claims that this other stack was interrupted before.
    let at = interrupted(&mut machine, INTERRUPT, TEXT + 0x100, 8, STACK + 16, STACK + 80);
    machine.hardware_frame(STACK + 216, TEXT + 0x700, 8, at.sp);
    let (stack, _) = machine.walk(&at);
    let crossed = [TEXT + 0x800, INTERRUPT, TEXT + 0x100, TEXT + 0x200, INTERRUPT, TEXT + 0x700];
    assert_eq!(stack, [&crossed[..], &[loop_ends]].concat());
}

#[test]
fn an_interrupt_of_user_code_ends_the_stack_with_the_users_instruction() {
    let mut machine = Machine::new(64);
    let at = interrupted(&mut machine, INTERRUPT, 0x40_1000, 0x33, 0x7fff_0000, 0x7fff_0010);
    machine.user = HashMap::from([(0x7fff_0010, 0x7fff_0100), (0x7fff_0018, 0x40_2000), (0x7fff_0100, 0)]);
    let user = Marker::User.encode();
    assert_eq!(machine.walk(&at).0, [TEXT + 0x800, INTERRUPT, user, 0x40_1000]);
    machine.user_frames = true;
    assert_eq!(machine.walk(&at).0, [TEXT + 0x800, INTERRUPT, user, 0x40_1000, 0x40_2000]);
}

#[test]
fn an_exception_inside_a_syscall_shows_both_entries() {
    let mut machine = Machine::new(64);
    let (syscall, user) = (Marker::Syscall.encode(), Marker::User.encode());
    machine.frame(STACK + 80, STACK + 200, TEXT + 0x200);
    machine.frame(STACK + 200, 0x7fff_0010, syscall);
    machine.hardware_frame(STACK + 216, 0x40_1000, 0x33, 0x7fff_0000);
    let fault = Marker::Exception(14).encode();
    let at = interrupted(&mut machine, fault, TEXT + 0x100, 8, STACK + 16, STACK + 80);
    let (stack, in_interrupt) = machine.walk(&at);
    assert_eq!(stack, [TEXT + 0x800, fault, TEXT + 0x100, TEXT + 0x200, syscall, user, 0x40_1000]);
    assert!(in_interrupt);
}

#[test]
fn a_syscall_alone_is_no_interrupt() {
    let mut machine = Machine::new(64);
    machine.frame(STACK + 80, STACK + 200, TEXT + 0x200);
    machine.frame(STACK + 200, 0x1, Marker::Syscall.encode());
    machine.hardware_frame(STACK + 216, 0x40_1000, 0x33, 0x7fff_0000);
    assert!(!machine.walk(&registers(STACK + 16, STACK + 80)).1);
}

#[test]
fn a_hardware_frame_that_leaves_its_stack_is_not_read() {
    for missing in 0..5 {
        let mut machine = Machine::new(64);
        let frame = STACK + 64 * 8 - 16 - 8 * missing;
        machine.frame(STACK + 80, frame, TEXT + 0x200);
        machine.frame(frame, 0, INTERRUPT);
        let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
        assert_eq!(stack, [TEXT + 0x200, INTERRUPT, truncated(TruncationReason::Range)]);
    }
}

#[test]
fn inside_a_stub_the_kernel_says_where_the_hardware_frame_is() {
    let mut machine = Machine::new(64);
    machine.frame(STACK + 200, 0, TEXT + 0x200);
    machine.hardware_frame(STACK + 80, TEXT + 0x100, 8, STACK + 120);
    let marker = Marker::Interrupt(33);
    machine.entry = Some((TEXT + 0x500, EntryFrame::OnStack { marker, saved_at: STACK + 80 }));
    // rbp is still that of the interrupted code.
    let at = Registers { pc: TEXT + 0x500, ..registers(STACK + 72, STACK + 200) };
    let (stack, in_interrupt) = machine.walk(&at);
    assert_eq!(stack, [INTERRUPT, TEXT + 0x100, TEXT + 0x200]);
    assert!(in_interrupt);
}

#[test]
fn at_the_first_instruction_of_a_syscall_the_user_is_in_registers() {
    let mut machine = Machine::new(64);
    machine.entry = Some((TEXT + 0x500, at_syscall(0x40_1000)));
    let at = Registers { pc: TEXT + 0x500, link: 0x40_1000, ..registers(0x7fff_0000, 0x7fff_0010) };
    assert_eq!(machine.walk(&at).0, [Marker::Syscall.encode(), Marker::User.encode(), 0x40_1000]);
}

#[test]
fn a_kernel_without_marker_words_shows_its_borders_by_hook() {
    let mut machine = Machine::new(64);
    machine.frame(STACK + 80, STACK + 160, TEXT + 0x520);
    machine.hardware_frame(STACK + 240, 0x40_1000, 0x33, 0x7fff_0000);
    let entry_frame = CallerEntryFrame { marker: Marker::Syscall, saved_at: STACK + 240, fp_at: STACK + 80 };
    machine.entry_frame = Some((TEXT + 0x520, entry_frame));
    let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
    assert_eq!(stack, [TEXT + 0x520, Marker::Syscall.encode(), Marker::User.encode(), 0x40_1000]);
}

#[test]
fn a_hardware_frame_that_the_kernel_does_not_place_inside_the_stack_is_not_read() {
    let end = STACK + 64 * 8;
    let outside = [STACK + 244, end - 32, end - 8, end, end + 8, 0, 8, u64::MAX - 7, STACK - 8];
    for (saved_at, frame) in outside.into_iter().flat_map(|saved_at| [(saved_at, STACK), (saved_at, STACK + 80)]) {
        let mut machine = Machine::new(64);
        machine.frame(frame, STACK + 160, TEXT + 0x520);
        machine.entry_frame =
            Some((TEXT + 0x520, CallerEntryFrame { marker: Marker::Interrupt(33), saved_at, fp_at: frame }));
        let (stack, _) = machine.walk(&registers(frame, frame));
        assert_eq!(stack, [TEXT + 0x520, INTERRUPT, truncated(TruncationReason::Range)], "{saved_at:#x}");
    }
}

#[test]
fn a_frame_pointer_that_the_kernel_does_not_place_inside_the_stack_is_not_read() {
    let end = STACK + 64 * 8;
    for fp_at in [STACK + 84, end - 4, end, end + 8, 0, 4, u64::MAX - 7, STACK - 8] {
        let mut machine = Machine::new(64);
        machine.frame(STACK + 80, STACK + 160, TEXT + 0x520);
        machine.hardware_frame(STACK + 240, 0x40_1000, 0x33, 0x7fff_0000);
        let entry_frame = CallerEntryFrame { marker: Marker::Syscall, saved_at: STACK + 240, fp_at };
        machine.entry_frame = Some((TEXT + 0x520, entry_frame));
        let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
        assert_eq!(stack, [TEXT + 0x520, truncated(TruncationReason::Range)], "{fp_at:#x}");
    }
}

#[test]
fn after_every_entry_from_user_code_the_depth_counts_the_same_frames() {
    // The fast path takes one whole round at these depths, and then goes on.
    let depths = (17..30_usize).step_by(if cfg!(miri) { 13 } else { 1 });
    let befores = (10..28_u64).step_by(if cfg!(miri) { 5 } else { 1 });
    let callers = (0..8_u64).step_by(if cfg!(miri) { 7 } else { 1 });
    let cases = depths.flat_map(|depth| befores.clone().map(move |before| (depth, before)));
    for ((depth, before), (callers, has_marker)) in
        cases.flat_map(|case| callers.clone().flat_map(move |callers| [false, true].map(|has| (case, (callers, has)))))
    {
        let mut machine = Machine::new(512);
        (machine.depth, machine.user_frames) = (depth, true);
        let words = |caller: u64| [0x7fff_0020 + 16 * caller, 0x40_2000 + caller];
        let chain = (0..callers).flat_map(words).zip((0x7fff_0010..).step_by(8));
        machine.user = chain.map(|(word, address)| (address, word)).collect();
        let at = |frame| STACK + 80 + 32 * frame;
        (0..before).for_each(|frame| machine.frame(at(frame), at(frame + 1), TEXT + 0x200));
        let syscall = Marker::Syscall.encode();
        machine.frame(at(before), 0x7fff_0010, if has_marker { syscall } else { TEXT + 0x520 });
        let saved_at = at(before) + 16;
        machine.hardware_frame(saved_at, 0x40_1000, 0x33, 0x7fff_0000);
        let entry = CallerEntryFrame { marker: Marker::Syscall, saved_at, fp_at: at(before) };
        machine.entry_frame = Some((TEXT + 0x520, entry));
        let stub = (!has_marker).then_some(TEXT + 0x520);
        let mut frames = vec![TEXT + 0x200; before as usize];
        frames.extend(stub);
        let entry_at = frames.len();
        frames.extend([0x40_1000].into_iter().chain((0..callers).map(|caller| 0x40_2000 + caller)));
        // The interrupted instruction, which is not among these, is the first frame.
        let mut expected: Vec<u64> = frames.iter().copied().take(depth - 1).collect();
        expected.extend((frames.len() > depth - 1).then_some(truncated(TruncationReason::Depth)));
        if depth > entry_at {
            expected.splice(entry_at..entry_at, [syscall, Marker::User.encode()]);
        }
        let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
        assert_eq!(stack, expected, "depth {depth}, {before} frames, {callers} callers, marker word: {has_marker}");
    }
}

#[test]
fn user_chains_of_every_badness_end_quietly() {
    let end = 1 << 56;
    for (frame, next, callers) in [
        (0x7fff_0011, 0, 0),
        (0, 0, 0),
        (8, 8, 1),
        (0x7fff_0010, 0x7fff_0008, 1),
        (0x7fff_0010, 0x7fff_0018, 1),
        (0x7fff_0010, 0x7fff_0024, 1),
        (0x7fff_0010, 0x7fff_0020, 2),
        (1 << 47, 0, 1),
        (end - 24, 0, 1),
        (end - 16, 0, 0),
        (u64::MAX - 7, 0, 0),
    ] {
        let mut machine = Machine::new(64);
        machine.user_frames = true;
        machine.user = (0..64).map(|word: u64| (frame.wrapping_add(word), 0x40_2000)).collect();
        machine.user.insert(frame, next);
        let at = Registers { pc: 0x40_1000, from_user: true, fp: frame, ..Registers::default() };
        assert_eq!(machine.walk(&at).0, vec![0x40_2000; callers], "{frame:#x}, then {next:#x}");
    }
}

/// Values that a malicious program may put where its addresses are read: each kind of marker, kernel code, both ends of
/// the user address range.
const FORGED: [u64; 8] = [
    Marker::Syscall.encode(),
    Marker::Candidate.encode(),
    Marker::Truncated(Ok(TruncationReason::Loop)).encode(),
    Marker::User.encode(),
    crate::format::marker::PUBLISHED_LEAF,
    TEXT + 0x100,
    1 << 56,
    u64::MAX,
];

#[test]
fn a_forged_user_instruction_at_an_entry_is_nowhere() {
    let (fault, user) = (Marker::Exception(14).encode(), Marker::User.encode());
    for forged in FORGED {
        let mut machine = Machine::new(64);
        machine.frame(STACK + 80, STACK + 200, TEXT + 0x200);
        machine.frame(STACK + 200, 0x7fff_0010, fault);
        machine.hardware_frame(STACK + 216, forged, 0x33, 0x7fff_0000);
        let at = registers(STACK + 16, STACK + 80);
        assert_eq!(machine.walk(&at).0, [TEXT + 0x200, fault, user, 0], "{forged:#x}");
        // The same with a kernel that describes its entry frames through the hook.
        machine.frame(STACK + 80, STACK + 200, TEXT + 0x520);
        machine.entry_frame = Some((
            TEXT + 0x520,
            CallerEntryFrame { marker: Marker::Exception(14), saved_at: STACK + 216, fp_at: STACK + 200 },
        ));
        assert_eq!(machine.walk(&at).0, [TEXT + 0x520, fault, user, 0], "{forged:#x}");
        // And inside a stub, where the kernel tells where the frame is.
        let at_stub = Registers { pc: TEXT + 0x500, ..registers(STACK + 216, 0x7fff_0010) };
        let entry = EntryFrame::OnStack { marker: Marker::Exception(14), saved_at: STACK + 216 };
        machine.entry = Some((TEXT + 0x500, entry));
        assert_eq!(machine.walk(&at_stub).0, [fault, user, 0], "{forged:#x}");
    }
}

#[test]
fn a_forged_rcx_at_a_syscall_stub_is_nowhere() {
    for forged in FORGED {
        let mut machine = Machine::new(64);
        machine.entry = Some((TEXT + 0x500, at_syscall(forged)));
        let at = Registers { pc: TEXT + 0x500, link: forged, ..registers(0x7fff_0000, 0x7fff_0010) };
        assert_eq!(machine.walk(&at).0, [Marker::Syscall.encode(), Marker::User.encode(), 0], "{forged:#x}");
    }
}

#[test]
fn a_forged_word_in_a_users_frame_ends_the_users_chain() {
    for forged in FORGED {
        let mut machine = Machine::new(64);
        machine.user_frames = true;
        let (first, second) = (0x7fff_0010, 0x7fff_0100);
        machine.user = [(first, second), (first + 8, 0x40_2000), (second, 0x7fff_0200), (second + 8, forged)].into();
        machine.user.extend([(0x7fff_0200, 0), (0x7fff_0208, 0x40_3000)]);
        let at = Registers { pc: 0x40_1000, from_user: true, fp: first, ..Registers::default() };
        assert_eq!(machine.walk(&at).0, [0x40_2000], "{forged:#x}");
    }
}

#[test]
fn a_user_address_of_five_level_paging_is_kept() {
    let mut machine = Machine::new(64);
    let last = (1 << 56) - 1;
    machine.entry = Some((TEXT + 0x500, at_syscall(last)));
    let at = Registers { pc: TEXT + 0x500, link: last, ..registers(0x7fff_0000, 0x7fff_0010) };
    assert_eq!(machine.walk(&at).0, [Marker::Syscall.encode(), Marker::User.encode(), last]);
}

#[test]
fn at_a_stub_that_the_kernel_does_not_describe_the_stack_is_truncated() {
    let mut machine = Machine::new(64);
    // A called B, and B was interrupted: at the stub's first instruction rbp is B's, and B's frame leads to A.
    machine.frame(STACK + 200, STACK + 304, TEXT + 0x400);
    machine.frame(STACK + 304, 0, TEXT + 0x480);
    machine.hardware_frame(STACK + 80, TEXT + 0x150, 8, STACK + 120);
    let at = Registers { pc: TEXT + 0x500, ..registers(STACK + 80, STACK + 200) };
    assert_eq!(machine.walk(&at).0, [truncated(TruncationReason::Entry)], "not A, whose callee B would be missing");
    // First instruction of a system call: the user has chosen RSP and rbp, here so that they point to stale words on
    // this stack.
    let at = Registers { pc: TEXT + 0x5ff, ..registers(STACK + 160, STACK + 200) };
    assert_eq!(machine.walk(&at).0, [truncated(TruncationReason::Entry)]);
    // Once the stub has built its frame, the chain is valid.
    machine.entry = Some((TEXT + 0x500, EntryFrame::Built));
    let at = Registers { pc: TEXT + 0x500, ..registers(STACK + 80, STACK + 200) };
    assert_eq!(machine.walk(&at).0, [TEXT + 0x400, TEXT + 0x480]);
}

#[test]
fn after_a_stub_without_marker_that_the_kernel_does_not_describe_the_stack_is_truncated() {
    // The stub has called a handler, which saved B's rbp. The next frame is B's, which leads to A, so B would be
    // missing.
    for frames_before in [0, 1, 2, 17, 40] {
        let mut machine = Machine::new(512);
        let mut at = STACK + 80;
        for _ in 0..frames_before {
            machine.frame(at, at + 32, TEXT + 0x200);
            at += 32;
        }
        machine.frame(at, STACK + 2000, TEXT + 0x540);
        machine.frame(STACK + 2000, 0, TEXT + 0x400);
        let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
        let before = core::iter::repeat_n(TEXT + 0x200, frames_before);
        assert_eq!(stack, before.chain([TEXT + 0x540, truncated(TruncationReason::Entry)]).collect::<Vec<_>>());
    }
}

type Compiled = (CompiledEntry, &'static [u8], &'static [(usize, u64)]);

/// A compiled handler of interrupts and one of page faults, as the compiler makes them with frame pointers: for each
/// instruction its length, and how far the stack pointer then lies below what the processor pushes for every vector.
const COMPILED: [Compiled; 2] = [
    (
        CompiledEntry { marker: Marker::Interrupt(33), has_error_code: false },
        // push rbp; mov rbp, rsp; push r11; push rax; cld; call; pop rax; pop r11; pop rbp; iretq
        &[0x55, 0x48, 0x89, 0xe5, 0x41, 0x53, 0x50, 0xfc, 0xe8, 0, 0, 0, 0, 0x58, 0x41, 0x5b, 0x5d, 0x48, 0xcf],
        &[(1, 0), (3, 8), (2, 8), (1, 16), (1, 24), (5, 24), (1, 24), (2, 16), (1, 8), (2, 0)],
    ),
    (
        CompiledEntry { marker: Marker::Exception(14), has_error_code: true },
        // push rax; push rbp; mov rbp, rsp; push r11; sub rsp, 16; cld; call; add rsp, 16; pop r11; pop rbp;
        // add rsp, 16; iretq
        &[
            0x50, 0x55, 0x48, 0x89, 0xe5, 0x41, 0x53, 0x48, 0x83, 0xec, 0x10, 0xfc, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4,
            0x10, 0x41, 0x5b, 0x5d, 0x48, 0x83, 0xc4, 0x10, 0x48, 0xcf,
        ],
        &[(1, 8), (1, 16), (3, 24), (2, 24), (4, 32), (1, 48), (5, 48), (4, 48), (2, 32), (1, 24), (4, 16), (2, 0)],
    ),
];

/// A machine on which the handler has interrupted code in the middle of a function; where the handler's frame is, and
/// what the processor has pushed.
fn in_compiled(compiled: CompiledEntry, code: &[u8]) -> (Machine, u64, u64) {
    let mut machine = Machine::new(128);
    machine.code(0x500, code);
    machine.compiled = Some(compiled);
    let (saved_at, error_code) = (STACK + 360, 16 * u64::from(compiled.has_error_code));
    // The interrupted code's frame, and its stack pointer, which the processor aligns.
    machine.frame(STACK + 600, 0, TEXT + 0x200);
    machine.hardware_frame(saved_at, TEXT + 0x100, 8, STACK + 408);
    let frame = saved_at - error_code - 8;
    machine.frame(frame, STACK + 600, if error_code == 0 { TEXT + 0x100 } else { 0x1234 });
    (machine, frame, saved_at)
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_compiled_entry_is_crossed_at_each_of_its_instructions() {
    for (compiled, code, instructions) in COMPILED {
        let (machine, frame, saved_at) = in_compiled(compiled, code);
        let expected = [compiled.marker.encode(), TEXT + 0x100, TEXT + 0x200];
        let (mut pc, moves_rsp) = (TEXT + 0x500, 1 + usize::from(compiled.has_error_code));
        for (index, (bytes, below)) in instructions.iter().enumerate() {
            let sp = saved_at - below;
            let has_frame = index > moves_rsp && sp <= frame;
            let at = Registers { pc, ..registers(sp, if has_frame { frame } else { STACK + 600 }) };
            assert_eq!(machine.walk(&at).0, expected, "{compiled:?} at {:#x}", pc - TEXT);
            pc += *bytes as u64;
        }
        assert_eq!(pc, TEXT + 0x500 + code.len() as u64);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn what_a_compiled_entry_calls_leads_to_what_it_has_interrupted() {
    for (compiled, code, _) in COMPILED {
        let (mut machine, frame, saved_at) = in_compiled(compiled, code);
        machine.frame(STACK + 80, frame, TEXT + 0x50d);
        let at = registers(STACK + 16, STACK + 80);
        let (stack, in_interrupt) = machine.walk(&at);
        assert_eq!(stack, [TEXT + 0x50d, compiled.marker.encode(), TEXT + 0x100, TEXT + 0x200]);
        assert!(in_interrupt);
        machine.hardware_frame(saved_at, 0x40_1000, 0x33, 0x7fff_0000);
        machine.set(saved_at + 32, 0x2b);
        let user = Marker::User.encode();
        assert_eq!(machine.walk(&at).0, [TEXT + 0x50d, compiled.marker.encode(), user, 0x40_1000]);
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn words_that_no_processor_has_pushed_make_the_code_an_ordinary_function() {
    let (compiled, code, _) = COMPILED[0];
    let words = [(8, 0), (8, 0xffff), (16, 0x200), (24, STACK + 440), (24, 0x7fff_0000), (32, 0x1_0010)];
    for (offset, word) in words {
        let (mut machine, frame, saved_at) = in_compiled(compiled, code);
        machine.frame(STACK + 80, frame, TEXT + 0x50d);
        machine.set(saved_at + offset, word);
        let (stack, in_interrupt) = machine.walk(&registers(STACK + 16, STACK + 80));
        assert_eq!(stack, [TEXT + 0x50d, TEXT + 0x100, TEXT + 0x200], "+{offset}: {word:#x}");
        assert!(!in_interrupt);
    }
}

/// Code of a function with a frame at +0x300, called by the stub at +0x520; and the registers at its first, second and
/// last instruction, with `sp` the stack pointer of the stub.
#[cfg(target_arch = "x86_64")]
fn in_prologue_or_epilogue(machine: &mut Machine, sp: u64, fp: u64) -> [Registers; 3] {
    machine.code(0x520 - 5, &[0xe8, 0, 0, 0, 0]);
    machine.code(0x300, &[0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3]);
    machine.frame(sp - 16, fp, TEXT + 0x520);
    [(0x300, 8), (0x301, 16), (0x306, 8)].map(|(pc, below)| Registers { pc: TEXT + pc, ..registers(sp - below, fp) })
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_stub_is_crossed_from_a_function_that_has_no_frame_yet() {
    let mut machine = Machine::new(128);
    // The stub leaves rbp alone, or saves it itself and then changes it.
    for saves in [false, true] {
        let (sp, old) = (STACK + 240, STACK + 600);
        let fp = if saves { 0x1234 } else { old };
        let states = in_prologue_or_epilogue(&mut machine, sp, fp);
        machine.set(STACK + 248, old);
        let fp_at = if saves { STACK + 248 } else { sp - 16 };
        let (marker, saved_at) = (Marker::Interrupt(33), STACK + 360);
        machine.entry_frame = Some((TEXT + 0x520, CallerEntryFrame { marker, saved_at, fp_at }));
        machine.hardware_frame(saved_at, TEXT + 0x100, 8, STACK + 408);
        machine.frame(old, 0, TEXT + 0x200);
        for at in states {
            assert_eq!(machine.walk(&at).0, [TEXT + 0x520, INTERRUPT, TEXT + 0x100, TEXT + 0x200], "{at:x?}");
        }
        machine.entry_frame = None;
        for at in states {
            assert_eq!(machine.walk(&at).0, [TEXT + 0x520, truncated(TruncationReason::Entry)], "{at:x?}");
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_compiled_entry_is_crossed_from_a_function_that_has_no_frame_yet() {
    for (compiled, code, _) in COMPILED {
        let (mut machine, frame, _) = in_compiled(compiled, code);
        for at in in_prologue_or_epilogue(&mut machine, frame - 64, frame) {
            let expected = [TEXT + 0x520, compiled.marker.encode(), TEXT + 0x100, TEXT + 0x200];
            assert_eq!(machine.walk(&at).0, expected, "{at:x?}");
        }
    }
}
