//! `export --event` as Parquet tables and as OpenTelemetry's profiles, decoded again. The inputs are those of the
//! golden cases. `cargo xtask test --only fleet` runs this with both features, and opens the same forms in engines.
#![forbid(unsafe_code)]

use opentelemetry_proto::tonic::profiles::v1development::{ProfilesData, Sample};
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::Field;
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn export(input: &str, words: &[&str], output: &Path) -> Output {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/inputs");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    fold.args(["export", "-q"]).args(words).args([input, "five-functions.syms"].map(|name| golden.join(name)));
    fold.arg("-o").arg(output).output().expect("kprof-fold runs")
}

/// The tables of the hits of a point, in a folder.
fn tables(input: &str, event: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let done = export(input, &["--to", "parquet", "--event", event], folder.path());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    folder
}

/// The rows of a table: each column as text, `-` for null.
fn rows(folder: &Path, table: &str) -> Vec<BTreeMap<String, String>> {
    let file = File::open(folder.join(format!("{table}.parquet"))).expect("is there");
    let reader = SerializedFileReader::new(file).expect("is a table");
    let text = |field: &Field| match field {
        Field::Null => "-".to_owned(),
        Field::Str(text) => text.clone(),
        other => other.to_string(),
    };
    let row =
        |row: parquet::record::Row| row.get_column_iter().map(|(name, field)| (name.clone(), text(field))).collect();
    reader.get_row_iter(None).expect("has rows").map(|one| row(one.expect("is a row"))).collect()
}

/// The rows of `hits`, with the names of the frames of each stack.
fn hits(folder: &Path, columns: &[&str]) -> Vec<String> {
    let names: BTreeMap<String, String> =
        rows(folder, "frames").iter().map(|row| (row["frame"].clone(), row["function"].clone())).collect();
    let mut stacks = BTreeMap::<String, Vec<String>>::new();
    for row in rows(folder, "stacks") {
        stacks.entry(row["stack"].clone()).or_default().push(names[&row["frame"]].clone());
    }
    let line = |row: &BTreeMap<String, String>| {
        let cells: Vec<&str> = columns.iter().map(|column| &row[*column][..]).collect();
        format!("{} {}", cells.join(" "), stacks[&row["stack"]].join(";"))
    };
    rows(folder, "hits").iter().map(line).collect()
}

#[test]
fn a_table_has_each_hit_with_its_time_and_what_is_not_known_is_null() {
    let folder = tables("events-on-cpus.profile", "lock.wait");
    let columns = ["boot", "point", "unit", "cpu", "time_ns", "weight", "hits", "own_weight", "state"];
    let expected = [
        "7 lock.wait ns 1 0 300000 1 300000 kernel [syscall];kmain;mm::map",
        "7 lock.wait ns 2 0 18769 4 4000 kernel kmain;mm::map",
        "7 lock.wait ns 2 2000 32846 3 7000 kernel kmain;mm::unmap",
        "7 lock.wait ns 1 1000000 1200000 1 1200000 kernel kmain;mm::unmap",
        "7 lock.wait ns - - 5000 1 - lost [lost]",
        "7 lock.wait ns 1 - 200000 1 - not recorded [not recorded]",
        "7 lock.wait ns 2 - 9385 3 - lost [lost]",
    ];
    assert_eq!(hits(folder.path(), &columns), expected);
    // 1766000 ns of 14 hits are the exact totals of the point.
    let sum = |column: &str| -> u64 {
        rows(folder.path(), "hits").iter().map(|row| row[column].parse::<u64>().expect("is a number")).sum()
    };
    assert_eq!((sum("weight"), sum("hits")), (1_766_000, 14));
    let boots = rows(folder.path(), "boots");
    // Times are since the first hit, which the table of boots names.
    assert_eq!((&boots[0]["period_ns"][..], &boots[0]["zero_tsc"][..]), ("0", "2000000"));
}

#[test]
fn the_heap_has_what_was_not_freed_with_its_tasks_and_the_times_at_which_it_was_made() {
    let folder = tables("heap.profile", "heap.live");
    let columns = ["point", "unit", "task", "cpu", "time_ns", "weight", "hits", "own_weight"];
    let expected = [
        "heap.live bytes sh 1 4096 106651 2 70000 kmain;mm::unmap",
        "heap.live bytes dd 1 1999995904 70139 8 9000 kmain;mm::map",
    ];
    assert_eq!(hits(folder.path(), &columns), expected);
}

#[test]
fn tables_of_samples_and_of_hits_do_not_replace_each_other() {
    let folder = tables("heap.profile", "heap.live");
    let done = export("loss-on-two-cpus.profile", &["--to", "parquet"], folder.path());
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success() && said.contains("has the table hits") && said.contains("another folder"), "{said}");
    let names: BTreeSet<String> = std::fs::read_dir(folder.path())
        .expect("is a folder")
        .map(|entry| entry.expect("is a file").file_name().to_string_lossy().into_owned())
        .collect();
    assert!(names.iter().eq(&["boots.parquet", "frames.parquet", "hits.parquet", "stacks.parquet"]), "{names:?}");
}

/// What a message has: for each profile its type, unit and period, and for each sample the words of its attributes, its
/// innermost function, and its value.
fn otlp(input: &str, event: &str) -> Vec<(String, Vec<String>)> {
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let file = folder.path().join("profile");
    let done = export(input, &["--to", "otlp", "--event", event], &file);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let data = ProfilesData::decode(&std::fs::read(file).expect("is written")[..]).expect("is a message");
    let tables = data.dictionary.expect("has a dictionary");
    let text = |at: i32| &tables.string_table[at as usize][..];
    let sample = |sample: &Sample| {
        let attribute = |at: &i32| {
            let value = tables.attribute_table[*at as usize].value.clone();
            format!("{:?}", value.and_then(|value| value.value).expect("has a value"))
        };
        let attributes: Vec<String> = sample.attribute_indices.iter().map(attribute).collect();
        let location = tables.stack_table[sample.stack_index as usize].location_indices[0];
        let line = &tables.location_table[location as usize].lines[0];
        let function = text(tables.function_table[line.function_index as usize].name_strindex);
        format!("{} {function} {}", attributes.join(" "), sample.values[0]).trim_start().to_owned()
    };
    let profiles = data.resource_profiles.iter().flat_map(|one| &one.scope_profiles).flat_map(|one| &one.profiles);
    let profile = |one: &opentelemetry_proto::tonic::profiles::v1development::Profile| {
        let kind = one.sample_type.expect("has a type");
        let kind = format!("{}/{} {}", text(kind.type_strindex), text(kind.unit_strindex), one.period);
        (kind, one.samples.iter().map(sample).collect())
    };
    profiles.map(profile).collect()
}

#[test]
fn opentelemetry_has_the_weights_and_the_hits_of_each_cpu_and_their_sums_are_the_exact_totals() {
    let (dd, other) = ("StringValue(\"dd\")", "StringValue(\"a b\")");
    let [one, two] = ["IntValue(1)", "IntValue(2)"];
    let profile = |kind: &str, samples: &[String]| (kind.to_owned(), samples.to_vec());
    let expected = [
        profile("lock.wait/nanoseconds 0", &["[lost] 5000".to_owned()]),
        profile("hits/count 0", &["[lost] 1".to_owned()]),
        profile(
            "lock.wait/nanoseconds 0",
            &[
                format!("{one} {dd} mm::map 300000"),
                format!("{one} {other} mm::unmap 1200000"),
                format!("{one} [not recorded] 200000"),
            ],
        ),
        profile(
            "hits/count 0",
            &[format!("{one} {dd} mm::map 1"), format!("{one} {other} mm::unmap 1"), format!("{one} [not recorded] 1")],
        ),
        profile(
            "lock.wait/nanoseconds 0",
            &[format!("{two} {dd} mm::unmap 32846"), format!("{two} {dd} mm::map 18769"), format!("{two} [lost] 9385")],
        ),
        profile(
            "hits/count 0",
            &[format!("{two} {dd} mm::unmap 3"), format!("{two} {dd} mm::map 4"), format!("{two} [lost] 3")],
        ),
    ];
    assert_eq!(otlp("events-on-cpus.profile", "lock.wait"), expected);
}

#[test]
fn opentelemetry_has_the_four_types_of_the_heap() {
    let profile = |kind: &str, unmap: u64, map: u64| {
        (format!("{kind} 65536"), vec![format!("mm::unmap {unmap}"), format!("mm::map {map}")])
    };
    let expected = [
        profile("alloc_objects/count", 2, 16),
        profile("alloc_space/bytes", 106_651, 140_278),
        profile("inuse_objects/count", 2, 8),
        profile("inuse_space/bytes", 106_651, 70_139),
    ];
    assert_eq!(otlp("heap.profile", "heap.live"), expected);
    assert_eq!(otlp("heap.profile", "heap.alloc"), expected);
}
