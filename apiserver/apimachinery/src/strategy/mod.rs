//! Strategies: the differences between kinds that require code, as hooks with defaults.
//!
//! Objects arrive in the form of their version, as decoded by the codec: every value has its Go
//! type's JSON form, nulls and empty `omitempty` members are removed, quantities and times are
//! canonical. A hook reads and writes plain JSON values; it has no access to HTTP, the store, or
//! any clock other than the one in [`Context`].

mod behavior;
mod computed;
pub mod custom_resource;
pub mod defaulting;
mod part;
mod scale;
pub mod validate;

pub use behavior::{Behavior, DeletionDefaults, FieldPath, ResetFields};
pub use computed::Computed;
pub use part::Part;
pub use scale::{ScalePaths, ScaleStrategy};

use coracle_cel::Meter;
use serde_json::Value;

use crate::Result;
use crate::cluster::Cluster;
use crate::features::FeatureGates;
use crate::field::{Errors, Field};
use crate::user::UserInfo;

/// The context of a hook, besides the objects.
pub struct Context<'a> {
    /// The current time in RFC 3339, whole seconds (`2026-01-02T03:04:05Z`).
    pub now: &'a str,
    /// The user who sent the request.
    pub user: &'a UserInfo,
    /// The enabled features.
    pub features: &'a FeatureGates,
}

/// The hooks of a kind, in the order in which the pipeline calls them:
///
/// - create: `default`, (admission), `prepare_for_create`, metadata validation, `validate`,
///   `warnings`, store;
/// - update: `default`, (admission), `prepare_for_update`, metadata validation, `validate_update`,
///   `warnings`, store;
/// - update of `/status`: `default`, `prepare_for_status_update` (the pipeline has already restored
///   everything but status, and the metadata the kind permits to change), `validate_status_update`,
///   `status_warnings`.
///
/// The pipeline itself does what is the same for all kinds: metadata, `generation` (for kinds that
/// manage it), dropping `status` on create, keeping it on update if the kind has a status
/// subresource.
pub trait Strategy: Send + Sync {
    /// Fills in the defaults of omitted fields. Runs on every decoded object of this version,
    /// including patched results.
    fn default(&self, object: &mut Value) {
        let _ = object;
    }

    /// Sets defaults like [`Strategy::default`]; returns `false` if they would exceed the size that
    /// an object may have.
    fn default_within_limits(&self, object: &mut Value) -> bool {
        self.default(object);
        true
    }

    /// Returns the object to compute the managed fields of a write from; None for the object
    /// itself. They differ if some defaults are set later.
    fn managed_view(&self, object: &Value) -> Option<Value> {
        let _ = object;
        None
    }

    /// Clears or sets the fields that a client may not set on create.
    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        let _ = (object, context);
    }

    /// Restores the fields that a client may not change.
    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        let _ = (object, old, context);
    }

    /// Restores the fields that an update of `/status` may not change.
    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        let _ = (object, old, context);
    }

    /// Restores the fields that a request to another subresource may not change: `finalize` of a
    /// Namespace, `ephemeralcontainers` and `resize` of a Pod, `approval` of a
    /// CertificateSigningRequest.
    fn prepare_for_subresource_update(
        &self,
        part: Part,
        object: &mut Value,
        old: &Value,
        context: &Context<'_>,
    ) {
        let _ = (part, object, old, context);
    }

    /// Returns `true` if an update increments `metadata.generation`. It is called only for kinds
    /// with `Behavior::generation`.
    fn is_new_generation(&self, object: &Value, old: &Value) -> bool {
        desired_state(object).ne(desired_state(old))
    }

    /// Returns the reason if a DELETE of `name` is forbidden. It does not apply to a DELETE of the
    /// collection.
    fn validate_delete(&self, name: &str) -> Option<&'static str> {
        let _ = name;
        None
    }

    /// Returns the object as stored by the first DELETE, if deletion needs a preparatory step; None
    /// for the usual deletion. `now` is in RFC 3339.
    fn begin_deletion(&self, object: &Value, now: &str) -> Option<Value> {
        let _ = (object, now);
        None
    }

    /// Returns the warning for a DELETE without a propagation policy.
    fn orphaning_warning(&self) -> Option<&'static str> {
        None
    }

    /// Returns Go's error if kube-apiserver cannot convert an object to its internal version.
    fn conversion_error(&self, object: &Value) -> Option<String> {
        let _ = object;
        None
    }

    /// Returns whether a terminating object without finalizers may be deleted, because nothing else
    /// keeps it.
    fn is_released(&self, object: &Value) -> bool {
        let _ = object;
        true
    }

    /// Validates the kind's own rules that depend on feature gates, before the others; `old` is
    /// None on create.
    fn validate_gated(
        &self,
        object: &Field<'_>,
        old: Option<&Field<'_>>,
        features: &FeatureGates,
        errors: &mut Errors,
    ) {
        let _ = (object, old, features, errors);
    }

    /// Returns `true` if an object has the kind of the resource. A custom resource may be sent with
    /// another kind; then nothing else of it is validated.
    fn is_kind(&self, object: &Field<'_>) -> bool {
        let _ = object;
        true
    }

    /// Returns `true` if the kind has CEL rules.
    fn has_expressions(&self) -> bool {
        false
    }

    /// Validates the CEL rules, after the others; `old` is None on create. They are skipped if
    /// earlier errors make them meaningless.
    fn validate_expressions(
        &self,
        object: &Field<'_>,
        old: Option<&Field<'_>>,
        meter: &Meter,
        errors: &mut Errors,
    ) {
        let _ = (object, old, meter, errors);
    }

    /// Validates the kind's own rules that depend on other objects, before the others. `old` is
    /// None on create; `part` is the subresource that is written.
    ///
    /// # Errors
    /// The errors of reading the cluster.
    fn validate_in_cluster(
        &self,
        object: &Field<'_>,
        old: Option<&Field<'_>>,
        part: Part,
        cluster: &dyn Cluster,
        errors: &mut Errors,
    ) -> Result<()> {
        let _ = (object, old, part, cluster, errors);
        Ok(())
    }

    /// Validates the kind's own rules for a new object. Metadata is validated separately.
    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let _ = (object, errors);
    }

    /// Validates the kind's own rules for a changed object. The default is those for a new one.
    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let _ = old;
        self.validate(object, errors);
    }

    /// Validates the kind's own rules for an update of `/status`.
    fn validate_status_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let _ = (object, old, errors);
    }

    /// Validates the kind's own rules for an update of another subresource.
    fn validate_subresource_update(
        &self,
        part: Part,
        object: &Field<'_>,
        old: &Field<'_>,
        errors: &mut Errors,
    ) {
        let _ = (part, object, old, errors);
    }

    /// Returns the texts of `Warning` headers; `old` is None on create.
    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let _ = (object, old);
        Vec::new()
    }

    /// Returns the texts of `Warning` headers for an update of `/status`.
    fn status_warnings(&self, object: &Field<'_>) -> Vec<String> {
        let _ = object;
        Vec::new()
    }
}

/// Iterates over the desired state of an object: everything except its type, `metadata` and
/// `status`.
pub fn desired_state(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let members = object.as_object().into_iter().flatten();
    members.filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata" | "status"))
}

/// The strategy of a kind that needs none.
pub struct DefaultStrategy;

impl Strategy for DefaultStrategy {}
