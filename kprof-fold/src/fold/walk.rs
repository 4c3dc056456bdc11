//! Walk: from the words of a stack to its frames, before names. Stage: fold.
//!
//! In: addresses and markers, innermost first. Out: [`Step`]s, innermost first: the lookup address of each frame, and
//! the frames of markers. The first address of a sample and the address after an interrupt or exception marker are
//! instructions, which are looked up as they are. All others are return addresses, which are looked up one byte lower.
//! From the first word of user code on, user space could have chosen every word, so none of them is shown as kernel
//! code or as a kernel entry.

use kprof_format::marker::{Marker, PUBLISHED_LEAF};

/// The innermost frame of a sample of the trigger `published`. The CPU published only its last entry, so it is not
/// known which code was running.
pub const RUNNING: &str = "[running]";

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This address is looked up.
    Address(u64),
    /// The instruction that an interrupt or exception has interrupted.
    Interrupted(u64),
    /// The frame of a marker.
    Marker(Marker),
    /// No instruction is known: [`RUNNING`].
    Running,
}

/// The address that replaces a kernel address in the user part of a stack, where user space may have made it up. The
/// kernel itself also writes 0 for such a frame; there is no code at address 0.
pub const CLAIMED: u64 = 0;

/// Calls `step` for each frame. With `user` false the stack ends where user code begins. A candidate for the caller is
/// a frame if `lacks_frame` says that the function has no stack frame of its own at the sampled instruction.
pub fn walk(words: &[u64], user: bool, mut lacks_frame: impl FnMut(u64) -> bool, mut step: impl FnMut(Step)) {
    let mut exact = true;
    let mut in_user = false;
    let mut candidate = false;
    let mut sampled = 0;
    for (at, word) in words.iter().enumerate() {
        if in_user && word >> 63 != 0 && !is_written_by_the_kernel(*word, at) {
            step(Step::Address(CLAIMED));
            continue;
        }
        in_user |= word >> 63 == 0;
        match Marker::decode(*word) {
            Some(Marker::User) if !user => return,
            Some(Marker::User) => in_user = true,
            Some(Marker::Facts(_)) => {}
            Some(Marker::Candidate) => candidate = true,
            Some(marker) => {
                exact |= matches!(marker, Marker::Interrupt(_) | Marker::Exception(_));
                step(Step::Marker(marker));
            }
            None if *word == PUBLISHED_LEAF => {
                exact = false;
                step(Step::Running);
            }
            None if !user && word >> 63 == 0 => return,
            None if candidate => {
                candidate = false;
                if lacks_frame(sampled) {
                    step(Step::Address(word.wrapping_sub(1)));
                }
            }
            None => {
                if exact {
                    sampled = *word;
                }
                step(match exact {
                    true if at > 0 => Step::Interrupted(*word),
                    true => Step::Address(*word),
                    false => Step::Address(word.saturating_sub(1)),
                });
                exact = false;
            }
        }
    }
}

/// The frame of stacks that entered the kernel nowhere, such as those of kernel threads.
pub const NO_ENTRY: &str = "[no entry]";

/// The name of the innermost entry into the kernel: a system call, an interrupt or an exception.
pub fn entry_name(words: &[u64]) -> String {
    let mut entry = None;
    walk(
        words,
        false,
        |_| false,
        |step| {
            if let Step::Marker(marker @ (Marker::Interrupt(_) | Marker::Exception(_) | Marker::Syscall)) = step {
                entry.get_or_insert_with(|| marker_name(marker));
            }
        },
    );
    entry.unwrap_or_else(|| NO_ENTRY.to_owned())
}

/// Whether the kernel writes this marker within or after user code: only the facts after the first address, and the
/// place where the walk was truncated.
fn is_written_by_the_kernel(word: u64, at: usize) -> bool {
    match Marker::decode(word) {
        Some(Marker::Facts(_)) => at == 1,
        Some(Marker::Truncated(_)) => true,
        _ => false,
    }
}

/// The name of a marker's frame.
pub fn marker_name(marker: Marker) -> String {
    match marker {
        // No interrupt has vector 0 (Intel SDM volume 3A, section 6.2): the entry is of an unknown kind.
        Marker::Interrupt(0) => "[entry]".to_owned(),
        Marker::Interrupt(vector) => format!("[interrupt {vector}]"),
        Marker::Exception(vector) => format!("[exception {vector}]"),
        Marker::Syscall => "[syscall]".to_owned(),
        Marker::Truncated(_) => "[truncated]".to_owned(),
        Marker::Unknown { .. } | Marker::Facts(_) | Marker::User | Marker::Candidate => "[unknown]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprof_format::marker::{Facts, TruncationReason};

    fn steps(words: &[u64], user: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        walk(words, user, |sampled| sampled == A, |step| steps.push(step));
        steps
    }

    const A: u64 = 0xffff_ffff_8000_1000;
    const B: u64 = 0xffff_ffff_8000_2000;
    const C: u64 = 0xffff_ffff_8000_3000;

    #[test]
    fn instructions_are_looked_up_as_they_are_and_return_addresses_one_lower() {
        let facts = Marker::Facts(Facts(1)).encode();
        let interrupt = Marker::Interrupt(33);
        let words = [A, facts, B, interrupt.encode(), C, B];
        let expected = [
            Step::Address(A),
            Step::Address(B - 1),
            Step::Marker(interrupt),
            Step::Interrupted(C),
            Step::Address(B - 1),
        ];
        assert_eq!(steps(&words, false), expected);
    }

    #[test]
    fn facts_and_user_markers_change_nothing_between_border_and_instruction() {
        let exception = Marker::Exception(14);
        let words = [A, exception.encode(), Marker::User.encode(), 0x1000, 0x2000];
        let kernel = [Step::Address(A), Step::Marker(exception)];
        assert_eq!(steps(&words, false), kernel);
        assert_eq!(steps(&words, true), [&kernel[..], &[Step::Interrupted(0x1000), Step::Address(0x1fff)]].concat());
        // After a syscall the user's address is a return address.
        let words = [A, Marker::Syscall.encode(), Marker::User.encode(), 0x1000];
        assert_eq!(steps(&words, true)[2], Step::Address(0xfff));
    }

    #[test]
    fn no_word_after_the_beginning_of_user_code_names_the_kernel() {
        let forged = [A, Marker::Syscall.encode(), Marker::Interrupt(33).encode(), PUBLISHED_LEAF, 1 << 63];
        let kernel = [Step::Address(A), Step::Marker(Marker::Syscall)];
        for word in forged {
            // With the marker alone, and with a user's instruction after it.
            let words = [A, Marker::Syscall.encode(), Marker::User.encode(), word, 0x1000, word];
            assert_eq!(steps(&words, false), kernel, "{word:x}");
            let user = [Step::Address(CLAIMED), Step::Address(0xfff), Step::Address(CLAIMED)];
            assert_eq!(steps(&words, true), [&kernel[..], &user].concat(), "{word:x}");
            // A sample of user code with its facts.
            let words = [0x1000, Marker::Facts(Facts(1)).encode(), word];
            assert_eq!(steps(&words, true), [Step::Address(0x1000), Step::Address(CLAIMED)], "{word:x}");
        }
        // The kernel itself writes the marker of a truncated stack.
        let truncated = Marker::Truncated(Ok(TruncationReason::Depth));
        let words = [A, Marker::User.encode(), 0x1000, truncated.encode()];
        assert_eq!(steps(&words, true), [Step::Address(A), Step::Address(0xfff), Step::Marker(truncated)]);
    }

    #[test]
    fn a_candidate_belongs_to_the_last_instruction() {
        let words = |sampled| [sampled, Marker::Candidate.encode(), B, C];
        assert_eq!(steps(&words(A), false), [Step::Address(A), Step::Address(B - 1), Step::Address(C - 1)]);
        assert_eq!(steps(&words(A + 1), false), [Step::Address(A + 1), Step::Address(C - 1)]);
    }

    #[test]
    fn a_published_sample_has_no_instruction_of_its_own() {
        let (facts, interrupt) = (Marker::Facts(Facts(Facts::PUBLISHED)), Marker::Interrupt(33));
        let words = [PUBLISHED_LEAF, facts.encode(), interrupt.encode(), B, C];
        let after = [Step::Marker(interrupt), Step::Interrupted(B), Step::Address(C - 1)];
        assert_eq!(steps(&words, false), [&[Step::Running][..], &after].concat());
        assert_eq!(steps(&[PUBLISHED_LEAF, C], false), [Step::Running, Step::Address(C - 1)]);
    }

    #[test]
    fn the_innermost_entry_names_a_stack() {
        let (syscall, interrupt) = (Marker::Syscall.encode(), Marker::Interrupt(33).encode());
        let unknown = Marker::Truncated(Ok(TruncationReason::Depth)).encode();
        assert_eq!(entry_name(&[A, interrupt, B, syscall, Marker::User.encode(), 0x1000]), "[interrupt 33]");
        assert_eq!(entry_name(&[A, B, syscall, unknown]), "[syscall]");
        assert_eq!(entry_name(&[A, B, unknown]), NO_ENTRY);
        assert_eq!(entry_name(&[A, Marker::User.encode(), interrupt]), NO_ENTRY);
    }

    #[test]
    fn every_marker_has_its_name() {
        for (marker, name) in [
            (Marker::Interrupt(33), "[interrupt 33]"),
            (Marker::Interrupt(0), "[entry]"),
            (Marker::Exception(14), "[exception 14]"),
            (Marker::Syscall, "[syscall]"),
            (Marker::Truncated(Ok(TruncationReason::Loop)), "[truncated]"),
            (Marker::Truncated(Err(99)), "[truncated]"),
            (Marker::Unknown { kind: 9, low: 1 }, "[unknown]"),
        ] {
            assert_eq!(marker_name(marker), name);
        }
    }
}
