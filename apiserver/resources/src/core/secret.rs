//! Secret: data of a type, and the rules of the types.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_apimachinery::codec;
use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::selector::FieldSource::At;
use coracle_apimachinery::selector::SelectableFields;
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::immutable::immutable_text;
use coracle_apimachinery::validation::member;
use serde_json::Value;

use super::config_map::{MAX_SIZE, encoded_size, validate_immutable, validate_key};

/// The fields that a field selector may name.
pub const SELECTABLE_FIELDS: SelectableFields = SelectableFields::of(&[("type", At("/type"))]);

const TLS: &str = "kubernetes.io/tls";
const SERVICE_ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

/// The strategy of Secret.
pub struct SecretStrategy;

impl Strategy for SecretStrategy {
    fn default(&self, secret: &mut Value) {
        encode_strings(secret);
        if secret["type"].as_str().unwrap_or("").is_empty() {
            secret["type"] = "Opaque".into();
        }
    }

    fn validate(&self, secret: &Field<'_>, errors: &mut Errors) {
        let data = secret.get("data");
        for (key, value) in data.entries() {
            validate_key(key, &value, errors);
        }
        errors.push_if(encoded_size(&data) > MAX_SIZE, || data.too_long(MAX_SIZE));
        validate_type(secret, errors);
    }

    fn validate_update(&self, secret: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        immutable_text(&secret.get("type"), &old.get("type"), errors);
        validate_immutable(secret, old, &["data"], errors);
        self.validate(secret, errors);
    }

    fn warnings(&self, secret: &Field<'_>, _: Option<&Field<'_>>) -> Vec<String> {
        match secret.get("type").str() {
            TLS => {
                key_pair_error(&decoded(secret, "tls.crt"), &decoded(secret, "tls.key")).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Moves the values of `stringData`, which is write-only, to `data`.
fn encode_strings(secret: &mut Value) {
    let Some(strings) = secret.as_object_mut().and_then(|members| members.remove("stringData")) else {
        return;
    };
    for (key, value) in strings.as_object().into_iter().flatten() {
        secret["data"][key.as_str()] = STANDARD.encode(value.as_str().unwrap_or("")).into();
    }
}

fn decoded(secret: &Field<'_>, key: &str) -> Vec<u8> {
    STANDARD.decode(secret.get("data").get(key).str()).unwrap_or_default()
}

fn validate_type(secret: &Field<'_>, errors: &mut Errors) {
    let data = secret.get("data");
    let mut require = |wrong: bool, key: &str| errors.push_if(wrong, || data.entry(key).required(""));
    match secret.get("type").str() {
        "kubernetes.io/service-account-token" => {
            member::required(&secret.walk("metadata.annotations").entry(SERVICE_ACCOUNT_NAME), errors);
        }
        "kubernetes.io/dockercfg" => validate_json(secret, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => validate_json(secret, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" => {
            let neither = ["username", "password"].iter().all(|key| !data.entry(key).exists());
            require(neither, "username");
            require(neither, "password");
        }
        "kubernetes.io/ssh-auth" => require(data.entry("ssh-privatekey").is_empty(), "ssh-privatekey"),
        TLS => {
            for key in ["tls.crt", "tls.key"] {
                require(!data.entry(key).exists(), key);
            }
        }
        _ => {}
    }
}

/// Validates a required value that must be a JSON object.
fn validate_json(secret: &Field<'_>, key: &str, errors: &mut Errors) {
    let value = secret.get("data").entry(key);
    if !value.exists() {
        errors.push(value.required(""));
    } else if let Some(error) = json_object_error(&decoded(secret, key)) {
        errors.push(value.invalid_value("<secret contents redacted>", error));
    }
}

fn json_object_error(text: &[u8]) -> Option<String> {
    let kind = match codec::json::decode_value(text) {
        Err(error) => return Some(error.to_string()),
        Ok(decoded) => match decoded.value {
            Value::Object(_) | Value::Null => return None,
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
        },
    };
    Some(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"))
}

/// Returns the reason if a certificate and a key do not belong together, as far as their PEM blocks
/// show.
fn key_pair_error(certificate: &[u8], key: &[u8]) -> Option<String> {
    let is_certificate = |block: &&PemBlock| block.kind == "CERTIFICATE";
    let is_key = |block: &&PemBlock| block.kind.ends_with("PRIVATE KEY");
    let (certificates, keys) = (pem_blocks(certificate), pem_blocks(key));
    let Some(first) = certificates.iter().find(is_certificate) else {
        return Some(match certificates.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [only] if is_key(&only) => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
            skipped => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", kinds(skipped)),
        });
    };
    if !keys.iter().any(|block| is_key(&block)) {
        return Some(match keys.as_slice() {
            [] => "tls: failed to find any PEM data in key input".to_owned(),
            [only] if is_certificate(&only) => {
                "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            skipped => format!(
                "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
                kinds(skipped)
            ),
        });
    }
    // A certificate's DER is a SEQUENCE.
    (first.der.first() != Some(&0x30)).then(|| "x509: malformed certificate".to_owned())
}

fn kinds(blocks: &[PemBlock]) -> String {
    blocks.iter().map(|block| block.kind.as_str()).collect::<Vec<_>>().join(" ")
}

struct PemBlock {
    kind: String,
    der: Vec<u8>,
}

/// Parses the well-formed blocks of a PEM text.
fn pem_blocks(text: &[u8]) -> Vec<PemBlock> {
    let text = String::from_utf8_lossy(text);
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim_end);
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) else {
            continue;
        };
        let end = format!("-----END {kind}-----");
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != end).collect();
        let encoded: String = body.into_iter().filter(|line| !line.contains(':')).collect();
        if let Ok(der) = STANDARD.decode(encoded) {
            blocks.push(PemBlock { kind: kind.to_owned(), der });
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn string_data_is_written_to_data() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"a": "new", "b": "ü"}});
        SecretStrategy.default(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "bmV3", "b": "w7w="}, "type": "Opaque"}));
    }

    #[test]
    fn mismatched_key_pairs_are_rejected() {
        let block =
            |kind: &str, body: &str| format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n");
        let (certificate, key) = (block("CERTIFICATE", "MAAA"), block("PRIVATE KEY", "MAAA"));
        for (certificate, key, want) in [
            (certificate.clone(), key.clone(), None),
            (String::new(), key.clone(), Some("tls: failed to find any PEM data in certificate input")),
            (certificate.clone(), "x".to_owned(), Some("tls: failed to find any PEM data in key input")),
            (
                certificate.clone(),
                certificate.clone(),
                Some("tls: found a certificate rather than a key in the PEM for the private key"),
            ),
            (block("CERTIFICATE", "AAAA"), key.clone(), Some("x509: malformed certificate")),
        ] {
            assert_eq!(key_pair_error(certificate.as_bytes(), key.as_bytes()).as_deref(), want);
        }
    }
}
