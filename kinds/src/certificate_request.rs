//! CertificateSigningRequests: their conditions, and what the PKCS#10 request in them asks for.

use std::collections::BTreeSet;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};
use k8s_openapi::jiff::Timestamp;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The signer of client certificates for the API server.
pub const KUBE_APISERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// The signer of client certificates of kubelets.
pub const KUBE_APISERVER_CLIENT_KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The signer of serving certificates of kubelets.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// The signer without rules.
pub const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// A request by its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The common name of the subject.
    pub common_name: String,
    /// The organizations of the subject, in their order.
    pub organizations: Vec<String>,
    /// Whether there are alternative names that are DNS names.
    pub has_dns_names: bool,
    /// Whether there are alternative names that are addresses.
    pub has_ip_addresses: bool,
    /// Whether there are alternative names that are e-mail addresses.
    pub has_email_addresses: bool,
    /// Whether there are alternative names that are URIs.
    pub has_uris: bool,
}

impl CertificateRequest {
    /// Parses a request in PEM. None: it is none.
    pub fn parse(pem: &[u8]) -> Option<CertificateRequest> {
        let pem = Pem::iter_from_buffer(pem).next()?.ok()?;
        let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
        let subject = &request.certification_request_info.subject;
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            value.as_str().map(str::to_owned).unwrap_or_default()
        };
        let mut parsed = CertificateRequest {
            // As in Go, of several the last one.
            common_name: subject.iter_common_name().last().map(text).unwrap_or_default(),
            organizations: subject.iter_organization().map(text).collect(),
            ..CertificateRequest::default()
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) => parsed.has_dns_names = true,
                    GeneralName::IPAddress(_) => parsed.has_ip_addresses = true,
                    GeneralName::RFC822Name(_) => parsed.has_email_addresses = true,
                    GeneralName::URI(_) => parsed.has_uris = true,
                    _ => {}
                }
            }
        }
        Some(parsed)
    }

    /// Whether a kubelet may ask for this as its client certificate.
    ///
    /// Source: `ValidateKubeletClientCSR` of `pkg/apis/certificates`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn validate_kubelet_client(&self, usages: &[String]) -> Result<(), String> {
        self.validate_organization()?;
        for (has, kind) in [
            (self.has_dns_names, "DNS"),
            (self.has_email_addresses, "Email"),
            (self.has_ip_addresses, "IP"),
            (self.has_uris, "URI"),
        ] {
            if has {
                return Err(format!("{kind} subjectAltNames are not allowed"));
            }
        }
        self.validate_node_name()?;
        validate_kubelet_usages(usages, &["client auth", "digital signature", "key encipherment"])
    }

    /// Whether a kubelet may ask for this as its serving certificate.
    ///
    /// Source: `ValidateKubeletServingCSR` of `pkg/apis/certificates`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn validate_kubelet_serving(&self, usages: &[String]) -> Result<(), String> {
        self.validate_organization()?;
        if !self.has_dns_names && !self.has_ip_addresses {
            return Err("DNS or IP subjectAltName is required".to_owned());
        }
        for (has, kind) in [(self.has_email_addresses, "Email"), (self.has_uris, "URI")] {
            if has {
                return Err(format!("{kind} subjectAltNames are not allowed"));
            }
        }
        validate_kubelet_usages(usages, &["digital signature", "key encipherment", "server auth"])?;
        self.validate_node_name()
    }

    fn validate_organization(&self) -> Result<(), String> {
        match self.organizations.as_slice() {
            [one] if one == "system:nodes" => Ok(()),
            _ => Err("subject organization is not system:nodes".to_owned()),
        }
    }

    fn validate_node_name(&self) -> Result<(), String> {
        match self.common_name.starts_with("system:node:") {
            true => Ok(()),
            false => Err("subject common name does not begin with system:node:".to_owned()),
        }
    }
}

/// Usages have to be those, or those without key encipherment. `wanted` are sorted.
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

/// The condition of a type.
pub fn condition<'a>(
    request: &'a CertificateSigningRequest,
    r#type: &str,
) -> Option<&'a CertificateSigningRequestCondition> {
    let conditions = request.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == r#type)
}

/// Whether a certificate was issued.
pub fn is_issued(request: &CertificateSigningRequest) -> bool {
    let certificate = request.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

/// When the first certificate in a PEM text expires.
pub fn expiry(pem: &[u8]) -> Option<Timestamp> {
    let pem = Pem::iter_from_buffer(pem).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&pem.contents).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_kubelets() {
        let client = CertificateRequest {
            common_name: "system:node:a".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            ..CertificateRequest::default()
        };
        let serving = CertificateRequest { has_dns_names: true, ..client.clone() };
        let but = |change: fn(&mut CertificateRequest), request: &CertificateRequest| {
            let mut request = request.clone();
            change(&mut request);
            request
        };
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
            (
                "two organizations",
                but(|r| r.organizations.push("x".into()), &client),
                both,
                "subject organization is not system:nodes",
            ),
            ("a name", but(|r| r.has_uris = true, &client), both, "URI subjectAltNames are not allowed"),
            (
                "no node",
                but(|r| r.common_name = "a".into(), &client),
                "x",
                "subject common name does not begin with system:node:",
            ),
        ] {
            let usages: Vec<String> = usages.split(',').map(str::to_owned).collect();
            assert_eq!(request.validate_kubelet_client(&usages).err().unwrap_or_default(), want, "{case}");
        }
        let both = "digital signature,key encipherment,server auth";
        for (case, request, usages, want) in [
            ("RSA", serving.clone(), both, ""),
            ("no name", client.clone(), both, "DNS or IP subjectAltName is required"),
            (
                "an e-mail",
                but(|r| r.has_email_addresses = true, &serving),
                both,
                "Email subjectAltNames are not allowed",
            ),
            (
                "usages before name",
                but(|r| r.common_name = "a".into(), &serving),
                "x",
                "usages did not match [digital signature key encipherment server auth]",
            ),
            (
                "no node",
                but(|r| r.common_name = "a".into(), &serving),
                both,
                "subject common name does not begin with system:node:",
            ),
        ] {
            let usages: Vec<String> = usages.split(',').map(str::to_owned).collect();
            assert_eq!(request.validate_kubelet_serving(&usages).err().unwrap_or_default(), want, "{case}");
        }
    }
}
