//! Deletes the content of a namespace, and counts the remaining objects.

use std::sync::Arc;

use coracle_controller_runtime::batch::execute_all;
use coracle_controller_runtime::discovery::{Discovery, ServedResource};
use coracle_controller_runtime::{ignore_not_found, ignore_status};
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::core::Request;
use kube::{Api, Client, ResourceExt};

use super::plan::{Findings, RemainingObjects};

/// The number of resources that are processed concurrently.
const MAX_CONCURRENT: usize = 8;

pub struct Content<'a> {
    /// Deletes objects of any kind. They are not cached: the server counts the remaining ones.
    pub unrecorded: &'a Client,
    pub namespace: &'a str,
    pub resources: &'a Discovery,
}

/// The result of deleting the content of a namespace in one pass.
#[derive(Default)]
pub struct DeletionResult {
    pub findings: Findings,
    /// The number of seconds in which the remaining objects should be deleted.
    pub estimate: i64,
    /// The errors that prevent the namespace from being finalized, even if nothing remains.
    pub errors: Option<String>,
}

/// The result for one resource.
struct Outcome<'a> {
    served: &'a ServedResource,
    remains: RemainingObjects,
    estimate: i64,
    error: Option<String>,
}

impl Content<'_> {
    /// Deletes all objects, the pods first. `grace` is the number of seconds the pods may still
    /// take.
    ///
    /// # Errors
    /// Discovery failed, so the resources to delete are unknown.
    pub async fn delete(&self, grace: i64) -> kube::Result<DeletionResult> {
        let snapshot = self.resources.refresh().await?;
        let mut result = DeletionResult::default();
        let mut errors = Vec::new();
        if let Some(why) = snapshot.failure() {
            errors.push(why.clone());
            result.findings.discovery = Some((snapshot.failed.len(), why));
        }
        let deletable = snapshot
            .preferred()
            .map(Arc::as_ref)
            .filter(|served| served.namespaced && served.supports("delete"));
        let (pods, others): (Vec<&ServedResource>, Vec<&ServedResource>) =
            deletable.partition(|served| is_pods(served));
        for (resources, grace) in [(pods, grace), (others, 0)] {
            let work = resources.into_iter().map(|served| self.delete_all(served, grace));
            let outcomes: Vec<Outcome<'_>> = execute_all(work, MAX_CONCURRENT).await;
            let pods_remain = outcomes.iter().any(|o| is_pods(o.served) && o.remains.count > 0);
            for outcome in outcomes {
                result.estimate = result.estimate.max(outcome.estimate);
                errors.extend(outcome.error.clone());
                result.findings.failures.extend(outcome.error);
                if !pods_remain {
                    let resource = &outcome.served.resource;
                    let name = format!("{}.{}", resource.plural, resource.group);
                    result.findings.remains.insert(name, outcome.remains);
                }
            }
            if pods_remain {
                break;
            }
        }
        result.errors = (!errors.is_empty()).then(|| errors.join(", "));
        Ok(result)
    }

    async fn delete_all<'a>(&self, served: &'a ServedResource, grace: i64) -> Outcome<'a> {
        let outcome = |remains, estimate, error| Outcome { served, remains, estimate, error };
        let remains = match self.try_delete_all(served).await {
            Ok(remains) => remains,
            Err(error) => return outcome(RemainingObjects::default(), grace, Some(error_message(error))),
        };
        match remains.estimate(grace) {
            Some(estimate) => outcome(remains, estimate, None),
            None => {
                let resource = &served.resource;
                let error = format!(
                    "unexpected items still remain in namespace: {} for gvr: {}/{}, Resource={}",
                    self.namespace, resource.group, resource.version, resource.plural
                );
                outcome(remains, grace, Some(error))
            }
        }
    }

    async fn try_delete_all(&self, served: &ServedResource) -> kube::Result<RemainingObjects> {
        let api =
            Api::<DynamicObject>::namespaced_with(self.unrecorded.clone(), self.namespace, &served.resource);
        // Background deletion, independent of a kind's default: no object may outlive its
        // namespace.
        let background = DeleteParams::background();
        if !served.supports("deletecollection") || !self.delete_collection(&api, &background).await? {
            for name in remaining(served, &api).await?.iter().map(ResourceExt::name_any) {
                unsupported(api.delete(&name, &background).await)?;
            }
        }
        let left = remaining(served, &api).await?;
        Ok(RemainingObjects::of(left.iter().map(ResourceExt::finalizers)))
    }

    /// Deletes a collection. Returns false if the server does not support it.
    async fn delete_collection(&self, api: &Api<DynamicObject>, how: &DeleteParams) -> kube::Result<bool> {
        let request = Request::new(api.resource_url()).delete_collection(how, &ListParams::default());
        // The response, which contains all deleted objects, is not decoded.
        let answer = self.unrecorded.request_text(request.map_err(kube::Error::BuildRequest)?).await;
        Ok(unsupported(answer)?.is_some())
    }
}

async fn remaining(
    served: &ServedResource,
    api: &Api<DynamicObject>,
) -> kube::Result<Vec<kube::core::PartialObjectMeta<DynamicObject>>> {
    if !served.supports("list") {
        return Ok(Vec::new());
    }
    let list = unsupported(api.list_metadata(&ListParams::default()).await)?;
    Ok(list.map(|list| list.items).unwrap_or_default())
}

/// Replaces an error by `None` if the server does not serve the resource or does not support the
/// verb.
fn unsupported<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    Ok(ignore_status(405, ignore_not_found(answer))?.flatten())
}

fn is_pods(served: &ServedResource) -> bool {
    served.resource.group.is_empty() && served.resource.plural == "pods"
}

/// Returns the server's message, or that of the error if there was no response.
fn error_message(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        error => error.to_string(),
    }
}
