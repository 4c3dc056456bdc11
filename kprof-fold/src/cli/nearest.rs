//! Nearest names: suggestions for a name that matches nothing. Stage: command line, in messages.
//!
//! In: the name as given, and all existing names. Out: the few most similar names, or none if no name is similar.

/// Maximum number of names that are suggested.
const MAX: usize = 3;
/// Names that are less similar than this are not suggested (Jaro-Winkler, 0 to 1).
const MIN: f64 = 0.75;

/// The names that are most similar to `wanted`; stars and question marks of a pattern are ignored.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let plain: String = wanted.chars().filter(|letter| !"*?".contains(*letter)).collect::<String>().to_lowercase();
    let last = |name: &str| name.rsplit("::").next().unwrap_or_default().to_owned();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        let whole = strsim::jaro_winkler(&plain, &name);
        // The last part of a path is compared too, because users often remember only that.
        let part = strsim::jaro_winkler(&last(&plain), &last(&name));
        let holds = plain.len() > 2 && name.contains(&plain);
        if holds { 1.0 } else { f64::max(whole, part) }
    };
    let mut found: Vec<(f64, &str)> = names.into_iter().map(|name| (likeness(name), name)).collect();
    found.retain(|(likeness, _)| *likeness >= MIN);
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    found.dedup_by_key(|(_, name)| *name);
    found.into_iter().take(MAX).map(|(_, name)| name).collect()
}

/// A sentence with the nearest names; empty if there are none.
pub fn did_you_mean<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let found: Vec<String> = nearest(wanted, names).into_iter().map(|name| format!("`{name}`")).collect();
    if found.is_empty() { String::new() } else { format!("; did you mean {}?", found.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_or_misspelt_function_is_found_and_nothing_else_is_offered() {
        let names = ["mm::page::map_page", "mm::page::unmap_page", "fs::pipe::write", "kmain", "mm::page::map_page"];
        assert_eq!(nearest("mm::map_pages", names)[0], "mm::page::map_page");
        assert_eq!(nearest("*pipe::wirte", names), ["fs::pipe::write"]);
        assert_eq!(nearest("pipe", names), ["fs::pipe::write"]);
        assert_eq!(nearest("KMAIN", names), ["kmain"]);
        assert_eq!(nearest("zzz", names), [""; 0]);
        assert_eq!(did_you_mean("kmian", names), "; did you mean `kmain`?");
    }
}
