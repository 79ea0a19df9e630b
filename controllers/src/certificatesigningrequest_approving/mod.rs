//! certificatesigningrequest-approving-controller: approves client certificates of kubelets.
//!
//! A request for the signer `kubernetes.io/kube-apiserver-client-kubelet`, neither approved nor
//! denied, is reconciled:
//! 1. a request that is not a kubelet's is ignored;
//! 2. a SubjectAccessReview checks whether the requester may create it, for itself or for any node;
//! 3. if so it is approved, otherwise it is retried with a growing delay.

use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_kinds::certificate_request::{
    KUBE_APISERVER_CLIENT_KUBELET, condition, is_issued, validate_kubelet_client,
};
use coracle_pki::CertificateRequest;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;

use crate::settings::{Context, Settings};

pub struct CertificateSigningRequestApprover {
    /// Creates SubjectAccessReviews. The server does not store them: there is nothing to observe.
    unrecorded: Client,
    clock: Clock,
    requests: Arc<Cache<CertificateSigningRequest>>,
}

impl Initialize<Settings> for CertificateSigningRequestApprover {
    fn new(context: &Context) -> CertificateSigningRequestApprover {
        CertificateSigningRequestApprover {
            unrecorded: context.unrecorded.clone(),
            clock: context.clock.clone(),
            requests: context.cache(),
        }
    }
}

/// The subresource that the requester must be allowed to create, and the message of the approval.
type Recognizer = (&'static str, &'static str);

const SELF: Recognizer =
    ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.");
const ANY: Recognizer =
    ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");

impl Controller for CertificateSigningRequestApprover {
    const NAME: &'static str = "certificatesigningrequest-approving-controller";
    const QUEUE_NAME: &'static str = "certificate";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each_if(&self.requests, |change| {
            change.new.as_ref().is_some_and(|request| !recognizers(request).is_empty())
        });
    }

    async fn reconcile(&self, key: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(request) = self.requests.get(key) else { return Ok(Action::AwaitChange) };
        let recognizers = recognizers(&request);
        for (subresource, message) in &recognizers {
            if !self.is_allowed(&request, subresource).await? {
                continue;
            }
            let mut approved = (*request).clone();
            let conditions = approved.status.get_or_insert_default().conditions.get_or_insert_default();
            conditions.push(CertificateSigningRequestCondition {
                type_: "Approved".to_owned(),
                status: "True".to_owned(),
                reason: Some("AutoApproved".to_owned()),
                message: Some((*message).to_owned()),
                last_update_time: Some(Time(self.clock.now())),
                ..CertificateSigningRequestCondition::default()
            });
            ignore_not_found(ctx.api(&self.requests).replace_subresource("approval", &approved).await)?;
            return Ok(Action::AwaitChange);
        }
        match recognizers.is_empty() {
            true => Ok(Action::AwaitChange),
            false => {
                let tried: Vec<&str> = recognizers.iter().map(|(subresource, _)| *subresource).collect();
                Err(Error::Unfinished(format!(
                    "recognized csr {:?} as {tried:?} but subject access review was not approved",
                    key.name
                )))
            }
        }
    }
}

impl CertificateSigningRequestApprover {
    async fn is_allowed(
        &self,
        request: &CertificateSigningRequest,
        subresource: &str,
    ) -> Result<bool, Error> {
        let spec = &request.spec;
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {
                "user": spec.username, "uid": spec.uid, "groups": spec.groups, "extra": spec.extra,
                "resourceAttributes": {
                    "group": "certificates.k8s.io", "resource": "certificatesigningrequests",
                    "verb": "create", "version": "*", "subresource": subresource,
                },
            },
        });
        let review: SubjectAccessReview = serde_json::from_value(review).map_err(kube::Error::SerdeError)?;
        let reviews = Api::<SubjectAccessReview>::all(self.unrecorded.clone());
        let review = reviews.create(&PostParams::default(), &review).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }
}

/// Returns the recognizers that apply to a request, in the order in which they are tried.
fn recognizers(request: &CertificateSigningRequest) -> Vec<Recognizer> {
    let is_decided = ["Approved", "Denied"].iter().any(|r#type| condition(request, r#type).is_some());
    if request.spec.signer_name != KUBE_APISERVER_CLIENT_KUBELET || is_decided || is_issued(request) {
        return Vec::new();
    }
    let usages = request.spec.usages.as_deref().unwrap_or_default();
    let parsed = CertificateRequest::parse(&request.spec.request.0).ok();
    match parsed.filter(|parsed| validate_kubelet_client(parsed, usages).is_ok()) {
        None => Vec::new(),
        Some(parsed) if Some(parsed.subject.common_name()) == request.spec.username.as_deref() => {
            vec![SELF, ANY]
        }
        Some(_) => vec![ANY],
    }
}
