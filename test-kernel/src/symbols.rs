//! Names of the kernel's functions, for back traces: the output of `nm`, which is in the initrd at `boot/syms.txt`.
//!
//! The text is searched line by line without copying it, because the heap may not work during a back trace.

static SYMBOLS: spin::Once<&'static str> = spin::Once::new();

/// Finds the symbols. Without them a back trace has only addresses.
pub fn init(initrd: &'static [u8]) {
    if let Some(entry) = cpio_reader::iter_files(initrd).find(|entry| entry.name() == "boot/syms.txt")
        && let Ok(text) = core::str::from_utf8(entry.file())
    {
        SYMBOLS.call_once(|| text);
    }
}

/// The function that contains `address`, and the offset in it.
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
