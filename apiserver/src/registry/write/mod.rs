//! Create, update and patch: one pipeline, and what happens when another write came first.
//!
//! An object passes: decode and defaults (in the version of the request), conversion to the
//! internal version, admission, what the kind clears or restores, validation, validating admission,
//! conversion to the stored version, commit. A change is made against the newest version and
//! committed against exactly that version; if another write came in between, it is made again,
//! unless the client named the version it meant.
//!
//! | file | owns |
//! | --- | --- |
//! | `create.rs`, `update.rs` | the pipeline of a new and of a changed object |
//! | `admit.rs` | a write as admission sees it |
//! | `metadata.rs` | what a body's metadata must agree on with its request |
//! | `managed_fields.rs` | who manages the fields that a write changes |
//! | `stored.rs` | the bytes of an object in the store, and the errors of the store |

mod admit;
mod create;
mod managed_fields;
mod metadata;
mod own_status;
mod stored;
mod update;

use coracle_cel::{Limits, Meter};
use serde_json::Value;

pub(super) use admit::Projection;
pub(super) use managed_fields::tracked;
pub use metadata::{clear_system_fields, fit_namespace, same_uid};
pub(super) use metadata::{dedup_owners, fit_name};
pub(super) use stored::store_failed;
pub use stored::stored_bytes;

use self::metadata::resource_version_of;
use super::body::RequestBody;
use super::{Caller, Payload, Registry, Target};
use crate::admission::OperationOptions;
use crate::background;
use crate::codec::limits::{MAX_COLLECTIONS, measure};
use crate::codec::zero;
use crate::features::FeatureGates;
use crate::field::{ErrorType, Errors, FieldError, Path, quote};
use crate::names::{GroupKind, GroupVersion};
use crate::object_meta::ObjectMeta;
use crate::request::options::FieldValidation;
use crate::resource_info::{Part, ResourceInfo};
use crate::schema::schema;
use crate::strategy::{Behavior, Context, Strategy};
use crate::{Error, Result};

/// Returns the errors of a validation. One that evaluates expressions runs in the background if it
/// takes long.
async fn validated(behavior: &Behavior, validate: impl Fn(&Meter) -> Errors + Send + Sync) -> Result<Errors> {
    match behavior.strategy.has_expressions() {
        true => background::evaluate(validate).await,
        false => Ok(validate(&Meter::new(Limits::REQUEST))),
    }
}

/// One write on its way through the pipeline.
pub(super) struct Writing<'a> {
    pub target: &'a Target,
    pub part: Part,
    pub caller: Caller<'a>,
    pub options: OperationOptions<'a>,
    /// Whether the request is for a collection, so that it has no name.
    pub is_collection: bool,
    /// As what admission sees the object, if that is another kind.
    pub projection: Option<&'a Projection<'a>>,
    /// The field manager of the fields that the write changes: "" for one derived from the
    /// User-Agent; None if there is none, or if the edit tracks the fields itself.
    pub field_manager: Option<&'a str>,
}

impl Registry {
    pub(super) fn decode(
        &self,
        target: &Target,
        body: &RequestBody,
        validation: FieldValidation,
        caller: Caller<'_>,
    ) -> Result<Value> {
        let info = &*target.info;
        let mut object = body.decode_object(info, validation, caller.warnings)?;
        let strategy = &target.info.behavior.strategy;
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

    pub(super) fn refuse_invalid(
        &self,
        info: &ResourceInfo,
        object: &Value,
        mut errors: Errors,
    ) -> Result<()> {
        if errors.is_empty() {
            return Ok(());
        }
        if let Some(id) = info.type_ref.built_in() {
            errors.print_strings(|path| schema().string_at(id, path));
        }
        // A custom resource may have come with another type.
        let text = |name: &str| object[name].as_str().filter(|_| info.is_custom());
        let kind = match text("kind").zip(text("apiVersion").and_then(GroupVersion::parse)) {
            Some((kind, version)) => GroupKind::new(&version.group, kind),
            None => info.group_kind.clone(),
        };
        Err(Error::invalid(&kind, object.name(), errors))
    }

    /// Returns the payload of a dry run: the object as it would be stored, without a new resource
    /// version.
    ///
    /// # Errors
    /// The errors of the conversion to the version in which the object would be stored.
    pub(super) async fn dry_run_payload(&self, info: &ResourceInfo, mut object: Value) -> Result<Payload> {
        if info.is_custom() && !info.shows_stored_bytes() {
            object = info.load(info.store(object).await?).await?;
        }
        let mut value = info.from_internal(object);
        info.prune(&mut value);
        Ok(self.object_payload(info, value))
    }

    /// Returns the payload of an object that is not stored, or is no longer stored.
    pub(super) fn object_payload(&self, info: &ResourceInfo, value: Value) -> Payload {
        Payload::Object { value, type_ref: info.type_ref.clone() }
    }
}

impl Writing<'_> {
    /// Checks the resourceVersion. A client that sends one changes only that version; some kinds
    /// require it.
    pub(super) fn check_version(&self, new: &Value, old: &Value) -> Result<()> {
        let info = &*self.target.info;
        let resource = &info.group_resource;
        match new.resource_version() {
            "" | "0" if info.behavior.unconditional_update => Ok(()),
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
}

/// Fills in the defaults, which may be a multiple of what a body contains.
pub(super) fn default_within_limits(strategy: &dyn Strategy, object: &mut Value) -> Result<()> {
    check_defaults(strategy.default_within_limits(object), object)
}

/// Rejects an object if the defaults did not fit, or if it is too large with them.
pub(super) fn check_defaults(fitted: bool, object: &Value) -> Result<()> {
    if !fitted {
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

/// Removes from an object of a built-in kind the lists that are empty. That there are any matters
/// to who manages the fields; everything else takes an empty list for none, as storing it makes it.
fn drop_empty_lists(info: &ResourceInfo, object: &mut Value) {
    if let Some(id) = info.type_ref.built_in() {
        zero::drop_empty_lists(object, info.storage.type_ref.built_in().unwrap_or(id));
    }
}

pub(super) fn context<'a>(now: &'a str, writing: &Writing<'a>, features: &'a FeatureGates) -> Context<'a> {
    Context { now, user: writing.caller.user, features }
}
