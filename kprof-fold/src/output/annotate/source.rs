//! Finds source files. Stage: output, for `annotate`.
//!
//! In: the path that the compiler has noted, and the folders of `--source`. Out: the lines of the file. The kernel may
//! have been built on another machine, so in each folder the end of the path is looked for, from the longest to the
//! shortest. Without such a folder the path is taken as it is.

use std::path::{Component, Path, PathBuf};

/// The lines of a source file, if it is found.
pub fn lines(file: &str, folders: &[String]) -> Option<Vec<String>> {
    let bytes = candidates(file, folders).find_map(|path| std::fs::read(path).ok())?;
    Some(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
}

fn candidates(file: &str, folders: &[String]) -> impl Iterator<Item = PathBuf> {
    let is_name = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let names: PathBuf = Path::new(file).components().filter(is_name).collect();
    let below = folders.iter().flat_map(move |folder| {
        let parts: Vec<_> = names.components().collect();
        let ends = (0..parts.len()).map(|from| parts[from..].iter().collect::<PathBuf>());
        ends.map(|end| Path::new(folder).join(end)).collect::<Vec<_>>()
    });
    below.chain([PathBuf::from(file)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_end_of_the_path_that_exists_is_read() {
        let folder = tempfile::tempdir().expect("the test folder is writable");
        let path = folder.path().join("src/mm");
        std::fs::create_dir_all(&path).expect("is writable");
        std::fs::write(path.join("map.rs"), "a\nb").expect("is writable");
        std::fs::write(folder.path().join("map.rs"), "c").expect("is writable");
        let folders = [folder.path().display().to_string()];
        let read = |file, folders| lines(file, folders).map(|lines| lines.join(" "));
        assert_eq!(read("/build/kernel/src/mm/map.rs", &folders[..]).as_deref(), Some("a b"));
        assert_eq!(read("./../other/map.rs", &folders[..]).as_deref(), Some("c"));
        assert_eq!(read("/build/kernel/src/mm/map.rs", &[]), None);
        assert_eq!(read("nowhere.rs", &folders[..]), None);
        let whole = path.join("map.rs").display().to_string();
        assert_eq!(read(&whole, &[]).as_deref(), Some("a b"));
    }
}
