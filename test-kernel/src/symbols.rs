//! Names of the kernel's functions, for back traces: the text of `nm` in the initrd, at `boot/syms.txt`.
//!
//! Read as it lies there, line by line: a back trace may come when no heap works any more.

static SYMBOLS: spin::Once<&'static str> = spin::Once::new();

/// Finds the symbols. Without them a back trace has addresses only.
pub fn init(initrd: &'static [u8]) {
    if let Some(entry) = cpio_reader::iter_files(initrd).find(|entry| entry.name() == "boot/syms.txt")
        && let Ok(text) = core::str::from_utf8(entry.file())
    {
        SYMBOLS.call_once(|| text);
    }
}

/// The function that holds `address`, and how far into it.
pub fn find(address: u64) -> Option<(&'static str, u64)> {
    let mut best: Option<(u64, &'static str)> = None;
    for line in SYMBOLS.get()?.lines() {
        let mut words = line.splitn(4, ' ');
        let Some(start) = words.next().and_then(|word| u64::from_str_radix(word, 16).ok()) else { continue };
        let (Some(size), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
        let holds = start <= address && u64::from_str_radix(size, 16).is_ok_and(|size| address < start + size);
        if holds && matches!(kind, "t" | "T" | "w" | "W") && best.is_none_or(|(other, _)| start > other) {
            best = Some((start, name));
        }
    }
    best.map(|(start, name)| (name, address - start))
}
