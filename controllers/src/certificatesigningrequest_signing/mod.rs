//! certificatesigningrequest-signing-controller: issues the certificates of approved requests.
//!
//! A request for one of Kubernetes' own signers is reconciled once it is approved:
//! 1. one that breaks the rules of its signer gets the condition Failed;
//! 2. otherwise the certificate is issued, by the authority in the settings, and stored in the
//!    status.

mod plan;

use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use crate::settings::{Context, Settings, SignCertificate};
use plan::{Plan, plan};

pub struct CertificateSigningRequestSigner {
    clock: Clock,
    sign: Option<SignCertificate>,
    requests: Arc<Cache<CertificateSigningRequest>>,
}

impl Initialize<Settings> for CertificateSigningRequestSigner {
    fn is_possible(settings: &Settings) -> bool {
        settings.sign_certificate.is_some()
    }

    fn new(context: &Context) -> CertificateSigningRequestSigner {
        CertificateSigningRequestSigner {
            clock: context.clock.clone(),
            sign: context.settings.sign_certificate.clone(),
            requests: context.cache(),
        }
    }
}

impl Controller for CertificateSigningRequestSigner {
    const NAME: &'static str = "certificatesigningrequest-signing-controller";
    const QUEUE_NAME: &'static str = "certificate";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each_if(&self.requests, |change| change.new.as_deref().is_some_and(plan::is_to_be_signed));
    }

    async fn reconcile(&self, key: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let request = self.requests.get(key).filter(|request| plan::is_to_be_signed(request));
        let (Some(request), Some(sign)) = (request, &self.sign) else { return Ok(Action::AwaitChange) };
        let mut changed = (*request).clone();
        let status = changed.status.get_or_insert_default();
        let plan = plan(&request, self.clock.now(), Clock::system().now())
            .map_err(|error| Error::Unfinished(format!("unable to parse csr {:?}: {error}", key.name)))?;
        match plan {
            Plan::Fail(condition) => status.conditions.get_or_insert_default().push(condition),
            Plan::Sign(certificate) => {
                let issued = sign(&certificate)
                    .map_err(|error| Error::Unfinished(format!("error auto signing csr: {error}")))?;
                status.certificate = Some(k8s_openapi::ByteString(issued.into_bytes()));
            }
        }
        ignore_not_found(ctx.api(&self.requests).replace_status(&changed).await)?;
        Ok(Action::AwaitChange)
    }
}
