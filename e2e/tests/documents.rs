//! The documents name files and folders that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// Folders of what is built or downloaded.
const OTHERS: [&str; 3] = ["target", "node_modules", "shared"];

/// A name is written from the root, from the folder of its document, or without the folders that its passage is about.
#[test]
fn paths_in_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root");
    let mut paths = BTreeSet::new();
    walk(root, root, &mut paths);
    let named =
        Regex::new(r"`([A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)*/(?:[A-Za-z0-9_-]+\.rs)?)`").expect("a pattern");
    let (mut checked, mut missing) = (0, Vec::new());
    for document in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        // It names files that are gone, too.
        if document.ends_with("CHANGELOG.md") {
            continue;
        }
        let text = fs::read_to_string(root.join(document)).expect("a readable document");
        for (line, text) in text.lines().enumerate() {
            for name in named.captures_iter(text).map(|found| found.extract::<1>().1[0]) {
                let is_source = name.ends_with(".rs") || is_below_the_root(root, name);
                if is_source {
                    checked += 1;
                    if !paths.iter().any(|path| path.ends_with(name.trim_end_matches('/'))) {
                        missing.push(format!("{}:{}: {name}", document.display(), line + 1));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(checked > 100, "only {checked} paths were found");
}

/// Whether the first folder of a path is one of the root's.
fn is_below_the_root(root: &Path, name: &str) -> bool {
    name.split('/').next().is_some_and(|first| root.join(first).is_dir())
}

/// Files and folders below a directory, by their paths from the root.
fn walk(root: &Path, directory: &Path, paths: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with('.') || OTHERS.contains(&name) {
            continue;
        }
        paths.insert(path.strip_prefix(root).expect("below the root").to_owned());
        if path.is_dir() && !path.is_symlink() {
            walk(root, &path, paths);
        }
    }
}
