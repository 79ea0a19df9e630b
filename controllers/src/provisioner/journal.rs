//! Which directories were begun and belong to no volume yet.
//!
//! Between making a directory and making its volume the process can end, and the claim can go before it is back: nobody would
//! ever ask for that directory again. So each is written down before it is made, and struck out when its volume is there. An
//! entry is a file `volumes/begun/PROVISIONER/VOLUME`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::runtime::Settings;
use crate::runtime::cache::NamespacedName;

pub struct Journal {
    root: PathBuf,
    begun: Mutex<BTreeMap<NamespacedName, Vec<Begun>>>,
}

/// A directory that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub volume: String,
    pub directory: PathBuf,
    namespace: String,
    claim: String,
}

impl Begun {
    pub fn new(claim: &NamespacedName, volume: &str, directory: PathBuf) -> Begun {
        let (namespace, claim) = (claim.namespace.clone(), claim.name.clone());
        Begun { volume: volume.to_owned(), directory, namespace, claim }
    }

    fn claim(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.claim)
    }
}

impl Journal {
    /// The journal of a provisioner, with what an earlier process has left in it.
    pub fn open(settings: &Settings, provisioner: &str) -> Journal {
        let root = settings.data.join("volumes/begun").join(provisioner);
        let mut begun = BTreeMap::<_, Vec<_>>::new();
        for entry in read(&root) {
            begun.entry(entry.claim()).or_default().push(entry);
        }
        Journal { root, begun: Mutex::new(begun) }
    }

    /// The claims that something was begun for.
    pub fn claims(&self) -> Vec<NamespacedName> {
        self.begun().keys().cloned().collect()
    }

    pub fn knows(&self, claim: &NamespacedName) -> bool {
        self.begun().contains_key(claim)
    }

    /// What was begun for a claim, or an earlier one of its name.
    pub fn of(&self, claim: &NamespacedName) -> Vec<Begun> {
        self.begun().get(claim).cloned().unwrap_or_default()
    }

    /// To be called before the directory is made.
    ///
    /// # Errors
    /// It cannot be written down, and must not be made.
    pub fn begin(&self, begun: Begun) -> io::Result<()> {
        let mut known = self.begun();
        let entries = known.entry(begun.claim()).or_default();
        if !entries.contains(&begun) {
            std::fs::create_dir_all(&self.root)?;
            std::fs::write(self.root.join(&begun.volume), serde_json::to_vec(&begun)?)?;
            entries.push(begun);
        }
        Ok(())
    }

    /// To be called when the volume is there, or the directory gone.
    ///
    /// # Errors
    /// It cannot be struck out.
    pub fn end(&self, claim: &NamespacedName, volume: &str) -> io::Result<()> {
        let mut known = self.begun();
        let Some(entries) = known.get_mut(claim) else { return Ok(()) };
        match std::fs::remove_file(self.root.join(volume)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => entries.retain(|begun| begun.volume != volume),
        }
        if entries.is_empty() {
            known.remove(claim);
        }
        Ok(())
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Vec<Begun>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An entry that cannot be read is of a process that ended while it wrote it: its directory was not made.
fn read(root: &Path) -> Vec<Begun> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let read = |path: PathBuf| serde_json::from_slice(&std::fs::read(path).ok()?).ok();
    entries.flatten().filter_map(|entry| read(entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlives_the_process() {
        let data = tempfile::tempdir().unwrap();
        let settings = Settings { data: data.path().to_owned(), ..Settings::default() };
        let open = || Journal::open(&settings, "kubernetes.io/host-path");
        let claim = NamespacedName::new("default", "data");
        let begun = |volume: &str| Begun::new(&claim, volume, data.path().join(volume));

        let journal = open();
        assert!(journal.claims().is_empty());
        for volume in ["pvc-1", "pvc-2", "pvc-2"] {
            journal.begin(begun(volume)).unwrap();
        }
        journal.end(&claim, "pvc-1").unwrap();

        let journal = open();
        assert_eq!(journal.claims(), std::slice::from_ref(&claim));
        assert_eq!(journal.of(&claim), [begun("pvc-2")]);
        std::fs::write(data.path().join("volumes/begun/kubernetes.io/host-path/pvc-3"), "{").unwrap();
        assert_eq!(open().of(&claim), [begun("pvc-2")]);
        journal.end(&claim, "pvc-2").unwrap();
        journal.end(&claim, "pvc-2").unwrap();
        assert!(!journal.knows(&claim));
        assert!(open().claims().is_empty());
    }

    #[test]
    fn what_cannot_be_written_down_is_not_begun() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("volumes"), "not a directory").unwrap();
        let settings = Settings { data: data.path().to_owned(), ..Settings::default() };
        let journal = Journal::open(&settings, "coracle.csi");
        let claim = NamespacedName::new("default", "data");
        journal.begin(Begun::new(&claim, "pvc-1", data.path().into())).unwrap_err();
        assert_eq!(journal.of(&claim), []);
    }
}
