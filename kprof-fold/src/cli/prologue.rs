//! Whether a function sets its frame pointer, for `doctor`. In: the first bytes of its code. Out: yes or no. Pure.

use object::Architecture;

/// `push rbp; mov rbp, rsp`, and the same after `endbr64` (SDM volume 2).
const PROLOGUES: [&[u8]; 2] = [&[0x55, 0x48, 0x89, 0xe5], &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5]];
/// Where a function of aarch64 or riscv64 sets its frame pointer, if it does: in its first bytes.
const FIRST_BYTES: usize = 64;

/// Whether a function sets its frame pointer, as far as its first instructions show.
pub fn sets_frame_pointer(arch: Architecture, code: &[u8]) -> bool {
    let words = |step: usize| {
        let places = code.windows(4).step_by(step).take(FIRST_BYTES / step);
        places.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
    };
    match arch {
        // add x29, sp, ..
        Architecture::Aarch64 => words(4).any(|word| word & 0xffc0_03ff == 0x9100_03fd),
        // addi s0, sp, ..; c.addi4spn s0, sp, .., whose number is not 0
        Architecture::Riscv64 => {
            words(2).any(|word| word & 0x000f_ffff == 0x0001_0413 || word & 0xe01f == 0 && word & 0xffff != 0)
        }
        _ => PROLOGUES.iter().any(|prologue| code.starts_with(prologue)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(arch: Architecture, words: &[u32]) -> bool {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        sets_frame_pointer(arch, &code)
    }

    #[test]
    fn each_processor_has_its_own_prologue() {
        // sub sp, #32; stp x29, x30, [sp, #16]; add x29, sp, #16. Without the last: a function without a frame.
        let arm = [0xd100_83ff, 0xa901_7bfd, 0x9100_43fd];
        assert!(sets(Architecture::Aarch64, &arm) && !sets(Architecture::Aarch64, &arm[..2]));
        // addi sp, -16; sd s0, 0(sp); addi s0, sp, 16. And c.addi sp, -16; c.addi4spn s0, sp, 16.
        let riscv = [0xff01_0113, 0x0081_3023, 0x0101_0413];
        assert!(sets(Architecture::Riscv64, &riscv) && !sets(Architecture::Riscv64, &riscv[..2]));
        assert!(sets(Architecture::Riscv64, &[0x0800_1141, 0x0001_0001]));
        // push rbp; mov rbp, rsp
        assert!(sets(Architecture::X86_64, &[0xe589_4855]) && !sets(Architecture::X86_64, &arm));
        assert!(!sets(Architecture::Aarch64, &[0xe589_4855]) && !sets(Architecture::Riscv64, &[]));
    }
}
