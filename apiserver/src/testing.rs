//! What tests of several rooms share: the recorded facts about a real control plane.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// A document of recorded facts, which lie in `shared/facts` beside the repository. None where they are not at hand.
pub fn facts(name: &str) -> Option<Value> {
    let path = facts_dir()?.join(name);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(serde_json::from_slice(&text).expect("facts are JSON"))
}

pub fn facts_dir() -> Option<PathBuf> {
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = ancestors.map(|dir| dir.join("shared/facts")).find(|dir| dir.is_dir());
    if found.is_none() {
        eprintln!("skipped: no shared/facts above {}", env!("CARGO_MANIFEST_DIR"));
    }
    found
}
