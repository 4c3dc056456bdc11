//! Golden cases. Each case is a file `tests/golden/NAME.case`. Inputs that several cases share are in
//! `tests/golden/inputs/`.
//!
//! A case begins with a head, with one fact per line:
//!
//! ```text
//! why: one line, what the case shows
//! command: the arguments of kprof-fold, run in a folder that holds the inputs; {data} is tests/data
//! input: syms.txt = five-functions.syms        (any number: name in the folder = name in tests/golden/inputs)
//! code: the exit code
//! ```
//!
//! Sections follow, each after a line `-- NAME --`. First come inputs that only this case has. Then come `stdout` and
//! `stderr`, which must be exactly what the command prints. A missing section fails the test. `KPROF_REWRITE=1 cargo
//! test -p kprof-fold --test all golden` writes the actual exit code, stdout and stderr into each case; `git diff` then
//! shows what has changed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// A case as it is in its file: the lines of the head and the sections, both in order.
struct Case {
    head: Vec<(String, String)>,
    sections: Vec<(String, String)>,
}

impl Case {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("a case is text");
        let mut case = Self { head: Vec::new(), sections: Vec::new() };
        for line in text.split_inclusive('\n') {
            let name = line.strip_prefix("-- ").and_then(|rest| rest.trim_end().strip_suffix(" --"));
            match (name, case.sections.last_mut()) {
                (Some(name), _) => case.sections.push((name.to_owned(), String::new())),
                (None, Some((_, content))) => content.push_str(line),
                (None, None) => {
                    let fact = line.trim_end().split_once(": ");
                    let (key, value) = fact.unwrap_or_else(|| panic!("{}: not a fact: {line}", path.display()));
                    assert!(["why", "command", "input", "code"].contains(&key), "{}: {key}", path.display());
                    case.head.push((key.to_owned(), value.to_owned()));
                }
            }
        }
        for key in ["why", "command"] {
            assert_eq!(case.facts(key).count(), 1, "{}: one line `{key}: ...`", path.display());
        }
        case
    }

    fn facts<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.head.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The shared inputs: name in the folder, name in `inputs/`.
    fn shared(&self) -> impl Iterator<Item = (&str, &str)> {
        self.facts("input").map(|fact| fact.split_once(" = ").expect("input: NAME = SHARED"))
    }

    /// An expected result: a fact of the head (`code`), or a section.
    fn expected(&self, name: &'static str) -> Option<&str> {
        let section = self.sections.iter().find(|(section, _)| section == name).map(|(_, content)| content.as_str());
        section.or_else(|| self.facts(name).next())
    }

    /// Runs the command and returns its results by name.
    fn run(&self) -> [(&'static str, String); 3] {
        let folder = tempfile::tempdir().expect("a folder for the inputs");
        for (name, content) in self.sections.iter().filter(|(name, _)| name != "stdout" && name != "stderr") {
            fs::write(folder.path().join(name), content).expect("is writable");
        }
        for (name, shared) in self.shared() {
            let from = tests().join("golden/inputs").join(shared);
            fs::copy(&from, folder.path().join(name)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        }
        let data = tests().join("data").display().to_string();
        let command = self.facts("command").next().expect("was checked");
        let arguments = command.split_whitespace().map(|word| word.replace("{data}", &data));
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.args(arguments).current_dir(folder.path()).output().expect("kprof-fold runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).replace(&data, "{data}");
        let code = done.status.code().map_or("killed".to_owned(), |code| code.to_string());
        [("code", code), ("stdout", text(done.stdout)), ("stderr", text(done.stderr))]
    }

    /// The text of the file with the actual results instead of the expected ones.
    fn rewritten(&self, out: &[(&'static str, String)]) -> String {
        let kept = |name: &str| out.iter().all(|(key, _)| *key != name);
        let mut text = String::new();
        for (key, value) in self.head.iter().filter(|(key, _)| kept(key)) {
            text += &format!("{key}: {value}\n");
        }
        text += &format!("code: {}\n", out[0].1);
        for (name, content) in self.sections.iter().filter(|(name, _)| kept(name)) {
            text += &format!("-- {name} --\n{content}");
        }
        for (name, content) in &out[1..] {
            assert!(content.is_empty() || content.ends_with('\n'), "{name} does not end with a line break");
            text += &format!("-- {name} --\n{content}");
        }
        text
    }
}

#[test]
fn every_case_comes_out_as_it_is_written_down() {
    let listed = fs::read_dir(tests().join("golden")).expect("cases exist");
    let mut paths: Vec<PathBuf> = listed.map(|entry| entry.expect("is readable").path()).collect();
    paths.sort();
    paths.retain(|path| !path.ends_with("inputs"));
    assert!(paths.len() >= 99, "only {} cases", paths.len());
    let rewrite = std::env::var_os("KPROF_REWRITE").is_some();
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for path in &paths {
        assert_eq!(path.extension().and_then(|end| end.to_str()), Some("case"), "{}", path.display());
        let case = Case::read(path);
        used.extend(case.shared().map(|(_, shared)| shared.to_owned()));
        let out = case.run();
        if rewrite {
            fs::write(path, case.rewritten(&out)).expect("is writable");
            continue;
        }
        for (name, is) in &out {
            match case.expected(name) {
                Some(expected) if expected == is => {}
                Some(_) => wrong.push(format!("{}: {name} differs:\n{is}", path.display())),
                None => wrong.push(format!("{}: {name} is missing", path.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let inputs = fs::read_dir(tests().join("golden/inputs")).expect("inputs exist");
    let there: BTreeSet<String> =
        inputs.map(|entry| entry.expect("is readable").file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(there, used, "each shared input is used by a case");
}
