//! What all controllers of workloads do alike: select objects and own them ([`ownership`]), make pods from templates
//! ([`pods`]), and remember the templates they had ([`history`]). No decisions of a single controller.

pub mod history;
pub mod ownership;
pub mod pods;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Selector, SelectorExt};

pub fn selects(selector: &Selector, meta: &ObjectMeta) -> bool {
    match &meta.labels {
        Some(labels) => selector.matches(labels),
        None => selector.matches(&Default::default()),
    }
}
