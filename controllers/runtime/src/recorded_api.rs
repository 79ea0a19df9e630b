//! The API of one kind for a controller, which records what it writes.

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, PartialObjectMeta, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cache::{self, Cache, Cached, Indexer, NamespacedName};
use super::reconcile_context::{BuiltRequest, ReconcileContext};
use super::requests;

/// The objects of a kind on the server, for one reconciliation. Each successful write is recorded,
/// so that the key is not reconciled again before the cache has observed it. Namespace and name of
/// what is written are the object's own.
#[derive(Clone, Copy)]
pub struct RecordedApi<'a, K> {
    ctx: &'a ReconcileContext,
    /// Observes what is written.
    indexer: &'a Arc<Indexer>,
    manager: Option<&'static str>,
    kind: PhantomData<fn() -> K>,
}

/// An answer to a write, of which the identity of the object alone is read. The rest would be the
/// largest part of the memory of a controller of thousands of pods, and half of it are field
/// managers.
#[derive(Debug, Deserialize)]
pub struct Written {
    metadata: WrittenMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WrittenMetadata {
    name: String,
    resource_version: String,
}

impl Written {
    /// Returns the name of the object.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

impl ReconcileContext {
    /// Returns the API of the cache's kind on the server.
    pub fn api<'a, K: Cached>(&'a self, cache: &'a Arc<Cache<K>>) -> RecordedApi<'a, K> {
        self.api_observed_by(cache.indexer())
    }

    /// Returns the API of a kind of which the cache has only metadata.
    pub fn api_of_metadata<'a, K: Cached>(
        &'a self,
        cache: &'a Arc<Cache<PartialObjectMeta<K>>>,
    ) -> RecordedApi<'a, K>
    where
        PartialObjectMeta<K>: Cached,
    {
        self.api_observed_by(cache.indexer())
    }

    fn api_observed_by<'a, K>(&'a self, indexer: &'a Arc<Indexer>) -> RecordedApi<'a, K> {
        RecordedApi { ctx: self, indexer, manager: None, kind: PhantomData }
    }
}

impl<'a, K: Cached> RecordedApi<'a, K> {
    /// Returns the same API with another field manager than the client's.
    #[must_use]
    pub fn managed_by(self, manager: &'static str) -> RecordedApi<'a, K> {
        RecordedApi { manager: Some(manager), ..self }
    }

    /// Reads an object. None: it does not exist.
    ///
    /// # Errors
    /// The request failed.
    pub async fn get(&self, name: &NamespacedName) -> kube::Result<Option<K>> {
        let request = collection::<K>(&name.namespace).get(&name.name, &Default::default());
        let found = requests::ignore_not_found(self.ctx.send(request).await)?;
        found.map(|text| decoded(&text)).transpose()
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The request failed.
    pub async fn create(&self, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        self.written(self.creation(object)?).await
    }

    /// Creates an object, and reads no more of the answer than its identity.
    ///
    /// # Errors
    /// The request failed.
    pub async fn create_unread(&self, object: &K) -> kube::Result<Written>
    where
        K: Serialize,
    {
        self.unread(self.creation(object)?).await
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// The request failed.
    pub async fn replace(&self, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        let name = NamespacedName::of(object);
        self.written(collection::<K>(&name.namespace).replace(&name.name, &self.post(), encoded(object)?))
            .await
    }

    /// Asks for the object that a replacement would come to. Nothing is written.
    ///
    /// # Errors
    /// The request failed.
    pub async fn dry_run_replace(&self, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        let name = NamespacedName::of(object);
        let dry_run = PostParams { dry_run: true, ..self.post() };
        let request = collection::<K>(&name.namespace).replace(&name.name, &dry_run, encoded(object)?);
        decoded(&self.ctx.send(request).await?)
    }

    /// Replaces the status of an object.
    ///
    /// # Errors
    /// The request failed.
    pub async fn replace_status(&self, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        self.replace_subresource("status", object).await
    }

    /// Replaces a part of an object that is a subresource.
    ///
    /// # Errors
    /// The request failed.
    pub async fn replace_subresource(&self, subresource: &str, object: &K) -> kube::Result<K>
    where
        K: Serialize,
    {
        let (name, body) = (NamespacedName::of(object), encoded(object)?);
        let collection = collection::<K>(&name.namespace);
        self.written(collection.replace_subresource(subresource, &name.name, &self.post(), body)).await
    }

    /// Patches an object.
    ///
    /// # Errors
    /// The request failed.
    pub async fn patch(&self, name: &NamespacedName, patch: Patch<Value>) -> kube::Result<K> {
        let params = self.patch_params(&patch);
        self.written(collection::<K>(&name.namespace).patch(&name.name, &params, &patch)).await
    }

    /// Patches the status of an object.
    ///
    /// # Errors
    /// The request failed.
    pub async fn patch_status(&self, name: &NamespacedName, patch: Patch<Value>) -> kube::Result<K> {
        self.written(self.status_patch(name, &patch)).await
    }

    /// Patches the status of an object, and reads no more of the answer than its identity.
    ///
    /// # Errors
    /// The request failed.
    pub async fn patch_status_unread(
        &self,
        name: &NamespacedName,
        patch: Patch<Value>,
    ) -> kube::Result<Written> {
        self.unread(self.status_patch(name, &patch)).await
    }

    /// Deletes the object of the name, under the preconditions of these parameters.
    ///
    /// # Errors
    /// The request failed. An object that does not exist any more, or is another one of the name,
    /// is recorded as deleted all the same.
    pub async fn delete(&self, object: &K, params: &DeleteParams) -> kube::Result<()> {
        let name = NamespacedName::of(object);
        let request = collection::<K>(&name.namespace).delete(&name.name, params);
        let deleted = self.ctx.send(request).await.map(drop);
        let is_gone = match &deleted {
            Ok(()) => true,
            Err(kube::Error::Api(status)) if status.code == 404 => true,
            // A webhook may answer with this code, too: then the object stays.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                is_for_uid_alone(params) && says_that_the_uid_differs(&status.message)
            }
            Err(_) => false,
        };
        if is_gone {
            self.ctx.record_delete(self.indexer, object);
        }
        deleted
    }

    fn creation(&self, object: &K) -> kube::Result<BuiltRequest>
    where
        K: Serialize,
    {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        Ok(collection::<K>(namespace).create(&self.post(), encoded(object)?))
    }

    fn status_patch(&self, name: &NamespacedName, patch: &Patch<Value>) -> BuiltRequest {
        let params = self.patch_params(patch);
        collection::<K>(&name.namespace).patch_subresource("status", &name.name, &params, patch)
    }

    fn post(&self) -> PostParams {
        PostParams { field_manager: self.manager.map(str::to_owned), ..PostParams::default() }
    }

    /// Forces conflicts in an apply, as the controllers of kube-controller-manager do: it takes the
    /// fields from other managers.
    fn patch_params(&self, patch: &Patch<Value>) -> PatchParams {
        PatchParams {
            field_manager: self.manager.map(str::to_owned),
            force: matches!(patch, Patch::Apply(_)),
            ..PatchParams::default()
        }
    }

    async fn written(&self, request: BuiltRequest) -> kube::Result<K> {
        let written: K = decoded(&self.ctx.send(request).await?)?;
        self.ctx.record_revision::<K>(self.indexer, cache::revision(&written));
        Ok(written)
    }

    async fn unread(&self, request: BuiltRequest) -> kube::Result<Written> {
        let written: Written = decoded(&self.ctx.send(request).await?)?;
        let revision = written.metadata.resource_version.parse().unwrap_or(0);
        self.ctx.record_revision::<K>(self.indexer, revision);
        Ok(written)
    }
}

/// Returns `true` if the uid is the only precondition of a deletion.
fn is_for_uid_alone(params: &DeleteParams) -> bool {
    params
        .preconditions
        .as_ref()
        .is_some_and(|required| required.uid.is_some() && required.resource_version.is_none())
}

/// Returns `true` if the message of a conflict is about the uid, in either of kube-apiserver's
/// wordings.
fn says_that_the_uid_differs(message: &str) -> bool {
    ["the UID in the precondition (", "Precondition failed: UID"].iter().any(|words| message.contains(words))
}

/// Builds a request for the objects of a kind in a namespace; an empty one for kinds without
/// namespaces. Names that clients write into objects may lack the namespace: then the server finds
/// nothing, as for one that does not exist.
fn collection<K: Cached>(namespace: &str) -> Request {
    let is_namespaced = TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>();
    Request::new(K::url_path(&(), is_namespaced.then_some(namespace)))
}

fn decoded<T: DeserializeOwned>(text: &str) -> kube::Result<T> {
    serde_json::from_str(text).map_err(kube::Error::SerdeError)
}

fn encoded(object: &impl Serialize) -> kube::Result<Vec<u8>> {
    serde_json::to_vec(object).map_err(kube::Error::SerdeError)
}
