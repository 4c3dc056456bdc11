//! Room in the kernel's file for its unwind table, which is written there after linking (docs/no-frame-pointers.md).
//!
//! In: a number of bytes. Out: these bytes, as the loaded file has them. Runs in: ordinary code, at boot.

/// Reserves so many bytes in the section `.kprof.unwind`, and gives them: `&'static [u8]`, for
/// [`kprof::UnwindTable::new`]. The kernel's linker script must keep this section. Used once in a kernel.
#[macro_export]
macro_rules! unwind_room {
    ($bytes:expr) => {{
        #[used]
        #[unsafe(link_section = ".kprof.unwind")]
        static ROOM: [u8; $bytes] = [0; $bytes];
        // The compiler knows these zeros, and not that they are replaced after linking.
        core::hint::black_box(&ROOM).as_slice()
    }};
}

#[cfg(test)]
mod tests {
    #[test]
    fn room_that_was_not_filled_is_an_empty_table() {
        let room: &'static [u8] = unwind_room!(256);
        assert_eq!((room.len(), room.iter().any(|byte| *byte != 0)), (256, false));
        let error = kprof::UnwindTable::new(room, &[1], 0).unwrap_err();
        assert!(error.to_string().contains("kprof-fold tables"), "{error}");
    }
}
