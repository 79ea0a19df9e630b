//! The kubeconfig into which a control plane in the background is merged.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Returns the file that kubectl and kind change: of those that `KUBECONFIG` lists the first that
/// exists, or else the last; without the variable `~/.kube/config`.
///
/// # Errors
/// Neither `KUBECONFIG` nor `HOME` is set.
pub fn default_file() -> Result<PathBuf> {
    choose(std::env::var_os("KUBECONFIG"), std::env::var_os("HOME"))
        .context("neither KUBECONFIG nor HOME is set: name a file with --kubeconfig")
}

fn choose(kubeconfig: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let listed: Vec<PathBuf> = kubeconfig.iter().flat_map(std::env::split_paths).collect();
    let listed: Vec<PathBuf> = listed.into_iter().filter(|path| !path.as_os_str().is_empty()).collect();
    let existing = listed.iter().find(|path| path.exists()).or(listed.last()).cloned();
    existing.or_else(|| Some(PathBuf::from(home.filter(|home| !home.is_empty())?).join(".kube/config")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_the_one_that_kind_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("b"), "").unwrap();
        let list = |names: &[&str]| Some(std::env::join_paths(names.iter().map(|name| path(name))).unwrap());
        let home = Some(OsString::from("/home/me"));
        assert_eq!(choose(list(&["a", "b", "c"]), None), Some(path("b")));
        assert_eq!(choose(list(&["a", "c"]), None), Some(path("c")));
        assert_eq!(choose(list(&["a"]), home.clone()), Some(path("a")));
        for unset in [None, Some(OsString::new()), Some(":".into())] {
            assert_eq!(choose(unset, home.clone()), Some("/home/me/.kube/config".into()));
        }
        assert_eq!(choose(None, Some(OsString::new())), None);
    }
}
