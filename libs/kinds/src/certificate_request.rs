//! CertificateSigningRequests: their conditions, and the rules of their signers.

use std::collections::BTreeSet;

use coracle_pki::{CertificateRequest, pem};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::jiff::Timestamp;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The signer of client certificates for the API server.
pub const KUBE_APISERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// The signer of client certificates of kubelets.
pub const KUBE_APISERVER_CLIENT_KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of serving certificates of kubelets.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signer without rules.
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// Checks that a kubelet may request this as its client certificate.
///
/// Source: `ValidateKubeletClientCSR` of `pkg/apis/certificates`.
///
/// # Errors
/// The violated rule.
pub fn validate_kubelet_client(request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    validate_organization(request)?;
    let names = &request.names;
    for (has, kind) in [
        (!names.dns.is_empty(), "DNS"),
        (!names.email.is_empty(), "Email"),
        (!names.ip.is_empty(), "IP"),
        (!names.uri.is_empty(), "URI"),
    ] {
        if has {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    validate_node_name(request)?;
    validate_kubelet_usages(usages, &["client auth", "digital signature", "key encipherment"])
}

/// Checks that a kubelet may request this as its serving certificate.
///
/// Source: `ValidateKubeletServingCSR` of `pkg/apis/certificates`.
///
/// # Errors
/// The violated rule.
pub fn validate_kubelet_serving(request: &CertificateRequest, usages: &[String]) -> Result<(), String> {
    validate_organization(request)?;
    let names = &request.names;
    if names.dns.is_empty() && names.ip.is_empty() {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    for (has, kind) in [(!names.email.is_empty(), "Email"), (!names.uri.is_empty(), "URI")] {
        if has {
            return Err(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    validate_kubelet_usages(usages, &["digital signature", "key encipherment", "server auth"])?;
    validate_node_name(request)
}

fn validate_organization(request: &CertificateRequest) -> Result<(), String> {
    match request.subject.organizations().eq(["system:nodes"]) {
        true => Ok(()),
        false => Err("subject organization is not system:nodes".to_owned()),
    }
}

fn validate_node_name(request: &CertificateRequest) -> Result<(), String> {
    match request.subject.common_name().starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".to_owned()),
    }
}

/// Checks that usages are the wanted ones, with or without key encipherment. `wanted` are sorted.
fn validate_kubelet_usages(usages: &[String], wanted: &[&str]) -> Result<(), String> {
    let usages: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let all: BTreeSet<&str> = wanted.iter().copied().collect();
    let without_rsa: BTreeSet<&str> =
        wanted.iter().copied().filter(|usage| *usage != "key encipherment").collect();
    match usages == all || usages == without_rsa {
        true => Ok(()),
        false => Err(format!("usages did not match [{}]", wanted.join(" "))),
    }
}

/// Returns the condition with this type.
pub fn condition<'a>(
    request: &'a CertificateSigningRequest,
    r#type: &str,
) -> Option<&'a CertificateSigningRequestCondition> {
    let conditions = request.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == r#type)
}

/// Returns whether a certificate was issued.
pub fn is_issued(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

/// Returns the time at which the first certificate in a PEM document expires.
pub fn expiry(document: &[u8]) -> Option<Timestamp> {
    let (block, _) = pem::decode(document)?;
    let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_pki::{AlternativeNames, COMMON_NAME, ORGANIZATION, Subject};

    #[test]
    fn requests_of_kubelets() {
        let empty = CertificateRequest::default();
        let subject = |attributes: &[(&[u64], &str)]| {
            let mut request = empty.clone();
            request.subject = Subject::new(attributes);
            request
        };
        const NODES: (&[u64], &str) = (ORGANIZATION, "system:nodes");
        let client = subject(&[(COMMON_NAME, "system:node:a"), NODES]);
        let two = subject(&[(COMMON_NAME, "system:node:a"), NODES, (ORGANIZATION, "x")]);
        let no_node = subject(&[(COMMON_NAME, "a"), NODES]);
        let names = |request: &CertificateRequest, change: fn(&mut AlternativeNames)| {
            let mut request = request.clone();
            change(&mut request.names);
            request
        };
        let dns: fn(&mut AlternativeNames) = |names| names.dns.push("a".into());
        let serving = names(&client, dns);
        let both = "client auth,digital signature,key encipherment";
        for (case, request, usages, want) in [
            ("RSA", client.clone(), both, ""),
            ("no RSA", client.clone(), "digital signature,client auth", ""),
            (
                "no signature",
                client.clone(),
                "client auth",
                "usages did not match [client auth digital signature key encipherment]",
            ),
            ("two organizations", two, both, "subject organization is not system:nodes"),
            (
                "a name",
                names(&client, |names| names.uri.push("a".into())),
                both,
                "URI subjectAltNames are not allowed",
            ),
            ("no node", no_node.clone(), "x", "subject common name does not begin with system:node:"),
        ] {
            let usages: Vec<String> = usages.split(',').map(str::to_owned).collect();
            assert_eq!(validate_kubelet_client(&request, &usages).err().unwrap_or_default(), want, "{case}");
        }
        let both = "digital signature,key encipherment,server auth";
        for (case, request, usages, want) in [
            ("RSA", serving.clone(), both, ""),
            ("no name", client.clone(), both, "DNS or IP subjectAltName is required"),
            (
                "an e-mail",
                names(&serving, |names| names.email.push("a".into())),
                both,
                "Email subjectAltNames are not allowed",
            ),
            (
                "usages before name",
                names(&no_node, dns),
                "x",
                "usages did not match [digital signature key encipherment server auth]",
            ),
            ("no node", names(&no_node, dns), both, "subject common name does not begin with system:node:"),
        ] {
            let usages: Vec<String> = usages.split(',').map(str::to_owned).collect();
            assert_eq!(validate_kubelet_serving(&request, &usages).err().unwrap_or_default(), want, "{case}");
        }
    }
}
