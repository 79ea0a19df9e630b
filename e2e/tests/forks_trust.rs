//! Forks of one control plane do not trust each other, and lead to servers of their own.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use coracle::{ControlPlane, ForkOptions, ServiceUrl};
use coracle_e2e::http::{Endpoint, config, config_at};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::webhook::WebhookServer;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::ByteString;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

const FORKS: &str = "/coracle/v1alpha1/forks";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A control plane and forks of it that clients asked for.
struct Family {
    parent: ControlPlane,
    config: kube::Config,
}

impl Family {
    async fn start() -> Result<Family> {
        let parent = ControlPlane::builder().ephemeral().start().await?;
        let config = config(&parent.own_kubeconfig()?).await?;
        Ok(Family { parent, config })
    }

    async fn client(&self) -> Result<JsonClient> {
        JsonClient::new(&Endpoint::new(&self.config)?).await
    }

    /// Makes a fork. Returns the configuration of a client with the caller's credentials.
    async fn fork(&self, request: Value) -> Result<kube::Config> {
        let fork = self.client().await?.call("POST", FORKS, Some(request)).await?;
        config_at(&self.config, fork["server"].as_str().context("a URL")?)
    }
}

/// Requests a certificate for a user from a control plane. Returns it with its key, both in PEM.
async fn certificate(config: &kube::Config, user: &str) -> Result<(Vec<u8>, String)> {
    let mut client = JsonClient::new(&Endpoint::new(config)?).await?;
    let (key, mut params) = (KeyPair::generate()?, CertificateParams::default());
    params.distinguished_name.push(DnType::CommonName, user);
    let request = ByteString(params.serialize_request(&key)?.pem()?.into_bytes());
    let object = json!({"metadata": {"name": user}, "spec": {"request": serde_json::to_value(request)?,
        "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    let mut created = client.create(REQUESTS, object).await?;
    created["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]});
    let path = format!("{REQUESTS}/{user}");
    client.call("PUT", &format!("{path}/approval"), Some(created)).await?;
    let signed = client.until(&path, |request| request["status"]["certificate"].is_string()).await?;
    let certificate: ByteString = serde_json::from_value(signed["status"]["certificate"].clone())?;
    Ok((certificate.0, key.serialize_pem()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_a_fork_is_trusted_by_it_alone() -> Result<()> {
    let family = Family::start().await?;
    let (a, b) = (family.fork(json!({"name": "a"})).await?, family.fork(json!({"name": "b"})).await?);
    for (name, issuer, trusted) in
        [("parent", &family.config, [403, 403, 403, 403, 403]), ("a", &a, [401, 403, 401, 401, 401])]
    {
        let (certificate, key) = certificate(issuer, name).await?;
        let with = |config: &kube::Config| {
            let mut config = config.clone();
            config.auth_info.client_certificate_data = Some(STANDARD.encode(&certificate));
            config.auth_info.client_key_data = Some(STANDARD.encode(&key).into());
            Endpoint::new(&config)
        };
        let mut statuses = Vec::new();
        for (config, below) in [
            (&family.config, ""),
            (&a, ""),
            (&b, ""),
            (&family.config, "/coracle/forks/a"),
            (&family.config, "/coracle/forks/b"),
        ] {
            let path = format!("{below}{CONFIG_MAPS}");
            statuses.push(with(config)?.connect().await?.call("GET", &path, &[], None).await?.status);
        }
        // 403: the user is known, and has no rights.
        ensure!(
            statuses == trusted,
            "of {name}: {statuses:?}, at the parent, a, b, and a and b below the parent"
        );
    }
    Ok(())
}

/// Checks that the endpoints for tests, which read the host of a request, are served below the path
/// over HTTP/2 too.
#[tokio::test(flavor = "multi_thread")]
async fn forks_are_reached_below_their_parent_over_http2() -> Result<()> {
    let family = Family::start().await?;
    family.fork(json!({"name": "a"})).await?;
    let endpoint = Endpoint::new(&family.config)?;
    let io = TokioIo::new(endpoint.tls(b"h2").await?);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
    let _connection = tokio::spawn(connection);
    let host = family.config.cluster_url.authority().context("a host")?.clone();
    for (host, path, want) in [
        (host.as_str(), format!("/coracle/forks/a{CONFIG_MAPS}"), 200),
        (host.as_str(), format!("/coracle/forks/a{FORKS}"), 200),
        ("example.com", format!("/coracle/forks/a{FORKS}"), 403),
    ] {
        let request = Request::get(format!("https://{host}{path}")).body(Full::<Bytes>::default())?;
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status == want, "{host}{path}: {status} {body:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_fork_lead_to_no_server_of_its_family() -> Result<()> {
    let family = Family::start().await?;
    let a = family.fork(json!({"name": "a"})).await?;
    let second: Value = {
        let mut client = JsonClient::new(&Endpoint::new(&a)?).await?;
        client.call("POST", FORKS, Some(json!({"name": "second"}))).await?
    };
    let second = config_at(&a, second["server"].as_str().context("a URL")?)?;
    let mut client = JsonClient::new(&Endpoint::new(&second)?).await?;
    for (name, config) in [("to-parent", &family.config), ("to-a", &a), ("to-itself", &second)] {
        let port = config.cluster_url.port_u16().context("a port")?;
        let forward = json!({"sim.coracle.dev/forward": format!("80=127.0.0.1:{port}")});
        let pods = "/api/v1/namespaces/default/pods";
        let pod = json!({"metadata": {"name": name, "annotations": forward}, "spec": {"containers": [{"name": "c", "image": "app"}]}});
        client.create(pods, pod).await?;
        client.until(&format!("{pods}/{name}"), |pod| pod["status"]["phase"] == "Running").await?;
        let (status, body) =
            client.send("GET", &format!("{pods}/https:{name}:80/proxy/version"), None).await?;
        ensure!(
            status == 503 && body["message"].as_str().is_some_and(|text| text.contains("is not reached")),
            "{name}: {status} {body}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_names_the_server_leads_to_the_fork() -> Result<()> {
    let family = Family::start().await?;
    let mut client = family.client().await?;
    let port = |config: &kube::Config| config.cluster_url.port_u16().context("a port");
    // A webhook at an address of the control plane. It refuses all, since no webhook is there; the
    // error names the status of the server that was called.
    let (parent_port, ca) = (port(&family.config)?, family.config.root_cert.clone().context("an authority")?);
    let ca = ca.iter().map(|der| {
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
    });
    let url = format!("https://127.0.0.1:{parent_port}{CONFIG_MAPS}/none");
    let webhook = json!({"metadata": {"name": "own"}, "webhooks": [{"name": "own.example.com", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": url, "caBundle": STANDARD.encode(ca.collect::<String>())},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"]}]}]});
    client.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", webhook).await?;
    let fork = family.parent.fork().await?;
    family.parent.shutdown().await?;
    let a = config_at(&family.config, &fork.url())?;
    let mut client = JsonClient::new(&Endpoint::new(&a)?).await?;
    let secret = json!({"metadata": {"name": "s"}});
    let (status, body) = client.send("POST", "/api/v1/namespaces/default/secrets", Some(secret)).await?;
    // Upstream's text for a response that is not a review; other failures have other texts.
    let is_answered =
        body["message"].as_str().is_some_and(|text| text.ends_with("failed to call webhook: unknown"));
    ensure!(status == 500 && is_answered, "{status} {body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_the_server_leads_to_the_fork() -> Result<()> {
    let family = Family::start().await?;
    let a = family.fork(json!({})).await?;
    for config in [&family.config, &a] {
        let mut client = JsonClient::new(&Endpoint::new(config)?).await?;
        let service = client.get("/api/v1/namespaces/default/services/kubernetes").await?;
        let target = &service["spec"]["ports"][0]["targetPort"];
        ensure!(target.as_u64() == config.cluster_url.port_u16().map(u64::from), "{target}");
    }
    Ok(())
}

/// Gives each test a webhook server of its own, for one Service that the template names.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_of_forks_are_servers_of_their_tests() -> Result<()> {
    let parent = ControlPlane::builder().ephemeral().nodes(0).start().await?;
    let server = async |allowed: bool| {
        WebhookServer::start(&["hook.default.svc"], Arc::new(move |_, _| json!({"allowed": allowed}))).await
    };
    let servers = [server(true).await?, server(false).await?];
    let pem = servers
        .iter()
        .map(|server| STANDARD.decode(&server.ca_bundle))
        .collect::<Result<Vec<_>, _>>()?
        .concat();
    let config = config(&parent.own_kubeconfig()?).await?;
    let mut client = JsonClient::new(&Endpoint::new(&config)?).await?;
    let webhook = json!({"metadata": {"name": "hook"}, "webhooks": [{"name": "hook.example.com", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["*"]}],
        "clientConfig": {"service": {"namespace": "default", "name": "hook"}, "caBundle": STANDARD.encode(pem)}}]});
    client.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", webhook).await?;
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = || Some(json!({"metadata": {"name": "s"}}));

    for (server, want) in servers.iter().zip([201, 400]) {
        let url =
            ServiceUrl { namespace: "default".to_owned(), name: "hook".to_owned(), url: server.url("") };
        let fork = parent
            .fork_with(ForkOptions { webhook_service_urls: vec![url], ..ForkOptions::default() })
            .await?;
        let of_fork = config_at(&config, &fork.url())?;
        let (status, body) =
            JsonClient::new(&Endpoint::new(&of_fork)?).await?.send("POST", secrets, secret()).await?;
        ensure!(status == want, "{status} {body}");
        ensure!(server.take_reviews().len() == 1);
    }
    let (status, body) = client.send("POST", secrets, secret()).await?;
    ensure!(status == 500, "the parent knows neither: {status} {body}");

    for urls in [
        json!({"hook": "https://127.0.0.1:1"}),
        json!({"default/hook": "http://127.0.0.1:1"}),
        json!({"default/hook": ""}),
    ] {
        let (status, body) = client.send("POST", FORKS, Some(json!({"webhookServiceURLs": urls}))).await?;
        ensure!(
            status == 422
                && body["message"].as_str().is_some_and(|text| text.starts_with("webhookServiceURLs: ")),
            "{status} {body}"
        );
    }
    Ok(())
}
