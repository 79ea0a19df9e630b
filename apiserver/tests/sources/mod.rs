//! The sources of the API server's crates, parsed, without tests.

use std::fs;
use std::path::{Path, PathBuf};

use syn::Attribute;

/// Modules of tests that have no `tests` in their path.
const TESTS: [&str; 6] = ["testing", "tests", "answers", "corpus", "recorded", "metadata_tests"];

/// A file.
pub struct Source {
    /// The path from the directory of this crate.
    pub path: String,
    /// The syntax tree.
    pub file: syn::File,
}

/// Reads the files in directories of the API server's crates.
pub fn sources(directories: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    directories.iter().for_each(|directory| rust_files(&root.join(directory), &mut paths));
    paths
        .into_iter()
        .map(|path| (path.strip_prefix(root).expect("below the root").display().to_string(), path))
        .filter(|(name, _)| {
            !name.split(['/', '.']).any(|segment| segment.ends_with("tests") || TESTS.contains(&segment))
        })
        .map(|(name, path)| {
            let text = fs::read_to_string(path).expect("a readable file");
            Source { file: syn::parse_file(&text).expect("Rust"), path: name }
        })
        .collect()
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns `true` if an item is compiled for tests only.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || matches!(&attribute.meta, syn::Meta::List(list)
                if list.path.is_ident("cfg") && list.tokens.to_string() == "test")
    })
}
