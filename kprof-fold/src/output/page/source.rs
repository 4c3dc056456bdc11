//! The text of hot source lines, for the details of the page. Stage: output, part of the page.
//!
//! In: files and lines of the functions in which most samples are. Out: these lines and those around them as JSON, if
//! the files are where the compiler found them. Whatever is not found is left out, and the page shows only its place.

use crate::output::annotate::source::lines as lines_of;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Number of lines that are shown before and after one with samples.
const AROUND: u32 = 2;
/// A longer line is cut.
const MAX_LETTERS: usize = 160;
/// The text in a page has at most about so many bytes.
const MAX_BYTES: usize = 200_000;

/// For each file its lines, as `[number, text]`. `hot` are the lines with samples of each file, by its number.
pub fn text(files: &[String], hot: &BTreeMap<u32, BTreeSet<u32>>) -> Value {
    let (mut found, mut bytes) = (Map::new(), 0);
    for (file, lines) in hot {
        let Some(content) = lines_of(&files[*file as usize], &[]) else { continue };
        let is_near =
            |number: u32| lines.range(number.saturating_sub(AROUND)..=number.saturating_add(AROUND)).next().is_some();
        let near = (1u32..).zip(&content).filter(|(number, _)| is_near(*number));
        let cut = near.map(|(number, line)| (number, line.chars().take(MAX_LETTERS).collect::<String>()));
        let rows: Vec<Value> = cut
            .take_while(|(_, line)| {
                bytes += line.len();
                bytes <= MAX_BYTES
            })
            .map(|(number, line)| json!([number, line]))
            .collect();
        found.insert(file.to_string(), rows.into());
    }
    found.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_lines_have_their_neighbours_and_a_missing_file_is_left_out() {
        let folder = tempfile::tempdir().expect("is writable");
        let file = folder.path().join("a.rs");
        std::fs::write(&file, "1\n2\n3\n4\n5\n6\n7\n8\n9\n").expect("is writable");
        let files = [file.display().to_string(), "gone.rs".to_owned()];
        let hot = [(0, BTreeSet::from([1, 8])), (1, BTreeSet::from([1]))].into_iter().collect();
        assert_eq!(
            text(&files, &hot).to_string(),
            r#"{"0":[[1,"1"],[2,"2"],[3,"3"],[6,"6"],[7,"7"],[8,"8"],[9,"9"]]}"#
        );
    }
}
