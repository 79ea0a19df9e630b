//! CustomResourceDefinition: everything but its schemas, which are validated where custom resources
//! are served.

use std::collections::HashSet;

use coracle_apimachinery::conditions;
use coracle_apimachinery::field::{Errors, Field, Path, is_printable, quote};
use coracle_apimachinery::names::CLEANUP;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::strategy::defaulting::{Object, fill, member, object_at};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::custom_resource_schema::{self, validate_selectable_fields};
use coracle_apimachinery::validation::immutable::immutable_text;
use coracle_apimachinery::validation::{content, formats, printed, webhook};
use serde_json::{Value, json};

use super::internal;

const VERSIONS: &str = "[apiextensions.CustomResourceDefinitionVersion";
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
const MAX_DEPRECATION_WARNING: usize = 256;

/// Groups of the community require an approval.
const PROTECTED_GROUPS: [&str; 2] = ["k8s.io", "kubernetes.io"];
const APPROVAL: &str = "api-approved.kubernetes.io";
const APPROVAL_HELP: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// The strategy of CustomResourceDefinition.
pub struct CustomResourceDefinitionStrategy;

impl Strategy for CustomResourceDefinitionStrategy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object_at(object, "spec") else { return };
        if let Some(names) = member(spec, "names").as_object_mut() {
            default_names(names);
        }
        fill(spec, [("conversion", json!({"strategy": "None"}))]);
        // As the conversion to the internal type and back, which has no webhook without members.
        if let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut)
            && conversion.get("webhook").and_then(Value::as_object).is_some_and(serde_json::Map::is_empty)
        {
            conversion.remove("webhook");
        }
        let service = spec
            .get_mut("conversion")
            .and_then(|conversion| conversion.pointer_mut("/webhook/clientConfig/service")?.as_object_mut());
        if let Some(service) = service {
            fill(service, [("port", json!(443))]);
        }
        default_stored_versions(object);
    }

    fn prepare_for_create(&self, object: &mut Value, _: &Context<'_>) {
        object["status"] = json!({"acceptedNames": {"kind": "", "plural": ""}});
        store_storage_version(object);
    }

    fn prepare_for_update(&self, object: &mut Value, _: &Value, _: &Context<'_>) {
        store_storage_version(object);
    }

    /// Sets the default once more: a PUT of the status may have come without the versions.
    fn prepare_for_status_update(&self, object: &mut Value, _: &Value, _: &Context<'_>) {
        default_stored_versions(object);
    }

    fn begin_deletion(&self, object: &Value, now: &str) -> Option<Value> {
        let mut marked = object.clone();
        marked.set_meta("deletionTimestamp", now);
        let mut finalizers: Vec<String> = object.finalizers().into_iter().map(str::to_owned).collect();
        if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
            finalizers.push(CLEANUP.to_owned());
        }
        marked.set_finalizers(finalizers);
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        conditions::set(&mut marked["status"], "Terminating", true, "InstanceDeletionPending", message, now);
        Some(marked)
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let (plural, group) = (object.walk("spec.names.plural"), object.walk("spec.group"));
        for name in ["metadata.generateName", "metadata.name"].map(|name| object.walk(name)) {
            let misnamed = name.str() != format!("{}.{}", plural.str(), group.str());
            errors.push_if(misnamed && !name.is_empty(), || {
                name.invalid("must be spec.names.plural+\".\"+spec.group")
            });
        }
        validate_definition(object, None, errors);
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_definition(object, Some(old), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        validate_names(&object.walk("status.acceptedNames"), errors);
    }

    fn warnings(&self, object: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        for version in object.walk("spec.versions").items() {
            warn_of_formats(&version.walk("schema.openAPIV3Schema"), &mut warnings);
        }
        warnings
    }
}

/// Formats that are not validated. Each is named once.
fn warn_of_formats(schema: &Field<'_>, warnings: &mut Vec<String>) {
    let format = schema.get("format");
    if !format.is_empty() && !formats::is_known(format.str(), schema.get("type").str()) {
        let warning = format!("unrecognized format {}", quote(format.str()));
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    for name in ["items", "not", "additionalProperties"] {
        let inner = schema.get(name);
        if inner.value().is_some_and(Value::is_object) {
            warn_of_formats(&inner, warnings);
        }
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        schema.get(name).items().for_each(|schema| warn_of_formats(&schema, warnings));
    }
    schema.get("properties").entries().for_each(|(_, property)| warn_of_formats(&property, warnings));
}

/// Reports the errors of the schemas of all versions, and of the fields that refer to them. A
/// definition that was stored with invalid ones, before they were validated, keeps them.
fn report_schema_errors(found: Errors, old: Option<&Field<'_>>, errors: &mut Errors) {
    if found.is_empty() {
        return;
    }
    if let Some(old) = old.and_then(|old| old.get("spec").value().cloned()) {
        let mut known = Errors::new();
        find_schema_errors(&Field::root(&internal::spec(&old)), &mut known);
        if !known.is_empty() {
            return;
        }
    }
    errors.extend(found);
}

fn find_schema_errors(spec: &Field<'_>, errors: &mut Errors) {
    let shared = spec.walk("validation.openAPIV3Schema");
    let shared_status = spec.walk("subresources.status");
    let versions = spec.get("versions");
    for version in versions.items() {
        let schema = version.walk("schema.openAPIV3Schema");
        let has_status = shared_status.exists() || version.walk("subresources.status").exists();
        custom_resource_schema::validate(&schema, has_status, errors);
        let fields = version.get("selectableFields");
        if schema.exists() {
            validate_selectable_fields(&fields, &schema, errors);
        } else {
            let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
            errors.push_if(!fields.is_empty(), || fields.invalid_value("", detail));
        }
    }
    let has_status = shared_status.exists()
        || versions.items().any(|version| version.walk("subresources.status").exists());
    custom_resource_schema::validate(&shared, has_status, errors);
    let fields = spec.get("selectableFields");
    if spec.get("validation").exists() {
        validate_selectable_fields(&fields, &shared, errors);
    } else {
        let detail = "may only be set when validations.schema is included";
        errors.push_if(!fields.is_empty(), || fields.invalid_value("", detail));
    }
}

fn default_names(names: &mut Object) {
    let empty = |names: &Object, name: &str| names.get(name).is_none_or(|value| value == "");
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
    if kind.is_empty() {
        return;
    }
    if empty(names, "singular") {
        names.insert("singular".into(), kind.to_lowercase().into());
    }
    if empty(names, "listKind") {
        names.insert("listKind".into(), format!("{kind}List").into());
    }
}

/// Sets the stored versions to the storage version if there are none.
fn default_stored_versions(object: &mut Value) {
    let none = |stored: &Value| stored.as_array().is_none_or(Vec::is_empty);
    if object.pointer("/status/storedVersions").is_none_or(none) {
        store_storage_version(object);
    }
}

/// Adds the storage version to the stored versions.
fn store_storage_version(object: &mut Value) {
    let versions = object.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let mut storage = versions.filter(|version| version["storage"] == true).map(|version| &version["name"]);
    let Some(storage) = storage.next().cloned() else { return };
    let Some(status) = object_at(object, "status") else { return };
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if stored.is_null() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut()
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
}

fn validate_definition(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let reported = object.get("spec");
    let spec = internal::spec(reported.value().unwrap_or(&Value::Null));
    let spec = Field::at(Some(&spec), reported.path().clone());
    let mut of_schemas = Errors::new();
    find_schema_errors(&spec, &mut of_schemas);
    validate_spec(&spec, old, &of_schemas, errors);
    report_schema_errors(of_schemas, old, errors);
    if let Some(old) = old {
        let established = old.walk("status.conditions").items().any(|condition| {
            condition.get("type").str() == "Established" && condition.get("status").str() == "True"
        });
        if established {
            for name in ["scope", "names.kind"] {
                immutable_text(&spec.walk(name), &old.get("spec").walk(name), errors);
            }
        }
        for name in ["group", "names.plural"] {
            immutable_text(&spec.walk(name), &old.get("spec").walk(name), errors);
        }
    }
    validate_names(&object.walk("status.acceptedNames"), errors);
    validate_stored_versions(&object.walk("status.storedVersions"), &spec.get("versions"), errors);
    validate_approval(object, old, errors);
    let preserve = spec.get("preserveUnknownFields");
    let preserved = old.is_some_and(|old| old.walk("spec.preserveUnknownFields").bool());
    errors.push_if(preserve.bool() && !preserved, || {
        preserve.invalid("cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead")
    });
}

/// Validates a spec.
///
/// - `of_schemas`: the errors of the schemas
fn validate_spec(spec: &Field<'_>, old: Option<&Field<'_>>, of_schemas: &Errors, errors: &mut Errors) {
    validate_group(&spec.get("group"), errors);
    let scope = spec.get("scope");
    match scope.str() {
        "" => errors.push(scope.required("")),
        "Cluster" | "Namespaced" => {}
        _ => errors.push(scope.not_supported(&["Cluster", "Namespaced"])),
    }
    validate_schemas_exist(spec, old, errors);
    let preserve = spec.get("preserveUnknownFields");
    errors.push_if(preserve.bool() && has_defaults(spec), || {
        preserve.invalid("must be false in order to use defaults in the schema")
    });
    validate_versions(spec, errors);
    validate_schema_rules(spec, old, of_schemas, errors);
    for name in ["plural", "singular", "kind", "listKind"] {
        let name = spec.get("names").get(name);
        errors.push_if(name.is_empty(), || name.required(""));
    }
    validate_names(&spec.get("names"), errors);
    validate_subresources(&spec.get("subresources"), errors);
    for column in spec.get("additionalPrinterColumns").items() {
        validate_column(&column, errors);
    }
    validate_conversion(spec, old, errors);
}

fn validate_group(group: &Field<'_>, errors: &mut Errors) {
    let found = content::dns1123_subdomain(group.str());
    if group.is_empty() {
        errors.push(group.required(""));
    } else if !found.is_empty() {
        errors.push(group.invalid(found.join(",")));
    } else if !group.str().contains('.') {
        errors.push(group.invalid("should be a domain with at least one dot"));
    }
}

/// Requires a schema in every version, unless the definition was created before schemas were
/// required.
fn validate_schemas_exist(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let without = |version: &Field<'_>| !version.walk("schema.openAPIV3Schema").exists();
    let tolerated = old.is_some_and(|old| old.walk("spec.versions").items().any(|v| without(&v)));
    if spec.walk("validation.openAPIV3Schema").exists() || tolerated {
        return;
    }
    for version in spec.get("versions").items() {
        errors.push_if(without(&version), || version.walk("schema.openAPIV3Schema").required(""));
    }
}

fn has_defaults(spec: &Field<'_>) -> bool {
    let versions = spec.get("versions").items().map(|version| version.walk("schema.openAPIV3Schema"));
    let mut schemas = versions.chain([spec.walk("validation.openAPIV3Schema")]);
    schemas.any(|schema| schema.value().is_some_and(custom_resource_schema::has_defaults))
}

/// Validates the rules of schemas, if these are new.
fn validate_schema_rules(
    spec: &Field<'_>,
    old: Option<&Field<'_>>,
    of_schemas: &Errors,
    errors: &mut Errors,
) {
    let old = old.and_then(|old| old.get("spec").value().map(internal::spec));
    let old = Field::at(old.as_ref(), spec.path().clone());
    let is_old = |schema: &Field<'_>| {
        let mut olds = old.get("versions").items().map(|version| version.walk("schema.openAPIV3Schema"));
        old.walk("validation.openAPIV3Schema").value() == schema.value()
            || olds.any(|old| old.value() == schema.value())
    };
    let versions = spec.get("versions").items().map(|version| version.walk("schema.openAPIV3Schema"));
    for schema in versions.chain([spec.walk("validation.openAPIV3Schema")]) {
        // Where a schema is wrong, its rules are not looked at.
        let is_sound = || of_schemas.is_empty() || custom_resource_schema::is_sound(&schema);
        if schema.exists() && !is_old(&schema) && is_sound() {
            super::rules::validate_rules(&schema, of_schemas, errors);
        }
    }
}

fn validate_versions(spec: &Field<'_>, errors: &mut Errors) {
    let versions = spec.get("versions");
    let mut seen = HashSet::new();
    let mut unique = true;
    for version in versions.items() {
        let name = version.get("name");
        unique &= seen.insert(name.str());
        let found = content::dns1035_label(name.str());
        errors.push_if(!found.is_empty(), || name.invalid(found.join(",")));
        validate_deprecation(&version, errors);
        validate_subresources(&version.get("subresources"), errors);
        for column in version.get("additionalPrinterColumns").items() {
            validate_column(&column, errors);
        }
    }
    errors.push_if(!unique, || printed::invalid(&versions, VERSIONS, "must contain unique version names"));
    let stored = versions.items().filter(|version| version.get("storage").bool()).count();
    errors.push_if(stored != 1, || {
        printed::invalid(&versions, VERSIONS, "must have exactly one version marked as storage version")
    });
    let version = spec.get("version");
    let found = content::dns1035_label(version.str());
    errors.push_if(!version.is_empty() && !found.is_empty(), || version.invalid(found.join(",")));
}

fn validate_deprecation(version: &Field<'_>, errors: &mut Errors) {
    let warning = version.get("deprecationWarning");
    if !warning.exists() {
        return;
    }
    if !version.get("deprecated").bool() {
        return errors.push(warning.invalid("can only be set for deprecated versions"));
    }
    errors.push_if(warning.len() > MAX_DEPRECATION_WARNING, || {
        warning.invalid(format!("must be <= {MAX_DEPRECATION_WARNING} characters long"))
    });
    errors.push_if(warning.is_empty(), || warning.invalid("must not be an empty string"));
    if let Some((index, _)) = warning.str().char_indices().find(|(_, c)| !is_printable(*c)) {
        errors.push(warning.invalid(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {index}"
        )));
    }
}

fn validate_names(names: &Field<'_>, errors: &mut Errors) {
    for name in ["plural", "singular"] {
        validate_label(&names.get(name), errors);
    }
    let (kind, list_kind) = (names.get("kind"), names.get("listKind"));
    for name in [&kind, &list_kind] {
        let found = content::dns1035_label(&name.str().to_lowercase());
        errors.push_if(!name.is_empty() && !found.is_empty(), || {
            let detail = format!("may have mixed case, but should otherwise match: {}", found.join(","));
            name.invalid(detail)
        });
    }
    for name in names.get("shortNames").items() {
        validate_list_name(&name, errors);
    }
    errors.push_if(!kind.is_empty() && kind.str() == list_kind.str(), || {
        list_kind.invalid("kind and listKind may not be the same")
    });
    for category in names.get("categories").items() {
        validate_list_name(&category, errors);
    }
}

fn validate_label(name: &Field<'_>, errors: &mut Errors) {
    if !name.is_empty() {
        validate_list_name(name, errors);
    }
}

fn validate_list_name(name: &Field<'_>, errors: &mut Errors) {
    let found = content::dns1035_label(name.str());
    errors.push_if(!found.is_empty(), || name.invalid(found.join(",")));
}

fn validate_subresources(subresources: &Field<'_>, errors: &mut Errors) {
    let scale = subresources.get("scale");
    if !scale.exists() {
        return;
    }
    for (name, roots, required) in [
        ("specReplicasPath", &[".spec."][..], true),
        ("statusReplicasPath", &[".status."][..], true),
        ("labelSelectorPath", &[".spec.", ".status."][..], false),
    ] {
        let path = scale.get(name);
        if path.is_empty() {
            errors.push_if(required, || path.required(""));
        } else if validate_json_path(&path, errors) && !roots.iter().any(|root| path.str().starts_with(root))
        {
            let under = match roots {
                [root] => root.trim_end_matches('.').to_owned(),
                _ => "either .spec or .status".to_owned(),
            };
            errors.push(path.invalid(format!("should be a json path under {under}")));
        }
    }
}

fn validate_json_path(path: &Field<'_>, errors: &mut Errors) -> bool {
    let simple = path.str().starts_with('.');
    errors.push_if(!simple, || path.invalid("must be a simple json path starting with ."));
    simple
}

fn validate_column(column: &Field<'_>, errors: &mut Errors) {
    let (name, kind, format) = (column.get("name"), column.get("type"), column.get("format"));
    errors.push_if(name.is_empty(), || name.required(""));
    let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
    if kind.is_empty() {
        errors.push(kind.required(detail));
    } else {
        errors.push_if(!COLUMN_TYPES.contains(&kind.str()), || kind.invalid(detail));
    }
    errors.push_if(!format.is_empty() && !COLUMN_FORMATS.contains(&format.str()), || {
        format.invalid(format!("must be one of {}", COLUMN_FORMATS.join(",")))
    });
    let path = column.get("jsonPath").with_path(column.path().child("JSONPath"));
    if path.is_empty() {
        errors.push(path.required(""));
    } else {
        validate_json_path(&path, errors);
    }
}

fn validate_conversion(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let conversion = spec.get("conversion");
    let (strategy, client) = (conversion.get("strategy"), conversion.get("webhookClientConfig"));
    let versions = conversion.get("conversionReviewVersions");
    errors.push_if(strategy.str() != "None" && spec.get("preserveUnknownFields").bool(), || {
        strategy.invalid("must be None if spec.preserveUnknownFields is true")
    });
    match strategy.str() {
        "" => errors.push(strategy.required("")),
        "None" | "Webhook" => {}
        _ => errors.push(strategy.not_supported(&["None", "Webhook"])),
    }
    if strategy.str() == "Webhook" {
        if client.exists() {
            webhook::validate_client_config(&client, errors);
        } else {
            errors.push(client.required("required when strategy is set to Webhook"));
        }
        let old = old.map(|old| old.walk("spec.conversion.webhook.conversionReviewVersions"));
        validate_review_versions(&versions, old.as_ref(), errors);
        return;
    }
    for member in [client, versions] {
        errors.push_if(!member.is_empty(), || {
            member.forbidden("should not be set when strategy is not set to Webhook")
        });
    }
}

fn validate_review_versions(versions: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    if versions.is_empty() {
        return errors.push(versions.required(""));
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if !seen.insert(version.str()) {
            errors.push(version.invalid("duplicate version"));
            continue;
        }
        errors.invalid_each(&version, content::dns1035_label(version.str()));
    }
    let known =
        |versions: &Field<'_>| versions.items().any(|version| REVIEW_VERSIONS.contains(&version.str()));
    let tolerated = old.is_some_and(|old| !old.is_empty() && !known(old));
    errors.push_if(!tolerated && !known(versions), || {
        versions.invalid(format!("must include at least one of {}", REVIEW_VERSIONS.join(", ")))
    });
}

fn validate_stored_versions(stored: &Field<'_>, versions: &Field<'_>, errors: &mut Errors) {
    if stored.is_empty() {
        let shown = stored.value().cloned().unwrap_or_default();
        return errors.push(stored.invalid_value(shown, "must have at least one stored version"));
    }
    let mut known: HashSet<&str> = stored.items().map(|name| name.str()).collect();
    for version in versions.items() {
        let name = version.get("name").str();
        // Only the first of several versions of one name is found.
        let found = known.remove(name);
        errors.push_if(version.get("storage").bool() && !found, || {
            stored.invalid(format!("must have the storage version {name}"))
        });
    }
    let served: HashSet<&str> = versions.items().map(|version| version.get("name").str()).collect();
    for name in stored.items() {
        errors.push_if(!served.contains(name.str()), || {
            name.invalid(format!(
                "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions",
                name.str()
            ))
        });
    }
}

/// The approval annotation of a protected group.
#[derive(PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Approved,
    Invalid,
}

impl Approval {
    fn of(object: &Field<'_>) -> Approval {
        let reported = object.walk("metadata.annotations").get(APPROVAL);
        let (scheme, rest) = reported.str().split_once("://").unwrap_or(("", ""));
        match reported.str() {
            "" => Approval::Missing,
            text if text.starts_with("unapproved") => Approval::Bypassed,
            _ if !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/') => Approval::Approved,
            _ => Approval::Invalid,
        }
    }
}

fn validate_approval(object: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let group = object.walk("spec.group").str();
    let protected = PROTECTED_GROUPS
        .iter()
        .any(|known| group.strip_suffix(known).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    let approval = Approval::of(object);
    if !protected || old.is_some_and(|old| Approval::of(old) == approval) {
        return;
    }
    let annotations = object.walk("metadata.annotations");
    let path = Path::of("metadata.annotations").key(APPROVAL);
    let reported = annotations.get(APPROVAL).with_path(path);
    let must = format!("protected groups must have approval annotation {}", quote(APPROVAL));
    match approval {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => errors.push(reported.required(format!("{must}, {APPROVAL_HELP}"))),
        Approval::Invalid => errors.push(reported.invalid(format!(
            "{must} with either a URL or a reason starting with \"unapproved\", {APPROVAL_HELP}"
        ))),
    }
}
