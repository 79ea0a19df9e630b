//! The kubeconfig into which a control plane in the background is merged.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_control_plane::Name;
use coracle_kubeconfig::Access;
use kube::config::Kubeconfig;
use serde_json::Value;

/// Returns the file that kubectl and kind change: of those that `KUBECONFIG` lists the first that
/// exists, or else the last; without the variable `~/.kube/config`.
///
/// # Errors
/// Neither `KUBECONFIG` nor `HOME` is set.
pub fn default_file() -> Result<PathBuf> {
    choose(std::env::var_os("KUBECONFIG"), std::env::var_os("HOME"))
        .context("neither KUBECONFIG nor HOME is set: name a file with --kubeconfig")
}

/// Merges the cluster of a process that runs into a kubeconfig again, and makes its context
/// current. Returns the context that was current, if it was another.
///
/// - `own`: the kubeconfig that the process has written for itself
///
/// # Errors
/// A file cannot be read or written.
pub fn merge_again(own: &Path, into: &Path, name: &Name) -> Result<Option<String>> {
    let name_of_file = || own.display().to_string();
    let written = Kubeconfig::read_from(own).with_context(name_of_file)?;
    let written = serde_json::to_value(written).with_context(name_of_file)?;
    let text = |pointer: &str| written.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let pem = |pointer: &str| -> Result<String> {
        let bytes = STANDARD.decode(text(pointer)).with_context(name_of_file)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let access = Access {
        server: text("/clusters/0/cluster/server"),
        ca_pem: &pem("/clusters/0/cluster/certificate-authority-data")?,
        certificate_pem: &pem("/users/0/user/client-certificate-data")?,
        key_pem: &pem("/users/0/user/client-key-data")?,
    };
    Ok(coracle_kubeconfig::merge(into, name, &access)?)
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
