//! The description of a profile for spreadsheets: two columns, a fact and its value. Stage: output.
//!
//! In: the JSON document, which has everything. Out: a row for each number and text in it. A fact is named by its path
//! in the document, such as `boots.0.cpus.1.samples`.

use serde_json::Value;
use std::io;

/// The table.
///
/// # Errors
/// None that is expected: it is written to memory.
pub fn text(document: &Value) -> io::Result<String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(["fact", "value"])?;
    rows("", document, &mut |fact, value| csv.write_record([fact, value]))?;
    let bytes = csv.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Gives each value that is no list and no object to `row`, with its path.
fn rows(path: &str, value: &Value, row: &mut impl FnMut(&str, &str) -> csv::Result<()>) -> csv::Result<()> {
    let inner = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| rows(&inner(name), value, row)),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(number, value)| rows(&inner(&number.to_string()), value, row))
        }
        Value::String(text) => row(path, text),
        Value::Null => row(path, ""),
        Value::Bool(_) | Value::Number(_) => row(path, &value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_value_is_a_row_with_its_path() {
        let document = json!({ "samples": 3, "form": "a,\"b\"", "boots": [{ "cpus": [{ "cpu": 1, "hz": null }] }] });
        let rows = "boots.0.cpus.0.cpu,1\nboots.0.cpus.0.hz,\nform,\"a,\"\"b\"\"\"\nsamples,3\n";
        assert_eq!(text(&document).unwrap(), format!("fact,value\n{rows}"));
    }
}
