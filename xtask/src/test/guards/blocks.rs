//! Checks that the Rust code in documents is code that is compiled.
//!
//! In: the blocks of Markdown pages whose mark begins with `rust`, and all Rust files. Out: each paragraph of a block
//! that is in no Rust file. Comments and white space are not compared. A line `...` stands for code that is left out:
//! it ends a paragraph, as an empty line does. `kprof/events/tests/pages/` has the code that is in no port.

use super::Source;

/// The paragraphs that are in no Rust file, as `path:line: its first line of code`.
pub fn not_compiled(sources: &[Source]) -> Vec<String> {
    let is_code = |source: &&Source| source.path.ends_with(".rs") && !source.path.starts_with(OWN);
    let code: Vec<String> = sources.iter().filter(is_code).map(|source| bare(source.text.lines())).collect();
    let mut found = Vec::new();
    let is_page = |source: &&Source| source.path.ends_with(".md") && !is_tested(&source.path, sources);
    for source in sources.iter().filter(is_page) {
        for (number, lines) in paragraphs(&source.text) {
            let text = bare(lines.iter().copied());
            if !text.is_empty() && !code.iter().any(|code| code.contains(&text)) {
                let first = lines.iter().map(|line| line.trim()).find(|line| !line.starts_with("//"));
                found.push(format!("{}:{number}: {}", source.path, first.unwrap_or_default()));
            }
        }
    }
    found
}

/// The files of the checks have such code as examples.
const OWN: &str = "xtask/src/test/guards/";

/// Whether the page is the documentation of a library: then each of its blocks is a test of its own.
fn is_tested(page: &str, sources: &[Source]) -> bool {
    let library = page.strip_suffix("README.md").map(|folder| format!("{folder}src/lib.rs"));
    let of_library = sources.iter().find(|source| Some(&source.path) == library.as_ref());
    of_library.is_some_and(|source| source.text.contains("include_str!(\"../README.md\")"))
}

/// The code of lines without comments and white space.
fn bare<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let code = lines.map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(str::chars).filter(|character| !character.is_whitespace()).collect()
}

/// The paragraphs of the Rust blocks of a page, each with the number of its first line.
fn paragraphs(text: &str) -> Vec<(usize, Vec<&str>)> {
    let mut found: Vec<(usize, Vec<&str>)> = Vec::new();
    let (mut is_quoted, mut is_rust, mut goes_on) = (false, false, false);
    for (index, line) in text.lines().enumerate() {
        // In an item of a list a block is indented.
        if let Some(mark) = line.trim_start().strip_prefix("```") {
            is_rust = !is_quoted && mark.trim().split([',', ' ']).next() == Some("rust");
            (is_quoted, goes_on) = (!is_quoted, false);
        } else if is_rust && (line.trim().is_empty() || line.trim_start().starts_with("...")) {
            goes_on = false;
        } else if is_rust {
            match found.last_mut().filter(|_| goes_on) {
                Some((_, lines)) => lines.push(line),
                None => found.push((index + 1, vec![line])),
            }
            goes_on = true;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const CODE: &str = "fn all() {\n    // First.\n    first(1,\n        2);\n    second();\n    third();\n}\n";

    fn found(page: &str) -> Vec<String> {
        not_compiled(&[source("a.rs", CODE), source("b.md", page)])
    }

    #[test]
    fn paragraphs_that_are_compiled_are_accepted_in_any_order_and_with_code_left_out() {
        assert!(found("```rust\nthird();    // why\n\nfirst(1, 2);\n...    // more\nthird();\n}\n```\n").is_empty());
    }

    #[test]
    fn the_page_of_a_library_has_tests_of_its_own() {
        let page = source("p/README.md", "```rust\nfourth();\n```\n");
        let library = |text| source("p/src/lib.rs", text);
        assert!(not_compiled(&[page, library("#![doc = include_str!(\"../README.md\")]")]).is_empty());
        let page = source("p/README.md", "```rust\nfourth();\n```\n");
        assert_eq!(not_compiled(&[page, library("")]), ["p/README.md:2: fourth();"]);
    }

    #[test]
    fn a_paragraph_that_is_compiled_nowhere_is_found_with_its_line() {
        let page = "text\n```rust\nfirst(1, 2);\nthird();\n\nfourth();\n```\n```toml\nfifth()\n```\nsixth();\n";
        assert_eq!(found(page), ["b.md:3: first(1, 2);", "b.md:6: fourth();"]);
        for fence in ["```rust", "   ```rust", "```rust,ignore", "``` rust no_run"] {
            assert_eq!(found(&format!("{fence}\nfourth();\n```\n")), ["b.md:2: fourth();"], "{fence}");
        }
    }
}
