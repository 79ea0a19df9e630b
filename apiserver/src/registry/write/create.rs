//! Create: by POST, and by a PUT of a kind that allows it.

use std::sync::Arc;

use coracle_storage::{CommitOutcome, Expect, Write};
use serde_json::Value;

use super::metadata::{dedup_owners, fit_name, fit_namespace, resource_version_of};
use super::stored::stored_bytes;
use super::{Writing, clear_system_fields, context, drop_empty_lists, validated};
use crate::access::authorize;
use crate::access::authorize::{RequestAttributes, ResourceTarget};
use crate::admission::{Operation, OperationOptions};
use crate::field::{Errors, Field};
use crate::fields::versions::Versions;
use crate::object_meta::ObjectMeta;
use crate::registry::allocation::Allocation;
use crate::registry::body::RequestBody;
use crate::registry::deletion::rfc3339;
use crate::registry::{Caller, Outcome, Payload, RETRIES, Registry, Stored, Target};
use crate::request::options::WriteOptions;
use crate::resource_info::Part;
use crate::strategy::validate;
use crate::{Error, Result};

/// The maximum number of attempts to generate a free name.
const NAME_TRIES: usize = 8;

/// The request that creates an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CreatedBy {
    Post,
    /// A PUT of a kind with `AllowCreateOnUpdate`. The resourceVersion of its body is ignored.
    Put,
    /// An apply to an object that is not there. Mutating admission may give it another name.
    Apply,
}

/// Makes the object that is to be created, in the form of its version.
pub(super) type Make<'a> = &'a (dyn Fn() -> Result<Value> + Sync);

/// The reason why the creation of an object must be retried.
enum Retry {
    /// Its generated name is taken.
    Name(Error),
    /// Another took what was allocated for it.
    Allocation,
}

/// The result of storing a new object.
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
    /// 400 and 422 for a body that is malformed or invalid, 409 for a name that is taken, and those
    /// of admission.
    pub async fn create(
        &self,
        target: &Target,
        body: &RequestBody,
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

    /// Creates from an object in the form of its version. A try uses the object up, and copies of a
    /// large one are not kept for the rare second try: `make` makes it again.
    pub(super) async fn create_object(
        &self,
        writing: Writing<'_>,
        make: Make<'_>,
        by: CreatedBy,
    ) -> Result<Outcome> {
        let mut names = 0;
        for _ in 0..=RETRIES {
            let mut object = make()?;
            fit_namespace(writing.target, &mut object)?;
            let info = &writing.target.info;
            if let Some(why) = info.behavior.create_refusal {
                return Err(Error::forbidden(&info.group_resource, object.name(), why));
            }
            dedup_owners(&mut object, writing.caller.warnings);
            clear_system_fields(&mut object);
            writing.caller.audit.log_request_object(&object, &info.type_ref);
            let object = info.to_internal(object);
            match self.try_create(&writing, object, by).await? {
                Ok(payload) => return Ok(Outcome { code: 201, payload }),
                Err(Retry::Name(taken)) if names + 1 == NAME_TRIES => return Err(taken),
                Err(Retry::Name(_)) => names += 1,
                Err(Retry::Allocation) => {}
            }
        }
        Err(Error::Internal("what was allocated was taken by others".to_owned()))
    }

    /// Tries once to create an object, in the internal version. After the inner error, another
    /// attempt may succeed.
    async fn try_create(
        &self,
        writing: &Writing<'_>,
        mut object: Value,
        by: CreatedBy,
    ) -> Result<std::result::Result<Payload, Retry>> {
        let info = &*writing.target.info;
        self.track(writing, &Versions::of(info), None, &mut object).await?;
        drop_empty_lists(info, &mut object);
        self.admit(writing, Operation::Create, &mut object, None).await?;
        if by != CreatedBy::Post {
            resource_version_of(&object)?;
        }
        let base = object.meta_str("generateName");
        let has_base = !base.is_empty();
        let generated = object.name().is_empty() && has_base;
        if generated {
            let name = self.generated_name(writing, &object, base);
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
        self.reserve_quota(writing, Operation::Create, &mut object, None, &mut allocation).await?;
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
            Created::Exists(_) if has_base => Err(Error::GenerateNameConflict { resource, name }),
            Created::Exists(_) => Err(Error::AlreadyExists { resource, name }),
        }
    }

    /// Generates a name from a base, which is cut to fit.
    fn generated_name(&self, writing: &Writing<'_>, object: &Value, base: &str) -> String {
        const MAX_BASE: usize = 63 - 5;
        let mut end = base.len().min(MAX_BASE);
        while !base.is_char_boundary(end) {
            end -= 1;
        }
        let base = &base[..end];
        let owners = object.meta("ownerReferences").and_then(Value::as_array);
        let is_controller = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
        let owner = owners.and_then(|owners| owners.iter().find(is_controller).or(owners.first()));
        let owner = owner.and_then(|owner| owner.get("uid")?.as_str()).unwrap_or_default();
        let target = writing.target;
        let path = [&*target.info.storage.bucket, &*target.namespace, owner, base];
        format!("{base}{}", self.identities.suffix(&path, !writing.dry_run()))
    }

    /// Sets the fields of a new object that the server decides, and validates the result.
    async fn prepare_new(&self, writing: &Writing<'_>, object: &mut Value, by: CreatedBy) -> Result<()> {
        let info = &*writing.target.info;
        let behavior = &info.behavior;
        // Mutating admission may have changed what fitted before.
        fit_namespace(writing.target, object)?;
        if by == CreatedBy::Put {
            fit_name(writing.target, object)?;
        }
        let now = rfc3339(self.now());
        if info.has_status()
            && !behavior.status_on_create
            && let Some(members) = object.as_object_mut()
        {
            members.remove("status");
        }
        if behavior.generation {
            object.set_meta("generation", 1);
        }
        // A Job selects its pods by its uid, so that must be known to the strategy.
        object.set_meta("creationTimestamp", now.as_str());
        let path = [&*info.storage.bucket, &*writing.target.namespace, object.name()];
        let uid = self.identities.uid(&path).to_string();
        object.set_meta("uid", uid);
        behavior.strategy.prepare_for_create(object, &context(&now, writing, &self.features));
        let mut errors = Errors::new();
        behavior.strategy.validate_in_cluster(&Field::root(object), None, Part::Main, self, &mut errors)?;
        let found = validated(behavior, |meter| {
            validate::create(object, behavior, info.namespaced, &self.features, meter)
        });
        let mut found = found.await?;
        writing.caller.warnings.extend(found.take_warnings());
        errors.extend(found);
        self.refuse_invalid(info, object, errors)?;
        writing.caller.warnings.extend(behavior.strategy.warnings(&Field::root(object), None));
        if by != CreatedBy::Post {
            self.authorize_create(writing)?;
        }
        self.validate_admission(writing, Operation::Create, object, None).await
    }

    /// Checks that a user who may update may also create. As in kube-apiserver, this is checked
    /// once the object is valid.
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
                None => Created::Done(self.dry_run_payload(info, object).await?),
            });
        }
        let name = object.name().to_owned();
        let path = [&*info.storage.bucket, &*writing.target.namespace, &*name];
        // Another object of this name may have come and gone while this one was admitted.
        if self.identities.is_used(&path, object.meta_str("uid")) {
            return Ok(Created::Overtaken);
        }
        let write = Write::put(key, Expect::Absent, stored_bytes(info, info.store(object).await?));
        let outcome = self.commit_allocated(write, allocation, writing.caller.origin()).await?;
        if matches!(outcome, CommitOutcome::Done(_)) {
            self.identities.created(&path);
        }
        match outcome {
            CommitOutcome::Done(events) => match events.into_iter().next().and_then(|e| e.after.clone()) {
                Some(stored) => Ok(Created::Done(Payload::Stored(stored))),
                None => Err(Error::Internal("a create left nothing".to_owned())),
            },
            CommitOutcome::Conflict { index: 0, current } => Ok(Created::Exists(current)),
            CommitOutcome::Conflict { .. } => Ok(Created::Overtaken),
        }
    }
}

/// Rejects a resourceVersion on create. One that is not a number is ignored, as etcd3's
/// `store.Create` does.
fn reject_resource_version(object: &Value) -> Result<()> {
    match resource_version_of(object) {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => {
            Err(Error::Unclassified("resourceVersion should not be set on objects to be created".to_owned()))
        }
    }
}
