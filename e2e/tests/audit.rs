//! The audit log: what is in it at each level, who reads what, and that neither a full disk nor a
//! policy that is wrong does harm.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::{Connection, Endpoint, HttpResponse};
use coracle_e2e::wait::until;
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};
use tempfile::TempDir;

const POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, nonResourceURLs: ["/healthz*", /metrics]}
- {level: None, users: ["system:kube-controller-manager"]}
- {level: Metadata, resources: [{resources: [secrets, serviceaccounts/token]}]}
- {level: Request, resources: [{group: apps}]}
- {level: RequestResponse, resources: [{resources: [configmaps, configmaps/*]}], omitManagedFields: true}
- {level: Metadata, omitStages: [RequestReceived]}
"#;

struct Audited {
    cluster: Cluster,
    connection: Connection,
    log: PathBuf,
    _directory: TempDir,
}

async fn start(flags: &[(&str, &str)]) -> Result<Audited> {
    let directory = TempDir::new()?;
    let (policy, log) = (directory.path().join("policy.yaml"), directory.path().join("logs/audit.log"));
    fs::write(&policy, POLICY)?;
    let mut builder = cluster().flag("--audit-policy-file", &policy).flag("--controllers", "-*");
    if !flags.iter().any(|(name, _)| *name == "--audit-log-path") {
        builder = builder.flag("--audit-log-path", &log);
    }
    for (name, value) in flags {
        builder = builder.flag(name, *value);
    }
    let cluster = builder.start().await?;
    let connection = cluster.endpoint().await?.connect().await?;
    Ok(Audited { cluster, connection, log, _directory: directory })
}

impl Audited {
    async fn call(
        &mut self,
        method: &str,
        path: &str,
        id: &str,
        body: Option<&Value>,
    ) -> Result<HttpResponse> {
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let headers = [("Audit-ID", Some(id)), ("Content-Type", Some(content_type))];
        let body = body.map(|body| Bytes::from(body.to_string()));
        self.connection.call(method, path, &headers, body).await
    }

    fn events(&self, id: &str) -> Result<Vec<Value>> {
        events(&self.log, id)
    }
}

/// Returns the events of a request.
fn events(log: &Path, id: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(log)?;
    let events = text.lines().map(serde_json::from_str::<Value>);
    let events: Vec<Value> = events.collect::<Result<_, _>>().context(text.clone())?;
    Ok(events.into_iter().filter(|event| event["auditID"] == id).collect())
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["stage"].as_str()).collect()
}

#[tokio::test]
async fn requests_are_in_the_log_when_they_are_answered() -> Result<()> {
    let mut audited = start(&[]).await?;
    let path = "/api/v1/namespaces/default/configmaps";
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    let response = audited.call("POST", path, "create", Some(&object)).await?;
    assert_eq!((response.status, &response.headers["audit-id"]), (201, &"create".parse()?));
    let events = audited.events("create")?;
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    let [received, complete] = events.as_slice() else { unreachable!("two") };
    let reference = json!({"resource": "configmaps", "namespace": "default", "apiVersion": "v1"});
    assert_eq!(received["objectRef"], reference);
    assert_eq!(received["stageTimestamp"], received["requestReceivedTimestamp"]);
    assert!(received.get("responseStatus").is_none() && received.get("annotations").is_none(), "{received}");
    assert_eq!(complete["objectRef"]["name"], "c");
    assert_eq!((&complete["kind"], &complete["apiVersion"]), (&"Event".into(), &"audit.k8s.io/v1".into()));
    assert_eq!((&complete["verb"], &complete["requestURI"]), (&"create".into(), &path.into()));
    assert_eq!(complete["user"]["username"], "coracle-admin");
    assert_eq!(complete["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(complete["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(complete["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(complete["requestObject"]["data"]["k"], "v");
    assert!(complete["responseObject"]["metadata"]["uid"].is_string(), "{complete}");
    assert!(complete["responseObject"]["metadata"].get("managedFields").is_none(), "{complete}");

    let one = format!("{path}/c");
    audited.call("PATCH", &one, "patch", Some(&json!({"data": {"l": "w"}}))).await?;
    assert_eq!(audited.events("patch")?[1]["requestObject"], json!({"data": {"l": "w"}}));
    audited.call("GET", &format!("{path}/absent"), "absent", None).await?;
    let events = audited.events("absent")?;
    let status = &events[1]["responseStatus"];
    assert_eq!((&status["reason"], &status["code"]), (&"NotFound".into(), &404.into()));
    assert_eq!(events[1]["responseObject"]["kind"], "Status");
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    audited.call("DELETE", &one, "delete", Some(&options)).await?;
    let events = audited.events("delete")?;
    assert_eq!(events[1]["requestObject"]["propagationPolicy"], "Background");
    assert_eq!(events[1]["responseStatus"]["status"], "Success");

    audited.call("GET", "/healthz", "none", None).await?;
    assert_eq!(audited.events("none")?, Vec::<Value>::new());
    audited.call("GET", "/version", "version", None).await?;
    let events = audited.events("version")?;
    assert_eq!(stages(&events), ["ResponseComplete"]);
    assert!(events[0].get("objectRef").is_none() && events[0]["level"] == "Metadata", "{events:?}");
    let metrics = audited.call("GET", "/metrics", "metrics", None).await?;
    let metrics = String::from_utf8(metrics.body.to_vec())?;
    for line in ["apiserver_audit_event_total 9", "apiserver_audit_level_total{level=\"RequestResponse\"} 4"]
    {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    Ok(())
}

#[tokio::test]
async fn secrets_are_not_in_the_log() -> Result<()> {
    let mut audited = start(&[]).await?;
    let path = "/api/v1/namespaces/default/secrets";
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "hush-hush"}});
    audited.call("POST", path, "create", Some(&object)).await?;
    audited.call("GET", path, "list", None).await?;
    audited
        .call("PATCH", &format!("{path}/s"), "patch", Some(&json!({"stringData": {"k": "hush-hush"}})))
        .await?;
    for id in ["create", "list", "patch"] {
        assert_eq!(stages(&audited.events(id)?), ["RequestReceived", "ResponseComplete"], "{id}");
    }
    let text = fs::read_to_string(&audited.log)?;
    // Neither as it is nor in base64.
    assert!(!text.contains("hush-hush") && !text.contains("aHVzaC1odXNo"), "{text}");
    Ok(())
}

#[tokio::test]
async fn impersonation_denials_and_failed_authentications_are_in_the_log() -> Result<()> {
    let mut audited = start(&[]).await?;
    let path = "/api/v1/namespaces/default/configmaps";
    let headers = [("Audit-ID", Some("denied")), ("Impersonate-User", Some("bob"))];
    let response = audited.connection.call("GET", path, &headers, None).await?;
    assert_eq!(response.status, 403);
    let events = audited.events("denied")?;
    let [received, complete] = events.as_slice() else { unreachable!("two: {events:?}") };
    assert!(received.get("impersonatedUser").is_none(), "{received}");
    assert_eq!(complete["user"]["username"], "coracle-admin");
    assert_eq!(complete["impersonatedUser"], json!({"username": "bob", "groups": ["system:authenticated"]}));
    let annotations = &complete["annotations"];
    assert_eq!(annotations["authorization.k8s.io/decision"], "forbid");
    assert_eq!(annotations["authorization.k8s.io/reason"], "");
    assert_eq!(complete["responseStatus"]["reason"], "Forbidden");

    let config = audited.cluster.config().await?;
    let mut stranger = Endpoint::with_token(&config, "wrong")?.connect().await?;
    let response = stranger.call("GET", path, &[("Audit-ID", Some("stranger"))], None).await?;
    assert_eq!(response.status, 401);
    let events = audited.events("stranger")?;
    assert_eq!(stages(&events), ["ResponseStarted"]);
    assert_eq!((&events[0]["user"], &events[0]["responseStatus"]["code"]), (&json!({}), &401.into()));
    Ok(())
}

#[tokio::test]
async fn watches_are_in_the_log_when_they_begin_and_when_they_end() -> Result<()> {
    let audited = start(&[]).await?;
    let watcher = audited.cluster.endpoint().await?.connect().await?;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1";
    let mut watcher = watcher;
    let response = watcher.call("GET", path, &[("Audit-ID", Some("watch"))], None).await?;
    assert_eq!(response.status, 200);
    let log = audited.log.clone();
    let all = async || events(&log, "watch");
    let seen = until("the end of the watch", all, |events| events.len() >= 3).await?;
    assert_eq!(stages(&seen), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    assert!(seen.iter().all(|event| event.get("responseObject").is_none()), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_full_disk_costs_events_but_no_request() -> Result<()> {
    let mut audited = start(&[("--audit-log-path", "/dev/full")]).await?;
    let path = "/api/v1/namespaces/default/configmaps";
    for n in 0..20 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{n}")}});
        assert_eq!(audited.call("POST", path, "x", Some(&object)).await?.status, 201);
    }
    let metrics = audited.call("GET", "/metrics", "metrics", None).await?;
    let metrics = String::from_utf8(metrics.body.to_vec())?;
    assert!(metrics.contains("apiserver_audit_error_total{plugin=\"log\"} 40"), "{metrics}");

    let mut strict =
        start(&[("--audit-log-path", "/dev/full"), ("--audit-log-mode", "blocking-strict")]).await?;
    let response = strict.call("GET", path, "x", None).await?;
    assert_eq!(response.status, 500, "{:?}", response.body);
    Ok(())
}

#[tokio::test]
async fn legacy_lines_and_backups_are_written() -> Result<()> {
    let flags =
        [("--audit-log-format", "legacy"), ("--audit-log-maxsize", "1"), ("--audit-log-maxbackup", "2")];
    let mut audited = start(&flags).await?;
    let agent = "x".repeat(1000);
    let headers = [("User-Agent", Some(agent.as_str()))];
    // Each has a line of more than a kilobyte.
    for _ in 0..1500 {
        audited.connection.call("GET", "/version", &headers, None).await?;
    }
    let line = fs::read_to_string(&audited.log)?;
    assert!(
        line.lines().all(|line| line.contains(" AUDIT: id=\"") && line.ends_with("response=\"200\"")),
        "{line}"
    );
    let directory = audited.log.parent().context("a directory")?;
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    assert!(names.iter().any(|name| name.starts_with("audit-20") && name.ends_with(".log")), "{names:?}");
    Ok(())
}

#[tokio::test]
async fn a_policy_that_is_wrong_is_refused_at_the_start() -> Result<()> {
    let directory = TempDir::new()?;
    let policy = directory.path().join("policy.yaml");
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: All}]")?;
    let Err(error) = cluster().flag("--audit-policy-file", &policy).start().await else {
        anyhow::bail!("it starts");
    };
    let want = "loading audit policy file: rules[0].level: Unsupported value: \"All\"";
    ensure!(error.to_string().contains(want), "{error}");
    Ok(())
}
