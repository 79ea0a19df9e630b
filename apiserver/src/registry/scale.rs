//! `/scale`: how many replicas, in one shape for every kind that has replicas.
//!
//! Source: API conventions, "Scale subresource"; autoscaling/v1.

use serde_json::{Value, json};

use super::apply::{decode_struct, unconvertible};
use super::body::RequestBody;
use super::deletion::rfc3339;
use super::write::{Projection, Writing, fit_name, fit_namespace, same_uid};
use super::{Caller, Outcome, Payload, Registry, Target, parse};
use crate::admission::OperationOptions;
use crate::codec::body::Expected;
use crate::field::{Errors, Field, quote};
use crate::fields::apply::ApplyTo;
use crate::fields::manage::FieldManager;
use crate::fields::{entry, manage};
use crate::names::GroupKind;
use crate::object_meta::ObjectMeta;
use crate::patch::{Configuration, Patch};
use crate::request::options::WriteOptions;
use crate::resource_info::{Part, ResourceInfo, Subresource, api_version};
use crate::strategy::{ScalePaths, ScaleStrategy, Strategy};
use crate::validation::metadata::{Finalizers, Identity, NameRule, validate_object_meta};
use crate::{Error, Result};

impl Registry {
    /// Returns the scale of an object, not older than a resourceVersion.
    ///
    /// # Errors
    /// 404, and those of reading at a revision.
    pub async fn get_scale(&self, target: &Target, scale: &Subresource, version: &str) -> Result<Payload> {
        let stored = self.get(&target.info, &target.namespace, &target.name, version).await?;
        let object = target.info.load(parse(&stored)?).await?;
        let value = scale_of(&target.info, &object)?;
        if let Some(paths) = missing_replicas(&target.info, &value) {
            let path = quote(&paths.spec_replicas);
            return Err(Error::Internal(format!("the spec replicas field {path} does not exist")));
        }
        Ok(Payload::Object { value, type_ref: scale.type_ref.clone() })
    }

    /// Handles a PUT, which sets the number of replicas in the body.
    ///
    /// # Errors
    /// 400 and 422 for an invalid Scale, 404, 409, and those of admission.
    pub async fn update_scale(
        &self,
        target: &Target,
        scale: &Subresource,
        body: &RequestBody,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let expected = Expected { group: &scale.group, version: &scale.version, kind: &scale.kind };
        let decoded = body.decode(expected, options.field_validation, caller.warnings);
        let mut object = match decoded {
            Err(_) if target.info.is_custom() => return Err(Error::bad_request(NO_SCALE)),
            _ if target.info.is_custom() && !body.is_of(expected) => {
                return Err(Error::bad_request(NO_SCALE));
            }
            decoded => decoded?,
        };
        caller.audit.log_request_object(&object, &scale.type_ref);
        fit_namespace(target, &mut object)?;
        fit_name(target, &object)?;
        self.rescale(target, scale, options, caller, |current| {
            same_uid(target, &object, current, options.dry_run)?;
            Ok(self.updated(target, object.clone(), current, options, caller))
        })
        .await
    }

    /// Handles a PATCH, which sets the number of replicas that the patched Scale has.
    ///
    /// # Errors
    /// As those of a PUT.
    pub async fn patch_scale(
        &self,
        target: &Target,
        scale: &Subresource,
        patch: &Patch,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let api_version = api_version(&scale.group, &scale.version);
        self.rescale(target, scale, options, caller, |current| {
            let mut present = scale_of(&target.info, current)?;
            let owners = manage::of_scale(&entry::entries_of(current), &api_version);
            present.set_meta("managedFields", entry::write(owners));
            let present = || present.clone();
            let mut new =
                patch.apply(&present, &scale.type_ref, options.field_validation, caller.warnings)?;
            new.set_meta("managedFields", Value::Null);
            fit_namespace(target, &mut new)?;
            keep_uid(target, current.uid(), &new)?;
            Ok(self.updated(target, new, current, options, caller))
        })
        .await
    }

    /// Handles a PATCH with a configuration, which sets the number of replicas in it.
    ///
    /// # Errors
    /// As those of a PUT; 400, 409 and 500 as of any apply.
    pub async fn apply_scale(
        &self,
        target: &Target,
        scale: &Subresource,
        configuration: &Configuration,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let api_version = api_version(&scale.group, &scale.version);
        let to = ApplyTo { type_ref: &scale.type_ref, kind: &scale.kind, versions: None };
        self.rescale(target, scale, options, caller, |current| {
            let now = rfc3339(self.now());
            let applier = FieldManager {
                manager: &options.field_manager,
                api_version: &api_version,
                subresource: SCALE,
                now: &now,
            };
            let parents = entry::entries_of(current);
            let force = options.force == Some(true);
            let entries = manage::of_scale(&parents, &api_version);
            let applied =
                to.apply(&scale_of(&target.info, current)?, &entries, &configuration.object, applier, force)?;
            let new = match scale.type_ref.built_in() {
                Some(id) if applied.changed && !target.info.is_custom() => {
                    decode_struct(id, applied.object, &configuration.object)?
                }
                _ if applied.changed => {
                    let error = format!("request to convert CR to an invalid group/version: {api_version}");
                    return Err(unconvertible(&configuration.object, &error));
                }
                _ => applied.object,
            };
            configuration.validate(options.field_validation, caller.warnings)?;
            keep_uid(target, current.uid(), &new)?;
            let entries = manage::from_scale(parents, applied.entries, &target.info.api_version);
            Ok(Rescaled { scale: new, managed_fields: entry::write(entries) })
        })
        .await
    }

    /// Applies a complete new scale.
    fn updated(
        &self,
        target: &Target,
        scale: Value,
        current: &Value,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Rescaled {
        let writer = FieldManager {
            manager: &manage::manager(&options.field_manager, caller.user_agent),
            api_version: &target.info.api_version,
            subresource: SCALE,
            now: &rfc3339(self.now()),
        };
        let managed_fields = manage::scale(writer, current, replicas(&scale, "/spec/replicas"));
        Rescaled { scale, managed_fields }
    }

    /// Makes a new scale of the present one, and the object follow it.
    async fn rescale(
        &self,
        target: &Target,
        scale: &Subresource,
        options: &WriteOptions,
        caller: Caller<'_>,
        mut make: impl FnMut(&Value) -> Result<Rescaled>,
    ) -> Result<Outcome> {
        let info = &*target.info;
        // The pipeline reports objects that cannot be read or written.
        let projection = Projection {
            subresource: scale,
            project: &|object| scale_of(info, object).unwrap_or_default(),
            restore: &|scale, object| {
                let wanted = replicas(scale, "/spec/replicas");
                match &info.behavior.scale {
                    None => object["spec"]["replicas"] = wanted.into(),
                    Some(paths) => _ = paths.set_spec_replicas(object, wanted),
                }
            },
        };
        let writing = Writing {
            target,
            part: Part::Main,
            caller,
            options: OperationOptions::Write(options),
            is_collection: false,
            projection: Some(&projection),
            // Tracked by the scale's one field, and not as a write to the object.
            field_manager: None,
        };
        let outcome = self
            .modify(writing, None, |current, _| {
                let Rescaled { scale: new, managed_fields } = make(current)?;
                fit_name(target, &new)?;
                let wanted = replicas(&new, "/spec/replicas");
                let mut object = current.clone();
                // Custom resources cannot be written without one.
                if !target.info.is_custom() || !new.resource_version().is_empty() {
                    object.set_meta("resourceVersion", new.resource_version());
                }
                object.set_meta("managedFields", managed_fields);
                match &target.info.behavior.scale {
                    None => {
                        validate(scale, &new)?;
                        object["spec"]["replicas"] = wanted.into();
                    }
                    Some(paths) if wanted == UNSET => {
                        let path = quote(&paths.spec_replicas);
                        return Err(Error::bad_request(format!(
                            "the spec replicas field {path} cannot be empty"
                        )));
                    }
                    // The whole object is validated, its replicas too.
                    Some(paths) => {
                        paths.set_spec_replicas(&mut object, wanted).map_err(Error::bad_request)?
                    }
                }
                Ok(object)
            })
            .await?;
        let mut value = match &outcome.payload {
            Payload::Stored(stored) => scale_of(&target.info, &target.info.load(parse(stored)?).await?)?,
            Payload::Object { value, .. } => scale_of(&target.info, value)?,
            _ => return Err(Error::Internal("a scaled object has no scale".to_owned())),
        };
        // A field that the schema does not have was pruned.
        if missing_replicas(&target.info, &value).is_some() {
            value["spec"] = json!({});
        }
        Ok(Outcome { payload: Payload::Object { value, type_ref: scale.type_ref.clone() }, ..outcome })
    }
}

/// A new scale.
struct Rescaled {
    scale: Value,
    /// The `metadata.managedFields` of the object.
    managed_fields: Value,
}

/// The subresource through which its managers write.
const SCALE: &str = "scale";

/// Rejects a patch that names another uid: it means the scale of another object. For a PUT, the
/// store checks this.
fn keep_uid(target: &Target, uid: &str, new: &Value) -> Result<()> {
    if new.uid().is_empty() || new.uid() == uid {
        return Ok(());
    }
    let detail =
        format!("Precondition failed: UID in precondition: {}, UID in object meta: {uid}", new.uid());
    Err(Error::conflict(&target.info.group_resource.sub("scale"), &target.name, detail))
}

/// Validates a new scale with its metadata, which are not stored. Its `managedFields` are those of
/// the object, and not validated.
fn validate(scale: &Subresource, object: &Value) -> Result<()> {
    let mut errors = Errors::new();
    let mut object = object.clone();
    object.set_meta("managedFields", Value::Null);
    let identity = Identity { namespaced: true, name: NameRule::Subdomain };
    validate_object_meta(&Field::root(&object), identity, Finalizers::Standard, &mut errors);
    ScaleStrategy.validate(&Field::root(&object), &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(&GroupKind::new(&scale.group, &scale.kind), object.name(), errors))
}

fn replicas(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The desired replicas of a custom resource that has none, as long as a patch does not say how
/// many.
const UNSET: i64 = i32::MIN as i64;

/// The error for a body that is no Scale, as that of the handler of custom resources.
const NO_SCALE: &str = "no kind is registered for the type v1.Scale in scheme \"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781\"";

/// Returns the paths of a custom resource that has a Scale without desired replicas.
fn missing_replicas<'i>(info: &'i ResourceInfo, scale: &Value) -> Option<&'i ScalePaths> {
    info.behavior.scale.as_deref().filter(|_| scale["spec"]["replicas"] == UNSET)
}

/// Returns the scale of a workload, or of a custom resource.
fn scale_of(info: &ResourceInfo, object: &Value) -> Result<Value> {
    let Some(paths) = &info.behavior.scale else {
        let selector = selector_text(object.pointer("/spec/selector"));
        let (wanted, present) = (replicas(object, "/spec/replicas"), replicas(object, "/status/replicas"));
        return Ok(scale(object, wanted, present, &selector));
    };
    let wanted = paths.spec_replicas(object).map_err(Error::Unclassified)?;
    let present = paths.status_replicas(object).map_err(Error::Unclassified)?;
    let selector = paths.selector(object).map_err(Error::Unclassified)?;
    Ok(scale(object, wanted.unwrap_or(UNSET), present.unwrap_or(0), selector.unwrap_or_default()))
}

fn scale(object: &Value, wanted: i64, present: i64, selector: &str) -> Value {
    let mut metadata = json!({});
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.meta(member) {
            metadata[member] = value.clone();
        }
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {},
        "status": {"replicas": present},
    });
    if wanted != 0 {
        scale["spec"]["replicas"] = wanted.into();
    }
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

/// Formats a label selector (or the plain map of a ReplicationController) in its string form,
/// sorted by key.
fn selector_text(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return String::new() };
    let root = Field::root(selector);
    let structured = root.get("matchLabels").exists() || root.get("matchExpressions").exists();
    let labels = if structured { root.get("matchLabels") } else { root.clone() };
    let mut terms: Vec<(String, String)> =
        labels.entries().map(|(key, value)| (key.to_owned(), format!("{key}={}", value.str()))).collect();
    for expression in root.get("matchExpressions").items() {
        let key = expression.get("key").str();
        let mut values: Vec<&str> = expression.get("values").items().map(|v| v.str()).collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push((
            key.to_owned(),
            match expression.get("operator").str() {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "DoesNotExist" => format!("!{key}"),
                _ => key.to_owned(),
            },
        ));
    }
    terms.sort_by(|a, b| a.0.cmp(&b.0));
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_as_text() {
        for (selector, want) in [
            (json!({"b": "2", "a": "1"}), "a=1,b=2"),
            (json!({"matchLabels": {"app": "a"}}), "app=a"),
            (
                json!({"matchLabels": {"b": "1"}, "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]}),
                "a in (x,y),b=1,!c",
            ),
        ] {
            assert_eq!(selector_text(Some(&selector)), want);
        }
    }
}
