//! `coracle backup`, `restore` and `check`: one consistent file, a store that continues above it,
//! and nothing changed by what fails.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::Endpoint;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, binary, cluster};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Runs the binary to its end.
async fn run(directory: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary::coracle());
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).kill_on_drop(true);
    timeout(DEADLINE, command.output()).await.context("it does not end")?.context("coracle")
}

/// Runs a command that must succeed; returns its standard output.
async fn succeed(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output = run(directory, arguments).await?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a command that must fail with one line that contains a text.
async fn fail(directory: &Path, arguments: &[&str], line: &str) -> Result<()> {
    let output = run(directory, arguments).await?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    assert!(
        stderr.starts_with("coracle: ") && stderr.contains(line) && stderr.trim_end().lines().count() == 1,
        "{arguments:?}: {stderr:?} has no {line:?}"
    );
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The beginning of a backup.
const EARLIER: &str = "coracle backup 1\n";

async fn start(data: &Path) -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().data_dir(data).flag("--controllers", "").start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn revision(object: &serde_json::Value) -> Result<u64> {
    Ok(object["metadata"]["resourceVersion"].as_str().context("no revision")?.parse()?)
}

/// Creates a definition, an object of it, and ConfigMaps of all sizes.
async fn fill(client: &mut JsonClient) -> Result<()> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "widgets", "kind": "Widget"});
    let spec = json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]});
    client.create(DEFINITIONS, json!({"metadata": {"name": "widgets.example.com"}, "spec": spec})).await?;
    client.until(WIDGETS, |list| list["kind"] == "WidgetList").await?;
    let widget =
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 7});
    client.create(WIDGETS, widget).await?;
    for number in 0..60 {
        let data = "x".repeat(number * 2000);
        client
            .create(CONFIG_MAPS, json!({"metadata": {"name": format!("m{number}")}, "data": {"k": data}}))
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_backup_is_restored_above_its_revisions() -> Result<()> {
    let directory = TempDir::new()?;
    let directory = directory.path();
    let (cluster, mut client) = start(&directory.join("data")).await?;
    fill(&mut client).await?;
    let kubeconfig = text(cluster.kubeconfig())?.to_owned();
    let saved = ["backup", "saved", "--kubeconfig", &kubeconfig];
    fs::write(directory.join("saved"), "of another program")?;
    fail(directory, &saved, "it exists and is not a backup").await?;
    assert_eq!(fs::read_to_string(directory.join("saved"))?, "of another program");
    fs::write(directory.join("saved"), EARLIER)?;
    let report = succeed(directory, &saved).await?;
    assert!(report.contains(" objects at revision "), "{report}");
    assert_eq!(fs::metadata(directory.join("saved"))?.permissions().mode() & 0o777, 0o600);
    assert_eq!(names(directory)?, ["data", "saved"]);
    // Changes after the backup are not in it.
    client.create(CONFIG_MAPS, json!({"metadata": {"name": "later"}})).await?;
    let before = client.get(CONFIG_MAPS).await?;
    fail(directory, &["check", "data"], "in use").await?;
    assert!(cluster.stop().await?.success());
    let report = succeed(directory, &["check", "data"]).await?;
    assert!(report.starts_with("sound: "), "{report}");

    fail(directory, &["restore", "saved", "--data-dir", "data"], "has a store already").await?;
    let report = succeed(directory, &["restore", "saved", "--data-dir", "restored"]).await?;
    assert!(report.contains("are restored in restored, at revision 1000"), "{report}");
    assert_eq!(names(&directory.join("restored"))?, ["store"]);
    succeed(directory, &["check", "restored"]).await?;

    let (cluster, mut client) = start(&directory.join("restored")).await?;
    let after = client.get(CONFIG_MAPS).await?;
    assert!(revision(&after)? > revision(&before)?);
    let maps = after["items"].as_array().context("no items")?;
    assert_eq!(maps.iter().filter(|map| map["metadata"]["name"] != "kube-root-ca.crt").count(), 60);
    for map in maps {
        assert!(revision(map)? > revision(&before)?, "no revision goes back: {}", map["metadata"]);
    }
    client.until(WIDGETS, |list| list["kind"] == "WidgetList").await?;
    assert_eq!(client.get(&format!("{WIDGETS}/w")).await?["size"], 7);
    let old = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", revision(&before)?);
    let (_, gone) = client.send("GET", &old, None).await?;
    let code = gone["object"]["code"].as_u64().or_else(|| gone["code"].as_u64());
    assert_eq!(code, Some(410), "watches from before begin anew: {gone}");
    assert!(cluster.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn damaged_backups_and_stores_change_nothing() -> Result<()> {
    let directory = TempDir::new()?;
    let directory = directory.path();
    let (cluster, mut client) = start(&directory.join("data")).await?;
    fill(&mut client).await?;
    succeed(directory, &["backup", "saved", "--kubeconfig", text(cluster.kubeconfig())?]).await?;
    assert!(cluster.stop().await?.success());
    let saved = fs::read(directory.join("saved"))?;
    let flipped = |at: usize| {
        let mut bytes = saved.clone();
        bytes[at] ^= 4;
        bytes
    };
    fs::create_dir(directory.join("empty"))?;
    symlink("saved", directory.join("link"))?;
    for (case, bytes, line) in [
        ("cut", saved[..saved.len() / 2].to_vec(), "cut short"),
        ("flipped", flipped(saved.len() / 2), "damaged"),
        ("version", flipped(15), "version"),
        ("length", [&saved[..18], &[0xff; 4], &saved[22..]].concat(), "longer"),
        ("foreign", b"apiVersion: v1\nkind: List\n".to_vec(), "not a backup"),
        ("nothing", Vec::new(), "not a backup"),
    ] {
        fs::write(directory.join(case), bytes)?;
        fail(directory, &["restore", case, "--data-dir", "new"], line).await?;
    }
    for (file, line) in
        [("link", "symbolic link"), ("empty", "not a regular file"), ("missing", "No such file")]
    {
        fail(directory, &["restore", file, "--data-dir", "new"], line).await?;
    }
    assert!(!directory.join("new").exists());

    // The end of the log's file, where there is always data, is changed.
    let db = directory.join("data/store/log/db");
    let mut bytes = fs::read(&db)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&db, &bytes)?;
    let output = run(directory, &["check", "data"]).await?;
    assert_eq!(output.status.code(), Some(1));
    let findings = String::from_utf8(output.stdout)?;
    assert!(findings.contains("not those that were closed"), "{findings}");
    assert!(String::from_utf8(output.stderr)?.ends_with("the store in data is damaged\n"));
    assert!(fs::read(&db)? == bytes, "a check changes nothing");
    fail(directory, &["check", "missing"], "cannot open the store").await?;
    Ok(())
}

#[tokio::test]
async fn a_backup_is_for_administrators() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    client
        .create("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "reader"}}))
        .await?;
    let requested = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = client.create("/api/v1/namespaces/default/serviceaccounts/reader/token", requested).await?;
    let token = token["status"]["token"].as_str().context("no token")?;
    let endpoint = Endpoint::with_token(&cluster.config().await?, token)?;
    let path = "/coracle/backup";
    let get = async |endpoint: &Endpoint| {
        let response = endpoint.connect().await?.call("GET", path, &[], None).await?;
        anyhow::Ok((response.status, response.body.starts_with(b"coracle backup 1\n")))
    };
    assert_eq!(get(&endpoint).await?, (403, false));
    assert_eq!(get(&cluster.endpoint().await?).await?, (200, true));
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let grant = |name: &str, urls: &str, verb: &str| {
        let rules = json!([{"nonResourceURLs": [urls], "verbs": [verb]}]);
        json!({"metadata": {"name": name}, "rules": rules})
    };
    for (name, urls, verb, want) in
        [("profiles", "/debug/*", "get", 403), ("put", path, "put", 403), ("backup", path, "get", 200)]
    {
        client.create(&format!("{roles}/clusterroles"), grant(name, urls, verb)).await?;
        let subject = json!({"kind": "ServiceAccount", "name": "reader", "namespace": "default"});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let binding = json!({"metadata": {"name": name}, "roleRef": role, "subjects": [subject]});
        client.create(&format!("{roles}/clusterrolebindings"), binding).await?;
        assert_eq!(get(&endpoint).await?.0, want, "{name}");
    }
    for method in ["POST", "PUT", "DELETE"] {
        let response =
            cluster.endpoint().await?.connect().await?.call(method, path, &[], Some(Bytes::new())).await?;
        assert_eq!(response.status, 404, "{method}");
    }
    Ok(())
}

/// Starts a server that ends its response, or never continues it, before the backup is complete.
async fn broken_server(content: &'static [u8], length: usize) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = socket.read(&mut request).await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
            let _ = socket.write_all(&[head.as_bytes(), content].concat()).await;
        }
    });
    Ok(format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}], users: [{{name: u, user: {{}}}}]}}"
    ))
}

#[tokio::test]
async fn a_cut_download_leaves_nothing() -> Result<()> {
    let directory = TempDir::new()?;
    let directory = directory.path();
    for (case, content, length, line) in [
        ("the connection ends", &b"coracle backup 1\n"[..], 1000, "cut short"),
        ("the response ends", b"coracle backup 1\n", 17, "cut short"),
        ("another response", b"{}", 2, "not a backup"),
    ] {
        fs::write(directory.join("config"), broken_server(content, length).await?)?;
        fs::write(directory.join("saved"), EARLIER)?;
        fail(directory, &["backup", "saved", "--kubeconfig", "config"], line).await.context(case)?;
        assert_eq!(names(directory)?, ["config", "saved"], "{case}");
        assert_eq!(fs::read_to_string(directory.join("saved"))?, EARLIER, "{case}");
    }
    symlink("saved", directory.join("link"))?;
    fail(directory, &["backup", "link", "--kubeconfig", "config"], "not a regular file").await?;
    fail(directory, &["backup", "no/such", "--kubeconfig", "config"], "no/such").await?;
    Ok(())
}
