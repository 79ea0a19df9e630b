//! Everything that the commands create on a disk is for its owner only, while they run and
//! afterwards, even if the umask permits everything.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use coracle_e2e::http::{Endpoint, config};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{binary, ports};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The time that anything may take that is not measured.
const DEADLINE: Duration = Duration::from_secs(60);
/// The permissions of group and others.
const OTHERS: u32 = 0o077;
/// The command of `run`.
const SCRIPT: &str = "umask; head -c 10 \"$KUBECONFIG\"";
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]";

/// A directory for everything that commands create. A thread looks at it all the time.
struct Sandbox {
    root: TempDir,
    is_over: Arc<AtomicBool>,
    watcher: Option<JoinHandle<BTreeSet<String>>>,
}

impl Sandbox {
    fn new() -> Result<Sandbox> {
        let root = TempDir::new()?;
        for directory in ["tmp", "home", "theirs"] {
            fs::create_dir(root.path().join(directory))?;
            // A user's directory keeps its mode.
            fs::set_permissions(root.path().join(directory), fs::Permissions::from_mode(0o755))?;
        }
        fs::write(root.path().join("theirs/policy.yaml"), POLICY)?;
        fs::write(root.path().join("theirs/script"), SCRIPT)?;
        let mut known = BTreeSet::new();
        walk(root.path(), &mut |path, _| {
            known.insert(path.to_owned());
        });
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, directory) = (is_over.clone(), root.path().to_owned());
        let watcher = std::thread::spawn(move || {
            let mut found = BTreeSet::new();
            // Once more after the end: what is left must be private too.
            let mut is_last = false;
            while !is_last {
                is_last = over.load(Ordering::Acquire);
                walk(&directory, &mut |path, mode| {
                    if mode & OTHERS != 0 && !known.contains(path) {
                        found.insert(format!("{mode:o} {}", path.display()));
                    }
                });
                std::thread::sleep(Duration::from_millis(1));
            }
            found
        });
        Ok(Sandbox { root, is_over, watcher: Some(watcher) })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Builds a command under a umask that permits everything.
    fn command(&self, program: &Path, arguments: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0000; exec \"$@\"", "sh"]).arg(program).args(arguments.split_whitespace());
        command.current_dir(self.root.path()).env("TMPDIR", self.path("tmp")).env("HOME", self.path("home"));
        command.env_remove("XDG_CACHE_HOME").env_remove("KUBECONFIG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &str) -> Result<String> {
        let output = timeout(DEADLINE, self.command(binary::coracle(), arguments).output()).await??;
        let Output { status, stdout, stderr } = output;
        ensure!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        Ok(String::from_utf8(stdout)?)
    }

    /// Starts a program, and waits until it writes a line with this text to standard error.
    async fn start(&self, program: &Path, arguments: &str, ready: &str) -> Result<Process> {
        let mut child = self.command(program, arguments).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().context("standard error")?).lines();
        let line = async {
            let mut log = String::new();
            while let Some(line) = lines.next_line().await? {
                if line.contains(ready) {
                    return Ok(line);
                }
                log = log + &line + "\n";
            }
            anyhow::bail!("{arguments:?} ended:\n{log}")
        };
        let line = timeout(DEADLINE, line).await.with_context(|| format!("{arguments:?} is not ready"))??;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Process { child, line })
    }

    async fn serve(&self, flags: &str) -> Result<Process> {
        let arguments = format!("serve --listen 127.0.0.1:0 {flags}");
        self.start(binary::coracle(), &arguments, "export KUBECONFIG=").await
    }

    /// Returns every path that ever had permissions for group or others.
    fn finish(mut self) -> Result<BTreeSet<String>> {
        self.is_over.store(true, Ordering::Release);
        let watcher = self.watcher.take().context("one watcher")?;
        watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))
    }
}

struct Process {
    child: Child,
    line: String,
}

impl Process {
    async fn stop(mut self) -> Result<()> {
        let id = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).context("it runs")?;
        kill_process(id, Signal::TERM)?;
        let status = timeout(DEADLINE, self.child.wait()).await??;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}

/// Visits everything below a directory with its mode. Links have none, and what vanishes meanwhile
/// is left out.
fn walk(directory: &Path, visit: &mut impl FnMut(&Path, u32)) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        if !metadata.is_symlink() {
            visit(&path, metadata.permissions().mode() & 0o777);
        }
        if metadata.is_dir() {
            walk(&path, visit);
        }
    }
}

/// Runs a pod with volumes of all kinds that have directories here.
async fn run_a_pod_with_volumes(kubeconfig: &Path) -> Result<()> {
    let mut client = JsonClient::new(&Endpoint::new(&config(kubeconfig).await?)?).await?;
    client.until("/api/v1/namespaces/default/serviceaccounts/default", |_| true).await?;
    let claim = json!({"metadata": {"name": "claim"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    client.create("/api/v1/namespaces/default/persistentvolumeclaims", claim).await?;
    // A value that sled keeps in a file of its own would be as large as this.
    let large = json!({"metadata": {"name": "large"}, "stringData": {"key": "x".repeat(900_000)}});
    client.create("/api/v1/namespaces/default/secrets", large).await?;
    let pod = json!({"metadata": {"name": "pod"}, "spec": {
        "containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}, {"name": "e", "emptyDir": {}}]}});
    client.create("/api/v1/namespaces/default/pods", pod).await?;
    client.until("/api/v1/namespaces/default/pods/pod", |pod| pod["status"]["phase"] == "Running").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_on_a_disk_is_private() -> Result<()> {
    let sandbox = Sandbox::new()?;
    let audit = "--audit-policy-file theirs/policy.yaml --audit-log-path logs/audit.log";
    let server = sandbox.serve(&format!("--data-dir data {audit}")).await?;
    run_a_pod_with_volumes(&sandbox.path("data/kubeconfig")).await?;
    sandbox.run("backup --kubeconfig data/kubeconfig theirs/backup").await?;
    let manager = "controllers --kubeconfig data/kubeconfig --controllers namespace-controller";
    sandbox.start(binary::coracle(), manager, "runs controllers").await?.stop().await?;
    server.stop().await?;
    sandbox.run("check data").await?;
    sandbox.run("kubeconfig --data-dir data").await?;
    sandbox.run("restore theirs/backup --data-dir restored/data").await?;
    sandbox.serve("--data-dir restored/data").await?.stop().await?;

    let ephemeral = sandbox.serve("--ephemeral").await?;
    let (_, kubeconfig) = ephemeral.line.split_once('=').context("a kubeconfig")?;
    run_a_pod_with_volumes(Path::new(kubeconfig)).await?;
    ephemeral.stop().await?;
    // The command has the umask of whoever called, and may read the kubeconfig.
    assert_eq!(sandbox.run("run -- sh theirs/script").await?, "0000\napiVersion");
    sandbox.run("run --data-dir run/data --kubeconfig theirs/kubeconfig -- true").await?;

    let assets = sandbox.run("envtest-assets").await?;
    let assets = Path::new(assets.trim_end());
    ensure!(assets.starts_with(sandbox.path("home")), "{assets:?}");
    let etcd = "--data-dir=etcd/data --listen-client-urls=http://127.0.0.1:0";
    sandbox.start(&assets.join("etcd"), etcd, "serving").await?.stop().await?;
    let port = ports::free_port()?;
    let server = format!("--bind-address=127.0.0.1 --secure-port={port} --cert-dir=envtest/certificates");
    sandbox.start(&assets.join("kube-apiserver"), &server, "serving").await?.stop().await?;

    for (path, mode) in [("theirs", 0o755), ("tmp", 0o755), ("theirs/policy.yaml", 0o644)] {
        let metadata = fs::metadata(sandbox.path(path))?;
        assert_eq!(metadata.permissions().mode() & mode, mode, "{path} is not changed");
    }
    let created = ["logs/audit.log", "data/pki/ca.crt", "data/store", "data/volumes", "run/data/pki/ca.key"];
    for path in created.into_iter().chain(["envtest/certificates/apiserver.crt", "theirs/backup"]) {
        ensure!(sandbox.path(path).exists(), "{path}");
    }
    assert_eq!(sandbox.finish()?, BTreeSet::new());
    Ok(())
}
