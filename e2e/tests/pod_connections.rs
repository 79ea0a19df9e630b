//! Connections to simulated pods: exec, attach, port-forward and proxies, by kube-rs over
//! WebSockets. `e2e/clients` has those of other clients, over SPDY too.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster;
use coracle_e2e::cluster::{Builder, Cluster};
use coracle_e2e::http::Connection;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::wait::DEADLINE;
use coracle_e2e::webhook::{Handler, WebhookServer};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";

struct Scenario {
    cluster: Cluster,
    client: JsonClient,
}

impl Scenario {
    async fn start(builder: Builder) -> Result<Scenario> {
        let cluster = builder.with_service_account().start().await?;
        let client = JsonClient::new(&cluster.endpoint().await?).await?;
        Ok(Scenario { cluster, client })
    }

    /// Creates a pod of one container and waits until it is running.
    async fn run(&mut self, name: &str, annotations: Value, container: Value) -> Result<()> {
        let mut full = json!({"name": "main", "image": "app"});
        full.as_object_mut()
            .context("an object")?
            .extend(container.as_object().context("an object")?.clone());
        let meta = json!({"name": name, "labels": {"app": name}, "annotations": annotations});
        self.client.create(PODS, json!({"metadata": meta, "spec": {"containers": [full]}})).await?;
        self.client
            .until(&format!("{PODS}/{name}"), |pod| pod["status"]["phase"] == "Running")
            .await
            .map(drop)
    }

    async fn pods(&self) -> Result<Api<Pod>> {
        Ok(Api::default_namespaced(self.cluster.client().await?))
    }

    /// Executes a command, and returns its output, its output of errors, and its exit code.
    async fn exec(&self, pod: &str, command: &[&str]) -> Result<(String, String, i32)> {
        let parameters = AttachParams::default().container("main");
        let process =
            timeout(DEADLINE, self.pods().await?.exec(pod, command.to_vec(), &parameters)).await??;
        ended(process).await
    }

    /// Returns the status and the text of a response.
    async fn request(&self, method: &str, path: &str, body: Option<Value>) -> Result<(u16, String)> {
        let mut connection: Connection = self.cluster.endpoint().await?.connect().await?;
        let body = body.map(|body| body.to_string().into());
        let response = timeout(DEADLINE, connection.call(method, path, &[], body)).await??;
        Ok((response.status, String::from_utf8_lossy(&response.body).into_owned()))
    }
}

/// Returns the output of a process, its error output, and its exit code.
async fn ended(mut process: AttachedProcess) -> Result<(String, String, i32)> {
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let status = process.take_status().context("a status")?;
    let (mut out, mut err) = (process.stdout().context("stdout")?, process.stderr().context("stderr")?);
    let read = async { tokio::try_join!(out.read_to_string(&mut stdout), err.read_to_string(&mut stderr)) };
    timeout(DEADLINE, read).await??;
    let status = timeout(DEADLINE, status).await?.context("an outcome")?;
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message.as_deref()?.parse().ok()).unwrap_or(0);
    ensure!((status.status.as_deref() == Some("Success")) == (code == 0), "{:?}", status.message);
    Ok((stdout, stderr, code))
}

/// Serves TCP on any free port: each connection gets back what it sends, after a greeting.
async fn echo_server() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(b"hello ").await?;
                let (mut reader, mut writer) = stream.split();
                tokio::io::copy(&mut reader, &mut writer).await
            });
        }
    });
    Ok(address)
}

/// Serves HTTP on any free port: a response names the method, the path, the host and the body of
/// its request.
async fn http_server() -> Result<SocketAddr> {
    use http_body_util::BodyExt;
    use hyper::{Request, Response, body::Incoming, service::service_fn};

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let respond = async |request: Request<Incoming>| {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let header = |name: &str| {
            head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-").to_owned()
        };
        let (uri, body) = (head.uri.to_string(), String::from_utf8_lossy(&body).into_owned());
        let text = format!("{} {uri} {} {} {body}", head.method, header("host"), header("authorization"));
        let mut response = Response::new(text);
        if head.uri.path() == "/moved" {
            *response.status_mut() = hyper::StatusCode::FOUND;
            response.headers_mut().insert("location", hyper::header::HeaderValue::from_static("/there?x=1"));
        }
        Ok::<_, hyper::Error>(response)
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(io, service_fn(respond)),
            );
        }
    });
    Ok(address)
}

#[tokio::test]
async fn commands_answer_by_annotations_and_by_what_they_say() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let answers = json!({
        "psql *": {"stdout": "1 row\n", "after": "200ms"},
        "psql -c drop*": {"stderr": "denied\n", "exitCode": 2},
        "other:ls": {"exitCode": 9},
    });
    scenario.run("db", json!({"sim.coracle.dev/exec": answers.to_string()}), json!({})).await?;
    for (command, want) in [
        (&["psql", "-c", "select 1"][..], ("1 row\n", "", 0)),
        (&["psql", "-c", "drop table x"], ("", "denied\n", 2)),
        (&["echo", "hi"], ("hi\n", "", 0)),
        (&["sh", "-c", "echo a; sleep 0.2; echo b; exit 3"], ("a\nb\n", "", 3)),
    ] {
        let got = scenario.exec("db", command).await.with_context(|| format!("{command:?}"))?;
        assert_eq!((got.0.as_str(), got.1.as_str(), got.2), want, "{command:?}");
    }
    // An unknown command is not found, and the message names a remedy.
    let path = |query: &str| format!("{PODS}/db/exec?{query}");
    let (stdout, stderr, code) = scenario.exec("db", &["ls"]).await?;
    ensure!(stdout.is_empty() && code == 127 && stderr.contains("sim.coracle.dev/exec"), "{stderr}");
    let (stdout, stderr, code) = scenario.exec("db", &["sh", "-c", "echo a; echo b >&2"]).await?;
    ensure!((stdout.as_str(), stderr.as_str(), code) == ("a\n", "b\n", 0), "{stdout} {stderr}");
    for (query, want) in [
        ("command=ls&stdout=true", "Upgrade request required"),
        ("command=ls&stdout=true&container=x", "container x is not valid for pod db"),
    ] {
        let (code, text) = scenario.request("POST", &path(query), None).await?;
        ensure!(code == 400 && text.contains(want), "{query}: {code} {text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_shell_answers_the_lines_of_its_input() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    scenario
        .run("web", json!({"sim.coracle.dev/exec": r#"{"ls *": {"stdout": "bin\n"}}"#}), json!({}))
        .await?;
    let parameters = AttachParams::default().stdin(true);
    let mut process = scenario.pods().await?.exec("web", ["sh"], &parameters).await?;
    let mut stdin = process.stdin().context("stdin")?;
    stdin.write_all(b"X=hello\nls /\necho $X; sleep 0.1\nfrob\nexit 3\n").await?;
    stdin.flush().await?;
    let (stdout, stderr, code) = ended(process).await?;
    assert_eq!((stdout.as_str(), code), ("bin\nhello\n", 3));
    ensure!(stderr.starts_with("sh: frob: not simulated"), "{stderr}");
    Ok(())
}

#[tokio::test]
async fn a_command_ends_with_its_container() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    scenario.run("web", json!({}), json!({})).await?;
    let parameters = AttachParams::default();
    let process = scenario.pods().await?.exec("web", ["sleep", "infinity"], &parameters).await?;
    scenario.client.delete(&format!("{PODS}/web")).await?;
    assert_eq!(ended(process).await?, (String::new(), String::new(), 137));
    Ok(())
}

#[tokio::test]
async fn a_get_needs_the_right_of_a_post() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    scenario.run("web", json!({}), json!({})).await?;
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let subresources = ["pods/exec", "pods/attach", "pods/portforward"];
    let rule = |verbs: &[&str]| json!([{"apiGroups": [""], "resources": subresources, "verbs": verbs}]);
    scenario
        .client
        .create(&format!("{roles}/roles"), json!({"metadata": {"name": "dev"}, "rules": rule(&["get"])}))
        .await?;
    let binding = json!({
        "metadata": {"name": "dev"}, "subjects": [{"kind": "User", "name": "dev"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dev"},
    });
    scenario.client.create(&format!("{roles}/rolebindings"), binding).await?;
    let mut connection = scenario.cluster.endpoint().await?.connect().await?;
    let dev = [("impersonate-user", Some("dev"))];
    let paths = ["exec?command=true&stdout=true", "attach?stdout=true", "portforward"];
    for path in paths {
        let path = format!("{PODS}/web/{path}");
        let response = connection.call("GET", &path, &dev, None).await?;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        ensure!(response.status == 403 && text.contains(r#"pods \"web\" is forbidden"#), "{path}: {text}");
    }
    scenario.client.patch(&format!("{roles}/roles/dev"), json!({"rules": rule(&["get", "create"])})).await?;
    for path in paths {
        let path = format!("{PODS}/web/{path}");
        let response = connection.call("GET", &path, &dev, None).await?;
        let text = String::from_utf8_lossy(&response.body).into_owned();
        ensure!(response.status == 400 && text.contains("Upgrade request required"), "{path}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn attach_shows_what_a_container_writes_from_then_on() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let script = "echo before; sleep 3; echo after; sleep 0.1; exit 1";
    let annotations = json!({});
    let meta = json!({"name": "job", "annotations": annotations});
    let container = json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script]});
    let spec = json!({"containers": [container], "restartPolicy": "Never"});
    scenario.client.create(PODS, json!({"metadata": meta, "spec": spec})).await?;
    scenario.client.until(&format!("{PODS}/job"), |pod| pod["status"]["phase"] == "Running").await?;
    let process = scenario.pods().await?.attach("job", &AttachParams::default()).await?;
    let (stdout, _, _) = ended(process).await?;
    ensure!(stdout == "after\n", "{stdout}");
    let gone = scenario.pods().await?.attach("job", &AttachParams::default()).await;
    ensure!(gone.is_err(), "it has ended");
    Ok(())
}

/// Checks that attaching to a container that is a shell reaches that shell, and that the container
/// ends with it.
#[tokio::test]
async fn attach_talks_to_a_container_that_is_a_shell() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    for (name, once, lines, phase, code) in [
        ("exits", false, "X=1\necho a$X\nexit 3\n", "Failed", 3),
        ("is-at-its-end", true, "echo a1\nfalse\n", "Failed", 1),
        ("goes-on", false, "echo a1\n", "Running", 0),
    ] {
        let shell =
            json!({"name": "main", "image": "app", "command": ["sh"], "stdin": true, "stdinOnce": once});
        let side = json!({"name": "side", "image": "app", "command": ["sleep", "1"]});
        let spec = json!({"containers": [shell, side], "restartPolicy": "Never"});
        scenario.client.create(PODS, json!({"metadata": {"name": name}, "spec": spec})).await?;
        let path = format!("{PODS}/{name}");
        scenario.client.until(&path, |pod| pod["status"]["phase"] == "Running").await?;
        let parameters = AttachParams::default().container("main").stdin(true);
        let mut process = timeout(DEADLINE, scenario.pods().await?.attach(name, &parameters)).await??;
        let mut stdin = process.stdin().context("stdin")?;
        stdin.write_all(lines.as_bytes()).await?;
        stdin.shutdown().await?;
        drop(stdin);
        let (stdout, stderr, _) = ended(process).await?;
        ensure!((&*stdout, &*stderr) == ("a1\n", ""), "{name}: {stdout} {stderr}");
        let is_over = |pod: &Value| {
            let statuses = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
            let side = statuses.iter().find(|status| status["name"] == "side");
            pod["status"]["phase"] == phase
                && side.is_some_and(|side| side["state"]["terminated"]["exitCode"] == 0)
        };
        let pod = scenario.client.until(&path, is_over).await?;
        let main = &pod["status"]["containerStatuses"][0]["state"];
        ensure!(main["terminated"]["exitCode"].as_i64().unwrap_or(0) == code, "{name}: {main}");
    }
    Ok(())
}

#[tokio::test]
async fn ports_lead_to_the_processes_that_annotations_name() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let echo = echo_server().await?;
    scenario.run("web", json!({"sim.coracle.dev/forward": format!("80={echo}")}), json!({})).await?;
    scenario.run("plain", json!({}), json!({})).await?;
    let pods = scenario.pods().await?;
    let mut forwarder = timeout(DEADLINE, pods.portforward("web", &[80, 81])).await??;
    let (mut stream, error) = (forwarder.take_stream(80).context("a stream")?, forwarder.take_error(81));
    let long = vec![b'x'; 1 << 20];
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let send = async { writer.write_all(&long).await };
    let mut received = vec![0; "hello ".len() + long.len()];
    let receive = async { reader.read_exact(&mut received).await.map(drop) };
    timeout(DEADLINE, async { tokio::try_join!(send, receive) }).await??;
    ensure!(received.starts_with(b"hello x") && received.ends_with(b"xx"));
    let error = timeout(DEADLINE, error.context("an error stream")?).await?.context("an error")?;
    ensure!(error.contains("error forwarding port 81 to pod web"), "{error}");
    ensure!(error.contains("sim.coracle.dev/forward: 81="), "{error}");
    // A pod without the annotation says so at once, as the connection's error: clients of channels
    // wait for that.
    let mut forwarder = timeout(DEADLINE, pods.portforward("plain", &[80])).await??;
    let error = timeout(DEADLINE, forwarder.take_error(80).context("an error stream")?).await?;
    ensure!(error.is_some_and(|error| error.contains("sim.coracle.dev/forward: 80=")));
    Ok(())
}

#[tokio::test]
async fn proxies_pass_requests_on_to_these_processes() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let server = http_server().await?;
    let forward = json!({"sim.coracle.dev/forward": format!("8080={server}")});
    scenario.run("web", forward, json!({"ports": [{"containerPort": 8080}]})).await?;
    scenario.run("plain", json!({}), json!({})).await?;
    let service = json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"},
        "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}});
    scenario.client.create(SERVICES, service).await?;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let is_ready = |list: &Value| {
        list["items"].as_array().into_iter().flatten().any(|slice| slice["endpoints"][0].is_object())
    };
    scenario.client.until(slices, is_ready).await?;
    let host = scenario.cluster.config().await?.cluster_url.authority().context("a host")?.to_string();
    for (method, path, body, want) in [
        ("GET", format!("{PODS}/web/proxy/a/b?c=d"), None, format!("GET /a/b?c=d {host} - ")),
        ("GET", format!("{PODS}/web:8080/proxy/"), None, format!("GET / {host} - ")),
        ("PUT", format!("{PODS}/http:web:8080/proxy/x"), Some(json!("y")), format!("PUT /x {host} - \"y\"")),
        ("GET", format!("{SERVICES}/web:80/proxy/x"), None, format!("GET /x {host} - ")),
        ("POST", format!("{SERVICES}/web:http/proxy/x"), Some(json!(1)), format!("POST /x {host} - 1")),
    ] {
        let got = scenario.request(method, &path, body).await?;
        assert_eq!(got, (200, want), "{method} {path}");
    }
    let mut connection = scenario.cluster.endpoint().await?.connect().await?;
    for (path, code, want) in [
        ("web/proxy", 301, format!("{PODS}/web/proxy/")),
        ("web/proxy/moved", 302, format!("{PODS}/web/proxy/there?x=1")),
    ] {
        let response = connection.call("GET", &format!("{PODS}/{path}"), &[], None).await?;
        let location = response.headers.get("location").and_then(|value| value.to_str().ok());
        assert_eq!((response.status, location), (code, Some(want.as_str())), "{path}");
    }
    for (path, code, want) in [
        (format!("{PODS}/web:81/proxy/"), 501, "sim.coracle.dev/forward: 81="),
        (format!("{PODS}/plain/proxy/"), 501, "sim.coracle.dev/forward: 80="),
        (format!("{SERVICES}/web:81/proxy/"), 503, "no service port 81 found for service"),
        (format!("{SERVICES}/web/proxy/"), 503, "no endpoints available for service"),
    ] {
        let (got, text) = scenario.request("GET", &path, None).await?;
        ensure!(got == code && text.contains(want), "{path}: {got} {text}");
    }
    Ok(())
}

#[tokio::test]
async fn processes_that_are_not_allowed_are_not_reached() -> Result<()> {
    let echo = echo_server().await?;
    let forwarded = |address: &str| json!({"sim.coracle.dev/forward": format!("80={address}")});
    let refusal = "--allow-forward does not name its address";
    for (listen, flags, address, want) in [
        ("127.0.0.1:0", &[][..], echo.to_string(), None),
        ("127.0.0.1:0", &[], "0.0.0.0:1".to_owned(), Some(refusal)),
        ("127.0.0.1:0", &[], "10.0.0.1:1".to_owned(), Some(refusal)),
        ("127.0.0.1:0", &["none"], echo.to_string(), Some(refusal)),
        ("0.0.0.0:0", &[], echo.to_string(), Some(refusal)),
        ("0.0.0.0:0", &["127.0.0.1"], echo.to_string(), None),
        ("127.0.0.1:0", &[], "OWN".to_owned(), Some("the port is that of this server")),
    ] {
        let builder = flags
            .iter()
            .fold(cluster().listen(listen), |builder, addresses| builder.flag("--allow-forward", *addresses));
        let mut scenario = Scenario::start(builder).await?;
        let own = scenario.cluster.config().await?.cluster_url.authority().map(ToString::to_string);
        let address = if address == "OWN" { own.context("an address")? } else { address };
        scenario.run("web", forwarded(&address), json!({})).await?;
        let mut forwarder = timeout(DEADLINE, scenario.pods().await?.portforward("web", &[80])).await??;
        let case = format!("{listen} {flags:?} {address}");
        match want {
            Some(want) => {
                let error = forwarder.take_error(80).context("an error stream")?;
                let error = timeout(DEADLINE, error).await?.unwrap_or_default();
                ensure!(error.contains(want), "{case}: {error}");
            }
            None => {
                let mut greeting = [0; 6];
                let mut stream = forwarder.take_stream(80).context("a stream")?;
                timeout(DEADLINE, stream.read_exact(&mut greeting)).await??;
                ensure!(&greeting == b"hello ", "{case}");
            }
        }
    }
    Ok(())
}

/// Checks that users who may create Services cannot use their proxies to reach addresses that they
/// could not reach otherwise.
#[tokio::test]
async fn proxies_of_services_reach_allowed_addresses_alone() -> Result<()> {
    let server = http_server().await?;
    let service = |annotations: Value, spec: Value| {
        let mut full = json!({"ports": [{"port": 80}]});
        full.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap_or_default());
        json!({"metadata": {"name": "s", "annotations": annotations}, "spec": full})
    };
    let slice = json!({
        "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
        "ports": [{"port": server.port()}], "endpoints": [{"addresses": ["192.0.2.1"]}],
    });
    let url = |host: &str| json!({"coracle.dev/service-url": format!("https://{host}:{}", server.port())});
    let external = |host: &str| json!({"type": "ExternalName", "externalName": host});
    let (refused, not_a_name) =
        ("--allow-forward does not name its address", "proxies know addresses, and no names");
    for (case, service, slice, want) in [
        ("a URL", service(url("127.0.0.1"), json!({})), None, refused),
        ("a local name", service(url("localhost"), json!({})), None, refused),
        ("a name", service(url("metadata.example"), json!({})), None, not_a_name),
        ("another host", service(json!({}), external("metadata.example")), None, not_a_name),
        ("endpoints", service(json!({}), json!({})), Some(slice), refused),
    ] {
        let mut scenario =
            Scenario::start(cluster().flag("--allow-forward", "none").flag("--nodes", "0")).await?;
        scenario.client.create(SERVICES, service).await?;
        if let Some(slice) = slice {
            let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
            scenario.client.create(slices, slice).await?;
        }
        let (code, text) = scenario.request("GET", &format!("{SERVICES}/s:80/proxy/"), None).await?;
        ensure!(code == 503 && text.contains(want), "{case}: {code} {text}");
    }
    Ok(())
}

#[tokio::test]
async fn port_forward_ends_with_its_pod() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let echo = echo_server().await?;
    scenario.run("web", json!({"sim.coracle.dev/forward": format!("80={echo}")}), json!({})).await?;
    let mut forwarder = timeout(DEADLINE, scenario.pods().await?.portforward("web", &[80])).await??;
    let mut stream = forwarder.take_stream(80).context("a stream")?;
    let mut greeting = [0; 6];
    timeout(DEADLINE, stream.read_exact(&mut greeting)).await??;
    scenario.client.delete(&format!("{PODS}/web")).await?;
    let mut rest = Vec::new();
    // However the client reports the end, there is one.
    let _ = timeout(DEADLINE, stream.read_to_end(&mut rest)).await?;
    Ok(())
}

#[tokio::test]
async fn webhooks_are_reached_behind_simulated_pods() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let deny: Handler = Arc::new(|_, _| json!({"allowed": false, "status": {"message": "by the process"}}));
    let server = WebhookServer::start(&["hook.default.svc"], deny).await?;
    let address = server.url("").trim_start_matches("https://").to_owned();
    scenario.run("hook", json!({"sim.coracle.dev/forward": format!("9443={address}")}), json!({})).await?;
    let service = json!({"metadata": {"name": "hook"}, "spec": {"selector": {"app": "hook"},
        "ports": [{"port": 443, "targetPort": 9443}]}});
    scenario.client.create(SERVICES, service).await?;
    let client_config =
        json!({"service": {"namespace": "default", "name": "hook"}, "caBundle": server.ca_bundle});
    let webhook = json!({
        "name": "hook.example.com", "clientConfig": client_config, "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    });
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [webhook]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    scenario.client.create(configurations, configuration).await?;
    // Endpoints and configurations take a moment to be known, and the policy until then is to fail.
    let denied = async {
        loop {
            let maps = "/api/v1/namespaces/default/configmaps?dryRun=All";
            let (_, text) = scenario.request("POST", maps, Some(json!({"metadata": {"name": "m"}}))).await?;
            if text.contains("by the process") {
                return anyhow::Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, denied).await?
}

#[tokio::test]
async fn probes_fail_by_the_answers_to_their_commands() -> Result<()> {
    let mut scenario = Scenario::start(cluster()).await?;
    let exec = |answers: Value| json!({"sim.coracle.dev/exec": answers.to_string()});
    let probe = json!({"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": 1});
    let failing = exec(json!({"check": {"exitCode": 1, "stderr": "down"}}));
    scenario.run("unready", failing.clone(), json!({"readinessProbe": probe})).await?;
    let path = format!("{PODS}/unready");
    let is_ready = |ready: bool| move |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == ready;
    scenario.client.until(&path, is_ready(false)).await?;
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason=Unhealthy";
    let event = scenario.client.until_items(events, 1).await?.remove(0);
    ensure!(event["message"] == "Readiness probe failed: down", "{event}");
    scenario
        .client
        .patch(&path, json!({"metadata": {"annotations": {"sim.coracle.dev/exec": "{}"}}}))
        .await?;
    scenario.client.until(&path, is_ready(true)).await?;

    scenario.run("dying", failing, json!({"livenessProbe": probe})).await?;
    let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64() >= Some(1);
    let pod = scenario.client.until(&format!("{PODS}/dying"), restarted).await?;
    ensure!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137, "{pod}");
    Ok(())
}
