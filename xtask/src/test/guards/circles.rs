//! Checks that no circle of imports spans several folders: modules that depend on each other must be in one folder.
//!
//! In: the paths in the files of a package, without what is compiled for tests only. Out: each circle whose files lie
//! in more than one folder; a module that has submodules belongs to their folder. What is imported from the package's
//! root is imported from where the root has it from, or, if it is defined there, from the root, which imports all that
//! its own code uses.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;
use super::imports::{self, Imports, Path};

/// Module path (`task::wait`; empty for the root) to the modules that it imports from.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// The circles of the package whose sources are in `folder`, one text for each. A folder without sources is one, too.
pub fn in_package(sources: &[Source], folder: &str) -> Vec<String> {
    let graph = graph(sources, folder);
    if graph.is_empty() {
        return vec![format!("{folder} has no modules: it was moved or removed, so the list of folders must change")];
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|from| (from.as_str(), reachable(&graph, from))).collect();
    let mut circles = BTreeSet::new();
    for module in graph.keys().map(String::as_str) {
        let circle: BTreeSet<&str> =
            reach[module].iter().copied().filter(|other| reach[other].contains(module)).collect();
        let folders: BTreeSet<&str> = circle.iter().map(|module| folder_of(&graph, module)).collect();
        if folders.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.iter().map(|circle| describe(&graph, circle)).collect()
}

/// The modules of a circle, each with the modules of the circle that it imports.
fn describe(graph: &Graph, circle: &BTreeSet<&str>) -> String {
    fn shown(module: &str) -> &str {
        if module.is_empty() { "the root" } else { module }
    }
    let line = |module: &&str| {
        let used = graph[*module].iter().map(String::as_str).filter(|used| circle.contains(used)).map(shown);
        format!("  {} uses {}", shown(module), used.collect::<Vec<_>>().join(", "))
    };
    let lines: Vec<String> = circle.iter().map(line).collect();
    format!("a circle of {} files:\n{}", circle.len(), lines.join("\n"))
}

/// The folder of a module; a module that has submodules belongs to theirs.
fn folder_of<'a>(graph: &Graph, module: &'a str) -> &'a str {
    if graph.keys().any(|other| is_below(other, module)) {
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
    let mut files = BTreeMap::new();
    for source in sources {
        let inside = source.path.strip_prefix(folder).and_then(|path| path.strip_prefix('/')?.strip_suffix(".rs"));
        if let Some(inside) = inside.filter(|path| !path.starts_with("bin/")) {
            let module = inside.replace('/', "::");
            let module = module.strip_suffix("mod").map_or(module.as_str(), |parent| parent.trim_end_matches("::"));
            files.insert(module.to_owned(), imports::of(&source.text));
        }
    }
    // A program beside a library imports from it as from another crate.
    let main = files.remove("main");
    let root = files.remove("lib").or(main);
    files.extend(root.map(|root| (String::new(), root)));
    let of_tests: Vec<String> =
        files.iter().flat_map(|(module, file)| file.test_modules.iter().map(|name| joined(module, name))).collect();
    let is_of_tests = |module: &String| of_tests.iter().any(|test| module == test || is_below(module, test));
    files.retain(|module, _| !is_of_tests(module));
    let package = Package { modules: files.keys().cloned().collect(), root: files.get("") };
    files.iter().map(|(module, file)| (module.clone(), package.imports_of(module, &file.paths))).collect()
}

fn joined(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

fn is_below(module: &str, folder: &str) -> bool {
    module.strip_prefix(folder).is_some_and(|rest| rest.starts_with("::"))
}

/// The modules of a package, and what its root imports.
struct Package<'a> {
    modules: BTreeSet<String>,
    root: Option<&'a Imports>,
}

impl Package<'_> {
    /// The modules that a file imports from.
    fn imports_of(&self, module: &str, paths: &[Path]) -> BTreeSet<String> {
        let whole = |path: &&Path| path.parts.last().is_some_and(|last| last == "*");
        // The names of these modules can be used without a path: the file's own, and those that it imports all of.
        let opened = paths.iter().filter(whole).flat_map(|path| self.resolve(&[module.to_owned()], module, path));
        let scopes: Vec<String> = [module.to_owned()].into_iter().chain(opened).collect();
        // What the root only gives to others is not used by the root's own items.
        let is_used = |path: &&Path| !(module.is_empty() && path.is_given);
        let used = paths.iter().filter(is_used).flat_map(|path| self.resolve(&scopes, module, path));
        used.filter(|used| used != module).collect()
    }

    /// The modules that a path leads into; none for another crate's.
    fn resolve(&self, scopes: &[String], module: &str, path: &Path) -> Vec<String> {
        let mut parts: Vec<&str> = path.parts.iter().map(String::as_str).collect();
        let mut from: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
        match parts.first().copied() {
            Some("crate") => {
                from.clear();
                parts.remove(0);
            }
            Some("self" | "super") => {
                let mut inline = path.depth;
                while let Some(up @ ("self" | "super")) = parts.first().copied() {
                    parts.remove(0);
                    match (up, inline) {
                        ("super", 0) => drop(from.pop()),
                        ("super", _) => inline -= 1,
                        _ => {}
                    }
                }
            }
            Some(child) => match scopes.iter().find(|scope| self.modules.contains(&joined(scope, child))) {
                Some(scope) => from = scope.split("::").filter(|part| !part.is_empty()).collect(),
                None => return Vec::new(),
            },
            None => return Vec::new(),
        }
        let name = parts.first().copied();
        let mut absolute = [from, parts].concat();
        while !absolute.is_empty() {
            let candidate = absolute.join("::");
            if self.modules.contains(&candidate) {
                return vec![candidate];
            }
            absolute.pop();
        }
        self.through_root(name.unwrap_or("*"))
    }

    /// Where the root has a name from: a module, or nothing if it is of another crate or of another folder; the root if
    /// it is its own. (All that the root gives, if all is imported.)
    fn through_root(&self, name: &str) -> Vec<String> {
        let Some(root) = self.root else { return Vec::new() };
        if root.modules.iter().any(|module| module == name) {
            return Vec::new();
        }
        let mut leads = root.paths.iter().filter(|path| path.imported_as.as_deref() == Some(name)).peekable();
        if leads.peek().is_none() {
            return vec![String::new()];
        }
        leads
            .filter(|path| {
                path.parts[0] != "crate" || path.parts.get(1).is_some_and(|first| self.modules.contains(first))
            })
            .flat_map(|path| self.resolve(&[String::new()], "", path))
            .collect()
    }
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

    /// Two files, `a` and `b::c`, of which the second imports the first. Is it a circle if the first has this text?
    fn is_circle(a: &str, more: &[(&str, &str)]) -> bool {
        let two = [("a.rs", a), ("b/mod.rs", "pub const X: u8 = 0;\n"), ("b/c.rs", "use crate::a;\n")];
        !circles(&[&two, more].concat()).is_empty()
    }

    #[test]
    fn each_form_of_a_path_is_found() {
        let root = "mod a;\nmod b;\npub use b::c::C;\nuse b::c as renamed;\n";
        for text in [
            "use crate::b::c;",
            "use crate::b::{X, c as other};",
            "pub use super::b::c::{self, D as E};",
            "use super::*;\nstatic X: b::c::D = b::c::D;",
            "static X: u8 = crate::b::c::Y;",
            "macro_rules! m { () => { $crate::b::c::Y } }",
            "mod inner {\n    use super::super::b::c::D;\n}",
            "#[cfg(test)]\nmod tests;\nuse crate::b::c;",
            "#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nfn g() { crate::b::c::h(); }",
            "use crate::C;",
            "use crate::renamed::D;",
        ] {
            assert!(is_circle(text, &[("lib.rs", root)]), "{text}");
        }
        for text in ["use crate::b;", "use other::b::c;", "// use crate::b::c;", "#[cfg(test)]\nuse crate::b::c;"] {
            assert!(!is_circle(text, &[("lib.rs", root)]), "{text}");
        }
    }

    #[test]
    fn a_path_that_begins_with_a_child_is_an_import_of_it() {
        let child = ("d/e.rs", "use crate::a;\n");
        assert!(is_circle("use crate::d;", &[("d/mod.rs", "mod e;\nstatic X: u8 = e::NOTHING;\n"), child]));
        assert!(!is_circle("use crate::d;", &[("d/mod.rs", "mod e;\nstatic X: u8 = x.e;\n"), child]));
    }

    #[test]
    fn what_the_root_defines_is_imported_from_it_and_what_it_gives_from_where_it_has_it() {
        let main = "mod a;\nmod b;\nenum Verb { C(b::c::Arguments) }\n";
        assert!(circles(&[("main.rs", main), ("b/c.rs", "use crate::Verb;\n"), ("b/mod.rs", "")]).len() == 1);
        let lib = "mod a;\nmod b;\nmacro_rules! verb { () => {} }\npub use b::c::C;\npub use other::D;\n";
        assert!(
            circles(&[("lib.rs", lib), ("b/c.rs", "crate::verb!();\nuse crate::D;\n"), ("b/mod.rs", "")]).is_empty()
        );
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
