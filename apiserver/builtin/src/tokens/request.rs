//! `serviceaccounts/token`: a token for an account, bound to an object or not.

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::codec::body::Expected;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::names::{GroupKind, GroupResource};
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::access::jwt::SigningKey;
use coracle_apiserver::fields::manage::{self, FieldManager};
use coracle_apiserver::registry::deletion::rfc3339;
use coracle_apiserver::registry::{Outcome, Payload, Registry, Target};
use coracle_apiserver::serve::ActionRequest;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::claims::{BoundObject, Request, claims};

const HOUR: i64 = 3600;
const MIN_LIFETIME: i64 = 600;
const MAX_LIFETIME: i64 = 1 << 32;
/// The lifetime that the ServiceAccount plugin asks for; see [`is_extended`].
const PROJECTED_LIFETIME: i64 = 3607;
/// The lifetime of a token that is extended: a year.
const EXTENDED_LIFETIME: i64 = 365 * 24 * HOUR;

/// The annotation of the audit event with the id of the token that was issued.
const ISSUED_CREDENTIAL_ID: &str = "authentication.kubernetes.io/issued-credential-id";

/// Handles a request to `serviceaccounts/NAME/token`.
pub fn request_token(request: ActionRequest<'_>) -> BoxFuture<'_, Result<Outcome>> {
    Box::pin(perform(request))
}

/// Signs a token of a ServiceAccount, bound to an object if the request asks for that (KEP-1205).
///
/// # Errors
/// 404 for an account or object that is not there, 422 for a TokenRequest that is invalid, 409 for
/// another uid.
async fn perform(request: ActionRequest<'_>) -> Result<Outcome> {
    let subresource = request.subresource.ok_or(Error::MethodNotAllowed)?;
    let expected =
        Expected { group: &subresource.group, version: &subresource.version, kind: &subresource.kind };
    let body = request.decode(expected)?;
    let ActionRequest { registry, signing_key: key, target, options, caller, .. } = request;
    let (target, mut request) = (&target, body);
    if request["spec"]["expirationSeconds"].is_null() {
        request["spec"]["expirationSeconds"] = HOUR.into();
    }
    let writer = FieldManager {
        manager: &manage::manager(&options.field_manager, caller.user_agent),
        api_version: &format!("{}/{}", subresource.group, subresource.version),
        subresource: &subresource.name,
        now: &rfc3339(registry.now()),
    };
    let managed_fields = manage::of_new(&subresource.type_ref, writer, &request);
    request.set_meta("managedFields", managed_fields);
    registry.admit_subresource(target, &subresource.name, &mut request, caller, options).await?;
    let kind = GroupKind::new(&subresource.group, &subresource.kind);
    fit(&request, target, &kind)?;
    let info = &target.info;
    let account = Cluster::get(registry, &info.group_resource, &target.namespace, &target.name)?
        .ok_or_else(|| Error::not_found(&info.group_resource, &target.name))?;
    if !request.uid().is_empty() && request.uid() != account.uid() {
        let what = GroupResource::new(&kind.group, &kind.kind);
        let detail = format!(
            "the UID in the token request ({}) does not match the UID of the service account ({})",
            request.uid(),
            account.uid()
        );
        return Err(Error::conflict(&what, &target.name, detail));
    }
    complete(&mut request, &account, key);
    validate(&request, &kind)?;
    let bound = bound_object(registry, target, &request)?;
    let node = match &bound {
        Some((BoundObject::Pod, pod)) => node_of(registry, pod)?,
        _ => None,
    };
    let now = registry.now();
    let lifetime = request["spec"]["expirationSeconds"].as_i64().unwrap_or(HOUR);
    let audiences: Vec<String> =
        serde_json::from_value(request["spec"]["audiences"].clone()).unwrap_or_default();
    let is_of_pod = matches!(bound, Some((BoundObject::Pod, _)));
    let is_extended = is_of_pod && is_extended(lifetime, &audiences, key.issuers());
    let claims = claims(&Request {
        issuer: key.issuer(),
        account: &account,
        bound: bound.as_ref().map(|(kind, object)| (*kind, object)),
        node: node.as_ref().map(|(name, uid)| (name.as_str(), uid.as_str())),
        audiences: &audiences,
        issued: now.as_second(),
        lifetime: if is_extended { EXTENDED_LIFETIME } else { lifetime },
        warn_after: is_extended.then_some(lifetime),
    });
    let token = key.sign(&claims).ok_or_else(|| Error::Internal("failed to generate token".to_owned()))?;
    let id = claims["jti"].as_str().unwrap_or_default();
    caller.audit.add_annotation(ISSUED_CREDENTIAL_ID, format!("JTI={id}"));
    let expires = now.checked_add(jiff::SignedDuration::from_secs(lifetime)).unwrap_or(now);
    request.set_meta("creationTimestamp", rfc3339(now));
    request["status"] = json!({"token": token, "expirationTimestamp": rfc3339(expires)});
    let payload = Payload::Object { value: request, type_ref: subresource.type_ref.clone() };
    Ok(Outcome { code: 201, payload })
}

/// Returns whether the token of a pod, which is for this server alone, is valid for longer than it
/// was asked for: a program that reads its token once, as before tokens expired, is served for a
/// year. The status has the requested time, so that kubelets replace the file in time.
///
/// Source: `--service-account-extend-token-expiration`, which is true by default.
fn is_extended(lifetime: i64, audiences: &[String], own: &[String]) -> bool {
    lifetime == PROJECTED_LIFETIME && audiences.iter().all(|audience| own.contains(audience))
}

/// Returns the object to which the token is to be bound.
fn bound_object(
    registry: &Registry,
    target: &Target,
    request: &Value,
) -> Result<Option<(BoundObject, Value)>> {
    let reference = Field::root(request).walk("spec.boundObjectRef");
    if !reference.exists() {
        return Ok(None);
    }
    let (api_version, kind, name) =
        (reference.get("apiVersion").str(), reference.get("kind").str(), reference.get("name").str());
    let in_core = !api_version.contains('/');
    let (bound, plural, namespace) = match kind {
        "Pod" if in_core => (BoundObject::Pod, "pods", target.namespace.as_str()),
        "Secret" if in_core => (BoundObject::Secret, "secrets", target.namespace.as_str()),
        "Node" if in_core => (BoundObject::Node, "nodes", ""),
        _ => {
            let version = if in_core { format!("/{api_version}") } else { api_version.to_owned() };
            let detail = format!("cannot bind token to object of type {version}, Kind={kind}");
            return Err(Error::bad_request(detail));
        }
    };
    if name.is_empty() {
        return Err(Error::bad_request("Name parameter required."));
    }
    let resource = GroupResource::new("", plural);
    let object = Cluster::get(registry, &resource, namespace, name)?
        .ok_or_else(|| Error::not_found(&resource, name))?;
    let account = object.pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or("");
    if bound == BoundObject::Pod && account != target.name {
        return Err(Error::bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
            coracle_apimachinery::field::quote(&target.name)
        )));
    }
    let uid = reference.get("uid").str();
    if !uid.is_empty() && uid != object.uid() {
        let detail = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Error::conflict(&GroupResource::new("", kind), name, detail));
    }
    Ok(Some((bound, object)))
}

/// Returns the name and uid of a pod's node. The node itself may be missing.
fn node_of(registry: &Registry, pod: &Value) -> Result<Option<(String, String)>> {
    let name = pod.pointer("/spec/nodeName").and_then(Value::as_str).filter(|n| !n.is_empty());
    let Some(name) = name else { return Ok(None) };
    let node = Cluster::get(registry, &GroupResource::new("", "nodes"), "", name)?;
    Ok(Some((name.to_owned(), node.map(|n| n.uid().to_owned()).unwrap_or_default())))
}

/// Checks that the body names the account of the path.
fn fit(request: &Value, target: &Target, kind: &GroupKind) -> Result<()> {
    let said = Field::root(request).walk("metadata.name");
    if said.is_empty() || said.str() == target.name {
        return Ok(());
    }
    let mut errors = Errors::new();
    errors.push(said.invalid("must match the service account name if specified"));
    Err(Error::invalid(kind, &target.name, errors))
}

/// Fills in what the request leaves open.
fn complete(request: &mut Value, account: &Value, key: &SigningKey) {
    for member in ["name", "namespace", "uid"] {
        request.set_meta(member, account.meta_str(member));
    }
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!(key.issuers());
    }
}

fn validate(request: &Value, kind: &GroupKind) -> Result<()> {
    let mut errors = Errors::new();
    let lifetime = Field::root(request).walk("spec.expirationSeconds");
    let seconds = lifetime.int().unwrap_or(HOUR);
    errors.push_if(seconds < MIN_LIFETIME, || {
        lifetime.invalid("may not specify a duration less than 10 minutes")
    });
    errors.push_if(seconds > MAX_LIFETIME, || {
        lifetime.invalid("may not specify a duration larger than 2^32 seconds")
    });
    if errors.is_empty() { Ok(()) } else { Err(Error::invalid(kind, "", errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_pods_for_this_server_are_extended() {
        let own = ["https://kubernetes.default.svc".to_owned(), "api".to_owned()];
        for (lifetime, audiences, want) in [
            (3607, &own[..1], true),
            (3607, &own, true),
            (3607, &["vault".to_owned()], false),
            (3607, &["api".to_owned(), "vault".to_owned()], false),
            (3600, &own, false),
        ] {
            assert_eq!(is_extended(lifetime, audiences, &own), want, "{lifetime} {audiences:?}");
        }
    }
}
