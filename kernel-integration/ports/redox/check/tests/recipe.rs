//! The recipe and the init entries of `profiled`: the files that they name exist, and Redox's parsers accept them.
//!
//! In: the files. Out: nothing, or what is wrong. The keys are those of the build system (August 2026) and of its init
//! (July 2026); both refuse any other key.

use std::fs;
use std::path::{Path, PathBuf};

use kprof_daemon::options::{self, Wanted};
use toml::Table;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn only_keys(table: &Table, known: &[&str]) {
    table
        .keys()
        .for_each(|key| assert!(known.contains(&key.as_str()), "{key} is none of {known:?}"));
}

/// Checks that the service starts `profiled` with arguments that it accepts, and with the file that the pages name.
fn starts_profiled(command: &str, arguments: &[&str]) {
    assert_eq!(command, "profiled");
    match options::profiled(arguments.iter().map(Into::into)) {
        Ok(Wanted::Session(session)) => {
            assert_eq!(session.options.output, Path::new("/root/profiling.txt"))
        }
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn the_service_has_the_keys_that_init_knows_and_starts_profiled() {
    let service: Table = read("kprof-daemon/init/profiled.service").parse().unwrap();
    only_keys(&service, &["unit", "service"]);
    let part = |name: &str| service[name].as_table().unwrap().clone();
    let known = [
        "description",
        "default_dependencies",
        "requires_weak",
        "condition_architecture",
        "condition_board",
    ];
    only_keys(&part("unit"), &known);
    let service = part("service");
    only_keys(&service, &["cmd", "args", "envs", "inherit_envs", "type"]);
    // With `notify` or a scheme, init would wait for a message that profiled does not send; with `oneshot`, for its
    // end.
    assert_eq!(service["type"].as_str(), Some("oneshot_async"));
    let arguments: Vec<&str> = service["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|arg| arg.as_str().unwrap())
        .collect();
    starts_profiled(service["cmd"].as_str().unwrap(), &arguments);
}

#[test]
fn the_script_for_an_older_init_starts_the_same() {
    let text = read("kprof-daemon/init/00_profiled");
    let commands: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let [command] = commands[..] else {
        panic!("{commands:?}")
    };
    // Init splits at each space; there are no quotes.
    let words: Vec<&str> = command.split(' ').collect();
    assert!(
        words
            .iter()
            .all(|word| !word.is_empty() && !word.contains(['"', '\'', '$'])),
        "{words:?}"
    );
    assert_eq!(words[0], "nowait", "init would wait for its end");
    starts_profiled(words[1], &words[2..]);
}

#[test]
fn the_recipe_builds_and_installs_what_is_there() {
    let recipe: Table = read("kernel-integration/ports/redox/recipes/profiled/recipe.toml")
        .parse()
        .unwrap();
    only_keys(&recipe, &["source", "build"]);
    assert_eq!(
        recipe["source"]["git"].as_str(),
        Some("KPROF"),
        "the word that the page's command replaces"
    );
    assert!(read("kernel-integration/ports/redox/kernel-profiling.md")
        .contains("sed \"s|\\\"KPROF\\\"|"));
    assert_eq!(recipe["build"]["template"].as_str(), Some("custom"));
    let script = recipe["build"]["script"].as_str().unwrap();
    // `cookbook_cargo` is `cargo install --path SOURCE/COOKBOOK_CARGO_PATH`: one package, all its programs.
    assert!(
        script.contains("\nCOOKBOOK_CARGO_PATH=kprof-daemon cookbook_cargo\n"),
        "{script}"
    );
    let package: Table = read("kprof-daemon/Cargo.toml").parse().unwrap();
    assert!(package.contains_key("package"));
    ["profiled", "kprof-record"]
        .iter()
        .for_each(|name| drop(read(&format!("kprof-daemon/src/bin/{name}.rs"))));
    let sources = script
        .split('"')
        .filter_map(|word| word.strip_prefix("${COOKBOOK_SOURCE}/"));
    assert_eq!(sources.inspect(|path| drop(read(path))).count(), 1);
}

#[test]
fn the_chapters_table_quotes_what_the_kernel_says() {
    let page = read("kernel-integration/ports/redox/kernel-profiling.md");
    let file = |name: &str| {
        read(&format!(
            "kernel-integration/ports/redox/src/profiling/{name}.rs"
        ))
    };
    let code = file("cpu") + &file("sampler");
    for text in [
        "nothing is sampled: one CPU",
        "nothing is sampled: the CPUs are not known",
        "neither HPET nor PIT count",
    ] {
        // The line breaks of the page do not matter.
        let page: Vec<&str> = page.split_whitespace().collect();
        assert!(
            page.join(" ").contains(text) && code.contains(text),
            "{text}"
        );
    }
}
