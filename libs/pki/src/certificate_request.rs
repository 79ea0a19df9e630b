//! Certificate signing requests (PKCS#10).

use std::collections::HashSet;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::ParsedExtension;
use x509_parser::oid_registry::{OID_PKCS9_EXTENSION_REQUEST, OID_X509_EXT_SUBJECT_ALT_NAME};
use x509_parser::prelude::FromDer;

use crate::{AlternativeNames, Error, Subject, pem};

/// The type of the PEM block of a request.
const LABEL: &[u8] = b"CERTIFICATE REQUEST";

/// A request by its contents, of which a certificate is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The subject.
    pub subject: Subject,
    /// The alternative names.
    pub names: AlternativeNames,
    /// The public key: a SubjectPublicKeyInfo in DER.
    pub public_key: Vec<u8>,
    /// The whole request in DER, which is signed.
    der: Vec<u8>,
}

impl CertificateRequest {
    /// Parses the first PEM block of a document. Its signature is not verified.
    ///
    /// Source: `ParseCSR` of `pkg/apis/certificates`. Data before and after the block is ignored; a
    /// block of another type is not skipped.
    ///
    /// # Errors
    /// The first block is not a request, or it is malformed.
    pub fn parse(document: &[u8]) -> Result<CertificateRequest, Error> {
        match pem::decode(document) {
            Some((block, _)) if block.label == LABEL => CertificateRequest::from_der(block.contents),
            _ => Err(Error::BlockType),
        }
    }

    fn from_der(der: Vec<u8>) -> Result<CertificateRequest, Error> {
        let (rest, request) = X509CertificationRequest::from_der(&der).map_err(|_| Error::Structure)?;
        if !rest.is_empty() {
            return Err(Error::TrailingData);
        }
        let info = &request.certification_request_info;
        let (subject, names) = (Subject::read(&info.subject)?, alternative_names(&request)?);
        let public_key = info.subject_pki.raw.to_vec();
        Ok(CertificateRequest { subject, names, public_key, der })
    }

    /// Verifies that the request is signed by its own key.
    ///
    /// # Errors
    /// It is not, or its algorithm is not supported.
    pub fn verify_signature(&self) -> Result<(), Error> {
        let (_, request) = X509CertificationRequest::from_der(&self.der).map_err(|_| Error::Structure)?;
        request.verify_signature().map_err(|_| Error::Signature)
    }
}

/// Returns the requested alternative names among the extensions. A duplicate extension is an error.
///
/// Source: `parseCSRExtensions` of Go's `crypto/x509`.
fn alternative_names(request: &X509CertificationRequest<'_>) -> Result<AlternativeNames, Error> {
    let mut known = HashSet::new();
    let mut names = AlternativeNames::default();
    for attribute in request.certification_request_info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
            if attribute.oid == OID_PKCS9_EXTENSION_REQUEST {
                return Err(Error::Structure);
            }
            continue;
        };
        for extension in &requested.extensions {
            if !known.insert(extension.oid.clone()) {
                return Err(Error::DuplicateExtensions);
            }
            if extension.oid != OID_X509_EXT_SUBJECT_ALT_NAME {
                continue;
            }
            match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(read) => names = AlternativeNames::read(read)?,
                _ => return Err(Error::AlternativeNames),
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn request_for(organization: &str) -> String {
        let mut params = CertificateParams::new(["a.example.com".to_owned()]).expect("names");
        params.distinguished_name.push(DnType::CommonName, "jane");
        params.distinguished_name.push(DnType::OrganizationName, organization);
        let key = KeyPair::generate().expect("a key");
        params.serialize_request(&key).expect("a request").pem().expect("PEM")
    }

    #[test]
    fn a_request_is_read_once() {
        let request = CertificateRequest::parse(request_for("devs").as_bytes()).expect("a request");
        assert_eq!(request.subject.common_name(), "jane");
        assert_eq!(request.subject.organizations().collect::<Vec<_>>(), ["devs"]);
        assert_eq!(
            request.names,
            AlternativeNames { dns: vec!["a.example.com".into()], ..Default::default() }
        );
        assert_eq!(request.verify_signature(), Ok(()));
    }

    #[test]
    fn only_the_first_block_counts() {
        let (devs, masters) = (request_for("devs"), request_for("system:masters"));
        let foreign = masters.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST");
        let malformed = masters.replacen('\n', "\n%", 1);
        for (case, document, want) in [
            ("a block of another type before", format!("{foreign}{devs}"), Err(Error::BlockType)),
            ("a block of another type behind", format!("{devs}{foreign}"), Ok("devs")),
            ("two requests", format!("{devs}{masters}"), Ok("devs")),
            ("text around it", format!("text\n{devs}text"), Ok("devs")),
            ("a malformed block before", format!("{malformed}{devs}"), Ok("devs")),
            ("no block", "text".to_owned(), Err(Error::BlockType)),
        ] {
            let got = CertificateRequest::parse(document.as_bytes());
            let got = got.map(|request| request.subject.organizations().collect::<Vec<_>>().join(","));
            assert_eq!(got, want.map(str::to_owned), "{case}");
        }
    }

    #[test]
    fn no_bytes_follow_a_request() {
        let devs = request_for("devs");
        let (block, _) = pem::decode(devs.as_bytes()).expect("a block");
        let der = [block.contents.as_slice(), &[0]].concat();
        assert_eq!(CertificateRequest::from_der(der), Err(Error::TrailingData));
    }
}
