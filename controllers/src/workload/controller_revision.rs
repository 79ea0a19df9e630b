//! Writes of ControllerRevisions. Their names and matches are in
//! `coracle_kinds::controller_revision`.

use std::sync::Arc;

use coracle_controller_runtime::ReconcileContext;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_kinds::controller_revision::revision_name;
use k8s_openapi::api::apps::v1::ControllerRevision;

/// The most names that are tried at a time.
const MAX_ATTEMPTS: usize = 100;

/// Creates a revision under the first free name, or returns the existing revision with the same
/// data. The hash label keeps the hash of the first attempt.
///
/// - `collisions`: the number of name collisions so far; incremented for each new one
///
/// # Errors
/// The API refuses it, or all names that were tried are taken.
pub async fn create_revision(
    revisions: &Arc<Cache<ControllerRevision>>,
    owner: &str,
    mut revision: ControllerRevision,
    collisions: &mut i32,
    ctx: &ReconcileContext,
) -> kube::Result<ControllerRevision> {
    let api = ctx.api(revisions);
    let mut attempts = 0;
    loop {
        attempts += 1;
        revision.metadata.name = Some(revision_name(owner, &revision, *collisions));
        let taken = match api.create(&revision).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => status,
            answer => return answer,
        };
        let Some(existing) = api.get(&NamespacedName::of(&revision)).await? else {
            return Err(kube::Error::Api(taken));
        };
        if existing.data == revision.data {
            ctx.await_observed(revisions, &existing);
            return Ok(existing);
        }
        if attempts == MAX_ATTEMPTS {
            return Err(kube::Error::Api(taken));
        }
        // A client may have written any number.
        *collisions = collisions.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
    use kube::Client;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;

    fn revision(name: Option<&str>, data: &str) -> ControllerRevision {
        let mut revision = ControllerRevision::default();
        revision.metadata.namespace = Some("n".to_owned());
        revision.metadata.name = name.map(str::to_owned);
        revision.data = Some(RawExtension(json!(data)));
        revision
    }

    /// Creates an API where these revisions exist.
    fn api(existing: Vec<ControllerRevision>) -> Client {
        let named = existing.into_iter().map(|revision| (revision.metadata.name.clone(), json!(revision)));
        let existing = Arc::new(Mutex::new(named.collect::<HashMap<Option<String>, Value>>()));
        let service = tower::service_fn(move |request: Request<Body>| {
            let existing = existing.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                let (code, answer) = if head.method == Method::POST {
                    let new: Value = serde_json::from_slice(&body).unwrap();
                    let name = new["metadata"]["name"].as_str().map(str::to_owned);
                    match existing.lock().contains_key(&name) {
                        true => (409, json!({"kind": "Status", "reason": "AlreadyExists", "code": 409})),
                        false => (201, new),
                    }
                } else {
                    let name = head.uri.path().rsplit('/').next().map(str::to_owned);
                    (200, existing.lock()[&name].clone())
                };
                let answer = Body::from(answer.to_string().into_bytes());
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_revision_has_the_first_name_that_is_free_or_its_own() {
        let new = revision(None, "new");
        let names = [0, 1, 2].map(|collisions| revision_name("web", &new, collisions));
        for (case, existing, collisions) in [
            ("free", vec![], 0),
            ("one that is taken", vec![revision(Some(&names[0]), "other")], 1),
            ("its own", vec![revision(Some(&names[0]), "new")], 0),
            (
                "its own after one that is taken",
                vec![revision(Some(&names[0]), "other"), revision(Some(&names[1]), "new")],
                1,
            ),
        ] {
            let (cache, ctx) = (Arc::new(Cache::with([])), ReconcileContext::new(api(existing)));
            let mut counted = 0;
            let created = create_revision(&cache, "web", new.clone(), &mut counted, &ctx).await.unwrap();
            assert_eq!(created.metadata.name.as_ref(), names.get(counted as usize), "{case}");
            assert_eq!((created.data, counted), (new.data.clone(), collisions), "{case}");
        }
    }

    #[tokio::test]
    async fn a_revision_whose_names_are_all_taken_is_not_created() {
        let new = revision(None, "new");
        for first in [0, i32::MAX] {
            let taken = (0..200).map(|count| revision_name("web", &new, first.saturating_add(count)));
            let taken = taken.map(|name| revision(Some(&name), "other")).collect();
            let (cache, ctx) = (Arc::new(Cache::with([])), ReconcileContext::new(api(taken)));
            let created = create_revision(&cache, "web", new.clone(), &mut first.clone(), &ctx).await;
            assert!(matches!(created, Err(kube::Error::Api(status)) if status.reason == "AlreadyExists"));
        }
    }
}
