//! Reads from which modules a Rust file imports.
//!
//! In: the text of a file. Out: the paths in it, those of `use` items and those in code, and the names of its modules
//! that are compiled for tests only. What is compiled for tests only is left out. This is no parser of Rust: it knows
//! comments, strings, brackets, attributes, `use` trees and inline modules, which is enough to find each path.

/// A path in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// Its segments: `["super", "trap", "NOTHING"]`. The last one is `*` if it imports everything.
    pub parts: Vec<String>,
    /// The name that it has in this file, if a `use` item imports it.
    pub imported_as: Option<String>,
    /// Whether the file gives the name to others, by `pub use`.
    pub is_given: bool,
    /// How many inline modules it is in: so many `super` lead to the file itself.
    pub depth: usize,
}

/// What is read of a file.
#[derive(Debug, Default)]
pub struct Imports {
    pub paths: Vec<Path>,
    /// The modules that it declares as files.
    pub modules: Vec<String>,
    /// Files of modules that are compiled for tests only.
    pub test_modules: Vec<String>,
}

/// Reads a file.
pub fn of(text: &str) -> Imports {
    let mut found = Imports::default();
    let tokens = without_tests(&tokens(text), &mut found.test_modules);
    // The depth of brackets at which each inline module ends.
    let (mut brackets, mut inline) = (0_usize, Vec::new());
    let mut at = 0;
    while at < tokens.len() {
        let depth = inline.len();
        match tokens[at] {
            "{" => brackets += 1,
            "}" => {
                brackets = brackets.saturating_sub(1);
                if inline.last() == Some(&brackets) {
                    inline.pop();
                }
            }
            "mod" if tokens.get(at + 2) == Some(&"{") => {
                inline.push(brackets);
                brackets += 1;
                at += 2;
            }
            "mod" if tokens.get(at + 2) == Some(&";") => {
                found.modules.push(tokens[at + 1].to_owned());
                at += 2;
            }
            "use" => {
                let end = at + tokens[at..].iter().position(|token| *token == ";").unwrap_or(tokens.len() - at);
                let is_given = at > 0 && ["pub", ")"].contains(&tokens[at - 1]);
                let path = |parts: &[&str], imported_as: Option<&&str>| Path {
                    parts: parts.iter().map(|part| (*part).to_owned()).collect(),
                    imported_as: imported_as.map(|name| (*name).to_owned()),
                    is_given,
                    depth,
                };
                expand(&[], &tokens[at + 1..end], &mut |parts, name| found.paths.push(path(parts, name)));
                at = end;
            }
            // `pub(in crate::a)` imports nothing.
            "in" if at > 0 && tokens[at - 1] == "(" => {
                at += tokens[at..].iter().position(|token| *token == ")").unwrap_or(0);
            }
            first if is_name(first) && tokens.get(at + 1) == Some(&"::") => {
                let mut parts = vec![first.to_owned()];
                while tokens.get(at + 1) == Some(&"::") && tokens.get(at + 2).is_some_and(|next| is_name(next)) {
                    parts.push(tokens[at + 2].to_owned());
                    at += 2;
                }
                if parts.len() > 1 {
                    found.paths.push(Path { parts, imported_as: None, is_given: false, depth });
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The paths of a `use` tree, each with the name that it gets: `a::{b as x, c::{d, *}}` is `a::b`, `a::c::d`,
/// `a::c::*`.
fn expand<'a>(before: &[&'a str], tree: &[&'a str], each: &mut dyn FnMut(&[&'a str], Option<&&'a str>)) {
    let mut parts = before.to_vec();
    for (at, token) in tree.iter().enumerate() {
        match *token {
            "::" => {}
            "{" => {
                let inside = &tree[at + 1..tree.len().saturating_sub(1).max(at + 1)];
                for part in split_at_commas(inside).filter(|part| !part.is_empty()) {
                    expand(&parts, part, each);
                }
                return;
            }
            "as" => return each(&parts, tree.get(at + 1)),
            // `a::{self}` is `a`.
            "self" if !parts.is_empty() => {}
            name => parts.push(name),
        }
    }
    each(&parts, parts.last());
}

fn split_at_commas<'a, 'b>(tokens: &'a [&'b str]) -> impl Iterator<Item = &'a [&'b str]> {
    let mut depth = 0;
    tokens.split(move |token| {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        *token == "," && depth == 0
    })
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

/// The tokens without the items that have an attribute `#[cfg(test)]`, or one in which `test` is a part of the
/// condition.
fn without_tests<'a>(tokens: &[&'a str], test_modules: &mut Vec<String>) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at..].starts_with(&["#", "["]) {
            let end = end_of_brackets(tokens, at + 1);
            if is_of_tests(&tokens[at + 2..end - 1]) {
                at = end_of_item(tokens, end, test_modules);
                continue;
            }
        }
        kept.push(tokens[at]);
        at += 1;
    }
    kept
}

fn is_of_tests(attribute: &[&str]) -> bool {
    let is_not = |at: usize| at >= 2 && attribute[at - 2] == "not";
    attribute.first() == Some(&"cfg") && (1..attribute.len()).any(|at| attribute[at] == "test" && !is_not(at))
}

/// Where the brackets that open at `at` have ended.
fn end_of_brackets(tokens: &[&str], at: usize) -> usize {
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place + 1;
        }
    }
    tokens.len()
}

/// Where the item has ended whose attribute ends at `at`: after `;`, after its body, or, for a field, after `,`.
fn end_of_item(tokens: &[&str], mut at: usize, test_modules: &mut Vec<String>) -> usize {
    const ENDS_WITH_BODY: [&str; 8] = ["mod", "fn", "struct", "enum", "union", "trait", "impl", "macro_rules"];
    const ENDS_WITH_SEMICOLON: [&str; 5] = ["use", "const", "static", "type", "let"];
    let mut kind = "";
    while at < tokens.len() {
        match tokens[at] {
            "}" => return at,
            ";" => return at + 1,
            "," if kind.is_empty() => return at + 1,
            "{" if !ENDS_WITH_SEMICOLON.contains(&kind) => return end_of_brackets(tokens, at),
            "(" | "[" | "{" => at = end_of_brackets(tokens, at),
            word => {
                let is_kind = ENDS_WITH_BODY.contains(&word) || ENDS_WITH_SEMICOLON.contains(&word);
                // `const fn` is a function.
                if is_kind && (kind.is_empty() || kind == "const" && word == "fn") {
                    kind = word;
                }
                if word == "mod" && tokens.get(at + 2) == Some(&";") {
                    test_modules.push(tokens[at + 1].to_owned());
                }
                at += 1;
            }
        }
    }
    at
}

/// Names, `::`, and single characters; no comments, no strings, no lifetimes, no numbers.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => string(rest, 1),
            '\'' => character(rest),
            first if first.is_ascii_alphanumeric() || first == '_' => {
                let name = rest.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(rest.len());
                match raw_string(rest, name) {
                    Some(length) => length,
                    None => {
                        found.extend(Some(&rest[..name]).filter(|word| is_name(word)));
                        name
                    }
                }
            }
            ':' if rest.starts_with("::") => {
                found.push("::");
                2
            }
            first => {
                found.extend((!first.is_whitespace()).then_some(&rest[..first.len_utf8()]));
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    found
}

/// The length of a block comment; those in it are a part of it.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let (step, change) = match text.get(at..at + 2) {
            Some("/*") => (2, 1),
            Some("*/") => (2, -1),
            _ => (text[at..].chars().next().map_or(1, char::len_utf8), 0),
        };
        (at, depth) = (at + step, depth + change);
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of a string whose text begins at `at`.
fn string(text: &str, at: usize) -> usize {
    let mut escaped = false;
    for (place, character) in text[at..].char_indices() {
        match character {
            '"' if !escaped => return at + place + 1,
            _ => escaped = character == '\\' && !escaped,
        }
    }
    text.len()
}

/// The length of a string that has a prefix of this many bytes: `b"..."`, `c"..."`, `r#"..."#`.
fn raw_string(text: &str, prefix: usize) -> Option<usize> {
    let marks = text[prefix..].chars().take_while(|character| *character == '#').count();
    let body = prefix + marks + 1;
    if !text[prefix + marks..].starts_with('"') {
        return None;
    }
    match &text[..prefix] {
        "r" | "br" | "cr" => {
            let end = format!("\"{}", "#".repeat(marks));
            Some(text[body..].find(&end).map_or(text.len(), |at| body + at + end.len()))
        }
        "b" | "c" if marks == 0 => Some(string(text, body)),
        _ => None,
    }
}

/// The length of a character's literal, or of the mark before a lifetime's name and the name.
fn character(text: &str) -> usize {
    let inside = &text[1..];
    if let Some(escape) = inside.strip_prefix('\\') {
        let skipped = escape.chars().next().map_or(0, char::len_utf8);
        return escape[skipped..].find('\'').map_or(text.len(), |at| 2 + skipped + at + 1);
    }
    let mut characters = inside.char_indices();
    characters.next();
    match characters.next() {
        Some((at, '\'')) => 1 + at + 1,
        _ => 1 + inside.find(|next: char| !next.is_ascii_alphanumeric() && next != '_').unwrap_or(inside.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        of(text).paths.iter().map(|path| path.parts.join("::")).collect()
    }

    #[test]
    fn a_use_tree_is_its_paths_with_their_new_names() {
        let text = "pub(crate) use a::{\n    b as x, // use nothing;\n    c::{self, d, *},\n};";
        assert_eq!(paths(text), ["a::b", "a::c", "a::c::d", "a::c::*"]);
        let names: Vec<_> = of(text).paths.into_iter().map(|path| path.imported_as.unwrap()).collect();
        assert_eq!(names, ["x", "c", "d", "*"]);
        assert_eq!(paths("use crate as this; use super::super::c;"), ["crate", "super::super::c"]);
    }

    #[test]
    fn a_path_in_code_is_found_wherever_it_is() {
        let text =
            "static A: u8 = trap::NOTHING; fn f(x: &super::B) -> <crate::c::D as E>::F { $crate::g!(self::h::I) }";
        assert_eq!(paths(text), ["trap::NOTHING", "super::B", "crate::c::D", "crate::g", "self::h::I"]);
        assert_eq!(paths("fn f() { x.parse::<u64>(); for y in crate::z::all() {} }"), ["crate::z::all"]);
    }

    #[test]
    fn comments_strings_and_visibility_import_nothing() {
        let text = r###"// crate::a
            /* crate::b /* crate::c */ crate::d */
            const S: &str = "crate::e \" use crate::f;"; const R: &str = r#"crate::g" use crate::h;"#;
            const B: &[u8] = b"crate::i"; const Q: char = '"'; fn f<'a>(x: &'a str) -> char { '\'' }
            pub(in crate::j) struct K;"###;
        assert!(paths(text).is_empty(), "{:?}", paths(text));
        assert_eq!(paths("const Q: [char; 2] = ['\\u{22}', '\"']; use crate::a;"), ["crate::a"]);
    }

    #[test]
    fn only_what_is_compiled_for_tests_is_left_out_and_the_rest_of_the_file_is_read() {
        let all = [
            "mod tests;",
            "mod tests { use crate::b; fn f() {} }",
            "use crate::b::{C, D};",
            "pub(crate) const fn f<T, U>(x: [u8; 2]) -> u8 { crate::b::g() }",
            "#[inline] const A: B = B { c: crate::b::C };",
            "impl A { fn f() { crate::b::g() } }",
        ];
        for item in all {
            for mark in ["#[cfg(test)]", "#[cfg(all(test, unix))]"] {
                assert_eq!(paths(&format!("{mark}\n{item}\nuse crate::a;")), ["crate::a"], "{mark} {item}");
            }
            assert_eq!(paths(&format!("#[cfg(not(test))] {item} use crate::a;")).last().unwrap(), "crate::a");
        }
        assert_eq!(paths("struct A { #[cfg(test)] b: crate::b::C, d: crate::d::E }"), ["crate::d::E"]);
        assert_eq!(of("#[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;\n").test_modules, ["tests"]);
        assert_eq!(paths("#[cfg(not(test))] use crate::a;"), ["crate::a"]);
    }

    #[test]
    fn a_path_knows_how_many_inline_modules_it_is_in() {
        let text = "mod a { use super::b; mod c { fn f() { super::super::d::e() } } } use super::f;";
        let depths: Vec<_> = of(text).paths.iter().map(|path| path.depth).collect();
        assert_eq!(depths, [1, 2, 0]);
    }
}
