//! The target of an autoscaler: its scale, and the selector of its pods.

use coracle_controller_runtime::Error;
use coracle_controller_runtime::discovery::{Discovery, DiscoverySnapshot};
use coracle_object_meta::selector_matches;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::CrossVersionObjectReference;
use kube::api::PostParams;
use kube::core::{DynamicObject, Expression, Selector};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use std::collections::BTreeSet;

/// The scale of a target, and the API that it was read from.
pub struct Target {
    pub scale: Scale,
    resource: ApiResource,
}

/// Reads the scale of a target, in any version of its group.
///
/// # Errors
/// The reason why it cannot be read, as shown in conditions.
pub async fn get_scale(
    client: &Client,
    discovery: &Discovery,
    namespace: &str,
    target: &CrossVersionObjectReference,
) -> Result<Target, String> {
    let version = target.api_version.as_deref().unwrap_or_default();
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let of_kind = |snapshot: &DiscoverySnapshot| -> Vec<ApiResource> {
        let served = snapshot.resources.iter().map(|served| &served.resource);
        served.filter(|resource| resource.group == group && resource.kind == target.kind).cloned().collect()
    };
    let mut resources = of_kind(&discovery.current());
    if resources.is_empty() {
        let fresh = discovery.refresh().await.map_err(|error| Error::from(error).message())?;
        resources = of_kind(&fresh);
    }
    let mut first_error = None;
    for resource in resources {
        let scales = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
        match scales.get_scale(&target.name).await {
            Ok(scale) => {
                let target = Target { scale, resource };
                return match parse_selector(target.selector()) {
                    Ok(_) => Ok(target),
                    Err(error) => Err(format!(
                        "received an object from a /scale endpoint which was not convertible to autoscaling Scale: \
                         failed to parse target selector: {error}"
                    )),
                };
            }
            Err(error) => first_error = first_error.or(Some(Error::from(error).message())),
        }
    }
    Err(first_error.unwrap_or_else(|| format!("no matches for kind {:?} in group {group:?}", target.kind)))
}

impl Target {
    /// Returns the desired number of replicas of the target.
    pub fn replicas(&self) -> i32 {
        self.scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0)
    }

    /// Returns the number of replicas that the target has.
    pub fn existing_replicas(&self) -> i32 {
        self.scale.status.as_ref().map_or(0, |status| status.replicas)
    }

    /// Returns the label selector of the target's pods as text.
    pub fn selector(&self) -> &str {
        self.scale.status.as_ref().and_then(|status| status.selector.as_deref()).unwrap_or_default()
    }

    /// Sets the number of replicas. After a conflict it is tried again, a few times.
    ///
    /// # Errors
    /// The API refuses it.
    pub async fn set_replicas(&self, client: &Client, replicas: i32) -> kube::Result<()> {
        const TRIES: usize = 5;
        let namespace = self.scale.metadata.namespace.as_deref().unwrap_or_default();
        let name = self.scale.metadata.name.as_deref().unwrap_or_default();
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &self.resource);
        let mut scale = self.scale.clone();
        for tries in 1.. {
            scale.spec.get_or_insert_default().replicas = Some(replicas);
            match api.replace_scale(name, &PostParams::default(), &scale).await {
                Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {
                    scale = api.get_scale(name).await?;
                }
                written => return written.map(|_| ()),
            }
        }
        Ok(())
    }
}

/// Parses a selector in the syntax of a query.
///
/// # Errors
/// The syntax error.
pub fn parse_selector(text: &str) -> Result<Selector, String> {
    requirements(text)
        .into_iter()
        .map(parse_requirement)
        .collect::<Result<Vec<_>, _>>()
        .map(Selector::from_iter)
}

/// Splits at the commas that are not between parentheses.
fn requirements(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_separator = |character: char| {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        character == ',' && depth == 0
    };
    text.split(is_separator).map(str::trim).filter(|requirement| !requirement.is_empty()).collect()
}

fn parse_requirement(text: &str) -> Result<Expression, String> {
    let values = |list: &str| -> Result<BTreeSet<String>, String> {
        let list = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
        let list = list.ok_or_else(|| format!("unable to parse requirement: {text:?}"))?;
        Ok(list.split(',').map(|value| value.trim().to_owned()).collect())
    };
    let key = |key: &str| key.trim().to_owned();
    let value = |value: &str| {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let value = value.trim();
        let is_valid = value.chars().all(is_valid);
        is_valid.then(|| value.to_owned()).ok_or_else(|| format!("unable to parse requirement: {text:?}"))
    };
    let word = |word: &str| text.split_once(&format!(" {word} "));
    Ok(if let Some((name, list)) = word("notin") {
        Expression::NotIn(key(name), values(list)?)
    } else if let Some((name, list)) = word("in") {
        Expression::In(key(name), values(list)?)
    } else if let Some((name, text)) = text.split_once("!=") {
        Expression::NotEqual(key(name), value(text)?)
    } else if let Some((name, text)) = text.split_once("==").or_else(|| text.split_once('=')) {
        Expression::Equal(key(name), value(text)?)
    } else if let Some(name) = text.strip_prefix('!') {
        Expression::DoesNotExist(key(name))
    } else if text.contains(char::is_whitespace) {
        return Err(format!("unable to parse requirement: {text:?}"));
    } else {
        Expression::Exists(key(text))
    })
}

/// Returns `true` if a selector in text form matches an object. A selector that cannot be parsed
/// matches none.
pub fn text_selects(
    selector: &str,
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> bool {
    parse_selector(selector).is_ok_and(|selector| selector_matches(&selector, meta))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_are_read_as_in_queries() {
        let meta = serde_json::from_value(json!({"labels": {"app": "x", "tier": "web"}})).unwrap();
        for (selector, want) in [
            ("app=x", true),
            ("app==x,tier=web", true),
            ("app=y", false),
            ("app!=y", true),
            ("app in (x,y),tier notin (db)", true),
            ("app in (y, z)", false),
            ("tier", true),
            ("!tier", false),
            ("other", false),
            ("a b", false),
        ] {
            assert_eq!(text_selects(selector, &meta), want, "{selector}");
        }
        for wrong in ["app in x", "app in (", "app===", "app=a b"] {
            assert!(parse_selector(wrong).is_err(), "{wrong}");
        }
    }
}
