//! Text profiles as `profiled` writes them, for tests that put them together by hand.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use kprof_format::checksum::Crc32;

/// The batch of a CPU with these sample lines.
pub fn batch(cpu: u32, samples: &str) -> String {
    let count = samples.lines().count();
    format!("# batch cpu={cpu} from=0 to={}\n{samples}# end cpu={cpu} to={} samples={count}\n", 6 * count, 6 * count)
}

/// A meta batch with these lines.
pub fn names(lines: &str) -> String {
    format!("# batch cpu=meta from=0 to=10\n{lines}# end cpu=meta to=10\n")
}

/// Adds a checksum to the last line of each batch of `text`, if that line has none.
pub fn sealed(text: &str) -> String {
    let (mut out, mut boot, mut open) = (String::new(), "", None);
    for line in text.split_inclusive('\n') {
        match line.split_ascii_whitespace().nth(1).filter(|_| line.starts_with("# ")) {
            Some("kprof-profile") => (boot, open) = ("", None),
            Some("boot") => boot = line["# boot".len()..].trim(),
            Some("batch") => open = Some(out.len()),
            Some("end") if !line.contains(" crc=") => {
                if let Some(start) = open.take() {
                    let crc = Crc32::of_batch(boot).with(&out.as_bytes()[start..]).end();
                    let end = line.trim_end_matches(['\r', '\n']);
                    out.push_str(&format!("{end} crc={crc:08x}{}", &line[end.len()..]));
                    continue;
                }
            }
            _ => {}
        }
        out.push_str(line);
    }
    out
}
