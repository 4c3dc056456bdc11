//! Lines of code, comments and documents have at most 120 characters.
//!
//! Not counted is what nothing can break: rows of tables, lines that hold a string literal or an address of the web,
//! and commands and output that a page quotes (indented, or between fences).

use super::Source;

const MAX: usize = 120;

/// The lines that are too long, as `path:line: length`.
pub fn too_long(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let mut is_quoted = false;
        for (index, line) in source.text.lines().enumerate() {
            is_quoted ^= source.path.ends_with(".md") && line.trim_start().starts_with("```");
            let length = line.chars().count();
            if length > MAX && !is_quoted && !may_be_long(&source.path, line) {
                found.push(format!("{}:{}: {length} characters", source.path, index + 1));
            }
        }
    }
    found
}

fn may_be_long(path: &str, line: &str) -> bool {
    let text = line.trim_start();
    let is_comment = ["//", "/*", "*", "#"].iter().any(|mark| text.starts_with(mark)) && !text.starts_with("#[");
    let text = text.trim_start_matches(['/', '!']).trim();
    if line.contains("https://") || text.starts_with('|') && text.ends_with('|') {
        return true;
    }
    if path.ends_with(".md") {
        return line.starts_with("    ");
    }
    // Code with a string in it, or inside of one. The comment after the code can be put on a line of its own.
    let code = line.split(" // ").next().unwrap_or_default();
    !is_comment && (code.contains('"') || text.ends_with('\\') || path.ends_with(".toml"))
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    #[test]
    fn a_long_comment_and_a_long_sentence_are_found_and_a_table_and_a_string_are_not() {
        let long = "word ".repeat(25);
        let code = format!("//! {long}\n/// | {long} |\nlet text = \"{long}\";\n    /// {long}\n");
        let page = format!("{long}\n| {long} |\n    {long}\n```\n{long}\n```\nshort\n");
        let found = too_long(&[source("a.rs", &code), source("b.md", &page)]);
        assert_eq!(found, ["a.rs:1: 129 characters", "a.rs:4: 133 characters", "b.md:1: 125 characters"]);
    }

    #[test]
    fn each_form_of_a_long_line_is_found() {
        let long = "word ".repeat(25);
        let found = |path: &str, line: &str| too_long(&[source(path, &format!("{line}\n"))]).len();
        for line in ["// LONG", "    /// LONG \"quoted\"", "/* LONG \" */", " * LONG \"", "f(); // LONG \"", "| LONG"] {
            assert_eq!(found("a.rs", &line.replace("LONG", &long)), 1, "{line}");
        }
        for line in ["# LONG \"", "#LONG", "f LONG"] {
            assert_eq!(found("a.sh", &line.replace("LONG", &long)), 1, "{line}");
        }
        assert_eq!(found("a.toml", &format!("# {long}\"")), 1);
        assert_eq!(found("a.md", &format!("  {long}\"")), 1);
        for line in ["f(\"LONG\"); // why", "    LONG\\", "    #[doc = \"LONG\"]", "// https://LONG"] {
            assert_eq!(found("a.rs", &line.replace("LONG", &long)), 0, "{line}");
        }
    }

    #[test]
    fn characters_are_counted_and_not_bytes() {
        assert!(too_long(&[source("a.md", &"é".repeat(120))]).is_empty());
    }
}
