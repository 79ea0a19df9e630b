//! The dependencies come from crates.io, under the licenses of `deny.toml`: what `cargo deny check
//! licenses sources` checks, where it is not installed. Of other platforms' dependencies only
//! cargo-deny knows.

// Clippy's leave for tests does not reach their helper functions.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns the output of a program in the workspace.
fn output(program: &str, arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ran = Command::new(program).args(arguments).current_dir(root).output().unwrap();
    assert!(ran.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// Returns the packages in the dependency tree of this platform.
fn packages() -> Vec<Value> {
    let cargo = env!("CARGO");
    let version = output(cargo, &["version", "--verbose"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let format = ["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", host];
    let metadata: Value = serde_json::from_str(&output(cargo, &format)).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Returns the allowed licenses of `deny.toml`: those of every crate under "", those of single
/// crates under their names.
fn allowed() -> BTreeMap<String, Vec<String>> {
    let text = include_str!("../../deny.toml");
    let section = text.split("[licenses]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    let mut allowed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let lines = section.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    for line in lines {
        let quoted: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        match (&quoted[..], line.starts_with("{ crate")) {
            ([name, licences @ ..], true) => {
                allowed.entry((*name).to_owned()).or_default().extend(licences.iter().map(|&l| l.to_owned()));
            }
            ([licence], false) => allowed.entry(String::new()).or_default().push((*licence).to_owned()),
            _ => {}
        }
    }
    allowed
}

/// Returns `true` if a license expression can be satisfied. AND binds closer than OR; a slash is an
/// old notation of OR.
fn is_satisfied(expression: &str, is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    either(&mut &words[..], is_allowed)
}

fn either(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut satisfied = both(words, is_allowed);
    while let [word, rest @ ..] = *words
        && *word == "OR"
    {
        *words = rest;
        satisfied |= both(words, is_allowed);
    }
    satisfied
}

fn both(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let mut satisfied = one(words, is_allowed);
    while let [word, rest @ ..] = *words
        && *word == "AND"
    {
        *words = rest;
        satisfied &= one(words, is_allowed);
    }
    satisfied
}

fn one(words: &mut &[&str], is_allowed: &dyn Fn(&str) -> bool) -> bool {
    let (satisfied, rest) = match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let satisfied = either(words, is_allowed);
            (satisfied, words.strip_prefix(&[")"]).unwrap_or(words))
        }
        [licence, "WITH", exception, rest @ ..] => (is_allowed(&format!("{licence} WITH {exception}")), rest),
        [licence, rest @ ..] => (is_allowed(licence.trim_end_matches('+')), rest),
        [] => (false, &[][..]),
    };
    *words = rest;
    satisfied
}

#[test]
fn dependencies_have_allowed_licences_and_sources() {
    let (packages, allowed) = (packages(), allowed());
    assert!(packages.len() > 100, "{} packages are not the whole tree", packages.len());
    let mut wrong = Vec::new();
    for package in &packages {
        let text = |member: &str| package[member].as_str().unwrap_or_default();
        let (name, licence, source) = (text("name"), text("license"), package["source"].as_str());
        if source.is_some_and(|source| source != CRATES_IO) {
            wrong.push(format!("{name} comes from {source:?}"));
        }
        let lists = [allowed.get(""), allowed.get(name)];
        let is_allowed =
            |licence: &str| lists.iter().flatten().any(|list| list.iter().any(|other| other == licence));
        if !is_satisfied(licence, &is_allowed) {
            wrong.push(format!("{name} has the licence {licence:?}"));
        }
    }
    assert!(wrong.is_empty(), "not by deny.toml:\n{}", wrong.join("\n"));
}

/// Verifies that dev-dependencies add no feature to a dependency of the binary: tests start that
/// binary, and most of it would be compiled once more.
#[test]
fn tests_and_the_binary_have_the_same_dependencies() {
    let tree = |edges: &str| -> BTreeSet<String> {
        let which = ["tree", "--workspace", "--locked", "--offline", "--edges", edges];
        let shape = ["--prefix=none", "--format={p}, features {f}"];
        let tree = output(env!("CARGO"), &[which.as_slice(), &shape].concat());
        tree.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let (binary, tests) = (tree("normal"), tree("normal,dev"));
    assert!(binary.len() > 100, "{binary:?} are not the whole tree");
    let compiled_twice: Vec<_> = binary.difference(&tests).collect();
    assert!(compiled_twice.is_empty(), "e2e/Cargo.toml lacks features of the tests: {compiled_twice:#?}");
}

/// The dependencies that a crate has for their features alone: kube needs a version of the API.
const FOR_FEATURES: [(&str, &str); 1] = [("coracle-problems", "k8s-openapi")];

#[test]
fn every_dependency_is_used() {
    let mut unused = Vec::new();
    for package in packages().iter().filter(|package| package["source"].is_null()) {
        let of_package = |member: &str| package[member].as_array().into_iter().flatten();
        let text = |value: &Value, member: &str| value[member].as_str().unwrap_or_default().to_owned();
        let name = text(package, "name");
        let root = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let mut sources = std::fs::read_to_string(root.join("build.rs")).unwrap_or_default();
        let files = of_package("targets").map(|target| text(target, "src_path"));
        let directories: BTreeSet<_> =
            files.filter_map(|file| Path::new(&file).parent().map(Path::to_owned)).collect();
        // The root package contains the others.
        for directory in directories.iter().filter(|directory| *directory != root) {
            read_sources(directory, &mut sources);
        }
        for dependency in of_package("dependencies") {
            let dependency = [text(dependency, "rename"), text(dependency, "name")];
            let dependency = dependency.iter().find(|name| !name.is_empty()).unwrap();
            if !names(&sources, &dependency.replace('-', "_"))
                && !FOR_FEATURES.contains(&(&*name, dependency))
            {
                unused.push(format!("{name}: {dependency}"));
            }
        }
    }
    assert!(unused.is_empty(), "dependencies that no source names:\n{}", unused.join("\n"));
}

/// Returns `true` if sources have a path in this crate.
fn names(sources: &str, krate: &str) -> bool {
    let mut found = sources.match_indices(krate);
    found.any(|(at, _)| {
        let before = sources[..at].chars().next_back();
        let after = &sources[at + krate.len()..];
        let is_word = before.is_none_or(|before| !before.is_alphanumeric() && before != '_');
        is_word && ["::", ";", " as "].iter().any(|end| after.starts_with(end))
    })
}

fn read_sources(directory: &Path, sources: &mut String) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
    for (expression, want) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("MIT AND ISC", true),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("(GPL-3.0 OR MIT) AND BSD-3-Clause", false),
        ("MIT OR GPL-3.0 AND BSD-3-Clause", true),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", true),
        ("Apache-2.0", false),
        ("MIT+", true),
    ] {
        assert_eq!(is_satisfied(expression, &|licence| allowed.contains(&licence)), want, "{expression}");
    }
}
