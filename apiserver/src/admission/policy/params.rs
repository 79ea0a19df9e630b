//! The parameters that a binding names.
//!
//! Source: `CollectParams` of `k8s.io/apiserver/pkg/admission/plugin/policy/generic`.

use std::sync::Arc;

use serde_json::Value;

use super::definition::{Binding, Policy};
use crate::admission::AdmissionAttributes;
use crate::cluster::Cluster;
use crate::names::GroupResource;
use crate::resource_info::{ResourceInfo, ResourceTable};
use crate::selector::LabelSelector;

/// Returns the resource of a policy's parameters; None if it has none.
///
/// # Errors
/// The text of the error in the policy. The failure policy decides about its effect.
pub fn resource(policy: &Policy, resources: &ResourceTable) -> Result<Option<Arc<ResourceInfo>>, String> {
    let Some((api_version, kind)) = &policy.param_kind else { return Ok(None) };
    resources.of_kind(api_version, kind).cloned().map(Some).ok_or_else(|| {
        let core = if api_version.contains('/') { "" } else { "/" };
        format!(
            "failed to configure policy: failed to find resource referenced by paramKind: '{core}{api_version}, Kind={kind}'"
        )
    })
}

/// Returns the parameters for a request. The policy is evaluated once for each of them; null stands
/// for no parameter.
///
/// - `info`: the resource of the policy's parameters
///
/// # Errors
/// The text of the error in the policy or binding. The failure policy decides about its effect.
pub async fn collect(
    info: Option<&ResourceInfo>,
    binding: &Binding,
    attributes: &AdmissionAttributes<'_>,
    cluster: &dyn Cluster,
) -> Result<Vec<Value>, String> {
    let (Some(info), Some(reference)) = (info, &binding.param_ref) else {
        return Ok(vec![Value::Null]);
    };
    let text = |name: &str| reference[name].as_str().unwrap_or_default();
    let namespace = match (info.namespaced, text("namespace"), attributes.namespace) {
        (false, "", _) => "",
        (false, ..) => {
            return Err("failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "", "") => {
            return Err("failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".to_owned());
        }
        (true, "", of_request) => of_request,
        (true, named, _) => named,
    };
    let resource = GroupResource::new(&info.group, &info.plural);
    let found = match text("name") {
        "" => {
            let selector = LabelSelector::from_object(reference.get("selector"));
            let selects = |object: &Value| {
                selector
                    .as_ref()
                    .is_some_and(|selector| selector.matches_map(object["metadata"].get("labels")))
            };
            let mut listed = cluster.list(&resource, namespace).map_err(|error| error.to_string())?;
            listed.retain(selects);
            listed
        }
        name => {
            let found = cluster.get(&resource, namespace, name).map_err(|error| error.to_string())?;
            found.into_iter().collect()
        }
    };
    if found.is_empty() {
        return match text("parameterNotFoundAction") {
            "Allow" => Ok(Vec::new()),
            _ => Err("failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()),
        };
    }
    let mut params = Vec::with_capacity(found.len());
    for object in found {
        params.push(info.show_one(object).await.map_err(|error| error.to_string())?);
    }
    Ok(params)
}
