//! Create, update and patch: one pipeline, and what happens when another write came first.
//!
//! An object passes: decode and defaults (in the version of the request), conversion to the internal version, admission, what
//! the kind clears or restores, validation, validating admission, conversion to the stored version, commit. A change is made against the newest version and committed against exactly that
//! version; if another write came in between, it is made again, unless the client named the version it meant.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use coracle_storage::{Commit, Expect, StoreError, Write};
use serde_json::{Map, Value};

use super::allocate::Allocation;
use super::body::Body;
use super::deletion::{self, rfc3339};
use super::index::STAMP_SITE;
use super::{Caller, Outcome, Payload, RETRIES, Registry, Stored, Target, parse};
use crate::access::authorize::{self, RequestAttributes, ResourceTarget};
use crate::admission::generic::ReinvocationContext;
use crate::admission::{AdmissionAttributes, GroupVersionKind, Operation, OperationOptions};
use crate::codec;
use crate::codec::limits::{MAX_COLLECTIONS, measure};
use crate::features::FeatureGates;
use crate::field::{ErrorType, Errors, Field, FieldError, Path, quote};
use crate::fields::manage;
use crate::names::{GroupKind, random_suffix};
use crate::object_meta::ObjectMeta;
use crate::patch::Patch;
use crate::request::Warnings;
use crate::request::options::{FieldValidation, WriteOptions, parse_revision};
use crate::resource_info::{Part, ResourceInfo, Subresource};
use crate::strategy::{Context, Strategy, validate};
use crate::{Error, Result};

/// How often a name is generated anew because it was taken.
const NAME_TRIES: usize = 8;
/// What stands in stored bytes for the revision, until it is cut out.
const MARK: &str = "@";

/// One write on its way through the pipeline.
pub(super) struct Writing<'a> {
    pub target: &'a Target,
    pub part: Part,
    pub caller: Caller<'a>,
    pub options: OperationOptions<'a>,
    /// Whether the request is for a collection, and so has no name.
    pub is_collection: bool,
    /// As what admission sees the object, if that is another kind.
    pub projection: Option<&'a Projection<'a>>,
    /// Who gets the fields that the write changes, "" for the client by its User-Agent; None where nobody does, or where
    /// the edit itself sees to it.
    pub field_manager: Option<&'a str>,
}

/// An object of another kind that stands for one that is written through a subresource, as a Scale does for a Deployment.
/// Admission sees that one.
pub(super) struct Projection<'a> {
    pub subresource: &'a Subresource,
    /// The object of the subresource's kind.
    pub project: &'a (dyn Fn(&Value) -> Value + Sync),
    /// Takes over what admission has made of it.
    pub restore: &'a (dyn Fn(&Value, &mut Value) + Sync),
}

/// The request that creates an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CreatedBy {
    Post,
    /// A PUT of a kind with `AllowCreateOnUpdate`. The resourceVersion of its body is ignored.
    Put,
}

/// Makes the object that is to be created, in the form of its version.
type Make<'a> = &'a (dyn Fn() -> Result<Value> + Sync);

/// What to do with a changed object.
enum Changed {
    Nothing,
    Store(Value),
    /// The change released it: it goes.
    Remove(Value),
}

/// Why an object must be made again.
enum Retry {
    /// Its generated name is taken.
    Name(Error),
    /// Another took what was allocated for it.
    Allocation,
}

/// What came of storing a new object.
enum Created {
    Done(Payload),
    /// This is in its place.
    Exists(Option<Arc<Stored>>),
    /// Another took what was allocated for it.
    Overtaken,
}

impl Registry {
    /// Creates an object.
    ///
    /// # Errors
    /// 400 and 422 for a body that is malformed or invalid, 409 for a name that is taken, and those of admission.
    pub async fn create(
        &self,
        target: &Target,
        body: &Body,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let writing = Writing {
            target,
            part: Part::Main,
            caller,
            options: OperationOptions::Write(options),
            is_collection: false,
            projection: None,
            field_manager: Some(&options.field_manager),
        };
        let decode = || self.decode(target, body, options.field_validation, caller);
        self.create_object(writing, &decode, CreatedBy::Post).await
    }

    /// Creates from an object in the form of its version. A try uses the object up, and copies of a large one are not kept
    /// for the rare second try: `make` makes it again.
    async fn create_object(&self, writing: Writing<'_>, make: Make<'_>, by: CreatedBy) -> Result<Outcome> {
        let mut names = 0;
        for _ in 0..=RETRIES {
            let mut object = make()?;
            fit_namespace(writing.target, &mut object)?;
            let info = &writing.target.info;
            if let Some(why) = info.behaviour.create_refusal {
                return Err(Error::forbidden(&info.group_resource, object.name(), why));
            }
            dedup_owners(&mut object, writing.caller.warnings);
            for member in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
                object.set_meta(member, Value::Null);
            }
            let object = writing.target.info.to_internal(object);
            match self.try_create(&writing, object, by).await? {
                Ok(payload) => return Ok(Outcome { code: 201, payload }),
                Err(Retry::Name(taken)) if names + 1 == NAME_TRIES => return Err(taken),
                Err(Retry::Name(_)) => names += 1,
                Err(Retry::Allocation) => {}
            }
        }
        Err(Error::Internal("what was allocated was taken by others".to_owned()))
    }

    /// One try to create an object, in the internal version. The inner error may not come again.
    async fn try_create(
        &self,
        writing: &Writing<'_>,
        mut object: Value,
        by: CreatedBy,
    ) -> Result<std::result::Result<Payload, Retry>> {
        let info = &*writing.target.info;
        self.track(writing, None, &mut object);
        self.admit(writing, Operation::Create, &mut object, None).await?;
        if by == CreatedBy::Put {
            resource_version_of(&object)?;
        }
        let base = object.meta_str("generateName");
        let generated = object.name().is_empty() && !base.is_empty();
        if generated {
            let name = generate_name(base);
            object.set_meta("name", name);
        }
        let mut allocation = self.allocate(writing, &mut object, None)?;
        self.prepare_new(writing, &mut object, by).await?;
        if by == CreatedBy::Post && !writing.dry_run() {
            reject_resource_version(&object)?;
        }
        if !writing.dry_run() && !self.reserve(&mut allocation)? {
            return Ok(Err(Retry::Allocation));
        }
        self.charge(writing, Operation::Create, &mut object, None, &mut allocation).await?;
        let name = object.name().to_owned();
        let resource = info.group_resource.clone();
        match self.commit_new(writing, object, allocation).await? {
            Created::Done(payload) => Ok(Ok(payload)),
            Created::Overtaken => Ok(Err(Retry::Allocation)),
            Created::Exists(_) if generated => {
                Ok(Err(Retry::Name(Error::GenerateNameConflict { resource, name })))
            }
            Created::Exists(Some(current)) if current.meta.terminating => {
                Err(Error::BeingDeleted { resource, name })
            }
            Created::Exists(_) => Err(Error::AlreadyExists { resource, name }),
        }
    }

    /// What the server decides of a new object, and whether the result is valid.
    async fn prepare_new(&self, writing: &Writing<'_>, object: &mut Value, by: CreatedBy) -> Result<()> {
        let info = &*writing.target.info;
        let behaviour = &info.behaviour;
        let now = rfc3339(self.now());
        if info.has_status()
            && !behaviour.status_on_create
            && let Some(members) = object.as_object_mut()
        {
            members.remove("status");
        }
        if behaviour.generation {
            object.set_meta("generation", 1);
        }
        // A Job selects its pods by its uid, so that must be known to the strategy.
        object.set_meta("creationTimestamp", now.as_str());
        object.set_meta("uid", uuid::Uuid::new_v4().to_string());
        behaviour.strategy.prepare_for_create(object, &context(&now, writing, &self.features));
        self.refuse_invalid(
            info,
            object,
            validate::create(object, behaviour, info.namespaced, &self.features),
        )?;
        writing.caller.warnings.extend(behaviour.strategy.warnings(&Field::root(object), None));
        if by == CreatedBy::Put {
            self.authorize_create(writing)?;
        }
        self.validate_admission(writing, Operation::Create, object, None).await
    }

    /// Whoever may update need not be allowed to create. As in kube-apiserver this is asked when the object is valid.
    fn authorize_create(&self, writing: &Writing<'_>) -> Result<()> {
        let target = writing.target;
        let resource = &target.info.group_resource;
        let target = ResourceTarget {
            group: &resource.group,
            resource: &resource.resource,
            subresource: writing.part.name(),
            namespace: &target.namespace,
            name: &target.name,
        };
        let request = RequestAttributes { verb: "create", target: authorize::Target::Resource(target) };
        self.authorizer.check(writing.caller.user, &request)
    }

    async fn commit_new(
        &self,
        writing: &Writing<'_>,
        object: Value,
        allocation: Allocation<'_>,
    ) -> Result<Created> {
        let info = &*writing.target.info;
        let key = writing.target.key_of(object.name());
        if writing.dry_run() {
            return Ok(match self.store.get(&key) {
                Some(current) => Created::Exists(Some(current)),
                None => Created::Done(self.dry(info, object)),
            });
        }
        let write = Write::put(key, Expect::Absent, stored_bytes(info, info.store(object).await?));
        match self.commit_allocated(write, allocation).await? {
            Commit::Done(events) => match events.into_iter().next().and_then(|e| e.after.clone()) {
                Some(stored) => Ok(Created::Done(Payload::Stored(stored))),
                None => Err(Error::Internal("a create left nothing".to_owned())),
            },
            Commit::Conflict { index: 0, current } => Ok(Created::Exists(current)),
            Commit::Conflict { .. } => Ok(Created::Overtaken),
        }
    }

    /// PUT: the object becomes what the body says.
    pub async fn update(
        &self,
        target: &Target,
        part: Part,
        body: &Body,
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
            same_uid(target, &object, &Value::Null)?;
            Ok(object)
        };
        // The strategy of a Service's status inherits AllowCreateOnUpdate; no other kind has both.
        let creates = matches!(part, Part::Main | Part::Status) && target.info.behaviour.create_on_update;
        // A body that is wrong is refused before anything is looked for.
        let mut decoded = Some(decode()?);
        self.modify(writing, creates.then_some(&create), |current| {
            let object = decoded.take().map_or_else(decode, Ok)?;
            same_uid(target, &object, current)?;
            Ok(target.info.to_internal(object))
        })
        .await
    }

    /// PATCH: the object becomes what the patch makes of it.
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
        self.modify(writing, None, |current| {
            let shown = info.from_internal(current.clone());
            let mut object = patch.apply(shown, &info.type_ref, options.field_validation, caller.warnings)?;
            let strategy = &info.behaviour.strategy;
            default_within_limits(&**strategy, &mut object)?;
            if let Some(error) = strategy.conversion_error(&object) {
                return Err(patch.conversion_error(&object, &error));
            }
            fit_namespace(target, &mut object)?;
            fit_name(target, &object)?;
            dedup_owners(&mut object, caller.warnings);
            Ok(info.to_internal(object))
        })
        .await
    }

    /// Changes the object that is there. `edit` makes the new one, in the internal version, from the present one; it may be
    /// asked again if another write came first. Where nothing is there, `create` is created instead, if given.
    pub(super) async fn modify(
        &self,
        writing: Writing<'_>,
        create: Option<Make<'_>>,
        mut edit: impl FnMut(&Value) -> Result<Value>,
    ) -> Result<Outcome> {
        let target = writing.target;
        let info = &*target.info;
        let mut turn = None;
        let mut waits = false;
        for attempt in 0..=RETRIES {
            if attempt == 1 && !waits {
                turn = Some(self.retry_turn(target).await);
            }
            let Some(current) = self.current(info, &target.namespace, &target.name) else {
                drop(turn);
                return match create {
                    Some(make) => self.create_object(writing, make, CreatedBy::Put).await,
                    None => Err(Error::not_found(&info.group_resource, &target.name)),
                };
            };
            let old = info.load(parse(&current)?).await?;
            let mut new = edit(&old)?;
            self.track(&writing, Some(&old), &mut new);
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
                    self.charge(&writing, Operation::Update, &mut object, Some(&old), &mut allocation)
                        .await?;
                    self.commit_changed(&writing, &current, object, allocation).await?
                }
                Changed::Remove(object) if writing.dry_run() => Some(self.dry(info, object)),
                Changed::Remove(object) => {
                    let removed = self.remove(info, &current, &old).await?;
                    removed.map(|_| self.loose(info, info.from_internal(object)))
                }
            };
            if let Some(payload) = payload {
                return Ok(Outcome { code: 200, payload });
            }
        }
        Err(Error::modified(&info.group_resource, &target.name))
    }

    /// Updates the managers of fields. Comes before anything that the server itself decides, which nobody manages.
    fn track(&self, writing: &Writing<'_>, old: Option<&Value>, new: &mut Value) {
        let Some(field_manager) = writing.field_manager else { return };
        let info = &*writing.target.info;
        let writer = manage::FieldManager {
            manager: &manage::manager(field_manager, writing.caller.user_agent),
            api_version: &info.api_version,
            subresource: writing.part.name(),
            now: &rfc3339(self.now()),
        };
        track(info, writer, old, new);
    }

    /// Records who manages the fields of an object that is not stored.
    pub fn track_new(&self, info: &ResourceInfo, field_manager: &str, caller: Caller<'_>, new: &mut Value) {
        let writer = manage::FieldManager {
            manager: &manage::manager(field_manager, caller.user_agent),
            api_version: &info.api_version,
            subresource: "",
            now: &rfc3339(self.now()),
        };
        track(info, writer, None, new);
    }

    /// The pipeline for a changed object, up to what is to be stored.
    async fn prepare_changed(&self, writing: &Writing<'_>, old: &Value, mut new: Value) -> Result<Changed> {
        let part = writing.part;
        let info = &*writing.target.info;
        let behaviour = &info.behaviour;
        keep_system_fields(&mut new, old);
        keep_other_parts(info, part, &mut new, old);
        let now = rfc3339(self.now());
        let context = context(&now, writing, &self.features);
        match part {
            Part::Main => behaviour.strategy.prepare_for_update(&mut new, old, &context),
            Part::Status => behaviour.strategy.prepare_for_status_update(&mut new, old, &context),
            other => behaviour.strategy.prepare_for_subresource_update(other.name(), &mut new, old, &context),
        }
        if behaviour.generation && part != Part::Status && behaviour.strategy.is_new_generation(&new, old) {
            new.set_meta("generation", old.generation() + 1);
        }
        let namespaced = info.namespaced;
        let errors = match part {
            Part::Main => validate::update(&new, old, behaviour, namespaced, &self.features),
            Part::Status => validate::status_update(&new, old, behaviour, namespaced),
            other => validate::subresource_update(other.name(), &new, old, behaviour, namespaced),
        };
        self.refuse_invalid(info, &new, errors)?;
        writing.caller.warnings.extend(match part {
            Part::Main => behaviour.strategy.warnings(&Field::root(&new), Some(&Field::root(old))),
            Part::Status => behaviour.strategy.status_warnings(&Field::root(&new)),
            _ => Vec::new(),
        });
        self.validate_admission(writing, Operation::Update, &mut new, Some(old)).await?;
        new.set_meta("resourceVersion", old.resource_version());
        if deletion::is_released(&new) && behaviour.strategy.is_released(&new) {
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
            return Ok(Some(self.dry(info, object)));
        }
        let stored = stored_bytes(info, info.store(object).await?);
        let write = Write::put(current.key.clone(), Expect::Revision(current.revision), stored);
        match self.commit_allocated(write, allocation).await? {
            Commit::Done(events) => {
                Ok(events.into_iter().next().and_then(|e| e.after.clone()).map(Payload::Stored))
            }
            Commit::Conflict { .. } => Ok(None),
        }
    }

    /// Changes an object from within: no hooks of its kind, no validation. For what other endpoints do to it.
    pub(crate) async fn rewrite(
        &self,
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
            let new = edit(&parse(&current)?)?;
            if dry_run {
                return Ok(());
            }
            let expect = Expect::Revision(current.revision);
            let write = Write::put(current.key.clone(), expect, stored_bytes(info, new));
            if let Commit::Done(_) = self.store.commit(vec![write]).await.map_err(store_failed)? {
                return Ok(());
            }
        }
        Err(Error::modified(&info.group_resource, &target.name))
    }

    fn decode(
        &self,
        target: &Target,
        body: &Body,
        validation: FieldValidation,
        caller: Caller<'_>,
    ) -> Result<Value> {
        let info = &*target.info;
        let mut object = body.decode_object(info, validation, caller.warnings)?;
        let strategy = &target.info.behaviour.strategy;
        default_within_limits(&**strategy, &mut object)?;
        match strategy.conversion_error(&object) {
            None => Ok(object),
            Some(error) => Err(Error::bad_request(format!(
                "{0} in version {1} cannot be handled as a {0}: {error}",
                info.kind,
                quote(&info.version)
            ))),
        }
    }

    /// Both passes of admission for a request that stores no object: an eviction, a binding, a token request.
    ///
    /// - `object`: the body, of the subresource's kind.
    pub(super) async fn admit_subresource(
        &self,
        target: &Target,
        subresource: &str,
        object: &mut Value,
        caller: Caller<'_>,
        options: &WriteOptions,
    ) -> Result<()> {
        let operation = OperationOptions::Write(options);
        let mut attributes = subresource_attributes(target, subresource, object, caller);
        (attributes.operation, attributes.options) = (Operation::Create, operation);
        self.chain.admit(&mut attributes, self).await?;
        self.chain.validate(&attributes, self).await
    }

    /// Both passes of admission for a request that opens a connection.
    ///
    /// - `object`: the options of the connection, such as PodExecOptions.
    pub(super) async fn admit_connect(
        &self,
        target: &Target,
        subresource: &str,
        object: &mut Value,
        caller: Caller<'_>,
    ) -> Result<()> {
        let mut attributes = subresource_attributes(target, subresource, object, caller);
        self.chain.admit(&mut attributes, self).await?;
        self.chain.validate(&attributes, self).await
    }

    /// The first pass of admission.
    pub(super) async fn admit(
        &self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let name = writing.admitted_name(operation, object);
        let Some(projection) = writing.projection else {
            return self.chain.admit(&mut writing.attributes(operation, &name, object, old), self).await;
        };
        let old = old.map(projection.project);
        let mut projected = (projection.project)(object);
        let before = projected.clone();
        self.chain
            .admit(&mut writing.attributes(operation, &name, &mut projected, old.as_ref()), self)
            .await?;
        if projected != before {
            (projection.restore)(&projected, object);
        }
        Ok(())
    }

    /// Whether admission may take long, so that it must not run in a turn that others wait for.
    pub(super) fn waits(
        &self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> bool {
        self.chain.waits(&writing.attributes(operation, &writing.target.name, object, old), self)
    }

    /// The second pass of admission.
    pub(super) async fn validate_admission(
        &self,
        writing: &Writing<'_>,
        operation: Operation,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let name = writing.admitted_name(operation, object);
        let Some(projection) = writing.projection else {
            return self.chain.validate(&writing.attributes(operation, &name, object, old), self).await;
        };
        let old = old.map(projection.project);
        let mut projected = (projection.project)(object);
        let attributes = writing.attributes(operation, &name, &mut projected, old.as_ref());
        self.chain.validate(&attributes, self).await
    }

    fn refuse_invalid(&self, info: &ResourceInfo, object: &Value, errors: Errors) -> Result<()> {
        if errors.is_empty() {
            return Ok(());
        }
        // A custom resource may have come with another kind.
        let kind = match object["kind"].as_str().filter(|_| info.is_custom()) {
            Some(kind) => GroupKind::new(&info.group, kind),
            None => info.group_kind.clone(),
        };
        Err(Error::invalid(&kind, object.name(), errors))
    }

    /// The answer of a dry run: as it would be stored, but without a revision of its own.
    pub(super) fn dry(&self, info: &ResourceInfo, object: Value) -> Payload {
        self.loose(info, info.from_internal(object))
    }

    pub(super) fn loose(&self, info: &ResourceInfo, value: Value) -> Payload {
        Payload::Object { value, type_ref: info.type_ref.clone() }
    }
}

impl Writing<'_> {
    /// A client that names the version it changed means just that one; some kinds insist that it does.
    fn check_version(&self, new: &Value, old: &Value) -> Result<()> {
        let info = &*self.target.info;
        let resource = &info.group_resource;
        match new.resource_version() {
            "" | "0" if info.behaviour.unconditional_update => Ok(()),
            "" | "0" => {
                let mut errors = Errors::new();
                let path = Path::of("metadata.resourceVersion");
                let detail = "must be specified for an update";
                errors.push(FieldError::new(ErrorType::Invalid, &path, Some(0.into()), detail));
                let kind = crate::names::GroupKind::new(&resource.group, &resource.resource);
                Err(Error::invalid(&kind, &self.target.name, errors))
            }
            version if version == old.resource_version() => Ok(()),
            _ => {
                resource_version_of(new)?;
                Err(Error::modified(resource, &self.target.name))
            }
        }
    }

    pub fn dry_run(&self) -> bool {
        self.options.dry_run()
    }

    /// The name in the attributes of an operation. What is created need not have the name of the path, if it has any yet.
    pub fn admitted_name(&self, operation: Operation, object: &Value) -> String {
        match operation {
            Operation::Create => object.name().to_owned(),
            _ if self.is_collection => String::new(),
            _ => self.target.name.clone(),
        }
    }

    /// The write as admission sees it.
    pub fn attributes<'w>(
        &'w self,
        operation: Operation,
        name: &'w str,
        object: &'w mut Value,
        old_object: Option<&'w Value>,
    ) -> AdmissionAttributes<'w> {
        let info = &self.target.info;
        AdmissionAttributes {
            operation,
            resource: &info.group_resource,
            kind: match self.projection {
                Some(Projection { subresource: sub, .. }) => kind_of_subresource(sub),
                None => kind_of(info),
            },
            version: &info.version,
            subresource: self.projection.map_or(self.part.name(), |projection| &projection.subresource.name),
            namespace: &self.target.namespace,
            name,
            object,
            old_object,
            options: self.options,
            user: self.caller.user,
            warnings: self.caller.warnings,
            audit_annotations: self.caller.audit_annotations,
            reinvocation: ReinvocationContext::default(),
        }
    }
}

/// The attributes of a request about a subresource that is not part of an object.
fn subresource_attributes<'a>(
    target: &'a Target,
    subresource: &'a str,
    object: &'a mut Value,
    caller: Caller<'a>,
) -> AdmissionAttributes<'a> {
    let info = &target.info;
    AdmissionAttributes {
        operation: Operation::Connect,
        resource: &info.group_resource,
        kind: info.subresource(subresource).map_or_else(|| kind_of(info), kind_of_subresource),
        version: &info.version,
        subresource,
        namespace: &target.namespace,
        name: &target.name,
        object,
        old_object: None,
        options: OperationOptions::None,
        user: caller.user,
        warnings: caller.warnings,
        audit_annotations: caller.audit_annotations,
        reinvocation: ReinvocationContext::default(),
    }
}

fn kind_of(info: &ResourceInfo) -> GroupVersionKind<'_> {
    GroupVersionKind { group: &info.group, version: &info.version, kind: &info.kind }
}

fn kind_of_subresource(sub: &Subresource) -> GroupVersionKind<'_> {
    GroupVersionKind { group: &sub.group, version: &sub.version, kind: &sub.kind }
}

/// Fills in the defaults, which may be a multiple of what a body contains.
pub(super) fn default_within_limits(strategy: &dyn Strategy, object: &mut Value) -> Result<()> {
    if !strategy.default_within_limits(object) {
        return Err(Error::TooLarge(
            "the defaults of the object are larger than an object may be".to_owned(),
        ));
    }
    if measure(object).collections > MAX_COLLECTIONS {
        let detail = format!("more than {MAX_COLLECTIONS} objects and lists with their defaults");
        return Err(Error::TooLarge(detail));
    }
    Ok(())
}

/// Whether a custom resource is stored in another version or with other fields than it would be today, so that an update
/// without a change migrates it.
async fn is_stored_otherwise(info: &ResourceInfo, current: &Stored, loaded: &Value) -> Result<bool> {
    if info.shows_stored_bytes() || !info.is_custom() {
        return Ok(false);
    }
    Ok(info.store(loaded.clone()).await? != parse(current)?)
}

/// The object's resourceVersion, 0 if it has none.
fn resource_version_of(object: &Value) -> Result<u64> {
    parse_revision(object.resource_version()).map_err(|e| Error::Unclassified(e.in_body()))
}

/// Rejects a resourceVersion on create. One that is not a number is ignored, as etcd3's `store.Create` does.
fn reject_resource_version(object: &Value) -> Result<()> {
    match resource_version_of(object) {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => {
            Err(Error::Unclassified("resourceVersion should not be set on objects to be created".to_owned()))
        }
    }
}

fn context<'a>(now: &'a str, writing: &Writing<'a>, features: &'a FeatureGates) -> Context<'a> {
    Context { now, user: writing.caller.user, features }
}

/// The namespace of the body must be that of the path; where it says none, it is.
pub fn fit_namespace(target: &Target, object: &mut Value) -> Result<()> {
    if !target.info.namespaced {
        object.set_meta("namespace", Value::Null);
        return Ok(());
    }
    match object.namespace() {
        "" => object.set_meta("namespace", target.namespace.as_str()),
        same if same == target.namespace => {}
        _ => {
            return Err(Error::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    }
    Ok(())
}

pub(super) fn fit_name(target: &Target, object: &Value) -> Result<()> {
    let asked = &target.name;
    match object.name() {
        "" => Err(Error::bad_request(format!(
            "the name of the object ({asked} based on URL) was undeterminable: name must be provided"
        ))),
        same if same == asked => Ok(()),
        other => Err(Error::bad_request(format!(
            "the name of the object ({other}) does not match the name on the URL ({asked})"
        ))),
    }
}

/// A PUT that names another uid means another object.
pub(super) fn same_uid(target: &Target, new: &Value, current: &Value) -> Result<()> {
    if new.uid().is_empty() || new.uid() == current.uid() {
        return Ok(());
    }
    let info = &target.info;
    let detail = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {}, UID in object meta: {}",
        info.registry_key(&target.namespace, &target.name),
        new.uid(),
        current.uid()
    );
    Err(Error::conflict(&info.group_resource, &target.name, detail))
}

/// Later owner references of a uid that was named already are dropped, with a warning.
pub(super) fn dedup_owners(object: &mut Value, warnings: &Warnings) {
    let Some(Value::Array(owners)) = object.pointer_mut("/metadata/ownerReferences") else { return };
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut doubled: Vec<String> = Vec::new();
    owners.retain(|owner| {
        let uid = owner.get("uid").and_then(Value::as_str).unwrap_or("");
        let times = times.entry(uid.to_owned()).or_default();
        *times += 1;
        if *times == 2 {
            doubled.push(uid.to_owned());
        }
        *times == 1
    });
    if !doubled.is_empty() {
        warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            doubled.join(", ")
        ));
    }
}

/// What a change may leave out, or not touch at all.
fn keep_system_fields(new: &mut Value, old: &Value) {
    let kept = |member: &str| old.meta(member).cloned().unwrap_or(Value::Null);
    if new.uid().is_empty() {
        new.set_meta("uid", kept("uid"));
    }
    for member in ["creationTimestamp", "generation"] {
        new.set_meta(member, kept(member));
    }
    new.set_meta("selfLink", Value::Null);
    if old.is_terminating() {
        new.set_meta("deletionTimestamp", kept("deletionTimestamp"));
    }
    if new.grace_period().is_none() {
        new.set_meta("deletionGracePeriodSeconds", kept("deletionGracePeriodSeconds"));
    }
}

/// An endpoint writes its part and leaves the others as they are.
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
        Some(value) => members.insert(member.to_owned(), value.clone()),
        None => members.remove(member),
    };
}

/// The name after a base, which is cut to fit.
fn generate_name(base: &str) -> String {
    const MAX_BASE: usize = 63 - 5;
    let mut end = base.len().min(MAX_BASE);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], random_suffix())
}

/// Gives the fields that a write changes to who writes; both objects are in the internal version.
pub(super) fn track(
    info: &ResourceInfo,
    writer: manage::FieldManager<'_>,
    old: Option<&Value>,
    new: &mut Value,
) {
    let entries = if info.internal_version() == info.api_version {
        manage::update(info, writer, old, new)
    } else {
        let shown = |object: &Value| info.from_internal(object.clone());
        manage::update(info, writer, old.map(shown).as_ref(), &shown(new))
    };
    new.set_meta("managedFields", entries);
}

/// The bytes to store: Go's order, and an empty place for the revision.
pub(super) fn stored_bytes(info: &ResourceInfo, mut object: Value) -> Bytes {
    object["kind"] = info.kind.as_ref().into();
    object["apiVersion"] = info.storage.api_version.as_str().into();
    let mut bytes = Vec::with_capacity(1024);
    if info.is_custom() {
        object.set_meta("resourceVersion", "");
        codec::json::write(&object, &info.storage.type_ref, &mut bytes);
        bytes.push(b'\n');
        return bytes.into();
    }
    object.set_meta("resourceVersion", MARK);
    codec::json::write(&object, &info.storage.type_ref, &mut bytes);
    // As answers end, so that reading copies them as they are.
    bytes.push(b'\n');
    let site = format!("{STAMP_SITE}{MARK}");
    // Go's order puts nothing before it in which the same bytes could stand unescaped.
    if let Some(at) = memchr::memmem::find(&bytes, site.as_bytes()) {
        bytes.drain(at + STAMP_SITE.len()..at + site.len());
    }
    bytes.into()
}

/// What kube-apiserver's etcd client sends at most; etcd itself accepts less.
const MAX_MESSAGE_BYTES: usize = 2 << 20;

/// The limits are etcd's, and answered as kube-apiserver passes them on. The disk's failures are the operator's to read.
pub(super) fn store_failed(error: StoreError) -> Error {
    match error {
        StoreError::TooLarge { bytes, .. } if bytes > MAX_MESSAGE_BYTES => Error::Unclassified(format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({bytes} vs. {MAX_MESSAGE_BYTES})"
        )),
        StoreError::TooLarge { .. } => Error::Unclassified("etcdserver: request is too large".to_owned()),
        StoreError::Full { .. } => {
            Error::Unclassified("etcdserver: mvcc: database space exceeded".to_owned())
        }
        StoreError::NoSpace => {
            Error::Internal("no space is left on the disk of the data directory".to_owned())
        }
        error => {
            tracing::error!(%error, "the store refused a write");
            Error::Internal("the store cannot take writes".to_owned())
        }
    }
}
