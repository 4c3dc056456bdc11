//! Detects the form of a profile. Stage: read, before anything else.
//!
//! In: the first bytes of a stream. Out: the [`Form`], and the bytes that were read for it. A header decides
//! immediately, so that a live stream is not delayed. Redox's two old text forms are told apart by their first 1 000
//! lines.

use super::hex::{hex32, hex64};
use kprof_format::chunk::MAGIC;
use kprof_format::line::Profile;
use kprof_format::serial;
use std::io::{self, Read};

/// The beginning of the text form.
const HEADER: &[u8] = Profile::BEGINS.as_bytes();

/// Number of lines read to tell Redox's old text forms apart.
const LINES: usize = 1000;
/// Maximum number of bytes read to detect the form.
const MAX_BYTES: usize = 1024 * 1024;

/// The forms that a profile can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// kprof's text with header and batches.
    Kprof,
    /// kprof's binary chunks.
    Binary,
    /// A serial log with `~kprof` lines in it.
    Serial,
    /// Redox since 0.2: `<task> <cpu> <tsc> <rip> ...`
    #[value(name = "redox")]
    RedoxTaskFirst,
    /// Redox 0.1.0: `<cpu> <rip> <tsc> ...`
    #[value(name = "redox-0.1")]
    RedoxCpuFirst,
}

/// Reads as many bytes as needed and returns them with the detected form, or with the `forced` one.
///
/// # Errors
/// Errors of the reader.
pub fn detect(reader: &mut impl Read, forced: Option<Form>) -> io::Result<(Vec<u8>, Form)> {
    let mut head = vec![0; 64 * 1024];
    let mut end = 0;
    let mut lines = 0;
    loop {
        if end == head.len() {
            head.resize(2 * end, 0);
        }
        let got = match reader.read(&mut head[end..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        lines += memchr::memchr_iter(b'\n', &head[end..end + got]).count();
        end += got;
        let header = head[..end].starts_with(HEADER) || head[..end].starts_with(&MAGIC);
        if got == 0 || lines >= LINES || end >= MAX_BYTES || header || (forced.is_some() && end > 0) {
            head.truncate(end);
            let form = forced.unwrap_or_else(|| of(&head));
            return Ok((head, form));
        }
    }
}

/// The form of a text that begins with `head`.
pub fn of(head: &[u8]) -> Form {
    let has_header = || memchr::memmem::find_iter(head, HEADER).any(|at| at > 0 && head[at - 1] == b'\n');
    match () {
        () if head.starts_with(HEADER) => return Form::Kprof,
        // Before a header inside the text is looked for: the first chunk has one too, after a checksum whose last byte
        // may be that of a line's end. No text has the bytes of the magic.
        () if memchr::memmem::find(head, &MAGIC).is_some() => return Form::Binary,
        () if has_header() => return Form::Kprof,
        () if memchr::memmem::find(head, serial::MARK).is_some() => return Form::Serial,
        () => {}
    }
    let (mut task_first, mut cpu_first) = (0, 0);
    let mut from = 0;
    for end in memchr::memchr_iter(b'\n', head).chain([head.len()]).take(LINES) {
        let line = &head[from..end];
        from = end + 1;
        let (mut fields, mut count) = ([&[][..]; 5], 0);
        for field in line.strip_suffix(b"\r").unwrap_or(line).split(|byte| *byte == b' ').take(fields.len()) {
            fields[count] = field;
            count += 1;
        }
        let fields = &fields[..count];
        let numbers = |from: usize| fields[from..].iter().all(|field| hex64(field).is_ok());
        // They differ in the second field: the CPU in one form, a kernel address in the other.
        let is_task_first = fields.len() >= 4 && !fields[0].is_empty() && hex32(fields[1]).is_ok() && numbers(2);
        let is_cpu_first = fields.len() >= 3
            && hex32(fields[0]).is_ok()
            && hex64(fields[1]).is_ok_and(|address| address >> 63 == 1)
            && numbers(2);
        task_first += usize::from(is_task_first);
        cpu_first += usize::from(is_cpu_first);
    }
    if cpu_first > task_first { Form::RedoxCpuFirst } else { Form::RedoxTaskFirst }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_old_texts_are_told_apart_by_what_fits_only_one_of_them() {
        let newer = b"kmain 0 123456 ffffffff80000000 ffffffff80000100\n".repeat(3);
        let older = b"0 ffffffff80000000 123456 ffffffff80000100\n".repeat(3);
        // The first field looks like a CPU number but is a task's name: the second field is too small for an address.
        let both = b"fd 0 123456 ffffffff80000000\n";
        assert_eq!(of(&newer), Form::RedoxTaskFirst);
        assert_eq!(of(&older), Form::RedoxCpuFirst);
        assert_eq!(of(both), Form::RedoxTaskFirst);
        assert_eq!(of(b"a 0 1\na 0 1\n"), Form::RedoxTaskFirst);
        assert_eq!(of(b"# kprof-profile 1\n"), Form::Kprof);
        assert_eq!(of(b"\x89kprof\r\n\x01"), Form::Binary);
        // A checksum that ends like a line, in a whole chunk and in one whose beginning is damaged.
        assert_eq!(
            of(b"\x89kprof\r\n\x01\x01\0\0\xb1\x01\0\0\0\0\0\0\xc0\xce\x65\x0a# kprof-profile 1\n"),
            Form::Binary
        );
        assert_eq!(of(b"\xc0\xce\x65\x0a# kprof-profile 1\n\x89kprof\r\n\x01"), Form::Binary);
        assert_eq!(of(b"[0.1] boot ~kprof 0 85f1a8ec # kprof-profile 1\n"), Form::Serial);
        assert_eq!(of(b"noise\n# kprof-profile 1\n"), Form::Kprof);
    }
}
