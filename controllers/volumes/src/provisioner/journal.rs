//! The journal of directories that were begun and have no volume yet.
//!
//! The process can end between the creation of a directory and of its volume, and the claim can be
//! deleted before it restarts. Nothing would then remove the directory. So each directory is
//! recorded before it is created, and the record is removed when its volume exists. An entry is a
//! file `volumes/begun/PROVISIONER/VOLUME`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use coracle_controller_runtime::cache::NamespacedName;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::confined_fs::{Name, Root, blocking};

/// The largest size of an entry, in bytes; real ones are smaller.
const MAX_ENTRY_LENGTH: u64 = 64 * 1024;

/// The journal of a provisioner. Each key of claims is reconciled by one worker at a time, so the
/// entries of one claim are not changed concurrently.
pub struct Journal {
    root: Root,
    begun: Mutex<BTreeMap<NamespacedName, Vec<JournalEntry>>>,
}

/// The record of a directory that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The name of the volume that it is to be.
    pub volume: String,
    /// The path of the directory.
    pub directory: PathBuf,
    namespace: String,
    claim: String,
}

impl JournalEntry {
    /// Creates an entry for the directory of a volume that is provisioned for a claim.
    pub fn new(claim: &NamespacedName, volume: &str, directory: PathBuf) -> JournalEntry {
        let (namespace, claim) = (claim.namespace.clone(), claim.name.clone());
        JournalEntry { volume: volume.to_owned(), directory, namespace, claim }
    }

    fn claim(&self) -> NamespacedName {
        NamespacedName::new(&self.namespace, &self.claim)
    }
}

impl Journal {
    /// Opens the journal of a provisioner, with the entries left by an earlier process.
    pub fn open(data: &Path, provisioner: &str) -> Journal {
        let root = Root::new(data, ["volumes", "begun"].into_iter().chain(provisioner.split('/')));
        let mut begun = BTreeMap::<_, Vec<_>>::new();
        for entry in read(&root) {
            begun.entry(entry.claim()).or_default().push(entry);
        }
        Journal { root, begun: Mutex::new(begun) }
    }

    /// Returns the claims with entries.
    pub fn claims(&self) -> Vec<NamespacedName> {
        self.begun().keys().cloned().collect()
    }

    /// Returns whether a claim has entries.
    pub fn contains(&self, claim: &NamespacedName) -> bool {
        self.begun().contains_key(claim)
    }

    /// Returns the entries for a claim, or for an earlier one of the same name.
    pub fn of(&self, claim: &NamespacedName) -> Vec<JournalEntry> {
        self.begun().get(claim).cloned().unwrap_or_default()
    }

    /// Adds an entry. To be called before the directory is created.
    ///
    /// # Errors
    /// The entry cannot be written, and the directory must not be created.
    pub async fn begin(&self, begun: JournalEntry) -> io::Result<()> {
        if self.of(&begun.claim()).contains(&begun) {
            return Ok(());
        }
        let (root, name, bytes) = (self.root.clone(), name(&begun.volume)?, serde_json::to_vec(&begun)?);
        blocking(move || root.write(&name, &bytes)).await?;
        self.begun().entry(begun.claim()).or_default().push(begun);
        Ok(())
    }

    /// Removes an entry. To be called once the volume exists, or the directory is removed.
    ///
    /// # Errors
    /// The entry cannot be removed.
    pub async fn end(&self, claim: &NamespacedName, volume: &str) -> io::Result<()> {
        if !self.of(claim).iter().any(|begun| begun.volume == volume) {
            return Ok(());
        }
        let (root, name) = (self.root.clone(), name(volume)?);
        blocking(move || root.remove(&name)).await?;
        let mut known = self.begun();
        if let Some(entries) = known.get_mut(claim) {
            entries.retain(|begun| begun.volume != volume);
            if entries.is_empty() {
                known.remove(claim);
            }
        }
        Ok(())
    }

    fn begun(&self) -> MutexGuard<'_, BTreeMap<NamespacedName, Vec<JournalEntry>>> {
        self.begun.lock()
    }
}

fn name(volume: &str) -> io::Result<Name> {
    Name::new(volume).ok_or_else(|| io::Error::other("not the name of a file"))
}

/// Reads the entries. One that cannot be read was left by a process that ended while it wrote it:
/// its directory was not created. One whose name differs from its volume was not written here.
fn read(root: &Root) -> Vec<JournalEntry> {
    let Ok(entries) = root.entries() else { return Vec::new() };
    let read = |entry: &Name| serde_json::from_slice(&root.read(entry, MAX_ENTRY_LENGTH).ok()??).ok();
    let named = entries.into_iter().filter_map(|entry| Some((read(&entry)?, entry)));
    let written = named
        .filter(|(begun, entry): &(JournalEntry, Name)| name(&begun.volume).is_ok_and(|name| name == *entry));
    written.map(|(begun, _)| begun).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn outlives_the_process() {
        let data = tempfile::tempdir().unwrap();
        let open = || Journal::open(data.path(), "kubernetes.io/host-path");
        let claim = NamespacedName::new("default", "data");
        let begun = |volume: &str| JournalEntry::new(&claim, volume, data.path().join(volume));

        let journal = open();
        assert!(journal.claims().is_empty());
        for volume in ["pvc-1", "pvc-2", "pvc-2"] {
            journal.begin(begun(volume)).await.unwrap();
        }
        journal.end(&claim, "pvc-1").await.unwrap();

        let journal = open();
        assert_eq!(journal.claims(), std::slice::from_ref(&claim));
        assert_eq!(journal.of(&claim), [begun("pvc-2")]);
        std::fs::write(data.path().join("volumes/begun/kubernetes.io/host-path/pvc-3"), "{").unwrap();
        // Neither has the name of its volume.
        let foreign = serde_json::to_vec(&begun("../../../pods")).unwrap();
        std::fs::write(data.path().join("volumes/begun/kubernetes.io/host-path/pvc-4"), foreign).unwrap();
        let foreign = serde_json::to_vec(&begun("pvc-6")).unwrap();
        std::fs::write(data.path().join("volumes/begun/kubernetes.io/host-path/pvc-5"), foreign).unwrap();
        assert_eq!(open().of(&claim), [begun("pvc-2")]);
        journal.end(&claim, "pvc-2").await.unwrap();
        journal.end(&claim, "pvc-2").await.unwrap();
        assert!(!journal.contains(&claim));
        assert!(open().claims().is_empty());
    }

    #[tokio::test]
    async fn what_cannot_be_written_down_is_not_begun() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("volumes"), "not a directory").unwrap();
        let journal = Journal::open(data.path(), "coracle.csi");
        let claim = NamespacedName::new("default", "data");
        journal.begin(JournalEntry::new(&claim, "pvc-1", data.path().into())).await.unwrap_err();
        assert_eq!(journal.of(&claim), []);
    }
}
