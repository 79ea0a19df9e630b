//! The limits of the store: large objects, a full store, a full disk, expired events; and its file
//! permissions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use coracle_e2e::http::{Connection, HttpResponse};
use coracle_e2e::{Cluster, cluster, skipped};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(30);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn connect(cluster: &Cluster) -> Result<Connection> {
    cluster.endpoint().await?.connect().await
}

async fn call(
    server: &mut Connection,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Result<HttpResponse> {
    server.call(method, path, &[], body.map(|body| body.to_string().into())).await
}

async fn patch(server: &mut Connection, path: &str, operations: Value) -> Result<HttpResponse> {
    let headers = [("content-type", Some("application/json-patch+json"))];
    server.call("PATCH", path, &headers, Some(operations.to_string().into())).await
}

fn config_map(name: &str, bytes: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "x".repeat(bytes)}})
}

fn status(response: &HttpResponse) -> Result<(u16, String, Value)> {
    let body: Value = serde_json::from_slice(&response.body)?;
    Ok((response.status, body["message"].as_str().unwrap_or_default().to_owned(), body["reason"].clone()))
}

/// Checks that patches that copy an annotation cannot make an object too large, though no request
/// is large.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_does_not_grow_beyond_what_etcd_stores() -> Result<()> {
    let data = tempfile::tempdir()?;
    let start = || cluster().data_dir(data.path()).flag("--durability", "sync").flag("--nodes", "0").start();
    let cluster = start().await?;
    let mut server = connect(&cluster).await?;
    let pod_template = json!({
        "metadata": {"name": "grows"},
        "template": {"metadata": {"annotations": {}}, "spec": {"containers": [
            {"name": "c", "image": "c", "command": ["x".repeat(400_000)]},
        ]}},
    });
    let path = "/api/v1/namespaces/default/podtemplates";
    ensure!(call(&mut server, "POST", path, Some(pod_template)).await?.status == 201);
    let path = format!("{path}/grows");
    let copy = |times: usize| {
        let to = "/template/spec/containers/0/command/-";
        let from = "/template/spec/containers/0/command/0";
        Value::from(vec![json!({"op": "copy", "from": from, "path": to}); times])
    };
    let mut grown = 0;
    let refused = loop {
        let response = patch(&mut server, &path, copy(1)).await?;
        if response.status != 200 {
            break response;
        }
        grown += 1;
        ensure!(grown < 10, "it grows and grows");
    };
    assert_eq!(status(&refused)?, (500, "etcdserver: request is too large".to_owned(), Value::Null));
    assert_eq!(grown, 2, "three times 400 kB fit into 1.5 MiB, four times do not");
    let refused = status(&patch(&mut server, &path, copy(5)).await?)?;
    assert!(
        refused.1.starts_with("rpc error: code = ResourceExhausted desc = trying to send message larger")
    );
    cluster.kill().await?;
    let cluster = start().await?;
    let mut server = connect(&cluster).await?;
    let body: Value = serde_json::from_slice(&call(&mut server, "GET", &path, None).await?.body)?;
    assert_eq!(body["template"]["spec"]["containers"][0]["command"].as_array().map(Vec::len), Some(3));
    ensure!(cluster.stop().await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_takes_deletions_and_then_writes_again() -> Result<()> {
    // Enough for the server's own objects, and a few megabytes.
    let cluster = cluster().flag("--max-store-bytes", "6000000").flag("--nodes", "0").start().await?;
    let mut server = connect(&cluster).await?;
    let mut stored = 0;
    let refused = loop {
        let new = config_map(&format!("n{stored}"), 500_000);
        let response = call(&mut server, "POST", CONFIG_MAPS, Some(new)).await?;
        if response.status != 201 {
            break response;
        }
        stored += 1;
        ensure!(stored < 20, "the quota is not minded");
    };
    let exceeded = (500, "etcdserver: mvcc: database space exceeded".to_owned(), Value::Null);
    assert_eq!(status(&refused)?, exceeded);
    let path = |n: usize| format!("{CONFIG_MAPS}/n{n}");
    // A deletion that needs two writes: a finalizer is removed from a terminating object.
    ensure!(call(&mut server, "GET", &path(0), None).await?.status == 200);
    let finalizer = json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]}]);
    ensure!(patch(&mut server, &path(0), finalizer).await?.status == 200);
    ensure!(call(&mut server, "DELETE", &path(0), None).await?.status == 200);
    ensure!(
        patch(&mut server, &path(0), json!([{"op": "remove", "path": "/metadata/finalizers"}])).await?.status
            == 200
    );
    ensure!(call(&mut server, "GET", &path(0), None).await?.status == 404);
    ensure!(call(&mut server, "DELETE", &path(1), None).await?.status == 200);
    ensure!(call(&mut server, "POST", CONFIG_MAPS, Some(config_map("again", 500_000))).await?.status == 201);
    let metrics = call(&mut server, "GET", "/metrics", None).await?;
    let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
    let size = metrics
        .lines()
        .find_map(|l| l.strip_prefix("apiserver_storage_size_bytes{storage_cluster_id=\"etcd-0\"} "));
    let size: f64 = size.context("no such metric")?.parse()?;
    assert!((5_000_000.0..6_100_000.0).contains(&size), "{size}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_expire() -> Result<()> {
    let data = tempfile::tempdir()?;
    let start = |ttl: &str| {
        cluster()
            .data_dir(data.path())
            .flag("--event-ttl", ttl)
            .flag("--nodes", "0")
            .flag("--controllers", "-*")
            .start()
    };
    let event = |name: &str| {
        json!({
            "metadata": {"name": name}, "reason": "r", "type": "Normal",
            "involvedObject": {"kind": "Namespace", "name": "default", "namespace": "default"},
        })
    };
    let path = "/api/v1/namespaces/default/events";
    let cluster = start("1h").await?;
    let mut server = connect(&cluster).await?;
    ensure!(call(&mut server, "POST", path, Some(event("old"))).await?.status == 201);
    ensure!(cluster.stop().await?.success());
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let cluster = start("2s").await?;
    let mut server = connect(&cluster).await?;
    ensure!(call(&mut server, "POST", path, Some(event("new"))).await?.status == 201);
    for group_path in [path, "/apis/events.k8s.io/v1/namespaces/default/events"] {
        let began = Instant::now();
        loop {
            let list: Value =
                serde_json::from_slice(&call(&mut server, "GET", group_path, None).await?.body)?;
            let left = list["items"].as_array().context("a list")?.len();
            if left == 0 {
                break;
            }
            ensure!(began.elapsed() < DEADLINE, "{left} events left");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let watch = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=1");
    ensure!(call(&mut server, "GET", &watch, None).await?.status == 200);
    ensure!(cluster.stop().await?.success());
    Ok(())
}

/// Returns all entries below a directory.
fn tree(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if fs::symlink_metadata(&path)?.is_dir() {
            for entry in fs::read_dir(path)? {
                found.push(entry?.path());
            }
        }
    }
    Ok(found)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_is_private_to_its_owner() -> Result<()> {
    let parent = tempfile::tempdir()?;
    let data = parent.path().join("data");
    let loose = || -> Result<Vec<PathBuf>> {
        let mut paths = tree(&data.join("store"))?;
        paths.extend(tree(&data.join("pki"))?);
        paths.push(data.clone());
        let is_loose = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o077 != 0);
        Ok(paths.into_iter().filter(is_loose).collect())
    };
    let cluster_one = cluster().data_dir(&data).start().await?;
    assert_eq!(loose()?, Vec::<PathBuf>::new());
    ensure!(cluster_one.stop().await?.success());
    for path in tree(&data)? {
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    let cluster_two = cluster().data_dir(&data).start().await?;
    assert_eq!(loose()?, Vec::<PathBuf>::new(), "repaired");
    ensure!(cluster_two.stop().await?.success());
    Ok(())
}

/// A small file system for the test. It needs the permission to mount.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(size: &str) -> Result<Option<Disk>> {
        let dir = tempfile::tempdir()?;
        let options = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(dir.path()).output();
        Ok(mounted.is_ok_and(|output| output.status.success()).then_some(Disk(dir)))
    }

    /// Leaves at most this number of free bytes.
    fn fill(&self, free: u64) -> Result<()> {
        use std::io::Write;
        let disk = rustix::fs::statvfs(self.0.path())?;
        let taken = (disk.f_bavail * disk.f_frsize).saturating_sub(free);
        let mut file = fs::File::options().create(true).append(true).open(self.0.path().join("fill"))?;
        match file.write_all(&vec![0; usize::try_from(taken)?]) {
            // The server wrote meanwhile, and less space than expected was free.
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => Ok(()),
            written => Ok(written?),
        }
    }

    /// Mounts the disk writable or read-only. The system mounts a disk read-only after an error.
    fn set_writable(&self, is_writable: bool) -> Result<()> {
        let options = if is_writable { "remount,rw" } else { "remount,ro" };
        let remounted = Command::new("mount").args(["-o", options]).arg(self.0.path()).output()?;
        ensure!(remounted.status.success(), "{}", String::from_utf8_lossy(&remounted.stderr));
        Ok(())
    }

    fn free_space(&self) -> Result<()> {
        Ok(fs::remove_file(self.0.path().join("fill"))?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_takes_deletions_and_recovers() -> Result<()> {
    // With some free space, and with none at all; on a disk that is large, and on a small one.
    for (durability, free, size) in [
        ("sync", 200_000, "64m"),
        ("interval=50", 200_000, "20m"),
        ("sync", 0, "20m"),
        ("interval=50", 0, "64m"),
    ] {
        let Some(disk) = Disk::mount(size)? else {
            skipped::report("mounting is not permitted");
            return Ok(());
        };
        let data = disk.0.path().join("data");
        let start =
            || cluster().data_dir(&data).flag("--durability", durability).flag("--nodes", "0").start();
        let cluster = start().await?;
        let mut server = connect(&cluster).await?;
        for n in 0..8 {
            let new = config_map(&format!("n{n}"), 300_000);
            ensure!(call(&mut server, "POST", CONFIG_MAPS, Some(new)).await?.status == 201);
        }
        // What the controllers write at a start may take and free space, too.
        cluster.settle().await?;
        let began = Instant::now();
        let refused = loop {
            ensure!(began.elapsed() < DEADLINE, "the disk is never full");
            disk.fill(free)?;
            let new = config_map("refused", 300_000);
            let response = call(&mut server, "POST", CONFIG_MAPS, Some(new)).await?;
            if response.status != 201 {
                break response;
            }
            // The store gave space back in the meantime, which it has only so much of.
            call(&mut server, "DELETE", &format!("{CONFIG_MAPS}/refused"), None).await?;
        };
        let (code, message, _) = status(&refused)?;
        assert_eq!((code, message.contains("no space is left on the disk")), (500, true), "{message}");
        assert_eq!(call(&mut server, "GET", "/readyz", None).await?.status, 500);
        assert_eq!(call(&mut server, "GET", "/livez", None).await?.status, 200);
        assert_eq!(call(&mut server, "GET", &format!("{CONFIG_MAPS}/n0"), None).await?.status, 200);
        for n in 0..4 {
            // Another process takes whatever is free.
            disk.fill(0)?;
            let deleted = call(&mut server, "DELETE", &format!("{CONFIG_MAPS}/n{n}"), None).await?;
            assert_eq!(deleted.status, 200, "{}\n{}", String::from_utf8_lossy(&deleted.body), cluster.log());
        }
        disk.free_space()?;
        let began = Instant::now();
        while call(&mut server, "GET", "/readyz", None).await?.status != 200 {
            ensure!(
                began.elapsed() < DEADLINE,
                "{durability}, {free} free: it does not recover\n{}",
                cluster.log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ensure!(
            call(&mut server, "POST", CONFIG_MAPS, Some(config_map("after", 300_000))).await?.status == 201
        );
        ensure!(cluster.stop().await?.success(), "a clean stop");
        let cluster = start().await?;
        let mut server = connect(&cluster).await?;
        for (name, code) in
            [("n0", 404), ("n3", 404), ("n4", 200), ("n7", 200), ("refused", 404), ("after", 200)]
        {
            let response = call(&mut server, "GET", &format!("{CONFIG_MAPS}/{name}"), None).await?;
            assert_eq!(response.status, code, "{durability}, {free} free: {name}");
        }
        // A server that was stopped on a full disk starts on it, and deletes.
        disk.fill(0)?;
        let _ = call(&mut server, "POST", CONFIG_MAPS, Some(config_map("refused", 300_000))).await?;
        ensure!(cluster.stop().await?.success(), "the reserve is for this");
        let cluster = start().await?;
        let mut server = connect(&cluster).await?;
        let deleted = call(&mut server, "DELETE", &format!("{CONFIG_MAPS}/n4"), None).await?;
        assert_eq!(deleted.status, 200, "{durability}, {free} free");
        ensure!(cluster.stop().await?.success());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_disk_is_an_error_that_says_so() -> Result<()> {
    let Some(disk) = Disk::mount("64m")? else {
        skipped::report("mounting is not permitted");
        return Ok(());
    };
    let data = disk.0.path().join("data");
    let start = || cluster().data_dir(&data).flag("--nodes", "0").start();
    let cluster = start().await?;
    let created =
        call(&mut connect(&cluster).await?, "POST", CONFIG_MAPS, Some(config_map("kept", 10))).await?;
    ensure!(created.status == 201);
    ensure!(cluster.stop().await?.success());
    disk.set_writable(false)?;
    let error = start().await.err().map(|error| format!("{error:#}")).unwrap_or_default();
    assert!(error.contains("Read-only file system"), "{error}");
    disk.set_writable(true)?;
    let cluster = start().await?;
    let kept = call(&mut connect(&cluster).await?, "GET", &format!("{CONFIG_MAPS}/kept"), None).await?;
    assert_eq!(kept.status, 200);
    ensure!(cluster.stop().await?.success());
    Ok(())
}
