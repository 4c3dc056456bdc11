//! What a rule about the innermost caller may read, and what it can find.
//!
//! In: addresses. Out: words of the stack in use, bytes of kernel code. Runs in: NMI. The walk implements it, and
//! checks each address; tests implement it on arrays. So the rules of every processor are pure, and run on every host.

/// The memory around an interrupted instruction.
pub(crate) trait View {
    /// An aligned word of the stack in use; `None` if it does not lie there.
    #[allow(dead_code, reason = "only for processors whose calls push the return address")]
    fn stack_word(&self, address: u64) -> Option<u64>;

    /// Eight bytes of kernel code; [`NO_CODE`] if they are none.
    fn code(&self, address: u64) -> [u8; 8];

    /// Whether `address` is kernel code.
    fn is_code(&self, address: u64) -> bool;

    /// Takes this many bytes from those that the walk may still search. `false`: there are not as many left.
    fn may_search(&mut self, bytes: u64) -> bool;
}

/// What [`View::code`] returns for an address that is not kernel code. It matches no instruction that a rule looks for.
pub(crate) const NO_CODE: [u8; 8] = [0; 8];

/// The caller of the interrupted function, if the frame pointer is not that function's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Innermost {
    /// No caller was found: as far as can be seen, the frame pointer is right.
    None,
    /// This address is the caller.
    Caller(u64),
    /// This address may be the caller. The host decides.
    Candidate(u64),
}

/// A call that ends at a given address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// A call of a constant address, which is this.
    Direct(u64),
    /// A call through a register or memory.
    Indirect,
}

/// How far PC may be after the target of a call for the code between them to be searched for a prologue.
pub(super) const SEARCH_BYTES: u64 = 256;

impl Call {
    /// The call, if the address after it and its target are kernel code.
    #[inline(always)]
    pub(super) fn in_kernel_code(self, view: &impl View, return_address: u64) -> Option<Self> {
        let target = if let Self::Direct(target) = self { target } else { return_address };
        (view.is_code(return_address) && view.is_code(target)).then_some(self)
    }

    /// The target, from which on the code up to `pc` may be searched; `None` if the target is not known or too far.
    #[inline(always)]
    pub(super) fn searched_from(self, view: &mut impl View, pc: u64) -> Option<u64> {
        let Self::Direct(target) = self else { return None };
        let distance = pc.wrapping_sub(target);
        (distance <= SEARCH_BYTES && view.may_search(distance)).then_some(target)
    }
}
