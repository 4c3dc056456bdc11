//! Reads call frame information, in which the compiler describes frames (DWARF 5, section 6.4). Stage: symbolize.
//!
//! In: `.debug_frame` and `.eh_frame` of an image, an address. Out: where the caller's return address is, as a
//! [`super::frame`] value. Damaged information counts as missing.

use super::frame::Frame;
use gimli::{
    AArch64, BaseAddresses, CfaRule, DebugFrame, EhFrame, EndianArcSlice, Register, RegisterRule, RiscV, RunTimeEndian,
    UnwindContext, UnwindSection, X86_64,
};
use object::Architecture;

type Reader = EndianArcSlice<RunTimeEndian>;

/// The two sections; either may be empty.
pub struct Cfi {
    debug_frame: DebugFrame<Reader>,
    eh_frame: EhFrame<Reader>,
    bases: BaseAddresses,
    arch: Architecture,
}

impl Cfi {
    /// Makes the information from the two sections and the addresses at which `.eh_frame` and `.text` are loaded.
    pub fn new(debug_frame: Reader, eh_frame: Reader, eh_frame_at: u64, text_at: u64, arch: Architecture) -> Self {
        let mut debug_frame = DebugFrame::from(debug_frame);
        debug_frame.set_address_size(8);
        let mut eh_frame = EhFrame::from(eh_frame);
        eh_frame.set_address_size(8);
        let bases = BaseAddresses::default().set_eh_frame(eh_frame_at).set_text(text_at);
        Self { debug_frame, eh_frame, bases, arch }
    }

    /// The frame at an address of the file, if the information covers it.
    pub fn frame(&self, address: u64) -> Option<Frame> {
        self.row(&self.debug_frame, address).or_else(|| self.row(&self.eh_frame, address))
    }

    fn row<S: UnwindSection<Reader>>(&self, section: &S, address: u64) -> Option<Frame>
    where
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let mut context = UnwindContext::new();
        let row = section.unwind_info_for_address(&self.bases, &mut context, address, S::cie_from_offset).ok()?;
        let saved = |register: Register, at: i64| match row.register(register) {
            Some(RegisterRule::Offset(offset)) => offset == at,
            _ => false,
        };
        // Where a register has the return address, a candidate is what this register had.
        let link = match self.arch {
            Architecture::X86_64 => None,
            Architecture::Aarch64 => Some(AArch64::X30),
            Architecture::Riscv64 => Some(RiscV::RA),
            _ => return None,
        };
        if let Some(link) = link {
            let is_saved =
                !matches!(row.register(link), None | Some(RegisterRule::Undefined | RegisterRule::SameValue));
            return Some(if is_saved { Frame::Own } else { Frame::CallerOnTop });
        }
        Some(match row.cfa() {
            CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 8 } => Frame::CallerOnTop,
            CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 16 } if saved(X86_64::RBP, -16) => {
                Frame::CallerAboveRbp
            }
            CfaRule::RegisterAndOffset { register: X86_64::RBP, .. } => Frame::Own,
            _ => Frame::Deeper,
        })
    }
}
