//! Checks that no circle of imports spans several folders: modules that depend on each other must be in one folder.
//!
//! In: the `use` items and the paths `crate::...` of a package, test modules left out. Out: each circle whose files lie
//! in more than one folder; a module that has submodules belongs to their folder.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// Module path (`task::wait`; empty for the root) to the modules that it imports from.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The circles of the package whose sources are in `folder`, one text for each. A folder without sources is an entry
/// too.
pub fn in_package(sources: &[Source], folder: &str) -> Vec<String> {
    let graph = graph(sources, folder);
    if graph.is_empty() {
        return vec![format!("{folder} has no modules: it was moved or removed, so the list of folders must change")];
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|from| (from.as_str(), reachable(&graph, from))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in graph.keys().map(String::as_str) {
        let circle: BTreeSet<&str> =
            reach[module].iter().copied().filter(|other| reach[other].contains(module)).collect();
        let folders: BTreeSet<&str> = circle.iter().map(|module| folder_of(&graph, module)).collect();
        if folders.len() > 1 && seen.insert(circle.clone()) {
            found.push(describe(&graph, &circle));
        }
    }
    found
}

/// The modules of a circle, each with the modules of the circle that it imports.
fn describe(graph: &Graph, circle: &BTreeSet<&str>) -> String {
    let line = |module: &&str| {
        let used: Vec<&str> = graph[*module].iter().map(String::as_str).filter(|used| circle.contains(used)).collect();
        format!("  {module} uses {}", used.join(", "))
    };
    let lines: Vec<String> = circle.iter().map(line).collect();
    format!("a circle of {} files:\n{}", circle.len(), lines.join("\n"))
}

/// The folder of a module; a module that has submodules belongs to theirs.
fn folder_of<'a>(graph: &Graph, module: &'a str) -> &'a str {
    let prefix = format!("{module}::");
    if graph.keys().any(|other| other.starts_with(&prefix)) {
        return module;
    }
    module.rsplit_once("::").map_or("", |(folder, _)| folder)
}

fn reachable<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut todo = vec![from];
    while let Some(module) = todo.pop() {
        todo.extend(graph[module].iter().map(String::as_str).filter(|next| reached.insert(*next)));
    }
    reached
}

fn graph(sources: &[Source], folder: &str) -> Graph {
    let mut texts = BTreeMap::new();
    for source in sources {
        let inside = source.path.strip_prefix(folder).and_then(|path| path.strip_prefix('/')?.strip_suffix(".rs"));
        if let Some(inside) = inside.filter(|path| !path.ends_with("tests") && !path.starts_with("bin/")) {
            let module = inside.replace('/', "::");
            let module = module.strip_suffix("mod").map_or(module.as_str(), |parent| parent.trim_end_matches("::"));
            // The root imports nothing that could be imported from it, beside a program's verbs.
            if !["main", "lib"].contains(&module) {
                texts.insert(module.to_owned(), source.text.as_str());
            }
        }
    }
    let modules: BTreeSet<String> = texts.keys().cloned().collect();
    let imports = |(module, text): (&String, &&str)| (module.clone(), imports_of(module, text, &modules));
    texts.iter().map(imports).collect()
}

/// The modules that a file imports from.
fn imports_of(module: &str, text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: String = code.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut paths = Vec::new();
    for item in code.split(';') {
        if let Some(at) = item.rfind("use ").filter(|at| item[..*at].ends_with(['\n', ' ', '\t']) || *at == 0) {
            expand("", item[at + 4..].trim(), &mut paths);
        }
    }
    for (at, _) in code.match_indices("crate::") {
        let is_path = |character: char| character.is_ascii_alphanumeric() || character == '_' || character == ':';
        let rest = &code[at..];
        paths.push(rest[..rest.find(|next| !is_path(next)).unwrap_or(rest.len())].to_owned());
    }
    paths.iter().filter_map(|path| resolve(module, path, modules)).filter(|used| used != module).collect()
}

/// The paths of a `use` tree: `a::{b, c::{d, e}}` is `a::b`, `a::c::d`, `a::c::e`.
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        paths.push(format!("{before}{}", tree.trim()));
        return;
    };
    let inside = rest.rfind('}').map_or(rest, |end| &rest[..end]);
    let (mut depth, mut start) = (0, 0);
    for (at, character) in inside.char_indices().chain([(inside.len(), ',')]) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inside[start..at].trim();
                if !part.is_empty() {
                    expand(&format!("{before}{}", head.trim()), part, paths);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// The module that a path leads into; `None` for another crate's.
fn resolve(module: &str, path: &str, modules: &BTreeSet<String>) -> Option<String> {
    let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
    let mut from: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    match parts.first().copied()? {
        "crate" => {
            from.clear();
            parts.remove(0);
        }
        "self" => drop(parts.remove(0)),
        "super" => {
            while parts.first() == Some(&"super") {
                parts.remove(0);
                from.pop();
            }
        }
        // A path that begins with a child's name.
        child if modules.contains(&from.iter().copied().chain([child]).collect::<Vec<_>>().join("::")) => {}
        _ => return None,
    }
    from.append(&mut parts);
    while !from.is_empty() {
        let candidate = from.join("::");
        if modules.contains(&candidate) {
            return Some(candidate);
        }
        from.pop();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files.iter().map(|(path, text)| source(&format!("p/src/{path}"), text)).collect();
        in_package(&sources, "p/src")
    }

    #[test]
    fn a_circle_across_two_folders_is_found_with_its_files() {
        let found = circles(&[
            ("a/mod.rs", "pub mod x;"),
            ("a/x.rs", "use crate::b::{self, y::{One, Two}};\n"),
            ("b/mod.rs", "pub mod y;"),
            ("b/y.rs", "fn f() {\n    crate::a::x::go();\n}\n"),
        ]);
        assert_eq!(found, ["a circle of 2 files:\n  a::x uses b::y\n  b::y uses a::x"]);
    }

    #[test]
    fn a_circle_in_one_folder_and_one_of_a_test_module_are_let_pass() {
        let one = [("a/mod.rs", "mod x;\npub use x::One;\n"), ("a/x.rs", "use super::Two;\n")];
        assert!(circles(&one).is_empty());
        let test = [("a.rs", "use crate::b::c;\n"), ("b/c.rs", "#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n")];
        assert!(circles(&test).is_empty());
    }

    #[test]
    fn a_folder_that_is_gone_is_not_taken_for_one_without_circles() {
        assert_eq!(in_package(&[source("p/src/a.rs", "")], "q/src").len(), 1);
    }

    #[test]
    fn relative_imports_lead_to_the_module_that_they_name() {
        let found = circles(&[
            ("a/mod.rs", ""),
            ("a/x.rs", "use super::super::b;\n"),
            ("b.rs", "// use nothing;\npub use crate::a::x::{One as Two};\n"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
