//! Checks that every path that a document or a comment names exists.
//!
//! In: whole Markdown pages; the comments of code and scripts. A path is a word that ends with `/`, or a word (with or
//! without `/` in it) that ends with one of `ENDS`. A path exists if it is the path of a file of the repository, or if
//! the path of a file ends with `/` and this path. `../` is relative to the file that names the path. A link of a
//! Markdown page must lead to a file, relative to the page. These paths are not checked: absolute paths, paths under
//! target/, words with a placeholder, and files of other projects, which are listed here.

use std::collections::BTreeSet;

use super::Source;

const ENDS: [&str; 13] =
    [".rs", ".md", ".sh", ".toml", ".ld", ".mk", ".mjs", ".js", ".py", ".css", ".yml", ".service", ".svg"];
/// Paths that are not checked, because a command makes the file or another project has it: beginnings of paths, or
/// whole names.
const ELSEWHERE: [&str; 18] = [
    "target/",
    "path/to/",
    "docs-developer/",
    "protos/perfetto/",
    "main.rs",
    "Cargo.toml",
    "flamegraph.svg",
    "graph.svg",
    "page.html",
    "profile.html",
    "src/scheme/",
    "diff.svg",
    "difference.svg",
    "rust-toolchain.toml",
    ".cargo/config.toml",
    "recipes/",
    "config/",
    "src/lib.rs",
];
/// Folders whose pages name files of another project's tree.
const FOREIGN: [&str; 1] = ["kernel-integration/ports/redox/"];

/// The paths that are named but do not exist, as `path:line: word`.
pub fn missing(sources: &[Source], files: &[&str]) -> Vec<String> {
    let known: BTreeSet<&str> = files.iter().copied().collect();
    let folders: BTreeSet<&str> =
        files.iter().flat_map(|path| path.match_indices('/').map(|(at, _)| &path[..=at])).collect();
    let mut found = Vec::new();
    for source in sources {
        let is_page = source.path.ends_with(".md");
        for (index, line) in source.text.lines().enumerate() {
            let Some(text) = (if is_page { Some(line) } else { comment(&source.path, line) }) else { continue };
            // A page's bold text is no pattern.
            let text = &text.replace("**", "  ");
            let words = paths(text).filter(|word| !is_there(word, &source.path, &known, &folders));
            let links = links(text).filter(|_| is_page).filter(|link| !leads(link, &source.path, &known, &folders));
            let wrong: BTreeSet<&str> = words.chain(links).collect();
            found.extend(wrong.iter().map(|word| format!("{}:{}: {word}", source.path, index + 1)));
        }
    }
    found
}

/// The comment in a line of code.
fn comment<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    let mark = if [".rs", ".mjs", ".js"].iter().any(|end| path.ends_with(end)) { "//" } else { "#" };
    let at = line.find(mark).filter(|at| line[..*at].ends_with([' ', '\t']) || *at == 0)?;
    Some(&line[at + mark.len()..])
}

/// The words of a text that look like paths.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    let is_foreign = |character: char| "<>{}$*~=:\\\"%…".contains(character);
    let mut rest = text;
    let mut before = ' ';
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(is_part)?;
            before = rest[..start].chars().next_back().unwrap_or(before);
            let word = &rest[start..];
            let end = word.find(|next| !is_part(next)).unwrap_or(word.len());
            let after = word[end..].chars().next().unwrap_or(' ');
            rest = &word[end..];
            let word = word[..end].trim_end_matches(['.', '-']);
            let is_whole = !is_foreign(before) && (!is_foreign(after) || after == ':');
            before = word.chars().next_back().unwrap_or(' ');
            if is_whole && is_path(word) {
                return Some(word);
            }
        }
    })
}

/// Does a word name a file or folder of this repository?
fn is_path(word: &str) -> bool {
    let name = word.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let has_placeholder = word.split(['/', '.', '-', '_']).any(|part| {
        part.len() <= 2 && part.chars().any(|letter| letter.is_ascii_uppercase()) || ["NAME", "KERNEL"].contains(&part)
    });
    let is_elsewhere = ELSEWHERE.iter().any(|other| word == *other || other.ends_with('/') && word.starts_with(other));
    let is_file = ENDS.iter().any(|end| name.ends_with(end) && name.len() > end.len());
    let is_folder = word.ends_with('/')
        && word.starts_with(|first: char| first.is_ascii_alphabetic())
        && word.chars().all(|letter| letter != '.');
    (is_file || is_folder) && !word.starts_with('/') && !word.starts_with("...") && !is_elsewhere && !has_placeholder
}

fn is_there(word: &str, from: &str, known: &BTreeSet<&str>, folders: &BTreeSet<&str>) -> bool {
    if FOREIGN.iter().any(|folder| from.starts_with(folder)) && !word.starts_with("kernel-integration/") {
        return true;
    }
    if word.starts_with("../") || word.starts_with("./") {
        return leads(word, from, known, folders);
    }
    let all = if word.ends_with('/') { folders } else { known };
    let ending = format!("/{word}");
    all.contains(word) || all.iter().any(|path| path.ends_with(&ending))
}

/// The targets of a page's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let target = |part: &str| part.find(')');
    let parts = text.split("](").skip(1).filter_map(move |part| Some(&part[..target(part)?]));
    // `[name]: target` is a link that is named elsewhere in the page; a title may follow each target.
    let named = text.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
    let targets = parts.chain(named).map(|link| link.split([' ', '#']).next().unwrap_or_default());
    targets.filter(|link| !link.is_empty() && !link.contains(':'))
}

/// Does a link, counted from the file that holds it, lead to a file or a folder?
fn leads(link: &str, from: &str, known: &BTreeSet<&str>, folders: &BTreeSet<&str>) -> bool {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." if parts.pop().is_none() => return false,
            ".." | "." | "" => {}
            name => parts.push(name),
        }
    }
    let path = parts.join("/");
    known.contains(path.as_str()) || folders.contains(format!("{path}/").as_str()) || path.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    const FILES: [&str; 4] = ["docs/a.md", "kernel/src/ring/mod.rs", "kernel/src/way.rs", "kernel/tests/run.sh"];

    fn found(path: &str, text: &str) -> Vec<String> {
        missing(&[source(path, text)], &FILES)
    }

    #[test]
    fn a_file_that_is_gone_is_found_in_a_page_and_in_a_comment() {
        let page = "see `kernel/src/gone.rs`, `ring/` and way.rs\nand `wag.rs`, rings/ in docs/b.md.\n";
        assert_eq!(
            found("docs/a.md", page),
            ["docs/a.md:1: kernel/src/gone.rs", "docs/a.md:2: docs/b.md", "docs/a.md:2: rings/", "docs/a.md:2: wag.rs"]
        );
        let code = "//! as `ring/gone.rs` does\nlet path = \"src/none.rs\"; // and tests/run.sh\n";
        assert_eq!(found("kernel/src/way.rs", code), ["kernel/src/way.rs:1: ring/gone.rs"]);
    }

    #[test]
    fn a_link_counts_from_its_page() {
        assert!(found("docs/a.md", "[way](../kernel/src/way.rs#x) [web](https://a.b/c.md) [here](#there)").is_empty());
        assert_eq!(found("docs/a.md", "[way](kernel/src/way.rs)"), ["docs/a.md:1: kernel/src/way.rs"]);
    }

    #[test]
    fn each_form_of_a_wrong_path_is_found() {
        let page = |text: &str| found("docs/a.md", text).len();
        for text in
            ["gone.js", "`gone.py`", "(gone.css)", "gone.yml:7", "../gone.md", "./gone.md", "rings/", "**gone.rs**"]
        {
            assert_eq!(page(text), 1, "{text}");
        }
        for text in ["[a](gone)", "![a](gone.png)", "[a](gone#b)", "[a](gone \"title\")", "[a]: gone"] {
            assert_eq!(page(text), 1, "{text}");
        }
        assert_eq!(page("[a](a.md \"title\") and [b]"), 0);
        let code = |path: &str, text: &str| found(path, text).len();
        for (path, text) in [
            ("kernel/src/way.rs", "/// gone.rs"),
            ("kernel/src/way.rs", "f(); // gone.rs"),
            ("kernel/a.mjs", "// gone.rs"),
            ("kernel/a.js", "// gone.rs"),
            ("kernel/tests/run.sh", "f # gone.rs"),
            ("kernel/a.py", "# gone.rs"),
            ("kernel/a.toml", "# gone.rs"),
        ] {
            assert_eq!(code(path, text), 1, "{path}: {text}");
        }
    }

    #[test]
    fn other_places_and_placeholders_are_let_pass() {
        let page = "/etc/profiled.sh target/x.rs path/to/a.md src/<name>.rs profiling-N.rs $HOME/a.sh *.rs either/or";
        assert!(found("docs/a.md", page).is_empty(), "{:?}", found("docs/a.md", page));
    }
}
