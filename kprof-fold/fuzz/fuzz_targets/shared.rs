//! What the targets share: bytes in, folded stacks out, with the same functions as the command line.

use kprof_fold::fold::Folder;
use kprof_fold::output::folded;
use kprof_fold::problems::Problems;
use kprof_fold::read::{self, Source, form::Form};
use kprof_fold::select::Select;
use kprof_fold::symbols::Symbols;
use kprof_fold::tally::{By, Tally};

/// Symbols for targets that fuzz the profile.
#[allow(dead_code)]
pub const SYMS: &[u8] = b"ffffffff80001000 0000000000000100 T kmain\nffffffff80002000 t mm::map\n";

/// Folds, and checks what must hold for any input: each sample that counts is in one stack, and no line is broken.
#[allow(dead_code)]
pub fn fold(profile: &[u8], form: Option<Form>, symbols: &Symbols) {
    let select = Select { user: true, ..Select::default() };
    let source = Source { file: "fuzz", form, boot: None, progress: &mut |_| {} };
    let Ok(reading) = read::read_from(profile, source, Tally::new(select.clone(), By::Task)) else { return };
    let tally = &reading.consumer;
    let folder = Folder { symbols, stacks: &reading.stacks, select: &select, by: By::Task, groups: tally.groups() };
    let result = folder.fold(&tally.counts());
    assert_eq!(result.samples(), reading.profile.samples());
    let mut text = Vec::new();
    folded::write(&result, 0, &mut text).expect("memory takes everything");
    let text = String::from_utf8(text).expect("is UTF-8");
    for line in text.lines() {
        let (_, count) = line.rsplit_once(' ').expect("has a count");
        assert!(count.parse::<u64>().is_ok_and(|count| count > 0), "{line:?}");
    }
}

/// Symbols from any bytes.
#[allow(dead_code)]
pub fn symbols(bytes: &[u8]) -> Option<Symbols> {
    Symbols::read("fuzz", bytes.to_vec(), std::io::empty(), &mut Problems::default()).ok()
}
