//! Why a function cannot be probed. Stage: probes. In: a reason. Out: the sentence after `# refused: NAME: `. Pure.

use std::fmt;

/// A reason. The numbers are offsets from the start of the function, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// The symbol table does not tell where the function ends.
    NoSize,
    /// The symbol is not in an executable segment of the file, or not all of it is.
    NoCode,
    /// It is not in the part of the file that runs at the kernel's own addresses: code of the boot, for example.
    BelowKernel,
    /// A probe emulates `push rbp` and no other first instruction.
    FirstInstruction,
    /// Bytes that are no instruction.
    Undecoded(u64),
    /// A jump to an address that the instruction does not contain, and not by a jump table of this function.
    IndirectJump(u64),
    /// `jcc` to another function.
    ConditionalJump(u64),
    /// A `jmp` in another form than `e9` and `eb`.
    OtherJump(u64),
    /// `ret N`, `iretq`, `sysretq`, or a `ret` with a prefix.
    OtherReturn(u64),
    /// A jump to an address within an instruction.
    IntoInstruction(u64),
    /// A call of an address in the function other than its first.
    CallsInside(u64),
    /// `xbegin` and the like.
    Transaction(u64),
    /// The last instruction leads to the code after the function.
    RunsOn,
    /// An instruction that no path leads to.
    Unreached(u64),
    /// At an exit, the return address is not on top of the stack.
    ReturnAddress(u64),
    /// The code of another symbol leads into the function, not to its start.
    EnteredInside(String),
    /// Another symbol begins inside of the function.
    SymbolInside(String),
    /// The profiler's handlers may execute it.
    Handler,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSize => f.write_str("the symbol table does not tell its size"),
            Self::NoCode => f.write_str("is not, or not wholly, in an executable segment of the file"),
            Self::BelowKernel => f.write_str("is below the lowest address of the kernel"),
            Self::FirstInstruction => f.write_str("does not begin with `push rbp`"),
            Self::Undecoded(at) => write!(f, "the bytes at +{at:x} are no instruction"),
            Self::IndirectJump(at) => write!(f, "the indirect jump at +{at:x} may leave it"),
            Self::ConditionalJump(at) => write!(f, "the conditional jump at +{at:x} leaves it or leads to its start"),
            Self::OtherJump(at) => write!(f, "the jump at +{at:x} has a form that a probe cannot emulate"),
            Self::OtherReturn(at) => write!(f, "the return at +{at:x} is not the one byte `ret`"),
            Self::IntoInstruction(at) => write!(f, "the jump at +{at:x} leads into the middle of an instruction"),
            Self::CallsInside(at) => write!(f, "the call at +{at:x} leads into the function itself"),
            Self::Transaction(at) => write!(f, "the transaction at +{at:x} may be aborted to another place"),
            Self::RunsOn => f.write_str("its last instruction leads to the code after it"),
            Self::Unreached(at) => write!(f, "it is not known how the code at +{at:x} is reached"),
            Self::ReturnAddress(at) => write!(f, "the return address is not on top of the stack at the exit +{at:x}"),
            Self::EnteredInside(name) => write!(f, "{name} jumps into it, past its first instruction"),
            Self::SymbolInside(name) => write!(f, "{name} begins inside of it"),
            Self::Handler => f.write_str("the handlers of NMIs and breakpoints may execute it"),
        }
    }
}
