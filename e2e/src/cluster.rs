//! A control plane for one test: a process, started as users start it, and killed at the end of the
//! test.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::binary;
use crate::http::{self, Endpoint};
use crate::json_client::JsonClient;

/// Timeout for a start or stop, after which the test fails; far longer than it should take.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the builder of a control plane with its data in memory, on any free port, without
/// further flags.
pub fn cluster() -> Builder {
    Builder {
        record: None,
        data_dir: None,
        durable: false,
        flags: Vec::new(),
        environment: Vec::new(),
        listen: "127.0.0.1:0".to_owned(),
        waits_for_service_account: false,
        max_open_files: None,
    }
}

/// The configuration of a control plane that has not been started.
#[derive(Clone, Debug)]
pub struct Builder {
    record: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    durable: bool,
    flags: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
    listen: String,
    waits_for_service_account: bool,
    max_open_files: Option<usize>,
}

impl Builder {
    /// Shows a record, by `coracle open`.
    pub fn open(mut self, record: &Path) -> Builder {
        self.record = Some(record.to_owned());
        self
    }

    /// Keeps the data in this directory.
    pub fn data_dir(mut self, directory: &Path) -> Builder {
        self.data_dir = Some(directory.to_owned());
        self
    }

    /// Keeps the data on disk, in a directory that is removed together with the control plane, to
    /// measure the cost of the defaults.
    pub fn durable(mut self) -> Builder {
        self.durable = true;
        self
    }

    /// Adds a flag of `coracle serve` and its value.
    pub fn flag(mut self, name: &str, value: impl Into<OsString>) -> Builder {
        self.flags.extend([name.into(), value.into()]);
        self
    }

    /// Adds a flag of `coracle serve` that has no value.
    pub fn switch(mut self, name: &str) -> Builder {
        self.flags.push(name.into());
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Builder {
        self.environment.push((name, value.into()));
        self
    }

    /// Serves on this address.
    pub fn listen(mut self, address: &str) -> Builder {
        address.clone_into(&mut self.listen);
        self
    }

    /// Limits the files that the process may have open.
    pub fn max_open_files(mut self, most: usize) -> Builder {
        self.max_open_files = Some(most);
        self
    }

    /// Makes the start wait until the default namespace has its default ServiceAccount, which pods
    /// need. A controller creates it shortly after the server starts to serve.
    pub fn with_service_account(mut self) -> Builder {
        self.waits_for_service_account = true;
        self
    }

    /// Starts the process, and waits until it reports that it serves.
    ///
    /// # Errors
    /// It ends before, or takes far too long.
    pub async fn start(self) -> Result<Cluster> {
        let waits_for_service_account = self.waits_for_service_account;
        let (cluster, ready) = self.spawn()?;
        match timeout(START_TIMEOUT, ready).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => bail!("coracle ended before it served:\n{}", cluster.log()),
            Err(_) => bail!("coracle does not serve after {START_TIMEOUT:?}:\n{}", cluster.log()),
        }
        if waits_for_service_account {
            let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
            client.until("/api/v1/namespaces/default/serviceaccounts/default", |_| true).await?;
        }
        Ok(cluster)
    }

    /// Starts the process, kills it after a time, whether it serves by then or not, and waits until
    /// it has exited. Returns whether it served.
    ///
    /// # Errors
    /// The process exits by itself.
    pub async fn start_and_kill(self, after: Duration) -> Result<bool> {
        let (cluster, ready) = self.spawn()?;
        let serves = match timeout(after, ready).await {
            Ok(Ok(())) => true,
            Ok(Err(_)) => bail!("coracle ended before it served:\n{}", cluster.log()),
            Err(_) => false,
        };
        cluster.kill().await?;
        Ok(serves)
    }

    /// Spawns the process; returns it with the notification that it serves.
    fn spawn(self) -> Result<(Cluster, oneshot::Receiver<()>)> {
        let directory = TempDir::with_prefix("coracle-e2e-")?;
        let kubeconfig = directory.path().join("kubeconfig");
        let mut command = match self.max_open_files {
            None => Command::new(binary::coracle()),
            Some(most) => {
                let mut shell = Command::new("sh");
                let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
                shell.args(["-c", &script]).arg(binary::coracle());
                shell
            }
        };
        let data_dir = self.data_dir.or_else(|| self.durable.then(|| directory.path().join("data")));
        match (&self.record, data_dir) {
            (Some(record), _) => command.arg("open").arg(record),
            (None, Some(directory)) => command.arg("serve").arg("--data-dir").arg(directory),
            (None, None) => command.arg("serve").arg("--ephemeral"),
        };
        command.args(["--listen", &self.listen]).arg("--kubeconfig").arg(&kubeconfig);
        command.envs(self.environment);
        command.args(&self.flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().context("starting coracle")?;
        let (log, ready) = Log::follow(child.stderr.take().context("its standard error")?);
        Ok((Cluster { child, log, kubeconfig, directory }, ready))
    }
}

/// The way in which a control plane is terminated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Termination {
    /// SIGTERM: data are flushed, and the exit code is 0.
    Stop,
    /// SIGKILL.
    Crash,
}

impl Termination {
    /// Ends the process, and waits until it has exited.
    pub async fn apply(self, cluster: Cluster) -> Result<()> {
        match self {
            Termination::Stop => ensure!(cluster.stop().await?.success(), "no clean stop"),
            Termination::Crash => cluster.kill().await?,
        }
        Ok(())
    }
}

/// A running control plane. Dropping it kills the process.
pub struct Cluster {
    child: Child,
    log: Log,
    kubeconfig: PathBuf,
    directory: TempDir,
}

impl Cluster {
    /// Returns the kubeconfig that the process wrote.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a directory for the test's files. It is removed together with the control plane.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Reads the configuration from the kubeconfig.
    pub async fn config(&self) -> Result<kube::Config> {
        http::config(&self.kubeconfig).await
    }

    /// Returns the server's endpoint for plain HTTP requests, as the kubeconfig's user.
    pub async fn endpoint(&self) -> Result<Endpoint> {
        Endpoint::new(&self.config().await?)
    }

    /// Returns a kube-rs client for the kubeconfig's user.
    pub async fn client(&self) -> Result<kube::Client> {
        Ok(kube::Client::try_from(self.config().await?)?)
    }

    /// Moves the manual clock of the control plane on, by a duration in Go's format.
    ///
    /// # Errors
    /// The clock is real, or the control plane does not settle.
    pub async fn advance(&self, by: &str) -> Result<()> {
        let mut client = JsonClient::new(&self.endpoint().await?).await?;
        client.call("POST", "/coracle/v1alpha1/clock", Some(json!({"advance": by}))).await.map(drop)
    }

    /// Waits until nothing is left to happen in the control plane.
    ///
    /// # Errors
    /// It does not settle.
    pub async fn settle(&self) -> Result<()> {
        let mut client = JsonClient::new(&self.endpoint().await?).await?;
        client.call("POST", "/coracle/v1alpha1/settle", Some(json!({"quietFor": "0s"}))).await.map(drop)
    }

    /// Returns what the process has written to standard error so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Returns the process's id.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills the process with SIGKILL, as a crash would.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("kill -9")
    }

    /// Returns the resident memory of the process, in megabytes.
    pub fn resident(&self) -> Result<f64> {
        self.status("VmRSS:")
    }

    /// Returns the maximum resident memory of the process since its start, in megabytes.
    pub fn most_resident(&self) -> Result<f64> {
        self.status("VmHWM:")
    }

    /// Resets [`most_resident`](Self::most_resident) to the current resident size.
    ///
    /// # Errors
    /// The process has ended, or the system does not support it.
    pub fn reset_most_resident(&self) -> Result<()> {
        let id = self.id().context("it has ended")?;
        std::fs::write(format!("/proc/{id}/clear_refs"), "5").context("clear_refs")
    }

    /// Returns the number of files and sockets that the process has open.
    pub fn open_files(&self) -> Result<usize> {
        let id = self.id().context("it has ended")?;
        Ok(std::fs::read_dir(format!("/proc/{id}/fd"))?.count())
    }

    /// Returns the number of threads of the process.
    pub fn threads(&self) -> Result<usize> {
        let id = self.id().context("it has ended")?;
        Ok(std::fs::read_dir(format!("/proc/{id}/task"))?.count())
    }

    /// Returns the processor time that the process has used so far.
    pub fn processor_time(&self) -> Result<Duration> {
        processor_time(self.id().context("it has ended")?)
    }

    fn status(&self, name: &str) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id().context("it has ended")?))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes / 1024.0)
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) -> Result<()> {
        let id = self.child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        rustix::process::kill_process(id.context("it has ended before")?, rustix::process::Signal::TERM)?;
        Ok(())
    }

    /// Sends SIGTERM, and waits until the process has exited.
    pub async fn stop(self) -> Result<ExitStatus> {
        self.terminate()?;
        self.exited().await
    }

    /// Waits until the process has exited.
    pub async fn exited(mut self) -> Result<ExitStatus> {
        timeout(START_TIMEOUT, self.child.wait())
            .await
            .context("it does not stop")?
            .context("waiting for its end")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- what coracle said:\n{}---", self.log());
        }
    }
}

/// The standard error of a process, kept for the report of a failing test.
struct Log(Arc<Mutex<String>>);

impl Log {
    /// Reads until the end of the process. The receiver is notified of the last line of the banner.
    fn follow(stderr: ChildStderr) -> (Log, oneshot::Receiver<()>) {
        let text = Arc::new(Mutex::new(String::new()));
        let log = Log(text.clone());
        let (ready, receiver) = oneshot::channel();
        tokio::spawn(async move {
            let mut ready = Some(ready);
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line.starts_with("export KUBECONFIG=")
                    && let Some(ready) = ready.take()
                {
                    // The receiver is dropped when the start has timed out.
                    let _ = ready.send(());
                }
                let mut text = text.lock();
                text.push_str(&line);
                text.push('\n');
            }
        });
        (log, receiver)
    }

    fn text(&self) -> String {
        self.0.lock().clone()
    }
}

/// Returns the processor time that a process has used so far.
pub fn processor_time(id: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let [user, system] = [11, 12].map(|i| fields.get(i).and_then(|field| field.parse::<f64>().ok()));
    let ticks = user.context("no time")? + system.context("no time")?;
    Ok(Duration::from_secs_f64(ticks / rustix::param::clock_ticks_per_second() as f64))
}
