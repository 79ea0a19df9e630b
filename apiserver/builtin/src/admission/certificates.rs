//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: who may approve and
//! sign a certificate signing request, and which subjects are rejected.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::quote;
use coracle_apiserver::access::authenticate::MASTERS;
use coracle_apiserver::access::authorize::{Authorizer, RequestAttributes, ResourceTarget, Target};
use coracle_apiserver::admission::json::text;
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use coracle_pki::CertificateRequest;
use serde_json::Value;

const GROUP: &str = "certificates.k8s.io";
const RESOURCE: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// Approving needs the verb `approve` on the signer.
pub(super) struct CertificateApproval {
    pub(super) authorizer: Arc<Authorizer>,
}

impl AdmissionPlugin for CertificateApproval {
    fn validate(&self, attributes: &AdmissionAttributes<'_>, _cluster: &dyn Cluster) -> Result<()> {
        // The signer of the stored object: the update may try to change it.
        match updated(attributes, "approval") {
            Some(old) => may(attributes, &self.authorizer, "approve", text(&old["spec"]["signerName"])),
            None => Ok(()),
        }
    }
}

/// Writing a certificate, or a condition beside it, needs the verb `sign` on the signer.
pub(super) struct CertificateSigning {
    pub(super) authorizer: Arc<Authorizer>,
}

impl AdmissionPlugin for CertificateSigning {
    fn validate(&self, attributes: &AdmissionAttributes<'_>, _cluster: &dyn Cluster) -> Result<()> {
        let Some(old) = updated(attributes, "status") else { return Ok(()) };
        let same = |member: &str| old["status"][member] == attributes.object["status"][member];
        if same("certificate") && same("conditions") {
            return Ok(());
        }
        may(attributes, &self.authorizer, "sign", text(&old["spec"]["signerName"]))
    }
}

/// Rejects requests for client certificates of the group `system:masters`.
pub(super) struct CertificateSubjectRestriction;

impl AdmissionPlugin for CertificateSubjectRestriction {
    fn validate(&self, attributes: &AdmissionAttributes<'_>, _cluster: &dyn Cluster) -> Result<()> {
        let spec = &attributes.object["spec"];
        let concerned = attributes.is(GROUP, RESOURCE)
            && attributes.operation == Operation::Create
            && spec["signerName"] == CLIENT_SIGNER;
        if !concerned {
            return Ok(());
        }
        match CertificateRequest::parse(&STANDARD.decode(text(&spec["request"])).unwrap_or_default()) {
            Err(problem) => Err(attributes.forbidden(format!("failed to parse CSR: {problem}"))),
            Ok(request) if request.subject.organizations().any(|group| group == MASTERS) => Err(attributes
                .forbidden(format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"))),
            Ok(_) => Ok(()),
        }
    }
}

/// Returns the stored signing request if this is an update of that subresource.
fn updated<'a>(attributes: &'a AdmissionAttributes<'_>, subresource: &str) -> Option<&'a Value> {
    let concerned = attributes.is_any(GROUP, RESOURCE)
        && attributes.subresource == subresource
        && attributes.operation == Operation::Update;
    attributes.old_object.filter(|_| concerned)
}

/// Checks that the user may use a verb on the signer, or on its whole domain (`example.com/*`).
fn may(
    attributes: &AdmissionAttributes<'_>,
    authorizer: &Authorizer,
    verb: &str,
    signer: &str,
) -> Result<()> {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or(""));
    let allowed = [signer, &domain].iter().any(|name| {
        let target = ResourceTarget { group: GROUP, resource: "signers", name, ..ResourceTarget::default() };
        authorizer
            .check(attributes.user, &RequestAttributes { verb, target: Target::Resource(target) })
            .is_ok()
    });
    if allowed {
        return Ok(());
    }
    Err(attributes
        .forbidden(format!("user not permitted to {verb} requests with signerName {}", quote(signer))))
}

#[cfg(test)]
mod tests {
    use coracle_apiserver::access::UserInfo;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    use super::*;
    use crate::rbac;

    fn authorizer() -> Arc<Authorizer> {
        let roles = rbac::testing::World::of([
            (
                "clusterroles",
                json!({"metadata": {"name": "r"}, "rules": [
            {"verbs": ["approve"], "apiGroups": [GROUP], "resources": ["signers"], "resourceNames": ["a.io/x"]},
            {"verbs": ["sign"], "apiGroups": [GROUP], "resources": ["signers"], "resourceNames": ["a.io/*"]}]}),
            ),
            (
                "clusterrolebindings",
                json!({"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "User", "name": "alice"}]}),
            ),
        ]);
        roles.authorizer()
    }

    #[test]
    fn approval_and_signing_need_a_right_on_the_signer() {
        let csr = |signer: &str, certificate: &str| json!({"metadata": {"name": "c"}, "spec": {"signerName": signer}, "status": {"certificate": certificate}});
        let refused = |verb: &str, signer: &str| {
            format!(
                "403 certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: user not permitted to {verb} requests with signerName \"{signer}\""
            )
        };
        for (subresource, signer, certificate, want) in [
            ("approval", "a.io/x", "", "ok".to_owned()),
            ("approval", "a.io/y", "", refused("approve", "a.io/y")),
            ("status", "a.io/y", "pem", "ok".to_owned()),
            ("status", "b.io/y", "pem", refused("sign", "b.io/y")),
            ("status", "b.io/y", "", "ok".to_owned()),
            ("", "b.io/y", "pem", "ok".to_owned()),
        ] {
            let mut request = Request::new(GROUP, RESOURCE, "", csr(signer, certificate))
                .update(csr(signer, ""))
                .of(subresource);
            request.user = UserInfo::new("alice", &[]);
            let approval =
                request.validate(&CertificateApproval { authorizer: authorizer() }, &World::default());
            let signing =
                request.validate(&CertificateSigning { authorizer: authorizer() }, &World::default());
            let got =
                approval.and(signing).map_or_else(|e| format!("{} {e}", e.code()), |()| "ok".to_owned());
            assert_eq!(got, want, "{subresource} {signer}");
        }
    }

    #[test]
    fn client_certificates_of_system_masters_are_rejected() {
        let request_for = |organization: &str| {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::OrganizationName, organization);
            STANDARD.encode(params.serialize_request(&key).expect("a request").pem().expect("PEM"))
        };
        let refused = |text: &str| {
            format!("403 certificatesigningrequests.certificates.k8s.io \"c\" is forbidden: {text}")
        };
        for (signer, request, want) in [
            (CLIENT_SIGNER, request_for("devs"), "ok".to_owned()),
            (
                CLIENT_SIGNER,
                request_for(MASTERS),
                refused(
                    "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
                ),
            ),
            ("a.io/x", request_for(MASTERS), "ok".to_owned()),
            (
                CLIENT_SIGNER,
                STANDARD.encode("no"),
                refused("failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"),
            ),
        ] {
            let csr = json!({"metadata": {"name": "c"}, "spec": {"signerName": signer, "request": request}});
            let got =
                Request::new(GROUP, RESOURCE, "", csr).run(&CertificateSubjectRestriction, &World::default());
            assert_eq!(got.map_or_else(|e| e, |_| "ok".to_owned()), want, "{signer}");
        }
    }
}
