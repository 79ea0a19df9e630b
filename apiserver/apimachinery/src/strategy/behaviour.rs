//! How a kind behaves in the generic pipeline.

use std::sync::Arc;

use super::{Computed, ScalePaths, Strategy};
use crate::allocation::Allocate;
use crate::names::Text;
use crate::render::columns::Column;
use crate::render::table::Printer;
use crate::selector::SelectableFields;
use crate::validation::metadata::{MetadataValidation, NameRule};

/// How a kind behaves in the generic pipeline, whatever the version.
#[derive(Clone)]
pub struct Behaviour {
    /// The rules that data cannot say.
    pub strategy: Arc<dyn Strategy>,
    /// The rule for names.
    pub name: NameRule,
    /// What the kind's own validation does about metadata.
    pub metadata: MetadataValidation,
    /// The server counts changes of the desired state in `metadata.generation`.
    pub generation: bool,
    /// A client that creates may also set the status.
    pub status_on_create: bool,
    /// PUT of a missing object creates it: upstream's `AllowCreateOnUpdate`.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites whatever is there: upstream's `AllowUnconditionalUpdate`.
    pub unconditional_update: bool,
    /// What a DELETE does that does not say otherwise.
    pub deletion: DeletionDefaults,
    /// The fields that a field selector may name.
    pub selectable_fields: SelectableFields,
    /// The fields that an endpoint does not write.
    pub reset_fields: ResetFields,
    /// The directory of its objects in the real server's store, where that is not the plural; some messages show it.
    pub key_prefix: Option<&'static str>,
    /// Why nothing can be created any more: its definition is being deleted.
    pub create_refusal: Option<&'static str>,
    /// The `Warning` of every response.
    pub deprecation: Option<Text>,
    /// The columns of its tables.
    pub printer: Printer,
    /// Where the replicas of a custom resource are, if it has `/scale`.
    pub scale: Option<Arc<ScalePaths>>,
    /// What its objects hold of the cluster's addresses and ports, if they do.
    pub allocation: Option<&'static dyn Allocate>,
    /// What computes its objects, if they are not stored.
    pub computed: Option<&'static dyn Computed>,
}

/// What a DELETE does to objects of a kind, as far as its options do not say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletionDefaults {
    /// There is a grace period: Pods.
    pub graceful: bool,
    /// The object goes when its `spec.finalizers` are empty: Namespaces.
    pub by_finalizing: bool,
    /// Without a policy the dependents are orphaned.
    pub orphans: bool,
    /// The garbage collector takes no notice of the kind, so that its objects wait for nothing: Events.
    pub not_garbage_collected: bool,
    /// The response is the object, even when it is gone at once: upstream's `ReturnDeletedObject`.
    pub returns_deleted_object: bool,
}

/// A path in the form of `fieldsV1`.
pub type FieldPath = &'static [&'static str];

/// The fields that an endpoint does not write, whatever the body contains, where that is not what it usually is: nobody
/// becomes their manager.
///
/// Source: `GetResetFields` of each kind's storage in kube-apiserver. A Pod's `ephemeralcontainers` and `resize` have
/// none: there a client becomes the manager of fields that are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetFields {
    /// By subresource, "" for the object itself.
    pub by_subresource: &'static [(&'static str, &'static [FieldPath])],
}

const METADATA: FieldPath = &["f:metadata"];
const SPEC: FieldPath = &["f:spec"];
const STATUS: FieldPath = &["f:status"];

impl ResetFields {
    /// `/status` writes the status and no metadata.
    pub const STATUS_ALONE: ResetFields = ResetFields { by_subresource: &[("status", &[METADATA, SPEC])] };

    /// The fields that an endpoint does not write.
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

impl Behaviour {
    /// The usual behaviour, with a strategy. The methods that follow say what differs.
    pub fn of(strategy: impl Strategy + 'static) -> Behaviour {
        Behaviour {
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

    /// With a rule for names.
    pub fn name(self, name: NameRule) -> Behaviour {
        Behaviour { name, ..self }
    }

    /// With a validation of metadata.
    pub fn metadata(self, metadata: MetadataValidation) -> Behaviour {
        Behaviour { metadata, ..self }
    }

    /// Counts generations.
    pub fn generation(self) -> Behaviour {
        Behaviour { generation: true, ..self }
    }

    /// Takes a status on create.
    pub fn status_on_create(self) -> Behaviour {
        Behaviour { status_on_create: true, ..self }
    }

    /// Creates with PUT.
    pub fn create_on_update(self) -> Behaviour {
        Behaviour { create_on_update: true, ..self }
    }

    /// Updates only with a resourceVersion.
    pub fn conditional_update(self) -> Behaviour {
        Behaviour { unconditional_update: false, ..self }
    }

    /// With fields for selectors.
    pub fn selectable_fields(self, selectable_fields: SelectableFields) -> Behaviour {
        Behaviour { selectable_fields, ..self }
    }

    /// With fields that endpoints do not write.
    pub fn reset_fields(self, reset_fields: ResetFields) -> Behaviour {
        Behaviour { reset_fields, ..self }
    }

    /// With a directory of its own in the real server's store.
    pub fn key_prefix(self, prefix: &'static str) -> Behaviour {
        Behaviour { key_prefix: Some(prefix), ..self }
    }

    /// With the columns of its tables.
    pub fn printer(self, printer: Printer) -> Behaviour {
        Behaviour { printer, ..self }
    }

    /// With columns in the order of the list.
    pub fn columns(self, columns: &'static [Column]) -> Behaviour {
        self.printer(Printer::of_columns(columns))
    }

    /// With addresses and ports that its objects hold.
    pub fn allocation(self, allocation: &'static dyn Allocate) -> Behaviour {
        Behaviour { allocation: Some(allocation), ..self }
    }

    /// With objects that are computed when they are read.
    pub fn computed(self, computed: &'static dyn Computed) -> Behaviour {
        Behaviour { computed: Some(computed), ..self }
    }

    /// Warns of its use.
    pub fn deprecated(self, warning: &'static str) -> Behaviour {
        Behaviour { deprecation: Some(warning.into()), ..self }
    }

    /// Deletes with a grace period.
    pub fn graceful_deletion(self) -> Behaviour {
        self.deletion(|deletion| deletion.graceful = true)
    }

    /// Is deleted by finalizing.
    pub fn deleted_by_finalizing(self) -> Behaviour {
        self.deletion(|deletion| deletion.by_finalizing = true)
    }

    /// Orphans the dependents by default.
    pub fn orphans_by_default(self) -> Behaviour {
        self.deletion(|deletion| deletion.orphans = true)
    }

    /// Is nothing to the garbage collector.
    pub fn not_garbage_collected(self) -> Behaviour {
        self.deletion(|deletion| deletion.not_garbage_collected = true)
    }

    /// Responds to DELETE with the object.
    pub fn returns_deleted_object(self) -> Behaviour {
        self.deletion(|deletion| deletion.returns_deleted_object = true)
    }

    fn deletion(mut self, change: impl FnOnce(&mut DeletionDefaults)) -> Behaviour {
        change(&mut self.deletion);
        self
    }
}
