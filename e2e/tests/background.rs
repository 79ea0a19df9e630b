//! `coracle up`, `down` and `status`: control planes in the background.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use coracle_e2e::{binary, wait};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// The time that any command may take, beyond that of `up`.
const DEADLINE: Duration = Duration::from_secs(90);

const ANY: [&str; 2] = ["--listen", "127.0.0.1:0"];

/// A home directory, whose processes are killed at the end.
struct Home(TempDir);

impl Home {
    fn new() -> Result<Home> {
        Ok(Home(TempDir::new()?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the directory with the state of a name.
    fn state(&self, name: &str) -> PathBuf {
        self.path(".local/state/coracle").join(name)
    }

    fn kubeconfig(&self) -> Result<Kubeconfig> {
        Ok(Kubeconfig::read_from(self.path(".kube/config"))?)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary::coracle());
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null()).kill_on_drop(true);
        command.env("HOME", self.0.path()).env_remove("KUBECONFIG").env_remove("XDG_STATE_HOME");
        command
    }

    /// Runs a command to its end. Its output must end too: the process in the background must not
    /// have it.
    async fn output(&self, arguments: &[&str]) -> Result<Output> {
        let output = self.command(arguments).output();
        timeout(DEADLINE, output)
            .await
            .with_context(|| format!("{arguments:?} does not end"))?
            .context("coracle")
    }

    /// Runs a command that must end with this code. Returns what it prints.
    async fn run(&self, arguments: &[&str], code: i32) -> Result<String> {
        let Output { status, stdout, stderr } = self.output(arguments).await?;
        let text = format!("{}{}", String::from_utf8(stdout)?, String::from_utf8(stderr)?);
        ensure!(status.code() == Some(code), "{arguments:?}: {status}: {text}");
        Ok(text)
    }

    /// Runs a command that must fail with one line.
    async fn assert_rejected(&self, arguments: &[&str], code: i32, line: &str) -> Result<()> {
        let text = self.run(arguments, code).await?;
        assert!(text.starts_with("coracle: ") && text.contains(line), "{arguments:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{arguments:?}: {text}");
        Ok(())
    }

    async fn up(&self, flags: &[&str]) -> Result<String> {
        self.run(&[&["up"], &ANY[..], flags].concat(), 0).await
    }

    /// Creates a client from the merged kubeconfig.
    async fn client(&self, context: &str) -> Result<Client> {
        let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
        Ok(Client::try_from(Config::from_custom_kubeconfig(self.kubeconfig()?, &options).await?)?)
    }

    fn record(&self, name: &str) -> Result<Value> {
        Ok(serde_json::from_slice(&fs::read(self.state(name).join("background.json"))?)?)
    }

    fn process(&self, name: &str) -> Result<Pid> {
        let id = self.record(name)?["process"].as_i64().context("a process")?;
        Pid::from_raw(id.try_into()?).context("a process")
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let id = process.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
            let input = fs::read_link(process.path().join("fd/0"));
            // Only a process that has the lock of this test.
            if let Some(id) = id
                && input.is_ok_and(|input| input.starts_with(self.state("")))
            {
                let _ = rustix::process::kill_process(id, Signal::KILL);
            }
        }
    }
}

/// Returns the rows of a report.
fn rows(text: &str) -> BTreeMap<&str, &str> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(' '));
    rows.map(|(title, value)| (title, value.trim())).collect()
}

async fn is_alive(process: Pid) -> bool {
    // Its parent is whoever adopts orphans; a zombie has ended. Its first thread may be one while
    // others still have its files open.
    states(process).iter().any(|state| !state.starts_with(['Z', 'X']))
}

/// Returns the states of the threads of a process, each with what follows it.
fn states(process: Pid) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    let state = |thread: fs::DirEntry| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").map(|(_, state)| state.to_owned())
    };
    threads.into_iter().flatten().flatten().filter_map(state).collect()
}

#[tokio::test]
async fn a_control_plane_runs_in_the_background_until_down() -> Result<()> {
    let home = Home::new()?;
    fs::create_dir(home.path(".kube"))?;
    let theirs = "apiVersion: v1\nkind: Config\ncurrent-context: prod\ncontexts:\n- name: prod\n  context: {cluster: prod, user: prod}\n\
                  clusters:\n- name: prod\n  cluster: {server: https://prod}\nusers:\n- name: prod\n  user: {token: secret}\n";
    fs::write(home.path(".kube/config"), theirs)?;
    assert_eq!(
        home.run(&["status"], 3).await?,
        "no control plane is running in the background; coracle up starts one\n"
    );
    assert_eq!(home.run(&["status", "--name", "coracle"], 3).await?, "coracle is not running\n");
    assert_eq!(home.run(&["down"], 0).await?, "coracle is not running\n");
    assert!(!home.path(".local").exists(), "nothing is created by looking");

    let text = home.up(&[]).await?;
    assert!(text.starts_with("coracle is running\n"), "{text}");
    assert!(text.contains("next: kubectl get nodes\nstop: coracle down\n"), "{text}");
    assert!(!text.contains("export KUBECONFIG"), "it is the file that kubectl reads: {text}");
    assert_eq!(
        rows(&text)["before"],
        "the current context was \"prod\"; kubectl config use-context selects it again"
    );
    let kubeconfig = home.kubeconfig()?;
    assert_eq!(kubeconfig.current_context.as_deref(), Some("coracle"));
    let client = home.client("coracle").await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let metadata = ObjectMeta { name: Some("kept".to_owned()), ..ObjectMeta::default() };
    maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await?;

    // It is selected again, and its context comes back.
    let mut changed = home.kubeconfig()?;
    changed.current_context = Some("prod".to_owned());
    changed.contexts.retain(|context| context.name != "coracle");
    fs::write(home.path(".kube/config"), serde_json::to_string(&changed)?)?;
    let again = home.up(&[]).await?;
    assert!(again.starts_with("coracle is already running; it keeps its flags\n"), "{again}");
    assert_eq!(rows(&again)["before"], rows(&text)["before"]);
    assert_eq!(home.kubeconfig()?.current_context.as_deref(), Some("coracle"));
    home.client("coracle").await?;

    let status = home.run(&["status"], 0).await?;
    let process = home.process("coracle")?;
    let state = home.state("coracle");
    let shown = rows(&status);
    assert_eq!(shown["ready"], "yes");
    assert_eq!(shown["data"], state.to_str().context("a path")?);
    assert!(shown["process"].starts_with(&format!("{}, for ", process.as_raw_nonzero())), "{status}");
    assert!(shown["address"].starts_with("https://127.0.0.1:") && shown["version"].contains('.'), "{status}");
    for (path, want) in
        [("", 0o700), ("coracle.log", 0o600), ("background.json", 0o600), ("kubeconfig", 0o600)]
    {
        let mode = fs::metadata(state.join(path))?.permissions().mode() & 0o777;
        assert_eq!(mode, want, "{path:?}");
    }
    // It has left the session of whoever started it.
    assert_eq!(rustix::process::getsid(Some(process))?, process);

    let again = home.up(&["--nodes", "3"]).await?;
    assert!(again.starts_with("coracle is already running; it keeps its flags\n"), "{again}");
    assert_eq!(home.process("coracle")?, process);

    let down = home.run(&["down"], 0).await?;
    assert!(down.starts_with("coracle is stopped\nits context is removed from "), "{down}");
    assert!(down.contains("the data stays in "), "{down}");
    assert!(!is_alive(process).await);
    let left = home.kubeconfig()?;
    assert_eq!(left.current_context.as_deref(), Some(""));
    assert_eq!(left.contexts.iter().map(|context| &*context.name).collect::<Vec<_>>(), ["prod"]);
    assert_eq!((left.clusters.len(), left.auth_infos.len()), (1, 1));
    assert!(home.run(&["down"], 0).await?.starts_with("coracle is not running\n"));
    assert!(home.run(&["status"], 3).await?.starts_with("coracle is not running\n  data "));

    home.up(&[]).await?;
    let maps: Api<ConfigMap> = Api::namespaced(home.client("coracle").await?, "default");
    maps.get("kept").await?;
    assert!(state.join("coracle.log.1").exists(), "the log of the start before");
    let down = home.run(&["down", "--delete-data"], 0).await?;
    assert!(down.contains(" is deleted\n"), "{down}");
    assert!(!state.exists());
    assert!(home.run(&["status"], 3).await?.starts_with("no control plane"));
    Ok(())
}

#[tokio::test]
async fn of_two_at_once_one_starts_and_the_other_reports_it() -> Result<()> {
    let home = Home::new()?;
    let flags = ["--ephemeral", "--name", "b"];
    let (one, other) = tokio::try_join!(home.up(&flags), home.up(&flags))?;
    let already = [&one, &other].map(|text| text.starts_with("b is already running"));
    assert!(already[0] != already[1], "{one}{other}");
    assert_eq!(rows(&one)["address"], rows(&other)["address"]);
    assert_eq!(rows(&one)["data"], "in memory");
    assert!(one.contains("stop: coracle down --name b\n"), "{one}");
    // Another name is another control plane.
    home.up(&["--ephemeral"]).await?;
    let all = home.run(&["status"], 0).await?;
    assert!(all.starts_with("b is running\n") && all.contains("\ncoracle is running\n"), "{all}");
    assert_eq!(home.run(&["down", "--name", "b"], 0).await?.lines().count(), 2);
    assert!(home.run(&["status"], 0).await?.starts_with("coracle is running\n"));
    home.run(&["down"], 0).await?;
    assert!(
        home.run(&["status"], 3).await?.starts_with("no control plane"),
        "nothing of them is left to list"
    );
    Ok(())
}

#[tokio::test]
async fn flags_choose_the_directory_and_the_kubeconfig() -> Result<()> {
    let home = Home::new()?;
    let text = home.up(&["--data-dir", "data", "--kubeconfig", "config", "--name", "a.b"]).await?;
    let config = fs::canonicalize(home.0.path())?.join("config");
    assert!(text.contains(&format!("export KUBECONFIG={}\n", config.display())), "{text}");
    assert!(home.path("data/store").exists() && !home.path(".kube").exists());
    // A file that is not of coracle keeps everything.
    fs::write(home.path("data/notes"), "")?;
    let down = home.output(&["down", "--name", "a.b", "--delete-data"]).await?;
    assert_eq!(down.status.code(), Some(1));
    let error = String::from_utf8(down.stderr)?;
    assert!(error.contains("notes in it is not of coracle; nothing is deleted"), "{error}");
    assert!(home.path("data/store").exists());
    assert!(Kubeconfig::read_from(&config)?.clusters.is_empty());
    fs::remove_file(home.path("data/notes"))?;
    home.run(&["down", "--name", "a.b", "--delete-data"], 0).await?;
    assert!(!home.path("data").exists() && !home.state("a.b").exists());
    Ok(())
}

#[tokio::test]
async fn names_and_flags_that_cannot_be_are_one_line() -> Result<()> {
    let home = Home::new()?;
    let long = "a".repeat(254);
    for command in ["up", "down", "status"] {
        for name in ["a/b", "../a", "", &long, "A"] {
            let name = format!("--name={name}");
            home.assert_rejected(&[command, &name], 2, "a name has 1 to 253 lower-case letters").await?;
        }
        for name in ["..", ".", ".hidden"] {
            let line = format!("the name {name} begins with a dot: choose another --name");
            home.assert_rejected(&[command, "--name", name], 1, &line).await?;
        }
    }
    home.assert_rejected(&["up", "--nodes", "x"], 2, "--nodes").await?;
    home.assert_rejected(&["up", "--controllers", "no-such-controller"], 2, "no-such-controller").await?;
    home.assert_rejected(&["down", "--data-dir", "x"], 2, "--data-dir").await?;
    assert_eq!(fs::read_dir(home.0.path())?.count(), 0, "nothing is created");
    // The longest name is one of a directory too.
    let longest = "a".repeat(253);
    home.up(&["--ephemeral", "--name", &longest]).await?;
    home.run(&["down", "--name", &longest], 0).await?;
    Ok(())
}

#[tokio::test]
async fn a_failed_start_prints_its_log() -> Result<()> {
    let home = Home::new()?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let text = home.run(&["up", "--listen", &address], 1).await?;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].starts_with(&format!("coracle: cannot listen on {address}: another process does")),
        "{text}"
    );
    assert_eq!(lines[1], "coracle: coracle does not start (exit status: 1)", "{text}");
    assert!(!home.state("coracle").exists(), "a first start that fails leaves nothing");
    assert!(home.run(&["status"], 3).await?.starts_with("no control plane is running in the background"));
    // A kubeconfig of another program is left alone, and nothing runs.
    fs::create_dir(home.path(".kube"))?;
    let theirs = "clusters:\n- name: coracle\n  cluster: {server: https://other}\n";
    fs::write(home.path(".kube/config"), theirs)?;
    let text = home.run(&[&["up"], &ANY[..]].concat(), 1).await?;
    assert!(text.contains("another program wrote coracle in its clusters"), "{text}");
    home.run(&["down", "--delete-data"], 0).await?;
    assert_eq!(fs::read_to_string(home.path(".kube/config"))?, theirs);
    fs::remove_file(home.path(".kube/config"))?;
    // A later one keeps what is there, with its log.
    home.up(&[]).await?;
    home.run(&["down"], 0).await?;
    let text = home.run(&["up", "--listen", &address], 1).await?;
    assert!(text.contains("coracle does not start (exit status: 1): its log is "), "{text}");
    assert!(home.run(&["status"], 3).await?.starts_with("coracle is not running\n"));
    // A kubeconfig that cannot be changed keeps no data from being deleted.
    fs::remove_file(home.path(".kube/config"))?;
    fs::create_dir(home.path(".kube/config"))?;
    let text = home.run(&["down", "--delete-data"], 1).await?;
    assert!(text.contains("coracle: its context may be left: "), "{text}");
    assert!(!home.state("coracle").exists());
    Ok(())
}

#[tokio::test]
async fn an_interrupted_start_is_stopped() -> Result<()> {
    let home = Home::new()?;
    // Nothing answers there; the start waits for it.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let etcd = format!("http://{}", silent.local_addr()?);
    let mut up = home.command(&["up", ANY[0], ANY[1], "--etcd-servers", &etcd]);
    let up = up.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let id = up.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).context("an ID")?;
    let is_starting = |text: &String| text.starts_with("coracle is starting\n  address  not yet known\n");
    let status = async || Ok(String::from_utf8(home.output(&["status"]).await?.stdout)?);
    let text = wait::until("it starts", status, is_starting).await?;
    assert_eq!(rows(&text)["ready"], "no: it is starting");
    rustix::process::kill_process(id, Signal::INT)?;
    let output = timeout(DEADLINE, up.wait_with_output()).await??;
    let error = String::from_utf8(output.stderr)?;
    assert_eq!((output.status.code(), &*error), (Some(1), "coracle: interrupted: coracle is not started\n"));
    drop(silent);
    wait::until("it ends", status, |text| text.starts_with("coracle is not running\n")).await.map(drop)
}

#[tokio::test]
async fn a_hostile_state_is_refused_and_no_other_process_is_meant() -> Result<()> {
    let home = Home::new()?;
    home.up(&["--ephemeral"]).await?;
    let (record, state) = (home.record("coracle")?, home.state("coracle"));
    let file = state.join("background.json");
    let mut other = Command::new("sleep");
    let mut other = other.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true).spawn()?;
    let other_id = other.id().context("an ID")?;

    // While it runs: a record that cannot be read is named, and the process goes on.
    for content in [&b"garbage"[..], b"{}", b"[1]", b"\xff\0", &vec![b' '; 1 << 20]] {
        fs::write(&file, content)?;
        for command in ["status --name coracle", "down", "up"] {
            let arguments: Vec<&str> = command.split(' ').collect();
            home.assert_rejected(&arguments, 1, "background.json").await?;
        }
        assert!(home.run(&["status"], 1).await?.contains("background.json"));
    }
    fs::remove_file(&file)?;
    symlink("/etc/hostname", &file)?;
    home.assert_rejected(&["down"], 1, "it is a symbolic link").await?;
    fs::remove_file(&file)?;
    // The ID of another program is not signalled.
    let mut foreign = record.clone();
    foreign["process"] = other_id.into();
    for id in [Value::from(other_id), 0.into(), 1.into(), (-1).into()] {
        foreign["process"] = id;
        fs::write(&file, serde_json::to_vec(&foreign)?)?;
        assert_eq!(home.run(&["status"], 1).await?, "coracle is starting\n");
    }
    foreign["process"] = other_id.into();
    fs::write(&file, serde_json::to_vec(&foreign)?)?;
    home.assert_rejected(&["down", "--force"], 1, "its process is not known").await?;
    assert!(other.try_wait()?.is_none(), "the other program runs");

    // Killed: the record is that of a dead process, and its ID that of another program.
    fs::write(&file, serde_json::to_vec(&record)?)?;
    let process = home.process("coracle")?;
    rustix::process::kill_process(process, Signal::KILL)?;
    wait::until("the process ends", async || Ok(is_alive(process).await), |alive| !alive).await?;
    fs::write(&file, serde_json::to_vec(&foreign)?)?;
    assert!(home.run(&["status"], 3).await?.starts_with("coracle is not running\n"));
    let down = home.run(&["down"], 0).await?;
    assert!(down.starts_with("coracle is not running\nits context is removed from "), "{down}");
    assert!(other.try_wait()?.is_none(), "the other program runs");
    // Leftover files do not prevent a start.
    for content in ["garbage", "{}"] {
        fs::write(&file, content)?;
        assert!(home.up(&["--ephemeral"]).await?.starts_with("coracle is running\n"));
        home.run(&["down"], 0).await?;
    }
    other.kill().await?;

    // A state directory that is a link, or a file.
    fs::remove_dir_all(&state)?;
    fs::create_dir(home.path("elsewhere"))?;
    symlink(home.path("elsewhere"), &state)?;
    for command in ["up", "down"] {
        home.assert_rejected(&[command], 1, "is no directory: remove it").await?;
    }
    assert_eq!(fs::read_dir(home.path("elsewhere"))?.count(), 0);
    Ok(())
}

#[tokio::test]
async fn a_process_that_does_not_end_is_killed_only_by_force() -> Result<()> {
    let home = Home::new()?;
    home.up(&["--ephemeral"]).await?;
    let process = home.process("coracle")?;
    rustix::process::kill_process(process, Signal::STOP)?;
    // A thread may still answer for a moment.
    let is_stopped = |states: &Vec<String>| states.iter().all(|state| state.starts_with('T'));
    wait::until("the process is stopped", async || Ok(states(process)), is_stopped).await?;
    let status = home.run(&["status"], 1).await?;
    assert!(rows(&status)["ready"].starts_with("no: https://127.0.0.1:"), "{status}");
    let line = format!("process {} of coracle does not end; --force kills it", process.as_raw_nonzero());
    home.assert_rejected(&["down"], 1, &line).await?;
    assert!(is_alive(process).await);
    assert!(home.run(&["down", "--force"], 0).await?.starts_with("coracle is stopped\n"));
    assert!(!is_alive(process).await);
    Ok(())
}

#[tokio::test]
async fn the_state_is_where_the_environment_says() -> Result<()> {
    let home = Home::new()?;
    let run = async |arguments: &[&str], state: &Path, kubeconfig: &Path| -> Result<Output> {
        let mut command = home.command(arguments);
        command.env("XDG_STATE_HOME", state).env("KUBECONFIG", kubeconfig);
        Ok(timeout(DEADLINE, command.output()).await??)
    };
    let files = std::env::join_paths([home.path("missing"), home.path("existing")])?;
    fs::write(home.path("existing"), "")?;
    let up = ["up", "--ephemeral", ANY[0], ANY[1]];
    assert!(run(&up, &home.path("state"), Path::new(&files)).await?.status.success());
    assert!(home.path("state/coracle/coracle/coracle.log").is_file() && !home.path(".local").exists());
    assert!(fs::read_to_string(home.path("existing"))?.contains("current-context: coracle"));
    assert!(run(&["down"], &home.path("state"), Path::new("")).await?.status.success());
    assert!(!fs::read_to_string(home.path("existing"))?.contains("coracle"));
    Ok(())
}
