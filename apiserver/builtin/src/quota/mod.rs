//! ResourceQuota: the limits of a namespace, and what a write adds to their usage.
//!
//! The status of a quota is authoritative: the controller sets `hard` and `used` there and lowers
//! `used` when objects are deleted, and what a write adds is reserved here. This is not a plugin of
//! the chain: it has to see the object after all plugins, and the changed quotas are committed
//! together with the object.
//!
//! `usage.rs` measures objects, `scopes.rs` decides which quotas match them. Start at [`reserve`].

mod scopes;
mod usage;

use coracle_apimachinery::Result;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::admission::json::text;
use coracle_apiserver::admission::{AdmissionAttributes, QuotaReserver};
use serde_json::Value;

use crate::pod_spec::{ResourceList, resources};
use usage::Evaluator;

/// The plugin ResourceQuota.
pub struct ResourceQuota(GroupResource);

impl Default for ResourceQuota {
    fn default() -> ResourceQuota {
        ResourceQuota(GroupResource::new("", "resourcequotas"))
    }
}

impl QuotaReserver for ResourceQuota {
    fn resource(&self) -> &GroupResource {
        &self.0
    }

    fn reserve(&self, attributes: &AdmissionAttributes<'_>, quotas: &[Value]) -> Result<Vec<Option<Value>>> {
        reserve(attributes, quotas)
    }
}

/// Reserves what a write uses in the quotas of its namespace: see [`QuotaReserver::reserve`].
///
/// # Errors
/// [`Error::Forbidden`](coracle_apimachinery::Error::Forbidden) if a quota is exceeded, if its
/// status is unknown, or if the object does not specify a resource that the quota limits.
fn reserve(attributes: &AdmissionAttributes<'_>, quotas: &[Value]) -> Result<Vec<Option<Value>>> {
    let Some(evaluator) = Evaluator::of(attributes) else { return Ok(Vec::new()) };
    let matches = |quota: &Value, object: &Value| {
        measured(&evaluator, quota).next().is_some() && scopes::all_match(quota, &evaluator, object)
    };
    let matching = |quota: &&Value| matches(quota, attributes.object);
    quotas.iter().filter(matching).try_for_each(|quota| require(attributes, &evaluator, quota))?;
    let usage = evaluator.usage(attributes.object);
    let reserved = quotas.iter().map(|quota| {
        if !matching(&quota) {
            return Ok(None);
        }
        let old = attributes.old_object.filter(|old| matches(quota, old));
        let before = old.map(|old| evaluator.usage(old)).unwrap_or_default();
        add(attributes, quota, &increase(&usage, &before))
    });
    reserved.collect()
}

/// Iterates over the resources that a quota limits and that this kind of object uses.
fn measured<'a>(evaluator: &'a Evaluator, quota: &'a Value) -> impl Iterator<Item = &'a str> {
    let hard = quota["status"]["hard"].as_object().into_iter().flatten();
    hard.map(|(name, _)| name.as_str()).filter(|name| evaluator.measures(name))
}

/// Checks that the object specifies the resources that the quota limits, and that the quota has a
/// status.
fn require(attributes: &AdmissionAttributes<'_>, evaluator: &Evaluator, quota: &Value) -> Result<()> {
    let name = text(&quota["metadata"]["name"]);
    let measured: Vec<&str> = measured(evaluator, quota).collect();
    let missing = evaluator.missing(&measured, attributes.object);
    if !missing.is_empty() {
        return Err(
            attributes.forbidden(format!("failed quota: {name}: must specify {}", missing.join("; ")))
        );
    }
    if measured.iter().any(|resource| quota["status"]["used"][*resource].is_null()) {
        let resources = measured.join(",");
        return Err(attributes.forbidden(format!("status unknown for quota: {name}, resources: {resources}")));
    }
    Ok(())
}

/// Computes the increase of usage. The controller handles decreases.
fn increase(usage: &ResourceList, before: &ResourceList) -> ResourceList {
    let more = usage.iter().map(|(name, now)| {
        let had = before.get(name);
        (name.clone(), had.map_or(*now, |had| now.minus(had)))
    });
    more.filter(|(_, more)| more.is_positive()).collect()
}

/// Returns the quota with the request added to its usage; None if it limits none of the requested
/// resources.
fn add(
    attributes: &AdmissionAttributes<'_>,
    quota: &Value,
    requested: &ResourceList,
) -> Result<Option<Value>> {
    let (hard, mut used) = (resources(&quota["status"]["hard"]), resources(&quota["status"]["used"]));
    let requested: ResourceList =
        requested.iter().filter(|(name, _)| hard.contains_key(*name)).map(|(n, q)| (n.clone(), *q)).collect();
    if requested.is_empty() {
        return Ok(None);
    }
    let before = used.clone();
    for (name, more) in &requested {
        used.entry(name.clone()).and_modify(|sum| *sum = sum.plus(more)).or_insert(*more);
    }
    let exceeded = |name: &&String| hard.get(*name).is_some_and(|limit| used.get(*name) > Some(limit));
    let exceeded: Vec<&String> = requested.keys().filter(exceeded).collect();
    if !exceeded.is_empty() && attributes.subresource != "status" {
        return Err(attributes.forbidden(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            text(&quota["metadata"]["name"]),
            printed(&requested, &exceeded),
            printed(&before, &exceeded),
            printed(&hard, &exceeded),
        )));
    }
    let mut quota = quota.clone();
    quota["status"]["used"] =
        used.into_iter().map(|(name, quantity)| (name, Value::from(quantity.to_string()))).collect();
    Ok(Some(quota))
}

fn printed(list: &ResourceList, names: &[&String]) -> String {
    let entries = names.iter().filter_map(|name| Some(format!("{name}={}", list.get(*name)?)));
    entries.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
