//! Object metadata: its rules on create, and the permitted changes on update.
//!
//! kube-apiserver validates metadata more than once. Every update passes its generic layer
//! (*ObjectMeta*: all the rules of a new object; *ObjectMetaUpdate*: immutable fields, and the
//! contents again); then the validation of most kinds repeats some of that, with the kind's rule
//! for names and a stricter rule for finalizers. Each check reports its errors, which is why a bad
//! label is reported four times for a Secret and three times for a Deployment. The table of
//! built-in kinds in `resources` has the checks of each kind.
//!
//! Start at [`MetadataValidation`]; the checks are [`validate_object_meta`] and
//! [`validate_object_meta_update`].
//!
//! Source: `ValidateObjectMeta` and `ValidateObjectMetaUpdate` of apimachinery's `api/validation`.

use serde_json::Value;

use super::immutable::IMMUTABLE;
use super::{content, ip, labels};
use crate::field::{Errors, Field, quote};

/// The limit of all annotations' keys and values together, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;
const MANAGER_LENGTH: usize = 128;
const SUBRESOURCE_LENGTH: usize = 256;

/// The rule for names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// RFC 1123 subdomain, the rule of most kinds.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// RFC 1123 subdomain, with newer messages; a `generateName` is not validated.
    LongName,
    /// Any segment of a path.
    PathSegment,
    /// A segment of a path or nothing: the rule of an object inside of another one.
    OptionalPathSegment,
    /// An IP address in its canonical form.
    IpAddress,
}

/// The rule for the names of finalizers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizers {
    /// Any qualified name.
    Qualified,
    /// A qualified name; without a `/` only the three that the API itself defines.
    Standard,
}

/// A check of the metadata of a changed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataCheck {
    /// The rules of new metadata.
    ObjectMeta,
    /// Checks that immutable fields do not change.
    ObjectMetaUpdate,
}

/// The checks that a kind's own validation makes, in order.
pub type MetadataChecks = &'static [MetadataCheck];

/// No check.
pub const NONE: MetadataChecks = &[];
/// The rules of new metadata.
pub const META: MetadataChecks = &[MetadataCheck::ObjectMeta];
/// Only the check of immutable fields.
pub const META_UPDATE: MetadataChecks = &[MetadataCheck::ObjectMetaUpdate];
/// Both checks, that of immutable fields first.
pub const META_UPDATE_AND_META: MetadataChecks =
    &[MetadataCheck::ObjectMetaUpdate, MetadataCheck::ObjectMeta];
/// Both checks, the rules of new metadata first.
pub const META_AND_META_UPDATE: MetadataChecks =
    &[MetadataCheck::ObjectMeta, MetadataCheck::ObjectMetaUpdate];
/// The rules of new metadata, twice.
pub const META_TWICE: MetadataChecks = &[MetadataCheck::ObjectMeta, MetadataCheck::ObjectMeta];

/// The validation of metadata in a kind's own validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataValidation {
    /// The rule for finalizers.
    pub finalizers: Finalizers,
    /// The checks on create.
    pub on_create: MetadataChecks,
    /// The checks on update.
    pub on_update: MetadataChecks,
    /// The checks on updates of `/status`, and of the other subresources that write the whole
    /// object.
    pub on_status_update: MetadataChecks,
}

impl MetadataValidation {
    /// The validation of most kinds.
    pub const USUAL: MetadataValidation = MetadataValidation {
        finalizers: Finalizers::Standard,
        on_create: META,
        on_update: META_UPDATE,
        on_status_update: META_UPDATE,
    };

    /// Custom resources, and the kinds of API servers other than the core one.
    pub const GENERIC: MetadataValidation =
        MetadataValidation { finalizers: Finalizers::Qualified, ..MetadataValidation::USUAL };

    /// The validation of kinds that leave metadata to the generic layer.
    pub const NOTHING: MetadataValidation = MetadataValidation {
        finalizers: Finalizers::Qualified,
        on_create: NONE,
        on_update: NONE,
        on_status_update: NONE,
    };

    /// Sets the checks on update.
    pub const fn on_update(self, on_update: MetadataChecks) -> MetadataValidation {
        MetadataValidation { on_update, ..self }
    }

    /// Sets the checks on updates of `/status`.
    pub const fn on_status_update(self, on_status_update: MetadataChecks) -> MetadataValidation {
        MetadataValidation { on_status_update, ..self }
    }
}

/// The scope of a kind, and the rule for its names.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// The rule for names.
    pub name: NameRule,
}

/// Validates the metadata of a new object, by the rules of its kind.
pub fn validate_create(
    object: &Field<'_>,
    identity: Identity,
    validation: &MetadataValidation,
    errors: &mut Errors,
) {
    if validation.on_create == NONE {
        return;
    }
    validate_object_meta(object, identity, validation.finalizers, errors);
}

/// Validates a new object as the generic layer does, if the kind reported no error. A kind that
/// validates metadata itself has already reported all of these errors, but that of a `generateName`
/// which its rule for names leaves out.
pub fn validate_create_generic(
    object: &Field<'_>,
    identity: Identity,
    validation: &MetadataValidation,
    errors: &mut Errors,
) {
    let is_repeated = validation.on_create != NONE && identity.name != NameRule::LongName;
    if !is_repeated && errors.is_empty() {
        validate_object_meta(object, generic(identity.namespaced), Finalizers::Qualified, errors);
    }
}

/// Validates the metadata of a changed object: the generic layer's checks, then the kind's own.
pub fn validate_update(
    new: &Field<'_>,
    old: &Field<'_>,
    identity: Identity,
    finalizers: Finalizers,
    checks: MetadataChecks,
    errors: &mut Errors,
) {
    let found_before = errors.len();
    validate_object_meta(new, generic(identity.namespaced), Finalizers::Qualified, errors);
    validate_object_meta_update(new, old, Finalizers::Qualified, errors);
    if errors.len() == found_before {
        // The kind's own checks would repeat the errors of the generic ones; only the stricter ones
        // remain.
        validate_kind(new, identity, finalizers, checks, errors);
        return;
    }
    for check in checks {
        match check {
            MetadataCheck::ObjectMeta => validate_object_meta(new, identity, finalizers, errors),
            MetadataCheck::ObjectMetaUpdate => validate_object_meta_update(new, old, finalizers, errors),
        }
    }
}

/// Runs a kind's own checks of metadata without errors in the generic layer.
fn validate_kind(
    object: &Field<'_>,
    identity: Identity,
    finalizers: Finalizers,
    checks: MetadataChecks,
    errors: &mut Errors,
) {
    let metadata = object.get("metadata");
    for check in checks {
        if *check == MetadataCheck::ObjectMeta {
            validate_names(&metadata, identity.name, errors);
        }
        validate_standard_finalizers(&metadata.get("finalizers"), finalizers, errors);
    }
}

/// Returns the rules of the generic layer, which only requires that the name is a path segment,
/// independent of the kind.
fn generic(namespaced: bool) -> Identity {
    Identity { namespaced, name: NameRule::PathSegment }
}

/// Validates new metadata (`ValidateObjectMeta`); the name has been generated already.
pub fn validate_object_meta(
    object: &Field<'_>,
    identity: Identity,
    finalizers: Finalizers,
    errors: &mut Errors,
) {
    let metadata = object.get("metadata");
    validate_names(&metadata, identity.name, errors);
    validate_namespace(&metadata.get("namespace"), identity.namespaced, errors);
    let generation = metadata.get("generation");
    errors.push_if(generation.int().is_some_and(|g| g < 0), || {
        generation.invalid("must be greater than or equal to 0")
    });
    labels::validate_labels(&metadata.get("labels"), errors);
    validate_annotations(&metadata.get("annotations"), errors);
    validate_owner_references(&metadata.get("ownerReferences"), errors);
    validate_finalizers(&metadata.get("finalizers"), errors);
    validate_managed_fields(&metadata.get("managedFields"), errors);
    validate_standard_finalizers(&metadata.get("finalizers"), finalizers, errors);
}

/// Validates changed metadata (`ValidateObjectMetaUpdate`). The resourceVersion has been checked,
/// and a uid and creationTimestamp that the client omitted have been copied from the stored object.
pub fn validate_object_meta_update(
    new: &Field<'_>,
    old: &Field<'_>,
    finalizers: Finalizers,
    errors: &mut Errors,
) {
    let (new, old) = (new.get("metadata"), old.get("metadata"));
    if old.get("deletionTimestamp").exists() {
        validate_no_new_finalizers(&new.get("finalizers"), &old.get("finalizers"), errors);
    }
    let generation = new.get("generation");
    errors.push_if(generation.int().unwrap_or(0) < old.get("generation").int().unwrap_or(0), || {
        generation.invalid("must not be decremented")
    });
    for (member, absent) in [
        ("name", Value::from("")),
        ("namespace", Value::from("")),
        ("uid", Value::from("")),
        ("creationTimestamp", Value::Null),
        ("deletionTimestamp", Value::Null),
        ("deletionGracePeriodSeconds", Value::Null),
    ] {
        validate_immutable(&new.get(member), &old.get(member), absent, errors);
    }
    labels::validate_labels(&new.get("labels"), errors);
    validate_annotations(&new.get("annotations"), errors);
    validate_owner_references(&new.get("ownerReferences"), errors);
    validate_managed_fields(&new.get("managedFields"), errors);
    validate_standard_finalizers(&new.get("finalizers"), finalizers, errors);
}

/// Validates that a field does not change; `absent` is the value that Go prints for an absent
/// field.
pub fn validate_immutable(new: &Field<'_>, old: &Field<'_>, absent: Value, errors: &mut Errors) {
    errors.push_if(new.value() != old.value(), || {
        new.invalid_value(new.value().cloned().unwrap_or(absent), IMMUTABLE)
    });
}

fn validate_names(metadata: &Field<'_>, rule: NameRule, errors: &mut Errors) {
    let (name, prefix) = (metadata.get("name"), metadata.get("generateName"));
    if !prefix.is_empty() {
        errors.invalid_each(&prefix, generate_name_errors(rule, prefix.str()));
    }
    if !name.is_empty() {
        errors.invalid_each(&name, name_errors(rule, name.str()));
    } else if rule != NameRule::OptionalPathSegment {
        errors.push(name.required("name or generateName is required"));
    }
}

/// Returns the errors in a name.
pub fn name_errors(rule: NameRule, name: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain => content::dns1123_subdomain(name),
        NameRule::LongName => content::long_name(name),
        NameRule::Label => content::dns1123_label(name),
        NameRule::PathSegment | NameRule::OptionalPathSegment => content::path_segment(name),
        NameRule::IpAddress => ip::address(name).into_iter().collect(),
    }
}

/// Returns the errors in a prefix of a name, such as `generateName`, to which a suffix is appended.
pub fn generate_name_errors(rule: NameRule, prefix: &str) -> Vec<String> {
    match rule {
        NameRule::Subdomain | NameRule::Label => name_errors(rule, &without_trailing_dash(prefix)),
        NameRule::PathSegment | NameRule::OptionalPathSegment => content::path_segment_prefix(prefix),
        NameRule::LongName => Vec::new(),
        NameRule::IpAddress => name_errors(rule, prefix),
    }
}

/// Removes a trailing dash, which a prefix may have. kube-apiserver also removes the character
/// before the dash, and so never validates it.
fn without_trailing_dash(prefix: &str) -> String {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let cut = rest.char_indices().next_back().map_or(0, |(i, _)| i);
            format!("{}a", &rest[..cut])
        }
        _ => prefix.to_owned(),
    }
}

fn validate_namespace(namespace: &Field<'_>, namespaced: bool, errors: &mut Errors) {
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(namespace.required("")),
        (true, false) => {
            errors.invalid_each(namespace, content::dns1123_label(namespace.str()));
        }
        (false, false) => errors.push(namespace.forbidden("not allowed on this type")),
        (false, true) => {}
    }
}

/// Validates the metadata of an object template, which may only have labels and annotations.
pub fn validate_template(metadata: &Field<'_>, errors: &mut Errors) {
    // In Go's order of the members of ObjectMeta.
    const FORBIDDEN: [&str; 13] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    validate_annotations(&metadata.get("annotations"), errors);
    labels::validate_labels(&metadata.get("labels"), errors);
    for name in FORBIDDEN {
        let member = metadata.get(name);
        let is_set = match name {
            "deletionGracePeriodSeconds" => member.exists(),
            _ => !member.is_empty() && member.int() != Some(0),
        };
        errors.push_if(is_set, || {
            let printed = if name == "uid" { "uID" } else { name };
            member.with_path(metadata.path().child(printed)).forbidden("cannot be set")
        });
    }
}

/// Validates annotations: keys are qualified names of any case, and the total size is limited.
pub fn validate_annotations(annotations: &Field<'_>, errors: &mut Errors) {
    for (key, _) in annotations.entries() {
        let mistakes = content::qualified_name(&key.to_lowercase());
        errors.extend(mistakes.into_iter().map(|e| annotations.invalid_value(key, e)));
    }
    let size: usize = annotations.entries().map(|(key, value)| key.len() + value.len()).sum();
    errors.push_if(size > ANNOTATIONS_LIMIT, || annotations.too_long(ANNOTATIONS_LIMIT));
}

/// Validates owner references. Errors are reported for the list, not for its elements.
fn validate_owner_references(owners: &Field<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for owner in owners.items() {
        validate_owner_reference(&owner.with_path(owners.path().clone()), errors);
        if !owner.get("controller").bool() {
            continue;
        }
        let this = format!("{}/{}", owner.get("kind").str(), owner.get("name").str());
        match &controller {
            None => controller = Some(this),
            Some(first) => {
                let message = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                let printed = print_list(owners.items().map(|o| print_owner_reference(&o)));
                errors.push(owners.invalid(message).with_bad_value_text(printed));
            }
        }
    }
}

fn validate_owner_reference(owner: &Field<'_>, errors: &mut Errors) {
    let api_version = owner.get("apiVersion");
    let (group, version) = split_api_version(api_version.str());
    errors.push_if(version.is_empty(), || api_version.invalid("version must not be empty"));
    for member in ["kind", "name", "uid"] {
        let member = owner.get(member);
        errors.push_if(member.is_empty(), || member.invalid("must not be empty"));
    }
    if (group, version, owner.get("kind").str()) == ("", "v1", "Event") {
        let mistake = owner.invalid("/v1, Kind=Event is disallowed from being an owner");
        errors.push(mistake.with_bad_value_text(print_owner_reference(owner)));
    }
}

/// Returns the group and version; both empty if the text is neither `version` nor `group/version`.
fn split_api_version(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        None => ("", text),
        Some((_, version)) if version.contains('/') => ("", ""),
        Some(parts) => parts,
    }
}

fn print_owner_reference(owner: &Field<'_>) -> String {
    let required = ["apiVersion", "kind", "name", "uid"]
        .map(|member| format!("{}:{}", quote(member), Value::from(owner.get(member).str())));
    let optional = ["controller", "blockOwnerDeletion"]
        .map(|member| owner.get(member).value().map(|value| format!("{}:{value}", quote(member))));
    let members: Vec<String> = required.into_iter().chain(optional.into_iter().flatten()).collect();
    format!("{{{}}}", members.join(","))
}

fn print_list(elements: impl Iterator<Item = String>) -> String {
    format!("[{}]", elements.collect::<Vec<_>>().join(","))
}

fn validate_finalizers(finalizers: &Field<'_>, errors: &mut Errors) {
    for finalizer in finalizers.items() {
        let name = finalizer.str();
        errors.extend(content::qualified_name(name).into_iter().map(|e| finalizers.invalid_value(name, e)));
    }
    let has = |name| finalizers.items().any(|f| f.str() == name);
    errors.push_if(has("orphan") && has("foregroundDeletion"), || {
        finalizers.invalid("finalizer orphan and foregroundDeletion cannot be both set")
    });
}

fn validate_standard_finalizers(finalizers: &Field<'_>, rule: Finalizers, errors: &mut Errors) {
    if rule == Finalizers::Qualified {
        return;
    }
    for finalizer in finalizers.items() {
        validate_standard_finalizer(&finalizer, errors);
    }
}

/// Reports a finalizer that is neither qualified by a domain nor one of the API's own.
pub fn validate_standard_finalizer(finalizer: &Field<'_>, errors: &mut Errors) {
    let name = finalizer.str();
    let known = name.contains('/') || ["kubernetes", "orphan", "foregroundDeletion"].contains(&name);
    errors.push_if(!known, || {
        finalizer.invalid("name is neither a standard finalizer name nor is it fully qualified")
    });
}

/// Validates that a terminating object gets no new finalizers.
fn validate_no_new_finalizers(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let mut added: Vec<&str> = new.items().map(|f| f.str()).collect();
    added.retain(|name| old.items().all(|f| f.str() != *name));
    added.sort_unstable();
    added.dedup();
    errors.push_if(!added.is_empty(), || {
        let added: Vec<String> = added.iter().map(|name| quote(name)).collect();
        new.forbidden(format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.join(", ")
        ))
    });
}

fn validate_managed_fields(entries: &Field<'_>, errors: &mut Errors) {
    for entry in entries.items() {
        let operation = entry.get("operation");
        errors.push_if(!["Apply", "Update"].contains(&operation.str()), || {
            operation.invalid("must be `Apply` or `Update`")
        });
        let kind = entry.get("fieldsType");
        errors.push_if(!["", "FieldsV1"].contains(&kind.str()), || kind.invalid("must be `FieldsV1`"));
        validate_field_manager(&entry.get("manager"), errors);
        let subresource = entry.get("subresource");
        errors.push_if(subresource.len() > SUBRESOURCE_LENGTH, || subresource.too_long(SUBRESOURCE_LENGTH));
    }
}

/// Validates a field manager's name: short and printable.
pub fn validate_field_manager(manager: &Field<'_>, errors: &mut Errors) {
    errors.push_if(manager.len() > MANAGER_LENGTH, || manager.too_long(MANAGER_LENGTH));
    for (position, c) in manager.str().char_indices() {
        let printable = !c.is_control() && (c == ' ' || !c.is_whitespace());
        errors.push_if(!printable, || {
            manager.invalid(format!("invalid character U+{:04X} (at position {position})", c as u32))
        });
    }
}

#[cfg(test)]
mod tests;
