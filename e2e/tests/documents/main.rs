//! The documents: their links and paths lead somewhere, they stay short, and what they say of
//! crates and commands is true.

mod crates;
mod markdown;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crates::Dependencies;
use markdown::Markdown;

/// Folders of builds and downloads.
const OTHERS: [&str; 3] = ["target", "node_modules", "shared"];
/// Parts of paths that a reader replaces.
const PLACEHOLDERS: [&str; 3] = ["DIR", "NAME", "VERSION"];
/// Hidden folders that belong to the repository.
const HIDDEN: [&str; 2] = [".cargo", ".ci"];
/// The maximum number of bytes of a document that is read in one go.
const SIZES: [(&str, u64); 2] = [("ARCHITECTURE.md", 15 << 10), ("README.md", 8 << 10)];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the root")
}

/// Collects files and folders below a directory, by their paths from the root.
fn walk(directory: &Path, paths: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if OTHERS.contains(&name) || (name.starts_with('.') && !HIDDEN.contains(&name)) {
            continue;
        }
        paths.insert(path.strip_prefix(root()).expect("below the root").to_owned());
        if path.is_dir() && !path.is_symlink() {
            walk(&path, paths);
        }
    }
}

/// Returns all paths of the repository, and the documents among them with their texts.
fn documents() -> (BTreeSet<PathBuf>, Vec<(PathBuf, String)>) {
    let mut paths = BTreeSet::new();
    walk(root(), &mut paths);
    let is_document = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let read = |path: &PathBuf| fs::read_to_string(root().join(path)).expect("a readable document");
    let documents = paths.iter().filter(is_document).map(|path| (path.clone(), read(path))).collect();
    (paths, documents)
}

/// Returns the path of a link's target from the root; None if it is outside of the repository.
fn target(document: &Path, link: &str) -> Option<PathBuf> {
    let mut path = document.parent().map(Path::to_owned).unwrap_or_default();
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir if path.pop() => {}
            Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            _ => return None,
        }
    }
    Some(path)
}

#[test]
fn links_in_documents_lead_to_files_and_headings() {
    let (paths, documents) = documents();
    let markdown = Markdown::new();
    let (mut checked, mut broken) = (0, Vec::new());
    for (document, text) in &documents {
        for link in markdown.links(text) {
            checked += 1;
            let (file, anchor) = match link.text.split_once('#') {
                Some((file, anchor)) => (file, Some(anchor)),
                None => (link.text.as_str(), None),
            };
            let path = if file.is_empty() { Some(document.clone()) } else { target(document, file) };
            let found = path.filter(|path| paths.contains(path));
            let has_anchor = |anchor: &str| {
                let linked = documents.iter().find(|(path, _)| Some(path) == found.as_ref());
                linked.is_some_and(|(_, text)| markdown.anchors(text).iter().any(|other| other == anchor))
            };
            if found.is_none() || !anchor.is_none_or(has_anchor) {
                broken.push(format!("{}:{}: {}", document.display(), link.line, link.text));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(checked > 100, "only {checked} links were found");
}

/// Checks paths that are written from the root, from the folder of their document, or, for sources,
/// without the folders that their passage is about.
#[test]
fn paths_in_documents_exist() {
    let (paths, documents) = documents();
    let markdown = Markdown::new();
    let (mut checked, mut missing) = (0, Vec::new());
    // The changelog names deleted files, too.
    for (document, text) in documents.iter().filter(|(path, _)| !path.ends_with("CHANGELOG.md")) {
        for name in markdown.paths(text) {
            let path = Path::new(name.text.trim_end_matches('/'));
            let first = path.components().next();
            let is_from_the_root = matches!(first, Some(Component::Normal(first)) if root().join(first).is_dir())
                && path.iter().count() > 1;
            let is_of_others = OTHERS.iter().any(|other| path.starts_with(other))
                || PLACEHOLDERS.iter().any(|placeholder| name.text.contains(placeholder));
            let is_source = name.text.ends_with(".rs");
            if is_of_others || !(is_from_the_root || is_source) {
                continue;
            }
            checked += 1;
            let from_document = target(document, &name.text).is_some_and(|path| paths.contains(&path));
            let is_of_a_module = is_source && paths.iter().any(|other| other.ends_with(path));
            let exists = paths.contains(path) || from_document || is_of_a_module;
            if !exists {
                missing.push(format!("{}:{}: {}", document.display(), name.line, name.text));
            }
        }
    }
    assert!(missing.is_empty(), "missing paths:\n{}", missing.join("\n"));
    assert!(checked > 300, "only {checked} paths were found");
}

#[test]
fn documents_that_are_read_first_are_short() {
    for (name, most) in SIZES {
        let size = fs::metadata(root().join(name)).expect("the document").len();
        assert!(size <= most, "{name} has {size} bytes, more than {most}: move details to docs/");
    }
}

#[test]
fn the_map_of_the_crates_has_all_of_them_and_the_direction_of_their_dependencies() {
    let arguments = ["metadata", "--format-version=1", "--no-deps", "--locked", "--offline"];
    let ran = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let metadata: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    // The root's crate is known by its sources.
    let directory = |path: &Path| match path.strip_prefix(root()) {
        Ok(path) if path.as_os_str().is_empty() => "src/".to_owned(),
        Ok(path) => format!("{}/", path.display()),
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let mut dependencies = Dependencies::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
        let direct = package["dependencies"].as_array().expect("dependencies").iter();
        let direct = direct.filter(|dependency| dependency["kind"] != "dev");
        let direct = direct.filter_map(|dependency| dependency["path"].as_str());
        let direct = direct.map(|path| directory(Path::new(path))).collect();
        dependencies.insert(directory(manifest.parent().expect("a folder")), direct);
    }
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the map");
    let violations = crates::violations(&crates::rows(&map), &dependencies);
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

/// Checks that CI runs the tests as the README describes them, and that the command line has the
/// commands that documents name.
#[test]
fn commands_in_documents_exist() {
    let read = |name| fs::read_to_string(root().join(name)).expect("a readable file");
    let (readme, ci) = (read("README.md"), read(".ci/run"));
    for command in ["cargo test --workspace", "cargo trial serve"] {
        assert!(readme.contains(command), "README.md lacks {command}");
    }
    assert!(ci.contains("\nstep cargo test --workspace\n"), ".ci/run has another command than README.md");

    let help = read("libs/cli/src/cli/reference/help.txt");
    let is_known = |word: &str| match word.split('=').next() {
        Some(flag) if flag.starts_with('-') => {
            help.split_whitespace().any(|other| other.trim_end_matches(',') == flag)
        }
        _ => true,
    };
    let markdown = Markdown::new();
    let (mut checked, mut unknown) = (0, Vec::new());
    let (_, documents) = documents();
    for (document, text) in documents.iter().filter(|(path, _)| !path.ends_with("CHANGELOG.md")) {
        for command in markdown.commands(text) {
            checked += 1;
            let subcommand = command.text.split(' ').next().unwrap_or_default();
            let is_subcommand = help.contains(&format!("\n# {subcommand}\n"));
            if !is_subcommand || !command.text.split(' ').all(is_known) {
                unknown.push(format!("{}:{}: coracle {}", document.display(), command.line, command.text));
            }
        }
    }
    assert!(unknown.is_empty(), "unknown commands:\n{}", unknown.join("\n"));
    assert!(checked > 50, "only {checked} commands were found");
}
