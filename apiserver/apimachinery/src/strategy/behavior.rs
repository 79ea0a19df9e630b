//! The behavior of a kind in the generic pipeline.

use std::sync::Arc;

use super::{Computed, ScalePaths, Strategy};
use crate::allocation::Allocate;
use crate::names::Text;
use crate::render::columns::Column;
use crate::render::table::Printer;
use crate::selector::SelectableFields;
use crate::validation::metadata::{MetadataValidation, NameRule};

/// The behavior of a kind in the generic pipeline, independent of the version.
#[derive(Clone)]
pub struct Behavior {
    /// The rules that require code.
    pub strategy: Arc<dyn Strategy>,
    /// The rule for names.
    pub name: NameRule,
    /// The checks of metadata in the kind's own validation.
    pub metadata: MetadataValidation,
    /// Whether the server increments `metadata.generation` at changes of the desired state.
    pub generation: bool,
    /// Whether a client may set the status when it creates an object.
    pub status_on_create: bool,
    /// Whether a PUT of a missing object creates it: upstream's `AllowCreateOnUpdate`.
    pub create_on_update: bool,
    /// Whether a PUT without a resourceVersion overwrites any version: upstream's
    /// `AllowUnconditionalUpdate`.
    pub unconditional_update: bool,
    /// The defaults of a DELETE for options that the client does not set.
    pub deletion: DeletionDefaults,
    /// The fields that a field selector may name.
    pub selectable_fields: SelectableFields,
    /// The fields that an endpoint does not write.
    pub reset_fields: ResetFields,
    /// The directory of its objects in kube-apiserver's store, if that is not the plural; some
    /// messages contain it.
    pub key_prefix: Option<&'static str>,
    /// The reason if objects can no longer be created, because their definition is being deleted.
    pub create_refusal: Option<&'static str>,
    /// The `Warning` of every response.
    pub deprecation: Option<Text>,
    /// The columns of its tables.
    pub printer: Printer,
    /// The paths of a custom resource's replicas; None if it has no `/scale`.
    pub scale: Option<Arc<ScalePaths>>,
    /// The allocation of cluster IPs and node ports, if its objects have any.
    pub allocation: Option<&'static dyn Allocate>,
    /// The source of its objects, if they are not stored but computed.
    pub computed: Option<&'static dyn Computed>,
}

/// The defaults of a DELETE of a kind, for options that the client does not set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionDefaults {
    /// Whether there is a grace period, as for Pods.
    pub graceful: bool,
    /// Whether the object is deleted once its `spec.finalizers` are empty, as for Namespaces.
    pub by_finalizing: bool,
    /// Whether the first deletion checks preconditions by itself, so that conflicts have texts of
    /// their own, as for Namespaces and CustomResourceDefinitions.
    pub checks_preconditions: bool,
    /// Whether dependents are orphaned if the client does not set a propagation policy.
    pub orphans: bool,
    /// The garbage collector takes no notice of the kind, so that its objects wait for nothing:
    /// Events.
    pub not_garbage_collected: bool,
    /// Whether the response is the object even if it is deleted immediately: upstream's
    /// `ReturnDeletedObject`.
    pub returns_deleted_object: bool,
}

/// A path in the form of `fieldsV1`.
pub type FieldPath = &'static [&'static str];

/// The fields that an endpoint ignores in the body, in addition to the usual ones: their managers
/// do not change.
///
/// Source: `GetResetFields` of each kind's storage in kube-apiserver. A Pod's `ephemeralcontainers`
/// and `resize` have none: there a client becomes the manager of ignored fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetFields {
    /// The fields by subresource, "" for the object itself.
    pub by_subresource: &'static [(&'static str, &'static [FieldPath])],
}

const METADATA: FieldPath = &["f:metadata"];
const SPEC: FieldPath = &["f:spec"];
const STATUS: FieldPath = &["f:status"];

impl ResetFields {
    /// `/status` writes the status and no metadata.
    pub const STATUS_ALONE: ResetFields = ResetFields { by_subresource: &[("status", &[METADATA, SPEC])] };

    /// Returns the fields that a write to an endpoint does not change.
    pub fn of(&self, subresource: &str, has_status: bool) -> &'static [FieldPath] {
        if let Some((_, paths)) = self.by_subresource.iter().find(|(name, _)| *name == subresource) {
            return paths;
        }
        match subresource {
            "status" => &[SPEC],
            "" | "finalize" if has_status => &[STATUS],
            _ => &[],
        }
    }
}

impl Behavior {
    /// Returns the default behavior with a strategy. The following methods change parts of it.
    pub fn of(strategy: impl Strategy + 'static) -> Behavior {
        Behavior {
            strategy: Arc::new(strategy),
            name: NameRule::Subdomain,
            metadata: MetadataValidation::USUAL,
            generation: false,
            status_on_create: false,
            create_on_update: false,
            unconditional_update: true,
            deletion: DeletionDefaults::default(),
            selectable_fields: SelectableFields::METADATA,
            reset_fields: ResetFields::default(),
            key_prefix: None,
            create_refusal: None,
            deprecation: None,
            printer: Printer::default(),
            scale: None,
            allocation: None,
            computed: None,
        }
    }

    /// Sets the rule for names.
    pub fn name(self, name: NameRule) -> Behavior {
        Behavior { name, ..self }
    }

    /// Sets the validation of metadata.
    pub fn metadata(self, metadata: MetadataValidation) -> Behavior {
        Behavior { metadata, ..self }
    }

    /// Counts generations.
    pub fn generation(self) -> Behavior {
        Behavior { generation: true, ..self }
    }

    /// Takes a status on create.
    pub fn status_on_create(self) -> Behavior {
        Behavior { status_on_create: true, ..self }
    }

    /// Creates with PUT.
    pub fn create_on_update(self) -> Behavior {
        Behavior { create_on_update: true, ..self }
    }

    /// Updates only with a resourceVersion.
    pub fn conditional_update(self) -> Behavior {
        Behavior { unconditional_update: false, ..self }
    }

    /// Sets the fields for selectors.
    pub fn selectable_fields(self, selectable_fields: SelectableFields) -> Behavior {
        Behavior { selectable_fields, ..self }
    }

    /// Sets the fields that endpoints ignore.
    pub fn reset_fields(self, reset_fields: ResetFields) -> Behavior {
        Behavior { reset_fields, ..self }
    }

    /// Sets the directory in kube-apiserver's store.
    pub fn key_prefix(self, prefix: &'static str) -> Behavior {
        Behavior { key_prefix: Some(prefix), ..self }
    }

    /// Sets the columns of its tables.
    pub fn printer(self, printer: Printer) -> Behavior {
        Behavior { printer, ..self }
    }

    /// Sets the columns, with rows in the order of the list.
    pub fn columns(self, columns: &'static [Column]) -> Behavior {
        self.printer(Printer::of_columns(columns))
    }

    /// Sets the allocation of addresses and ports.
    pub fn allocation(self, allocation: &'static dyn Allocate) -> Behavior {
        Behavior { allocation: Some(allocation), ..self }
    }

    /// Sets the source of its objects, which are computed at each read.
    pub fn computed(self, computed: &'static dyn Computed) -> Behavior {
        Behavior { computed: Some(computed), ..self }
    }

    /// Warns of its use.
    pub fn deprecated(self, warning: &'static str) -> Behavior {
        Behavior { deprecation: Some(warning.into()), ..self }
    }

    /// Deletes with a grace period.
    pub fn graceful_deletion(self) -> Behavior {
        self.deletion(|deletion| deletion.graceful = true)
    }

    /// Makes deletion wait for an empty `spec.finalizers`.
    pub fn deleted_by_finalizing(self) -> Behavior {
        self.deletion(|deletion| {
            deletion.by_finalizing = true;
            deletion.checks_preconditions = true;
        })
    }

    /// Checks the preconditions of the first deletion by itself.
    pub fn checks_preconditions(self) -> Behavior {
        self.deletion(|deletion| deletion.checks_preconditions = true)
    }

    /// Orphans the dependents by default.
    pub fn orphans_by_default(self) -> Behavior {
        self.deletion(|deletion| deletion.orphans = true)
    }

    /// Excludes the kind from garbage collection.
    pub fn not_garbage_collected(self) -> Behavior {
        self.deletion(|deletion| deletion.not_garbage_collected = true)
    }

    /// Responds to DELETE with the object.
    pub fn returns_deleted_object(self) -> Behavior {
        self.deletion(|deletion| deletion.returns_deleted_object = true)
    }

    fn deletion(mut self, change: impl FnOnce(&mut DeletionDefaults)) -> Behavior {
        change(&mut self.deletion);
        self
    }
}
