//! Unwind tables: the file is this test program itself, whose `.eh_frame` gimli reads a second time. With the variable
//! `KPROF_UNWIND_ELF` it is that file, for instance a kernel.

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection, UnwindTableRow, X86_64,
};
use iced_x86::{Decoder, DecoderOptions};
use kprof_fold::unwind::compact::compact;
use kprof_format::unwind::{Base, Rule, Saved, Table};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

fn file() -> String {
    let own = || std::env::current_exe().expect("has a path").display().to_string();
    std::env::var("KPROF_UNWIND_ELF").unwrap_or_else(|_| own())
}

/// What gimli says, in the words of a table; `None` for what a table cannot say.
fn expected(row: &UnwindTableRow<usize>) -> Option<Rule> {
    if row.register(X86_64::RA) == Some(RegisterRule::Undefined) {
        return Some(Rule { base: Base::Outermost, frame: Saved::Same });
    }
    let base = match *row.cfa() {
        CfaRule::RegisterAndOffset { register: X86_64::RSP, offset } => Base::Stack(offset.try_into().ok()?),
        CfaRule::RegisterAndOffset { register: X86_64::RBP, offset } => Base::Frame(offset.try_into().ok()?),
        _ => return None,
    };
    let frame = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => Saved::Same,
        Some(RegisterRule::Offset(offset)) => Saved::Below((-offset).try_into().ok()?),
        _ => Saved::Lost,
    };
    let is_pushed = row.register(X86_64::RA) == Some(RegisterRule::Offset(-8));
    is_pushed.then_some(Rule { base, frame })
}

/// The rule at each instruction that a section describes.
fn rules<'a, S: UnwindSection<EndianSlice<'a, LittleEndian>>>(
    section: &S,
    bases: &BaseAddresses,
    code: &dyn Fn(u64, u64) -> Option<&'a [u8]>,
    found: &mut BTreeMap<u64, Vec<Option<Rule>>>,
) where
    S::Offset: gimli::UnwindOffset<usize>,
{
    let (mut entries, mut context) = (section.entries(bases), UnwindContext::new());
    while let Some(entry) = entries.next().unwrap() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let fde = partial.parse(S::cie_from_offset).unwrap();
        let Some(body) = code(fde.initial_address(), fde.len()) else { continue };
        let instructions = Decoder::with_ip(64, body, fde.initial_address(), DecoderOptions::NONE).into_iter();
        let mut instructions = instructions.map(|instruction| instruction.ip()).peekable();
        let mut table = fde.rows(section, bases, &mut context).unwrap();
        while let Some(row) = table.next_row().unwrap() {
            while let Some(at) = instructions.next_if(|at| row.contains(*at)) {
                found.entry(at).or_default().push(expected(row));
            }
        }
    }
}

#[test]
fn at_every_instruction_the_table_says_what_gimli_says() {
    let file = file();
    let data = fs::read(&file).unwrap();
    let made = compact(&file, &data).unwrap();
    let image = object::File::parse(&*data).unwrap();
    let id = image.build_id().unwrap().unwrap();
    let table = Table::new(&made.bytes, id, 0).unwrap();
    let text = image.section_by_name(".text").unwrap();
    let (start, bytes) = (text.address(), text.data().unwrap());
    let code = |at: u64, length: u64| bytes.get(at.checked_sub(start)? as usize..)?.get(..length as usize);
    let two = |at: u64| code(at, 2).map_or([0; 2], |code| [code[0], code[1]]);

    let mut found = BTreeMap::new();
    let section = |name| image.section_by_name(name).map(|section| (section.address(), section.data().unwrap()));
    if let Some((at, frames)) = section(".eh_frame") {
        let mut frames = EhFrame::new(frames, LittleEndian);
        frames.set_address_size(8);
        rules(&frames, &BaseAddresses::default().set_eh_frame(at).set_text(start), &code, &mut found);
    }
    if let Some((_, frames)) = section(".debug_frame") {
        let mut frames = DebugFrame::new(frames, LittleEndian);
        frames.set_address_size(8);
        rules(&frames, &BaseAddresses::default(), &code, &mut found);
    }
    assert!(found.len() > 10_000, "{} instructions", found.len());
    let mut missing = 0;
    for (at, said) in &found {
        let rule = table.rule_at(*at, two);
        missing += usize::from(rule == Rule::NONE);
        // Inline assembly, which is not described: `pushfq; pop`.
        let is_after_pushfq = two(*at - 1)[0] == 0x9c;
        let undescribed = |said: &Option<Rule>| match (said.map(|said| said.base), rule.base) {
            (Some(Base::Stack(said)), Base::Stack(bytes)) => is_after_pushfq && said + 8 == bytes,
            _ => false,
        };
        let is_right = rule == Rule::NONE || said.contains(&Some(rule)) || said.iter().any(undescribed);
        assert!(is_right, "{at:#x}: {rule:?}, and gimli says {said:?}");
    }
    println!("{} instructions, {missing} without a rule; {} bytes for {}", found.len(), made.used, made.text);
    assert!(missing * 100 < found.len(), "{missing} of {} have no rule", found.len());
    // Around the described code there is nothing.
    assert_eq!([start - 1, start + bytes.len() as u64].map(|at| table.rule(at, two)), [Rule::NONE; 2]);
}

#[test]
fn files_of_which_no_table_can_be_made_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (program, stripped) = (std::env::current_exe().unwrap(), folder.path().join("stripped"));
    let tool = |file: &std::path::Path| {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = tool.arg("tables").arg(file).arg("-o").arg(folder.path().join("table")).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let without = |section: &str| {
        let mut objcopy = Command::new("objcopy");
        assert!(objcopy.args(["-R", section]).arg(&program).arg(&stripped).status().unwrap().success());
        tool(&stripped)
    };
    let (code, said) = without(".note.gnu.build-id");
    assert!(code == Some(2) && said.contains("has no build id"), "{code:?} {said}");
    let (code, said) = without(".eh_frame");
    assert!(code == Some(2) && said.contains("-C force-unwind-tables=yes"), "{code:?} {said}");
    fs::write(&stripped, "ffffffff80200000 T kmain").unwrap();
    let (code, said) = tool(&stripped);
    assert!(code == Some(2) && said.contains("is no ELF file"), "{code:?} {said}");
    let (code, said) = tool(&program);
    assert!(code == Some(0) && said.contains(" % of "), "{code:?} {said}");
}
