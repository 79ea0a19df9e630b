//! The programs of envtest, started, used and stopped as by controller-runtime's envtest.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_e2e::http::{Endpoint, HttpResponse};
use coracle_e2e::{binary, ports, wait};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::config::Kubeconfig;
use kube::{Client, Config};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// envtest's timeout for the start and the stop of a program.
const DEADLINE: Duration = Duration::from_secs(20);
/// envtest's poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Creates a folder with envtest's programs.
async fn assets(folder: &Path) -> Result<PathBuf> {
    let output = Command::new(binary::coracle()).arg("envtest-assets").arg(folder).output().await?;
    ensure!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout)?;
    assert_eq!(printed, format!("{}\n", folder.display()), "the path and nothing else");
    Ok(folder.to_owned())
}

async fn run(program: &Path, arguments: &[&str]) -> Result<Output> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    timeout(DEADLINE, output)
        .await
        .with_context(|| format!("{arguments:?} does not end"))?
        .context("no program")
}

/// Returns `true` if the help of a program has a flag. It parses the help as envtest does.
async fn has_flag(program: &Path, flag: &str) -> Result<bool> {
    let output = run(program, &["--help"]).await?;
    ensure!(output.status.success(), "{output:?}");
    let help = [output.stdout, output.stderr].concat();
    let flag = format!("--{flag}");
    Ok(String::from_utf8(help)?.lines().any(|line| line.split_whitespace().next() == Some(&flag)))
}

/// A program, in a process group of its own.
struct Process(Child);

impl Process {
    fn start(program: &Path, arguments: &[String], variables: &[(&str, &str)]) -> Result<Process> {
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().copied()).process_group(0).kill_on_drop(true);
        Ok(Process(command.stdin(Stdio::null()).spawn()?))
    }

    /// Sends SIGTERM to the process group and waits for its end.
    async fn stop(mut self) -> Result<ExitStatus> {
        let id = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).context("it has ended")?;
        kill_process_group(id, Signal::TERM)?;
        Ok(timeout(DEADLINE, self.0.wait()).await.context("it does not stop")??)
    }
}

/// Polls until the response is 200.
async fn ready(endpoint: &Endpoint, path: &str) -> Result<HttpResponse> {
    let began = Instant::now();
    loop {
        if let Ok(response) = get(endpoint, path).await
            && response.status == 200
        {
            return Ok(response);
        }
        ensure!(began.elapsed() < DEADLINE, "{path} is not ready");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn get(endpoint: &Endpoint, path: &str) -> Result<HttpResponse> {
    endpoint.connect().await?.call("GET", path, &[], None).await
}

/// A certificate authority as created by envtest.
struct Authority {
    pem: String,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Result<Authority> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, "envtest");
        params.distinguished_name.push(DnType::CommonName, "envtest-environment");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
        ];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority { pem, key_pem: key.serialize_pem(), issuer: Issuer::new(params, key) })
    }

    /// Issues a certificate. Returns the certificate and its key, both in PEM.
    fn issue(&self, names: &[&str], user: &str, groups: &[&str]) -> Result<(String, String)> {
        let mut params =
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.key_usages = vec![KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match names {
            [] => ExtendedKeyUsagePurpose::ClientAuth,
            _ => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

/// The certificates in envtest's directory.
struct Certificates {
    directory: TempDir,
    serving: Authority,
    clients: Authority,
}

impl Certificates {
    fn new() -> Result<Certificates> {
        let directory = TempDir::new()?;
        let (serving, clients, signer) = (Authority::new()?, Authority::new()?, Authority::new()?);
        let (certificate, key) = serving.issue(&["localhost", "127.0.0.1"], "localhost", &[])?;
        for (name, content) in [
            ("apiserver.crt", &certificate),
            ("apiserver.key", &key),
            ("client-cert-auth-ca.crt", &clients.pem),
            ("sa-signer.crt", &signer.pem),
            ("sa-signer.key", &signer.key_pem),
        ] {
            fs::write(directory.path().join(name), content)?;
        }
        Ok(Certificates { directory, serving, clients })
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// Returns the arguments that controller-runtime v0.24 passes to kube-apiserver.
    fn arguments(&self, port: u16) -> Vec<String> {
        vec![
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", self.directory.path().display()),
            format!("--client-ca-file={}", self.path("client-cert-auth-ca.crt")),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--etcd-servers=http://127.0.0.1:1".to_owned(),
            format!("--secure-port={port}"),
            format!("--service-account-issuer=https://127.0.0.1:{port}/"),
            format!("--service-account-key-file={}", self.path("sa-signer.crt")),
            format!("--service-account-signing-key-file={}", self.path("sa-signer.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        ]
    }

    /// Returns the client configuration that envtest's `AddUser` creates, or that of an anonymous
    /// client if there is no user.
    async fn config(&self, port: u16, user: Option<(&str, &[&str])>) -> Result<Config> {
        let mut credentials = json!({});
        if let Some((name, groups)) = user {
            let (certificate, key) = self.clients.issue(&[], name, groups)?;
            credentials = json!({
                "client-certificate-data": STANDARD.encode(certificate),
                "client-key-data": STANDARD.encode(key),
            });
        }
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "envtest",
            "contexts": [{"name": "envtest", "context": {"cluster": "envtest", "user": "user"}}],
            "clusters": [{"name": "envtest", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority-data": STANDARD.encode(&self.serving.pem),
            }}],
            "users": [{"name": "user", "user": credentials}],
        }))?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)
    }
}

const ADMIN: (&str, &[&str]) = ("admin", &["system:masters"]);

fn json_body(response: &HttpResponse) -> Result<Value> {
    Ok(serde_json::from_slice(&response.body)?)
}

/// Waits until the server is ready as envtest does: an anonymous request, and then the default
/// namespace.
async fn serving(certificates: &Certificates, port: u16) -> Result<Client> {
    ready(&Endpoint::new(&certificates.config(port, None).await?)?, "/healthz").await?;
    let admin = Client::try_from(certificates.config(port, Some(ADMIN)).await?)?;
    wait::until_object(Api::<Namespace>::all(admin.clone()), "default", |namespace| namespace.is_some())
        .await?;
    Ok(admin)
}

#[tokio::test]
async fn etcd_reports_its_health_and_stops() -> Result<()> {
    let folder = TempDir::new()?;
    let etcd = assets(&folder.path().join("assets")).await?.join("etcd");
    assert!(has_flag(&etcd, "unsafe-no-fsync").await?);
    let data = folder.path().join("data");
    // A data directory may be used again.
    for _ in 0..2 {
        let url = format!("http://127.0.0.1:{}", ports::free_port()?);
        let arguments = [
            format!("--advertise-client-urls={url}"),
            format!("--data-dir={}", data.display()),
            format!("--listen-client-urls={url}"),
            format!("--listen-peer-urls=http://127.0.0.1:{}", ports::free_port()?),
            "--unsafe-no-fsync=true".to_owned(),
        ];
        let process = Process::start(&etcd, &arguments, &[])?;
        let response = ready(&Endpoint::new(&Config::new(url.parse()?))?, "/health").await?;
        assert_eq!(response.body, r#"{"health":"true"}"#);
        assert!(process.stop().await?.success());
    }
    Ok(())
}

#[tokio::test]
async fn the_api_server_serves_envtests_users() -> Result<()> {
    let folder = TempDir::new()?;
    let program = assets(&folder.path().join("assets")).await?.join("kube-apiserver");
    assert!(!has_flag(&program, "insecure-port").await?);
    let certificates = Certificates::new()?;
    let port = ports::free_port()?;
    let process = Process::start(&program, &certificates.arguments(port), &[])?;
    let admin = serving(&certificates, port).await?;

    // A user has the groups of its certificate, and the rights of their bindings.
    let jane = certificates.config(port, Some(("jane", &["readers"]))).await?;
    let endpoint = Endpoint::new(&jane)?;
    let secrets = "/api/v1/namespaces/default/secrets";
    assert_eq!(get(&endpoint, secrets).await?.status, 403);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"}],
    });
    let request = post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding)?;
    admin.request::<Value>(request).await?;
    assert_eq!(get(&endpoint, secrets).await?.status, 200);

    // A certificate of another authority is not trusted.
    let stranger = Certificates { clients: Authority::new()?, ..certificates };
    let config = stranger.config(port, Some(ADMIN)).await?;
    assert_eq!(get(&Endpoint::new(&config)?, secrets).await?.status, 401);

    // No controller runs: accounts are the suite's to make, and so are nodes and storage classes.
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    for path in [accounts, "/api/v1/nodes", "/apis/storage.k8s.io/v1/storageclasses"] {
        let list: Value = admin.request(hyper::Request::get(path).body(Vec::new())?).await?;
        assert_eq!(list["items"], json!([]), "{path}");
    }

    // Tokens are signed with envtest's key, and name its issuer.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    admin.request::<Value>(post(accounts, &account)?).await?;
    let request = post(
        &format!("{accounts}/default/token"),
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}),
    )?;
    let token: Value = admin.request(request).await?;
    assert_eq!(token["spec"]["audiences"], json!([format!("https://127.0.0.1:{port}/")]));
    let token = token["status"]["token"].as_str().context("a token")?;
    let account = Endpoint::with_token(&stranger.config(port, None).await?, token)?;
    let forbidden = get(&account, secrets).await?;
    assert_eq!(forbidden.status, 403);
    let message = json_body(&forbidden)?["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("\"system:serviceaccount:default:default\""), "{message}");

    assert!(process.stop().await?.success());
    Ok(())
}

fn post(path: &str, body: &Value) -> Result<hyper::Request<Vec<u8>>> {
    let request = hyper::Request::post(path).header("Content-Type", "application/json");
    Ok(request.body(body.to_string().into_bytes())?)
}

/// Creates a namespace that only its controller could empty, and objects that controllers would
/// create or delete in it.
#[tokio::test]
async fn no_controller_runs_unless_it_is_selected() -> Result<()> {
    const SELECTED: &str = "namespace-controller,serviceaccount-controller,garbage-collector-controller";
    let folder = TempDir::new()?;
    let program = assets(&folder.path().join("assets")).await?.join("kube-apiserver");
    for (selection, are_running) in [("", false), (SELECTED, true)] {
        let certificates = Certificates::new()?;
        let port = ports::free_port()?;
        let variables = [("CORACLE_CONTROLLERS", selection)];
        let process = Process::start(&program, &certificates.arguments(port), &variables)?;
        let admin = serving(&certificates, port).await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "content"}});
        admin.request::<Value>(post("/api/v1/namespaces", &namespace)?).await?;
        let orphan = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "orphan",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "none", "uid": "none"}],
        }});
        admin.request::<Value>(post("/api/v1/namespaces/content/configmaps", &orphan)?).await?;
        let path = "/api/v1/namespaces/content";
        let exists = async |path: &str| -> Result<bool> {
            match admin.request::<Value>(hyper::Request::get(path).body(Vec::new())?).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        if are_running {
            for (object, is_left) in [("serviceaccounts/default", true), ("configmaps/orphan", false)] {
                let object = format!("{path}/{object}");
                wait::until(&object, async || exists(&object).await, |is_there| *is_there == is_left).await?;
            }
        }
        admin.request::<Value>(hyper::Request::delete(path).body(Vec::new())?).await?;
        if are_running {
            wait::until("the end of the namespace", async || exists(path).await, |is_there| !is_there)
                .await?;
        } else {
            let left: Value = admin.request(hyper::Request::get(path).body(Vec::new())?).await?;
            assert_eq!(left["status"]["phase"], "Terminating");
            assert!(exists(&format!("{path}/configmaps/orphan")).await?);
            assert!(!exists(&format!("{path}/serviceaccounts/default")).await?);
        }
        assert!(process.stop().await?.success());
    }
    Ok(())
}

/// Sends requests one after the other, each of which is delayed.
#[tokio::test]
async fn responses_are_delayed_by_the_latency() -> Result<()> {
    const REQUESTS: u32 = 20;
    let folder = TempDir::new()?;
    let program = assets(&folder.path().join("assets")).await?.join("kube-apiserver");
    let certificates = Certificates::new()?;
    let port = ports::free_port()?;
    let variables = [("CORACLE_RESPONSE_LATENCY", "10ms")];
    let process = Process::start(&program, &certificates.arguments(port), &variables)?;
    let admin = serving(&certificates, port).await?;
    let began = Instant::now();
    for _ in 0..REQUESTS {
        let request = hyper::Request::get("/api/v1/namespaces/default").body(Vec::new())?;
        admin.request::<Value>(request).await?;
    }
    assert!(began.elapsed() >= REQUESTS * Duration::from_millis(10), "{:?}", began.elapsed());
    assert!(process.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn nonsense_in_the_environment_is_rejected_with_one_line() -> Result<()> {
    let folder = TempDir::new()?;
    let program = assets(&folder.path().join("assets")).await?.join("kube-apiserver");
    for (name, value, want) in [
        ("CORACLE_CONTROLLERS", "jobs", "\"jobs\" is not in the list of known controllers"),
        ("CORACLE_NODES", "many", "it must be 0, or a whole number from 1 to 5000"),
        ("CORACLE_RESPONSE_LATENCY", "2", "it must be 0, or a duration from 100µs to 1s"),
    ] {
        let output = Command::new(&program).env(name, value).kill_on_drop(true).output();
        let output = timeout(DEADLINE, output).await.context("it does not end")??;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{name}: {stderr}");
        assert!(stderr.starts_with(&format!("Error: {name}: ")) && stderr.contains(want), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    Ok(())
}

#[tokio::test]
async fn legacy_arguments_make_certificates_that_are_used_again() -> Result<()> {
    let folder = TempDir::new()?;
    let program = assets(&folder.path().join("assets")).await?.join("kube-apiserver");
    let tokens = folder.path().join("tokens.csv");
    fs::write(&tokens, "secret,carol,1,system:masters\n")?;
    let directory = folder.path().join("certificates");
    let mut made = None;
    for _ in 0..2 {
        let port = ports::free_port()?;
        let arguments = [
            "--advertise-address=127.0.0.1".to_owned(),
            "--etcd-servers=http://127.0.0.1:1".to_owned(),
            format!("--cert-dir={}", directory.display()),
            String::new(),
            format!("--secure-port={port}"),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--service-cluster-ip-range=10.1.0.0/16".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            format!("--token-auth-file={}", tokens.display()),
            "--audit-log-path=-".to_owned(),
            "--runtime-config=api/all=true".to_owned(),
        ];
        let variables = [("CORACLE_NODES", "2"), ("CORACLE_CONTROLLERS", "*")];
        let process = Process::start(&program, &arguments, &variables)?;
        let certificate = directory.join("apiserver.crt");
        wait::until("the certificate", async || Ok(certificate.exists()), |is_there| *is_there).await?;
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse()?);
        let pem = fs::read(&certificate)?;
        assert_eq!(made.get_or_insert_with(|| pem.clone()), &pem);
        let kubeconfig: Kubeconfig = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {
                "server": config.cluster_url.to_string(), "certificate-authority-data": STANDARD.encode(pem),
            }}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
        }))?;
        config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        let endpoint = Endpoint::new(&config)?;
        ready(&endpoint, "/healthz").await?;
        let service = json_body(&get(&endpoint, "/api/v1/namespaces/default/services/kubernetes").await?)?;
        assert_eq!(service["spec"]["clusterIP"], "10.1.0.1");
        // The variables select nodes and controllers.
        wait::until(
            "two nodes",
            async || {
                Ok(json_body(&get(&endpoint, "/api/v1/nodes").await?)?["items"]
                    .as_array()
                    .map_or(0, Vec::len))
            },
            |count| *count == 2,
        )
        .await?;
        assert!(process.stop().await?.success());
    }
    Ok(())
}

#[tokio::test]
async fn nonsense_is_rejected_with_one_line() -> Result<()> {
    let folder = TempDir::new()?;
    let assets = assets(&folder.path().join("assets")).await?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port();
    let junk = folder.path().join("junk");
    fs::write(&junk, "junk")?;
    let junk = junk.display();
    for (program, arguments, want) in [
        ("kube-apiserver", vec!["--nope".to_owned()], "unknown flag: --nope"),
        ("kube-apiserver", vec!["nope".to_owned()], "does not take any arguments"),
        ("kube-apiserver", vec!["--secure-port".to_owned()], "flag needs an argument: --secure-port"),
        (
            "kube-apiserver",
            vec!["--bind-address=127.0.0.1".to_owned(), format!("--secure-port={port}")],
            "cannot listen on 127.0.0.1",
        ),
        ("kube-apiserver", vec![format!("--client-ca-file={junk}")], "junk: no certificate in it"),
        ("kube-apiserver", vec!["--client-ca-file=/no/such".to_owned()], "/no/such: "),
        ("kube-apiserver", vec![format!("--token-auth-file={junk}")], "token file "),
        (
            "kube-apiserver",
            vec![format!("--service-account-signing-key-file={junk}")],
            "no usable signing key",
        ),
        ("kube-apiserver", vec![format!("--service-account-key-file={junk}")], "no usable public key"),
        ("kube-apiserver", vec![format!("--cert-dir={junk}")], "junk"),
        ("etcd", vec!["--nope".to_owned()], "flag provided but not defined: -nope"),
        ("etcd", vec![format!("--listen-client-urls=http://127.0.0.1:{port}")], "cannot listen on 127.0.0.1"),
        ("etcd", vec![format!("--data-dir={junk}")], "junk: "),
    ] {
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let free = format!("--secure-port={}", ports::free_port()?);
        if program == "kube-apiserver"
            && !arguments.iter().any(|argument| argument.starts_with("--secure-port"))
        {
            arguments.insert(0, &free);
        }
        let output = run(&assets.join(program), &arguments).await?;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        // The log of a start may come before it.
        let lines: Vec<&str> = stderr.lines().filter(|line| !line.contains(" INFO ")).collect();
        let [line] = lines.as_slice() else { panic!("{arguments:?}: {stderr}") };
        assert!(line.starts_with("Error: ") && line.contains(want), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    Ok(())
}
