//! Carrying out a DELETE: of one object, or of a collection.

use std::sync::Arc;

use coracle_storage::{CommitOutcome, Expect, Key, Revision, Write};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::deletion::{self, Deletion};
use super::read::{Filter, Page};
use super::write::{Writing, stored_bytes};
use super::{Caller, Origin, Outcome, Payload, RETRIES, Registry, Stored, Target, parse};
use crate::admission::{Operation, OperationOptions};
use crate::names::GroupResource;
use crate::object_meta::ObjectMeta;
use crate::request::info::Verb;
use crate::request::options::{DeleteOptions, ListOptions, VersionMatch};
use crate::resource_info::{Part, ResourceInfo};
use crate::{Error, Result};

/// The number of objects of a collection that are deleted concurrently: enough to share the store's
/// group commits.
const MAX_CONCURRENT: usize = 64;

/// The kind of request that deletes an object.
#[derive(Clone, Copy)]
enum AdmittedAs<'a> {
    Object,
    /// A deletecollection: admission sees each object, but no name. Deletions that a webhook or
    /// policy may refuse are alone, so that the first refusal ends all that come after it.
    Collection(&'a RwLock<()>),
    /// An eviction: admission has seen that.
    Eviction,
}

/// The turn of one of the deletions of a collection.
#[expect(dead_code, reason = "held, not read")]
enum Turn<'a> {
    Alone(RwLockWriteGuard<'a, ()>),
    WithOthers(RwLockReadGuard<'a, ()>),
}

impl Registry {
    /// Deletes an object, as DeleteOptions and the kind's defaults say.
    ///
    /// # Errors
    /// 403 for an object that may not be deleted, 404, 409 for a precondition that fails, and those
    /// of admission.
    pub async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let info = &*target.info;
        if let Some(why) = info.behavior.strategy.validate_delete(&target.name) {
            return Err(Error::forbidden(&info.group_resource, &target.name, why));
        }
        self.delete_any(target, options, caller, AdmittedAs::Object).await
    }

    /// Deletes a Pod whose eviction was admitted.
    ///
    /// # Errors
    /// As those of [`Registry::delete`], without those of admission.
    pub async fn delete_evicted(
        &self,
        target: &Target,
        options: &DeleteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        self.delete_any(target, options, caller, AdmittedAs::Eviction).await
    }

    async fn delete_any(
        &self,
        target: &Target,
        options: &DeleteOptions,
        caller: Caller<'_>,
        admitted_as: AdmittedAs<'_>,
    ) -> Result<Outcome> {
        let info = &*target.info;
        let writing = Writing {
            target,
            part: Part::Main,
            caller,
            options: OperationOptions::Delete(options),
            is_collection: matches!(admitted_as, AdmittedAs::Collection(_)),
            projection: None,
            field_manager: None,
        };
        if options.propagation.is_none()
            && let Some(warning) = info.behavior.strategy.orphaning_warning()
        {
            caller.warnings.add(warning);
        }
        let (mut _turn, mut turn_in_collection) = (None, None);
        let mut waits = false;
        for attempt in 0..=RETRIES {
            if attempt == 1 && !waits {
                _turn = Some(self.retry_turn(target).await);
            }
            let Some(current) = self.current(info, &target.namespace, &target.name) else {
                return Err(Error::not_found(&info.group_resource, &target.name));
            };
            let old = info.load(parse(&current)?).await?;
            match admitted_as {
                AdmittedAs::Eviction => check_preconditions(info, &old, options)?,
                AdmittedAs::Object | AdmittedAs::Collection(_) => {
                    check_preconditions(info, &old, options)?;
                    waits = self.waits(&writing, Operation::Delete, &mut Value::Null, Some(&old));
                    if let AdmittedAs::Collection(turns) = admitted_as
                        && turn_in_collection.is_none()
                    {
                        turn_in_collection = Some(match waits {
                            true => Turn::Alone(turns.write().await),
                            false => Turn::WithOthers(turns.read().await),
                        });
                    }
                    self.admit(&writing, Operation::Delete, &mut Value::Null, Some(&old)).await?;
                    self.validate_admission(&writing, Operation::Delete, &mut Value::Null, Some(&old))
                        .await?;
                }
            }
            if let Some((code, payload)) =
                self.decide_and_carry_out(info, current, &old, options, caller.origin()).await?
            {
                return Ok(Outcome { code, payload });
            }
        }
        Err(Error::modified(&info.group_resource, &target.name))
    }

    /// Removes an object from the store on the server's own account, unless it was written again.
    pub(crate) async fn delete_as_is(&self, key: &Key, revision: Revision) -> Result<()> {
        let deletion = Write::delete(key.clone(), Expect::Revision(revision));
        self.commit(vec![deletion], Origin::server(Verb::Delete)).await.map(drop)
    }

    /// Deletes an object on behalf of the server, without admission.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn delete_as_server(
        &self,
        info: &Arc<ResourceInfo>,
        namespace: &str,
        name: &str,
    ) -> Result<()> {
        let (options, origin) = (DeleteOptions::default(), Origin::server(Verb::Delete));
        for _ in 0..=RETRIES {
            let Some(current) = self.current(info, namespace, name) else { return Ok(()) };
            let old = info.load(parse(&current)?).await?;
            if self.decide_and_carry_out(info, current, &old, &options, origin).await?.is_some() {
                return Ok(());
            }
        }
        Err(Error::modified(&info.group_resource, name))
    }

    /// Decides about a deletion, and executes it; returns None if another write came first.
    async fn decide_and_carry_out(
        &self,
        info: &ResourceInfo,
        current: Arc<Stored>,
        old: &Value,
        options: &DeleteOptions,
        origin: Origin<'_>,
    ) -> Result<Option<(u16, Payload)>> {
        let now = self.now();
        let begun = match old.is_terminating() {
            true => None,
            false => info.behavior.strategy.begin_deletion(old, &deletion::rfc3339(now)),
        };
        let decision = match begun {
            Some(marked) => Deletion::Mark(marked),
            None => deletion::decide(old, options, info.behavior.deletion, now),
        };
        self.carry_out(info, current, old, decision, options, origin).await
    }

    /// Executes a deletion; returns None if another write came first.
    async fn carry_out(
        &self,
        info: &ResourceInfo,
        current: Arc<Stored>,
        old: &Value,
        decision: Deletion,
        options: &DeleteOptions,
        origin: Origin<'_>,
    ) -> Result<Option<(u16, Payload)>> {
        // A client that uses `orphanDependents: false` gets 202 while dependents are being deleted.
        let held = if options.legacy_background { 202 } else { 200 };
        match decision {
            Deletion::AlreadyTerminating => Ok(Some((held, Payload::Stored(current)))),
            Deletion::Mark(object) if options.dry_run => {
                Ok(Some((held, self.dry_run_payload(info, object).await?)))
            }
            Deletion::Mark(object) => {
                let marked = self.mark(info, &current, object, origin).await?;
                Ok(marked.map(|object| (held, Payload::Stored(object))))
            }
            Deletion::Remove if options.dry_run => {
                Ok(Some((200, self.deletion_payload(info, old, || old.clone()))))
            }
            Deletion::Remove => {
                let Some(revision) = self.remove(info, &current, old, origin).await? else { return Ok(None) };
                let last = || with_resource_version(old, revision);
                Ok(Some((200, self.deletion_payload(info, old, last))))
            }
            Deletion::MarkAndRemove(object) if options.dry_run => {
                Ok(Some((200, self.deletion_payload(info, &object, || object.clone()))))
            }
            Deletion::MarkAndRemove(object) => {
                let Some(marked) = self.mark(info, &current, object, origin).await? else { return Ok(None) };
                let last = self.remove_marked(info, marked, options, origin).await?;
                Ok(Some((200, self.deletion_payload(info, &last, || last.clone()))))
            }
        }
    }

    /// Stores an object with its deletionTimestamp; None if another write came first.
    async fn mark(
        &self,
        info: &ResourceInfo,
        current: &Stored,
        object: Value,
        origin: Origin<'_>,
    ) -> Result<Option<Arc<Stored>>> {
        let stored = stored_bytes(info, info.store(object).await?);
        let write = Write::put(current.key.clone(), Expect::Revision(current.revision), stored);
        Ok(match self.commit(vec![write], origin).await? {
            CommitOutcome::Done(events) => events.into_iter().next().and_then(|e| e.after.clone()),
            CommitOutcome::Conflict { .. } => None,
        })
    }

    /// Deletes an object after its deletionTimestamp was stored, and returns its last known state.
    /// Another request may delete it first: any update of an object that is released removes it.
    async fn remove_marked(
        &self,
        info: &ResourceInfo,
        marked: Arc<Stored>,
        options: &DeleteOptions,
        origin: Origin<'_>,
    ) -> Result<Value> {
        let mut last = info.load(parse(&marked)?).await?;
        for _ in 0..=RETRIES {
            let Some(current) = self.store.get(&marked.key) else { return Ok(last) };
            let object = info.load(parse(&current)?).await?;
            if object.uid() != last.uid() {
                return Ok(last);
            }
            if options.resource_version.is_some() && current.revision != marked.revision {
                return Err(Error::modified(&info.group_resource, object.name()));
            }
            if let Some(revision) = self.remove(info, &current, &object, origin).await? {
                return Ok(with_resource_version(&object, revision));
            }
            last = object;
        }
        Err(Error::modified(&info.group_resource, last.name()))
    }

    /// Builds the response to a completed deletion: the last state of the object, for the kinds
    /// that return it.
    fn deletion_payload(&self, info: &ResourceInfo, object: &Value, last: impl FnOnce() -> Value) -> Payload {
        if info.behavior.deletion.returns_deleted_object {
            return self.object_payload(info, info.from_internal(last()));
        }
        Payload::Status(success(&info.group_resource, object))
    }

    /// Deletes an object from the store, and releases what it had allocated. Returns the revision
    /// of the deletion, or None if another write came first.
    pub(super) async fn remove(
        &self,
        info: &ResourceInfo,
        current: &Stored,
        old: &Value,
        origin: Origin<'_>,
    ) -> Result<Option<Revision>> {
        let mut writes = vec![Write::delete(current.key.clone(), Expect::Revision(current.revision))];
        writes.extend(self.release(info, &current.key, old)?);
        Ok(match self.commit(writes, origin).await? {
            CommitOutcome::Done(events) => events.first().map(|event| event.revision),
            CommitOutcome::Conflict { .. } => None,
        })
    }

    /// Deletes the objects that a list selects, and returns the list as it was.
    ///
    /// # Errors
    /// 500 if an entry of another writer in the namespace is unreadable, as kube-apiserver responds
    /// to the list: what it is cannot be found out, and a namespace is not empty as long as it is
    /// there. The readable objects are deleted.
    pub async fn delete_collection(
        &self,
        target: &Target,
        filter: &Filter,
        list: &ListOptions,
        options: &DeleteOptions,
        caller: Caller<'_>,
    ) -> Result<Page> {
        // The real server deletes page by page, so that a bare revision means that very one, as
        // with a limit.
        let version_match = match list.version_match {
            VersionMatch::Unset => VersionMatch::Exact,
            named => named,
        };
        // So an unreadable object is the error of a page, not that of a cache.
        let limit = if list.limit == 0 { usize::MAX } else { list.limit };
        let list = ListOptions { version_match, limit, ..list.clone() };
        let page = self.list(&target.info, filter, &list).await?;
        let turns = RwLock::new(());
        let deletions = page.items.iter().map(|item| {
            let (_, name) = super::read::split_name(item);
            self.delete_one_of(Target { name: name.to_owned(), ..target.clone() }, options, caller, &turns)
        });
        stream::iter(deletions.collect::<Vec<_>>())
            .buffer_unordered(MAX_CONCURRENT)
            .try_collect::<()>()
            .await?;
        let snapshot = self.store.snapshot();
        let corrupt = snapshot.quarantined().find(|entry| {
            **entry.key.bucket() == *target.info.storage.bucket && filter.is_in_namespace(entry.key.name())
        });
        match corrupt {
            Some(entry) => Err(Error::Internal(format!(
                "StorageError: corrupt object, Code: 7, Key: {}, ResourceVersion: {}, AdditionalErrorMsg: {}",
                entry.key, entry.id.revision, entry.reason
            ))),
            None => Ok(page),
        }
    }

    async fn delete_one_of(
        &self,
        target: Target,
        options: &DeleteOptions,
        caller: Caller<'_>,
        turns: &RwLock<()>,
    ) -> Result<()> {
        match self.delete_any(&target, options, caller, AdmittedAs::Collection(turns)).await {
            // Someone else was faster.
            Err(Error::NotFound { .. }) => Ok(()),
            other => other.map(drop),
        }
    }
}

/// Checks that an object has the uid and the version that the options of a deletion ask for.
///
/// # Errors
/// 409 if it has not.
pub fn check_preconditions(info: &ResourceInfo, object: &Value, options: &DeleteOptions) -> Result<()> {
    let asked = [
        ("UID", options.uid.as_deref(), object.uid(), "deleted and then recreated"),
        ("ResourceVersion", options.resource_version.as_deref(), object.resource_version(), "modified"),
    ];
    for (what, wanted, is, happened) in asked {
        let Some(wanted) = wanted.filter(|wanted| *wanted != is) else { continue };
        // Elsewhere the real server names the kind where it names the resource in other conflicts.
        return Err(if info.behavior.deletion.checks_preconditions {
            let detail =
                format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}");
            Error::conflict(&info.group_resource, object.name(), detail)
        } else {
            let kind = GroupResource::new(&info.group_kind.group, &info.group_kind.kind);
            let detail = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({is}). The object might have been {happened}"
            );
            Error::conflict(&kind, object.name(), detail)
        });
    }
    Ok(())
}

/// Returns the last state of a deleted object, with the revision of its deletion.
fn with_resource_version(object: &Value, revision: Revision) -> Value {
    let mut object = object.clone();
    object.set_meta("resourceVersion", revision.to_string());
    object
}

/// Builds the Status of a completed deletion.
fn success(resource: &GroupResource, object: &Value) -> Value {
    let mut details = json!({"name": object.name(), "kind": resource.resource, "uid": object.uid()});
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}
