//! The deletion of a definition: its objects are deleted first.

use coracle_storage::Key;
use futures::{StreamExt, stream};
use serde_json::Value;

use super::CustomResources;
use crate::names::{CLEANUP, GroupResource};
use crate::object_meta::ObjectMeta;
use crate::registry::deletion::rfc3339;
use crate::registry::parse;
use crate::{Result, conditions};

/// The number of objects that are deleted concurrently.
const MAX_CONCURRENT: usize = 64;

impl CustomResources {
    /// Deletes the objects of a definition, and the definition when none is left. Returns whether
    /// all of this is done.
    pub(super) async fn clean_up(&mut self, name: &str) -> Result<bool> {
        let Some(definition) = self.definitions.get(name) else { return Ok(true) };
        if definition.established {
            let bucket = GroupResource::new(&definition.group, &definition.accepted.plural).to_string();
            if self.count(&bucket) > 0 {
                let resources = self.registry.resources.load_full();
                let info = resources.by_bucket(&bucket);
                if let Some(Err(error)) = info.map(|info| self.registry.check_readable(info)) {
                    let text = format!("could not list instances: {error}");
                    self.terminating(name, true, "InstanceDeletionFailed", &text).await?;
                    return Ok(false);
                }
                let text = "CustomResource deletion is in progress";
                self.terminating(name, true, "InstanceDeletionInProgress", text).await?;
                self.delete_objects(&bucket).await?;
                if self.count(&bucket) > 0 {
                    return Ok(false);
                }
            }
        }
        self.terminating(name, false, "InstanceDeletionCompleted", "removed all instances").await?;
        self.release(name).await?;
        Ok(true)
    }

    fn count(&self, bucket: &str) -> usize {
        self.registry.store.snapshot().bucket(bucket).len()
    }

    /// Updates the condition `Terminating` with the progress.
    async fn terminating(&self, name: &str, is_true: bool, reason: &str, message: &str) -> Result<()> {
        let now = rfc3339(self.registry.now());
        self.change(name, |definition| {
            conditions::set(&mut definition["status"], "Terminating", is_true, reason, message, &now);
        })
        .await
    }

    /// Deletes objects as any client does: their finalizers hold them.
    async fn delete_objects(&self, bucket: &str) -> Result<()> {
        let resources = self.registry.resources.load_full();
        let Some(info) = resources.by_bucket(bucket) else { return Ok(()) };
        let names: Vec<(String, String)> = self
            .registry
            .store
            .snapshot()
            .bucket(bucket)
            .iter()
            .map(|object| {
                let name = object.key.name();
                let (namespace, name) = name.split_once('/').unwrap_or(("", name));
                (namespace.to_owned(), name.to_owned())
            })
            .collect();
        let deletions = names.into_iter().map(|(namespace, name)| {
            let info = info.clone();
            async move { self.registry.delete_as_server(&info, &namespace, &name).await }
        });
        let outcomes: Vec<Result<()>> =
            stream::iter(deletions).buffer_unordered(MAX_CONCURRENT).collect().await;
        outcomes.into_iter().filter(|outcome| outcome.as_ref().is_err_and(|e| e.code() != 404)).collect()
    }

    /// Removes the finalizer of a definition, which is deleted if it has no others.
    async fn release(&mut self, name: &str) -> Result<()> {
        let key = Key::new(self.bucket.clone(), name.to_owned());
        let Some(stored) = self.registry.store.get(&key) else { return Ok(()) };
        let definition = parse(&stored)?;
        if definition.finalizers() == [CLEANUP] {
            // Discovery has it no longer when watches report its deletion. Should that fail, it is
            // read again.
            let definition = self.definitions.remove(name);
            self.pending.extend(definition.map(|definition| definition.group));
            self.serve();
            // A conflicting write causes another reconciliation.
            return self.registry.delete_as_is(&key, stored.revision).await;
        }
        self.change(name, |definition: &mut Value| {
            let rest = definition.finalizers().into_iter().filter(|f| *f != CLEANUP);
            let rest: Vec<String> = rest.map(str::to_owned).collect();
            definition.set_finalizers(rest);
        })
        .await
    }
}
