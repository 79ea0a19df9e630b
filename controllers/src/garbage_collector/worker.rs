//! The workers: read an object and its owners from the server, call [`plan`], and apply the plan.

use std::sync::Arc;

use coracle_controller_runtime::queue::Queue;
use coracle_controller_runtime::{Error, ignore_not_found, requests};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use serde_json::json;

use super::Collector;
use super::attempt::{Dependents, OwnerState, Plan, Policy, plan};
use super::graph::{FOREGROUND, Identity, Node, ORPHAN, Owner, Phase, Uid};

/// The number of dependents of an owner that are released concurrently: a server rejects too many
/// requests at once.
const MAX_CONCURRENT: usize = 32;

/// The outcome of an attempt, which decides whether the object has to be processed again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Retry,
}

/// The scope of an identity's resource, with the API through which the identity is accessed.
enum ResourceScope {
    Cluster(Api<DynamicObject>),
    Namespace(Api<DynamicObject>),
    /// A namespaced kind without a namespace: an invalid reference of a cluster-scoped object.
    Invalid,
}

impl ResourceScope {
    fn api(self) -> Option<Api<DynamicObject>> {
        match self {
            ResourceScope::Cluster(api) | ResourceScope::Namespace(api) => Some(api),
            ResourceScope::Invalid => None,
        }
    }
}

impl Collector {
    pub(super) async fn delete(self: Arc<Self>, uid: Uid) {
        let outcome = self.attempt_to_delete(&uid).await;
        self.settle(&self.to_delete, &uid, outcome);
    }

    pub(super) async fn orphan(self: Arc<Self>, uid: Uid) {
        let outcome = self.attempt_to_orphan(&uid).await;
        self.settle(&self.to_orphan, &uid, outcome);
    }

    fn settle(&self, queue: &Queue<Uid>, uid: &Uid, outcome: Result<Outcome, Error>) {
        match outcome {
            Ok(Outcome::Done) => queue.forget(uid),
            Ok(Outcome::Retry) => queue.retry(uid.clone()),
            Err(error) => {
                tracing::debug!(controller = super::NAME, %uid, %error, "requeued after an error");
                self.errors.inc();
                queue.retry(uid.clone());
            }
        }
        queue.done(uid);
    }

    async fn attempt_to_delete(&self, uid: &Uid) -> Result<Outcome, Error> {
        let Some((identity, waits)) = self.read(uid, |node| match node {
            // Terminating: its deletion will be observed.
            node if node.is_terminating && !node.is_deleting_dependents => None,
            node => Some((node.identity.clone(), node.is_deleting_dependents)),
        }) else {
            return Ok(Outcome::Done);
        };
        let Some(api) = self.scope(&identity)?.api() else { return Ok(Outcome::Done) };
        let live = ignore_not_found(api.get_metadata(&identity.name).await)?.map(|object| object.metadata);
        let Some(live) = live.filter(|live| live.uid.as_deref() == Some(uid)) else {
            self.report_absent(identity);
            return Ok(Outcome::Done);
        };
        if waits {
            self.advance_foreground(&identity, &api, &live).await?;
        } else {
            let owners = self.classify(&identity, &live).await?;
            let Some(owners) = owners else { return Ok(Outcome::Done) };
            let plan = plan(Phase::of(&live), &owners, self.dependents(uid));
            apply(&identity, &api, &live, plan).await?;
        }
        // A restarted watch may never report an object that was created and deleted in the
        // meantime.
        let is_observed = self.graph().node(uid).is_none_or(|node| node.is_observed);
        Ok(if is_observed { Outcome::Done } else { Outcome::Retry })
    }

    fn read<T>(&self, uid: &Uid, read: impl FnOnce(&Node) -> Option<T>) -> Option<T> {
        self.graph().node(uid).and_then(read)
    }

    fn dependents(&self, uid: &Uid) -> Dependents {
        let graph = self.graph();
        let Some(node) = graph.node(uid) else { return Dependents::default() };
        Dependents {
            any: !node.dependents.is_empty(),
            any_deleting_dependents: graph.dependents(node).any(|dependent| dependent.is_deleting_dependents),
        }
    }

    /// Removes the finalizer of an owner that no dependent blocks, or enqueues the blocking
    /// dependents.
    async fn advance_foreground(
        &self,
        identity: &Identity,
        api: &Api<DynamicObject>,
        live: &ObjectMeta,
    ) -> Result<(), Error> {
        let blocking: Option<Vec<Uid>> = {
            let graph = self.graph();
            let node = graph.node(&identity.uid);
            node.and_then(|node| {
                let mut blocking = graph.blocking(node).peekable();
                blocking.peek()?;
                // Dependents that wait for their own dependents are enqueued when they change.
                let attempted = blocking.filter(|dependent| !dependent.is_deleting_dependents);
                Some(attempted.map(|dependent| dependent.identity.uid.clone()).collect())
            })
        };
        match blocking {
            Some(uids) => uids.into_iter().for_each(|uid| self.to_delete.add(uid)),
            None => remove_finalizer(api, live, FOREGROUND).await?,
        }
        Ok(())
    }

    /// Returns the owners with their state on the server, or `None` if an object with this identity
    /// cannot have such owners.
    async fn classify(
        &self,
        identity: &Identity,
        live: &ObjectMeta,
    ) -> Result<Option<Vec<(Owner, OwnerState)>>, Error> {
        let owners = Owner::all(live.owner_references.as_ref());
        let mut classified = Vec::with_capacity(owners.len());
        for owner in owners {
            let Some(owner_state) = self.owner_state(identity, &owner).await? else { return Ok(None) };
            classified.push((owner, owner_state));
        }
        Ok(Some(classified))
    }

    async fn owner_state(&self, dependent: &Identity, owner: &Owner) -> Result<Option<OwnerState>, Error> {
        let in_namespace = owner.identity(dependent.namespace.clone());
        let in_cluster = owner.identity("".into());
        {
            let mut graph = self.graph();
            if graph.is_absent(&in_cluster) || graph.is_absent(&in_namespace) {
                return Ok(Some(OwnerState::Dangling));
            }
        }
        let (api, identity) = match self.scope(&in_namespace)? {
            ResourceScope::Cluster(api) => (api, in_cluster),
            ResourceScope::Namespace(api) => (api, in_namespace),
            ResourceScope::Invalid => return Ok(None),
        };
        let found = ignore_not_found(api.get_metadata(&owner.name).await)?.map(|object| object.metadata);
        match found.filter(|found| found.uid.as_deref() == Some(&owner.uid)) {
            Some(found) => Ok(Some(OwnerState::of(Phase::of(&found)))),
            None => {
                self.graph().mark_absent(identity);
                Ok(Some(OwnerState::Dangling))
            }
        }
    }

    async fn attempt_to_orphan(&self, uid: &Uid) -> Result<Outcome, Error> {
        let (owner, dependents) = {
            let graph = self.graph();
            let Some(node) = graph.node(uid) else { return Ok(Outcome::Done) };
            let dependents: Vec<Identity> = graph.dependents(node).map(|d| d.identity.clone()).collect();
            (node.identity.clone(), dependents)
        };
        let owners = std::slice::from_ref(uid);
        let work = dependents.into_iter().map(|dependent| async move {
            match self.scope(&dependent)?.api() {
                Some(api) => release(&api, &dependent, owners).await,
                None => Ok(()),
            }
        });
        stream::iter(work).buffer_unordered(MAX_CONCURRENT).try_collect::<()>().await?;
        if let Some(api) = self.scope(&owner)?.api()
            && let Some(live) = ignore_not_found(api.get_metadata(&owner.name).await)?
        {
            remove_finalizer(&api, &live.metadata, ORPHAN).await?;
        }
        Ok(Outcome::Done)
    }

    fn scope(&self, identity: &Identity) -> Result<ResourceScope, Error> {
        let snapshot = self.resources.current();
        let served = snapshot.of_kind(&identity.api_version, &identity.kind).ok_or_else(|| {
            let Identity { api_version, kind, .. } = identity;
            Error::Unfinished(format!("nothing serves {api_version}, Kind={kind}"))
        })?;
        let (client, resource) = (self.unrecorded.clone(), &served.resource);
        Ok(match (served.namespaced, identity.namespace.is_empty()) {
            (false, _) => ResourceScope::Cluster(Api::all_with(client, resource)),
            (true, false) => {
                ResourceScope::Namespace(Api::namespaced_with(client, &identity.namespace, resource))
            }
            (true, true) => ResourceScope::Invalid,
        })
    }
}

async fn apply(
    identity: &Identity,
    api: &Api<DynamicObject>,
    live: &ObjectMeta,
    plan: Plan,
) -> Result<(), Error> {
    match plan {
        Plan::Keep => Ok(()),
        Plan::Release(owners) => release(api, identity, &owners).await,
        Plan::Delete { policy, unblocked } => {
            if unblocked {
                unblock(api, live).await?;
            }
            // Unblocking changed the revision.
            let revision = live.resource_version.clone().filter(|_| !unblocked);
            delete(api, live, policy, revision).await
        }
    }
}

/// Takes references to some owners from an object.
async fn release(api: &Api<DynamicObject>, identity: &Identity, owners: &[Uid]) -> Result<(), Error> {
    let references: Vec<_> = owners.iter().map(|uid| json!({"$patch": "delete", "uid": &**uid})).collect();
    let patch = json!({"metadata": {"uid": &*identity.uid, "ownerReferences": references}});
    let patched = api.patch_metadata(&identity.name, &PatchParams::default(), &Patch::Strategic(patch)).await;
    match patched {
        Err(kube::Error::Api(status)) if status.code == UNSUPPORTED_MEDIA_TYPE => {
            let Some(live) = live(api, &identity.name, &identity.uid).await? else { return Ok(()) };
            let kept = |reference: &OwnerReference| owners.iter().all(|uid| **uid != reference.uid);
            refer(api, &live, |references| references.retain(kept)).await
        }
        answer => Ok(ignore_not_found(answer).map(|_| ())?),
    }
}

/// Custom resources have no strategic merge patch.
const UNSUPPORTED_MEDIA_TYPE: u16 = 415;

/// Sets `blockOwnerDeletion` to false in all references of the object.
async fn unblock(api: &Api<DynamicObject>, live: &ObjectMeta) -> Result<(), Error> {
    refer(api, live, |references| {
        references.iter_mut().for_each(|reference| reference.block_owner_deletion = Some(false));
    })
    .await
}

/// Changes the references of an object, if it has not changed since it was read.
async fn refer(
    api: &Api<DynamicObject>,
    live: &ObjectMeta,
    change: impl FnOnce(&mut Vec<OwnerReference>),
) -> Result<(), Error> {
    let mut references = live.owner_references.clone().unwrap_or_default();
    change(&mut references);
    patch(api, live, json!({"ownerReferences": references})).await
}

async fn remove_finalizer(api: &Api<DynamicObject>, live: &ObjectMeta, finalizer: &str) -> Result<(), Error> {
    let finalizers = live.finalizers.as_deref().unwrap_or_default();
    let kept: Vec<&String> = finalizers.iter().filter(|f| *f != finalizer).collect();
    if kept.len() == finalizers.len() {
        return Ok(());
    }
    patch(api, live, json!({"finalizers": kept})).await
}

/// Patches members of the metadata, if the object has not changed since it was read. A deleted
/// object is not an error.
async fn patch(
    api: &Api<DynamicObject>,
    live: &ObjectMeta,
    mut members: serde_json::Value,
) -> Result<(), Error> {
    members["resourceVersion"] = json!(live.resource_version);
    members["uid"] = json!(live.uid);
    let patch = Patch::Merge(json!({"metadata": members}));
    let name = live.name.as_deref().unwrap_or_default();
    Ok(ignore_not_found(api.patch_metadata(name, &PatchParams::default(), &patch).await).map(|_| ())?)
}

async fn live(api: &Api<DynamicObject>, name: &str, uid: &str) -> Result<Option<ObjectMeta>, Error> {
    let found =
        ignore_not_found(api.get_metadata(name).await)?.map(|object: PartialObjectMeta<_>| object.metadata);
    Ok(found.filter(|found| found.uid.as_deref() == Some(uid)))
}

/// Deletes the object that was judged, with its uid as a precondition, and not if its owners
/// changed in the meantime.
async fn delete(
    api: &Api<DynamicObject>,
    judged: &ObjectMeta,
    policy: Policy,
    revision: Option<String>,
) -> Result<(), Error> {
    let name = judged.name.as_deref().unwrap_or_default();
    let mut options = DeleteParams {
        propagation_policy: Some(match policy {
            Policy::Background => PropagationPolicy::Background,
            Policy::Foreground => PropagationPolicy::Foreground,
            Policy::Orphan => PropagationPolicy::Orphan,
        }),
        preconditions: Some(Preconditions { uid: judged.uid.clone(), resource_version: revision }),
        ..DeleteParams::default()
    };
    let conflict = match ignore_not_found(requests::delete(api, name, &options).await) {
        Err(kube::Error::Api(status)) if status.code == 409 => status,
        answer => return Ok(answer.map(|_| ())?),
    };
    let uid = judged.uid.as_deref().unwrap_or_default();
    let Some(live) = live(api, name, uid).await? else { return Ok(()) };
    if live.owner_references != judged.owner_references {
        return Err(kube::Error::Api(conflict).into());
    }
    // Another part of the object changed, which does not affect the decision.
    options.preconditions = Some(Preconditions { uid: judged.uid.clone(), resource_version: None });
    Ok(ignore_not_found(requests::delete(api, name, &options).await).map(|_| ())?)
}
