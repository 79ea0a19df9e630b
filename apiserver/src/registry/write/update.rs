//! Update and patch: an object is changed from its newest version, and again if another write came
//! first.

use std::sync::Arc;

use coracle_storage::{CommitOutcome, Expect, Write};
use serde_json::{Map, Value};

use super::create::{CreatedBy, Make};
use super::metadata::{dedup_owners, fit_name, fit_namespace, same_uid};
use super::stored::stored_bytes;
use super::{Writing, context, default_within_limits, drop_empty_lists, validated};
use crate::admission::{Operation, OperationOptions};
use crate::field::{Errors, Field};
use crate::fields::manage;
use crate::fields::versions::Versions;
use crate::object_meta::ObjectMeta;
use crate::patch::Patch;
use crate::registry::allocation::Allocation;
use crate::registry::body::RequestBody;
use crate::registry::deletion::rfc3339;
use crate::registry::{Caller, Origin, Outcome, Payload, RETRIES, Registry, Stored, Target, deletion, parse};
use crate::request::info::Verb;
use crate::request::options::WriteOptions;
use crate::resource_info::{Part, ResourceInfo};
use crate::strategy::validate;
use crate::{Error, Result};

/// The action for a changed object.
enum Changed {
    Nothing,
    Store(Value),
    /// The change released it: it goes.
    Remove(Value),
}

impl Registry {
    /// Handles a PUT, which replaces the object with the body.
    pub async fn update(
        &self,
        target: &Target,
        part: Part,
        body: &RequestBody,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let writing = Writing {
            target,
            part,
            caller,
            options: OperationOptions::Write(options),
            is_collection: false,
            projection: None,
            field_manager: Some(&options.field_manager),
        };
        let decode = || {
            let mut object = self.decode(target, body, options.field_validation, caller)?;
            fit_namespace(target, &mut object)?;
            fit_name(target, &object)?;
            dedup_owners(&mut object, caller.warnings);
            Ok(object)
        };
        let create = || {
            let object = decode()?;
            same_uid(target, &object, &Value::Null, options.dry_run)?;
            Ok(object)
        };
        let creates = target.info.creates_on_update(part);
        // A body that is wrong is refused before anything is looked for.
        let mut decoded = Some(decode()?);
        if let Some(object) = &decoded {
            caller.audit.log_request_object(object, &target.info.type_ref);
        }
        self.modify(writing, creates.then_some(&create), |current, _| {
            let object = decoded.take().map_or_else(decode, Ok)?;
            same_uid(target, &object, current, options.dry_run)?;
            Ok(target.info.to_internal(object))
        })
        .await
    }

    /// Handles a PATCH, which changes the object by a patch.
    pub async fn patch(
        &self,
        target: &Target,
        part: Part,
        patch: &Patch,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let info = &*target.info;
        let writing = Writing {
            target,
            part,
            caller,
            options: OperationOptions::Write(options),
            is_collection: false,
            projection: None,
            field_manager: Some(&options.field_manager),
        };
        self.modify(writing, None, |current, _| {
            let shown = || info.from_internal(current.clone());
            let mut object =
                patch.apply(&shown, &info.type_ref, options.field_validation, caller.warnings)?;
            let strategy = &info.behavior.strategy;
            default_within_limits(&**strategy, &mut object)?;
            if let Some(error) = strategy.conversion_error(&object) {
                return Err(patch.conversion_error(&shown(), &info.type_ref, &error));
            }
            fit_namespace(target, &mut object)?;
            fit_name(target, &object)?;
            dedup_owners(&mut object, caller.warnings);
            Ok(info.to_internal(object))
        })
        .await
    }

    /// Changes an existing object. `edit` makes the new object from the current one, in the
    /// internal version; it may be called again if another write came first, or when needed
    /// conversions are done. If no object exists, `create` is created instead, if given.
    pub(in crate::registry) async fn modify(
        &self,
        writing: Writing<'_>,
        create: Option<Make<'_>>,
        mut edit: impl FnMut(&Value, &Versions<'_>) -> Result<Value>,
    ) -> Result<Outcome> {
        let target = writing.target;
        let info = &*target.info;
        let versions = Versions::of(info);
        let mut turn = None;
        let mut waits = false;
        for attempt in 0..=RETRIES {
            if attempt == 1 && !waits {
                turn = Some(self.retry_turn(target).await);
            }
            let Some(current) = self.current(info, &target.namespace, &target.name) else {
                drop(turn);
                return match create {
                    Some(make) => {
                        // Only an apply tracks the managers of fields by itself.
                        let by = match writing.field_manager {
                            None => CreatedBy::Apply,
                            Some(_) => CreatedBy::Put,
                        };
                        self.create_object(writing, make, by).await
                    }
                    None => Err(Error::not_found(&info.group_resource, &target.name)),
                };
            };
            let old = info.load(parse(&current)?).await?;
            let mut new = versions.resolve(|| edit(&old, &versions)).await?;
            self.track(&writing, &versions, Some(&old), &mut new).await?;
            drop_empty_lists(info, &mut new);
            waits = self.waits(&writing, Operation::Update, &mut new, Some(&old));
            self.admit(&writing, Operation::Update, &mut new, Some(&old)).await?;
            writing.check_version(&new, &old)?;
            let mut allocation = self.allocate(&writing, &mut new, Some(&old))?;
            let changed = match self.prepare_changed(&writing, &old, new).await? {
                Changed::Nothing if is_stored_otherwise(info, &current, &old).await? => {
                    Changed::Store(old.clone())
                }
                changed => changed,
            };
            let payload = match changed {
                Changed::Nothing => Some(Payload::Stored(current)),
                Changed::Store(_) if !writing.dry_run() && !self.reserve(&mut allocation)? => None,
                Changed::Store(mut object) => {
                    self.reserve_quota(&writing, Operation::Update, &mut object, Some(&old), &mut allocation)
                        .await?;
                    self.commit_changed(&writing, &current, object, allocation).await?
                }
                Changed::Remove(object) if writing.dry_run() => {
                    Some(self.dry_run_payload(info, object).await?)
                }
                Changed::Remove(object) => {
                    let removed = self.remove(info, &current, &old, writing.caller.origin()).await?;
                    removed.map(|_| self.object_payload(info, info.from_internal(object)))
                }
            };
            if let Some(payload) = payload {
                return Ok(Outcome { code: 200, payload });
            }
        }
        Err(Error::modified(&info.group_resource, &target.name))
    }

    /// Runs the pipeline for a changed object, and returns the object to store.
    async fn prepare_changed(&self, writing: &Writing<'_>, old: &Value, mut new: Value) -> Result<Changed> {
        let part = writing.part;
        let info = &*writing.target.info;
        let behavior = &info.behavior;
        // Mutating admission may have changed what fitted before.
        fit_namespace(writing.target, &mut new)?;
        keep_system_fields(&mut new, old, writing.dry_run());
        keep_other_parts(info, part, &mut new, old);
        let now = rfc3339(self.now());
        let context = context(&now, writing, &self.features);
        match part {
            Part::Main => behavior.strategy.prepare_for_update(&mut new, old, &context),
            Part::Status => behavior.strategy.prepare_for_status_update(&mut new, old, &context),
            other => behavior.strategy.prepare_for_subresource_update(other, &mut new, old, &context),
        }
        if behavior.generation && part != Part::Status && behavior.strategy.is_new_generation(&new, old) {
            new.set_meta("generation", old.generation() + 1);
        }
        let namespaced = info.namespaced;
        let mut errors = Errors::new();
        behavior.strategy.validate_in_cluster(
            &Field::root(&new),
            Some(&Field::root(old)),
            part,
            self,
            &mut errors,
        )?;
        let found = validated(behavior, |meter| match part {
            Part::Main => validate::update(&new, old, behavior, namespaced, &self.features, meter),
            Part::Status => validate::status_update(&new, old, behavior, namespaced, meter),
            other => validate::subresource_update(other, &new, old, behavior, namespaced),
        });
        let mut found = found.await?;
        writing.caller.warnings.extend(found.take_warnings());
        errors.extend(found);
        self.refuse_invalid(info, &new, errors)?;
        writing.caller.warnings.extend(match part {
            Part::Main => behavior.strategy.warnings(&Field::root(&new), Some(&Field::root(old))),
            Part::Status => behavior.strategy.status_warnings(&Field::root(&new)),
            _ => Vec::new(),
        });
        new.set_meta("resourceVersion", old.resource_version());
        self.validate_admission(writing, Operation::Update, &mut new, Some(old)).await?;
        if deletion::is_released(&new) && behavior.strategy.is_released(&new) {
            return Ok(Changed::Remove(new));
        }
        manage::ignore_managed_fields_timestamps(&mut new, old);
        Ok(if new == *old { Changed::Nothing } else { Changed::Store(new) })
    }

    /// Stores a changed object; None if another write came first.
    async fn commit_changed(
        &self,
        writing: &Writing<'_>,
        current: &Arc<Stored>,
        object: Value,
        allocation: Allocation<'_>,
    ) -> Result<Option<Payload>> {
        let info = &*writing.target.info;
        if writing.dry_run() {
            return Ok(Some(self.dry_run_payload(info, object).await?));
        }
        let stored = stored_bytes(info, info.store(object).await?);
        let write = Write::put(current.key.clone(), Expect::Revision(current.revision), stored);
        match self.commit_allocated(write, allocation, writing.caller.origin()).await? {
            CommitOutcome::Done(events) => {
                Ok(events.into_iter().next().and_then(|e| e.after.clone()).map(Payload::Stored))
            }
            CommitOutcome::Conflict { .. } => Ok(None),
        }
    }

    /// Changes an object on behalf of the server, without the hooks of its kind and without
    /// validation.
    ///
    /// # Errors
    /// 404 if it does not exist, and those of `edit`.
    pub async fn rewrite(
        &self,
        target: &Target,
        dry_run: bool,
        edit: impl FnMut(&Value) -> Result<Value>,
    ) -> Result<()> {
        self.rewrite_for(Origin::server(Verb::Update), target, dry_run, edit).await
    }

    /// Changes an object for a request to another endpoint, without the hooks of its kind and
    /// without validation.
    ///
    /// # Errors
    /// As of [`rewrite`](Self::rewrite).
    pub async fn rewrite_for(
        &self,
        origin: Origin<'_>,
        target: &Target,
        dry_run: bool,
        mut edit: impl FnMut(&Value) -> Result<Value>,
    ) -> Result<()> {
        let info = &*target.info;
        let mut _turn = None;
        for attempt in 0..=RETRIES {
            if attempt == 1 {
                _turn = Some(self.retry_turn(target).await);
            }
            let Some(current) = self.current(info, &target.namespace, &target.name) else {
                return Err(Error::not_found(&info.group_resource, &target.name));
            };
            let old = parse(&current)?;
            let new = edit(&old)?;
            // A write without a change would wake the reconciler that made it, and loop.
            if dry_run || new == old {
                return Ok(());
            }
            let expect = Expect::Revision(current.revision);
            let write = Write::put(current.key.clone(), expect, stored_bytes(info, new));
            if let CommitOutcome::Done(_) = self.commit(vec![write], origin).await? {
                return Ok(());
            }
        }
        Err(Error::modified(&info.group_resource, &target.name))
    }
}

/// Returns whether a custom resource is stored in another version, or with other fields, than it
/// would be today. If so, an update without a change migrates it.
async fn is_stored_otherwise(info: &ResourceInfo, current: &Stored, loaded: &Value) -> Result<bool> {
    if info.shows_stored_bytes() || !info.is_custom() {
        return Ok(false);
    }
    Ok(info.store(loaded.clone()).await? != parse(current)?)
}

/// Restores the system fields that a change omits or must not modify. What is stored has no
/// selfLink, and a dry run stores nothing.
fn keep_system_fields(new: &mut Value, old: &Value, dry_run: bool) {
    let kept = |member: &str| old.meta(member).cloned().unwrap_or(Value::Null);
    if new.uid().is_empty() {
        new.set_meta("uid", kept("uid"));
    }
    for member in ["creationTimestamp", "generation"] {
        new.set_meta(member, kept(member));
    }
    if !dry_run {
        new.set_meta("selfLink", Value::Null);
    }
    if old.is_terminating() {
        new.set_meta("deletionTimestamp", kept("deletionTimestamp"));
    }
    if new.grace_period().is_none() {
        new.set_meta("deletionGracePeriodSeconds", kept("deletionGracePeriodSeconds"));
    }
}

/// Copies the parts that an endpoint does not write from the old object.
fn keep_other_parts(info: &ResourceInfo, part: Part, new: &mut Value, old: &Value) {
    let Some(members) = new.as_object_mut() else { return };
    match part {
        Part::Status => {
            let written =
                |member: &&String| !matches!(member.as_str(), "kind" | "apiVersion" | "metadata" | "status");
            let mut others: Vec<String> = old.as_object().map_or(vec![], |o| o.keys().cloned().collect());
            others.extend(members.keys().cloned());
            others.iter().filter(written).for_each(|member| restore(members, old, member));
        }
        Part::Approval => {}
        _ if info.has_status() => restore(members, old, "status"),
        _ => {}
    }
}

fn restore(members: &mut Map<String, Value>, old: &Value, member: &str) {
    match old.get(member) {
        // A patch of another part leaves it as it was: comparing costs less than copying.
        Some(value) if members.get(member) == Some(value) => {}
        Some(value) => {
            members.insert(member.to_owned(), value.clone());
        }
        None => {
            members.remove(member);
        }
    }
}
