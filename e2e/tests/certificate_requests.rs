//! CertificateSigningRequests of users who want more rights than they are asked to be given.

use anyhow::{Context, Result};
use coracle_e2e::cluster;
use coracle_e2e::json_client::JsonClient;
use k8s_openapi::ByteString;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Builds a request in PEM.
fn request(group: &str) -> Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "mallory");
    params.distinguished_name.push(DnType::OrganizationName, group);
    Ok(params.serialize_request(&KeyPair::generate()?)?.pem()?)
}

fn object(name: &str, document: String) -> Result<Value> {
    Ok(json!({"metadata": {"name": name}, "spec": {
        "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
        "request": serde_json::to_value(ByteString(document.into_bytes()))?}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_of_two_requests_has_one_meaning() -> Result<()> {
    let cluster = cluster().flag("--nodes", "0").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let (devs, masters) = (request("devs")?, request("system:masters")?);
    let foreign = masters.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST");
    for (name, document, code, message) in [
        ("another-type", format!("{foreign}{devs}"), 422, "PEM block type must be CERTIFICATE REQUEST"),
        ("masters", format!("{masters}{devs}"), 403, "system:masters group is not allowed"),
    ] {
        let (status, response) = client.send("POST", REQUESTS, Some(object(name, document)?)).await?;
        assert_eq!(status, code, "{name}: {response}");
        assert!(response["message"].as_str().context("a message")?.contains(message), "{name}: {response}");
    }
    client.create(REQUESTS, object("devs", format!("{devs}{masters}{foreign}"))?).await?;
    let path = format!("{REQUESTS}/devs");
    let mut approved = client.get(&path).await?;
    approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]});
    client.call("PUT", &format!("{path}/approval"), Some(approved)).await?;
    let signed = client.until(&path, |request| request["status"]["certificate"].is_string()).await?;
    let certificate: ByteString = serde_json::from_value(signed["status"]["certificate"].clone())?;
    let der = CertificateDer::from_pem_slice(&certificate.0)?;
    let has = |text: &[u8]| der.windows(text.len()).any(|window| window == text);
    assert!(has(b"devs") && !has(b"system:masters"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_cannot_be_taken_back() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    client.create(REQUESTS, object("devs", request("devs")?)?).await?;
    let path = format!("{REQUESTS}/devs");
    let approval = format!("{path}/approval");
    let mut approved = client.get(&path).await?;
    approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]});
    let approved = client.call("PUT", &approval, Some(approved)).await?;
    for status in [json!({}), json!({"conditions": []}), json!(null)] {
        let mut changed = approved.clone();
        changed["status"] = status.clone();
        let (code, response) = client.send("PUT", &approval, Some(changed)).await?;
        let message = response["message"].as_str().unwrap_or_default();
        let want = r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#;
        assert!(code == 422 && message.contains(want), "{status}: {response}");
    }
    Ok(())
}
