//! The command line as scripts use it: exit codes, one line for each error, and no files after a
//! failure.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coracle_e2e::http::{Endpoint, config};
use coracle_e2e::{binary, cluster};
use http_body_util::BodyExt;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// Timeout of everything that is not measured.
const DEADLINE: Duration = Duration::from_secs(30);

fn coracle(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary::coracle());
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs the binary to its end in a directory.
async fn run(directory: &Path, arguments: &[&str]) -> Result<Output> {
    let output = coracle(directory, arguments).output();
    timeout(DEADLINE, output).await.with_context(|| format!("{arguments:?} does not end"))?.context("coracle")
}

/// Runs a command line that must fail with one line.
async fn assert_rejected(directory: &Path, arguments: &[&str], code: i32, line: &str) -> Result<()> {
    let output = run(directory, arguments).await?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("coracle: ") && stderr.contains(line), "{arguments:?}: {stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    Ok(())
}

/// Returns the content of each file below a directory.
fn files(directory: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = fs::read(&path)?;
                files.insert(path, content);
            }
        }
    }
    Ok(files)
}

/// A kubeconfig of a server that does not exist.
const UNREACHABLE_KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: silent
contexts: [{name: silent, context: {cluster: silent, user: nobody}}]
clusters: [{name: silent, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: nobody, user: {}}]
"#;

#[tokio::test]
async fn errors_are_one_line_and_leave_no_files() -> Result<()> {
    const ANY: &str = "127.0.0.1:0";
    let aside = TempDir::new()?;
    let malformed = aside.path().join("tokens.csv");
    fs::write(&malformed, "token,user\n")?;
    let malformed = malformed.to_str().context("its name")?;
    // Nothing listens on this address.
    let silent = aside.path().join("silent");
    fs::write(&silent, UNREACHABLE_KUBECONFIG)?;
    let silent = silent.to_str().context("its name")?;
    let taken = TcpListener::bind(ANY)?;
    let taken = taken.local_addr()?.to_string();
    let directory = TempDir::new()?;
    for (arguments, code, line) in [
        (&["serve", "--no-such-flag"][..], 2, "--no-such-flag"),
        (&["no-such-command"], 2, "no-such-command"),
        (&["srve"], 2, "a similar subcommand exists: 'serve'"),
        (&["serve", "--lisen", "1"], 2, "a similar argument exists: '--listen'"),
        (&["serve", "--listen", "example.com:1"], 2, "an address such as 127.0.0.1:6443 is expected"),
        (&["serve", "--name", "A"], 2, "a name has 1 to 253 lower-case letters"),
        (&["serve", "--controllers", "*,no-such-controller"], 2, "no-such-controller"),
        (&["serve", "--feature-gates", "NoSuchGate=true"], 2, "NoSuchGate"),
        (&["serve", "--feature-gates", "AllBeta=maybe"], 2, "maybe"),
        (
            &["serve", "--feature-gates", "APIServerTracing=false"],
            2,
            "cannot set feature gate APIServerTracing to false, feature is locked to true",
        ),
        (
            &["controllers", "--kubeconfig", "any", "--feature-gates", "NoSuchGate=true"],
            2,
            "unrecognized feature gate: NoSuchGate",
        ),
        (
            &["serve", "--enable-admission-plugins", "NoSuchPlugin"],
            2,
            "enable-admission-plugins plugin \"NoSuchPlugin\" is unknown",
        ),
        (
            &["serve", "--disable-admission-plugins", "Nope"],
            2,
            "disable-admission-plugins plugin \"Nope\" is unknown",
        ),
        (
            &[
                "run",
                "--enable-admission-plugins=Priority",
                "--disable-admission-plugins=Priority",
                "--",
                "true",
            ],
            2,
            "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
        ),
        (&["run", "--ephemeral", "--data-dir", "here", "--", "true"], 2, "--data-dir"),
        (&["run", "--listen", &taken, "--", "true"], 1, &taken),
        (&["serve", "--durability", "sometimes"], 2, "sometimes"),
        (
            &["serve", "--nodes", "5000000"],
            2,
            "invalid value '5000000' for '--nodes <N>': it must be 0, or a whole number from 1 to 5000",
        ),
        (
            &["run", "--event-ttl=9999999h", "--", "true"],
            2,
            "'--event-ttl <DURATION>': it must be 0, or a duration",
        ),
        (
            &["serve", "--max-store-bytes=-1"],
            2,
            "'--max-store-bytes <BYTES>': it must be 0, or a whole number",
        ),
        (&["serve", "--ephemeral", "--data-dir", "here"], 2, "--data-dir"),
        (&["run", "--ephemeral"], 2, "COMMAND"),
        (&["serve", "--audit-log-path", "audit.log"], 2, "--audit-policy-file"),
        (&["serve", "--listen", &taken], 1, "another process does; stop it, or use --listen 127.0.0.1:0"),
        (
            &["serve", "--listen", ANY, "--tracing-config-file", malformed],
            1,
            "unable to decode tracing configuration data: it is no map",
        ),
        (
            &["serve", "--listen", ANY, "--audit-policy-file", malformed, "--audit-log-path=-"],
            1,
            "failed decoding: it is no map",
        ),
        (&["serve", "--listen", ANY, "--token-auth-file", "missing.csv"], 1, "missing.csv"),
        (&["serve", "--listen", ANY, "--token-auth-file", malformed], 1, "line 1"),
        (&["controllers"], 2, "--kubeconfig"),
        (
            &["controllers", "--kubeconfig", "any", "--controllers", "no-such-controller"],
            2,
            "no-such-controller",
        ),
        (&["controllers", "--kubeconfig", "missing"], 1, "missing"),
        (&["controllers", "--kubeconfig", malformed], 1, malformed),
        (
            &["controllers", "--kubeconfig", silent],
            1,
            "cannot reach http://127.0.0.1:1: tcp connect error: Connection refused",
        ),
        (
            &["backup", "file", "--kubeconfig", silent],
            1,
            "cannot reach http://127.0.0.1:1: tcp connect error: Connection refused",
        ),
        (
            &["problems", "--kubeconfig", silent],
            1,
            "cannot reach http://127.0.0.1:1: tcp connect error: Connection refused",
        ),
        (&["kubeconfig"], 1, "kubeconfig"),
        (&["run", "--", "no-such-program"], 127, "no-such-program"),
        (&["run", "--", "/"], 126, "/: "),
    ] {
        assert_rejected(directory.path(), arguments, code, line).await?;
        assert_eq!(fs::read_dir(directory.path())?.count(), 0, "{arguments:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_data_directory_has_one_server() -> Result<()> {
    let data = TempDir::new()?;
    let first = cluster().data_dir(data.path()).start().await?;
    let elsewhere = TempDir::new()?;
    let data_dir = data.path().to_str().context("its name")?;
    let names = |directory| Ok::<_, anyhow::Error>(files(directory)?.into_keys().collect::<Vec<_>>());
    let before = names(data.path())?;
    let second = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir, "--kubeconfig", "kubeconfig"];
    assert_rejected(elsewhere.path(), &second, 1, "in use").await?;
    assert_eq!(names(data.path())?, before);
    assert!(files(elsewhere.path())?.is_empty());
    let response = first.endpoint().await?.connect().await?.call("GET", "/readyz", &[], None).await?;
    assert_eq!(response.status, 200, "the first goes on");
    assert!(first.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_damaged_store_is_not_changed() -> Result<()> {
    let data = TempDir::new()?;
    assert!(cluster().data_dir(data.path()).start().await?.stop().await?.success());
    let data_dir = data.path().to_str().context("its name")?;
    let mut sound = files(&data.path().join("store"))?;
    // The reserve of disk space contains no data that could be damaged.
    sound.retain(|file, _| !file.ends_with("reserve"));
    let elsewhere = TempDir::new()?;
    for (file, content) in &sound {
        let mut damaged = content.clone();
        damaged.extend(b"junk");
        fs::write(file, &damaged)?;
        let before = files(data.path())?;
        let serve =
            ["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir, "--kubeconfig", "kubeconfig"];
        assert_rejected(elsewhere.path(), &serve, 1, "damaged").await?;
        assert_eq!(files(data.path())?, before, "{}", file.display());
        assert!(files(elsewhere.path())?.is_empty());
        fs::write(file, content)?;
    }
    assert!(!sound.is_empty());
    // After the repair it serves again.
    assert!(cluster().data_dir(data.path()).start().await?.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn run_ends_with_its_command() -> Result<()> {
    let directory = TempDir::new()?;
    let script = r#"cat "$KUBECONFIG" && echo "in $KUBECONFIG" && exit 7"#;
    let output = run(directory.path(), &["run", "--", "sh", "-c", script]).await?;
    let stderr = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stderr.contains("current-context: coracle"), "{stderr}");
    let (_, kubeconfig) = stderr.rsplit_once("in ").context("no KUBECONFIG")?;
    assert!(!Path::new(kubeconfig.trim()).exists(), "the kubeconfig goes with the control plane");
    assert!(files(directory.path())?.is_empty());

    // The log is kept from the output of a command that succeeds.
    let elsewhere = TempDir::new()?;
    fs::write(elsewhere.path().join("tokens.csv"), "same,alice,1\nsame,bob,2\n")?;
    for (code, verbose, is_shown) in [("0", false, false), ("3", false, true), ("0", true, true)] {
        let mut arguments = vec!["run", "--token-auth-file", "tokens.csv"];
        arguments.extend(verbose.then_some("-v"));
        arguments.extend(["--", "sh", "-c", "exit $1", "sh", code]);
        let output = run(elsewhere.path(), &arguments).await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.contains("duplicate token"), is_shown, "{code}: {stderr}");
        assert_eq!(stderr.is_empty(), !is_shown, "{code}: {stderr}");
    }

    let killed = run(directory.path(), &["run", "--", "sh", "-c", "kill -9 $$"]).await?;
    assert_eq!(killed.status.code(), Some(128 + 9), "as a shell says it");
    Ok(())
}

/// Checks that a command that is interrupted ends by itself, as a suite does that removes what it
/// has made; and that it is killed by the second signal.
#[tokio::test]
async fn run_passes_a_signal_on_to_its_command() -> Result<()> {
    const IGNORING: &str = "trap '' TERM; echo begun; while :; do sleep 0.05; done";
    const TIDY: &str = "trap 'echo tidied; exit 7' TERM; echo begun; while :; do sleep 0.05; done";
    let directory = TempDir::new()?;
    for (script, ignores, code, printed) in [(TIDY, false, 7, "tidied\n"), (IGNORING, true, 128 + 9, "")] {
        let mut command = coracle(directory.path(), &["run", "--", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let process = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)).context("it ended")?;
        let mut output = BufReader::new(child.stdout.take().context("no output")?);
        let mut line = String::new();
        timeout(DEADLINE, output.read_line(&mut line)).await??;
        kill_process(process, Signal::TERM)?;
        let end = async {
            // Two signals that come together are one, so that the second one may have to be
            // repeated.
            loop {
                let patience = if ignores { Duration::from_millis(300) } else { DEADLINE };
                match timeout(patience, child.wait()).await {
                    Ok(status) => return status,
                    Err(_) => drop(kill_process(process, Signal::TERM)),
                }
            }
        };
        let status = timeout(DEADLINE, end).await.context("it does not end")??;
        assert_eq!(status.code(), Some(code), "{script}");
        let mut rest = String::new();
        timeout(DEADLINE, output.read_to_string(&mut rest)).await??;
        assert_eq!(rest, printed);
    }
    Ok(())
}

#[tokio::test]
async fn run_accepts_the_flags_of_serve() -> Result<()> {
    let directory = TempDir::new()?;
    // Bound and released, so that it is free: no other process uses this address.
    let address = TcpListener::bind("127.0.0.2:0")?.local_addr()?.to_string();
    let script = r#"cd / && grep server: "$KUBECONFIG" && echo "in $KUBECONFIG""#;
    let flags = [
        "run",
        "--listen",
        &address,
        "--data-dir",
        "data",
        "--kubeconfig",
        "config",
        "--",
        "sh",
        "-c",
        script,
    ];
    let config = directory.path().join("config");
    for _ in 0..2 {
        let output = run(directory.path(), &flags).await?;
        let stderr = String::from_utf8(output.stdout)?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(stderr.contains(&format!("https://{address}")), "{stderr}");
        assert!(stderr.contains(&format!("in {}/config", directory.path().display())), "{stderr}");
        assert!(directory.path().join("data/store").is_dir(), "the data stay");
        assert!(!config.exists(), "the kubeconfig goes with the control plane");
    }
    fs::write(&config, "theirs")?;
    let output = run(directory.path(), &flags).await?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("config exists: remove it"), "{stderr}");
    assert_eq!(fs::read_to_string(&config)?, "theirs");
    Ok(())
}

/// Checks that the error for a port in use names its process.
#[tokio::test]
async fn a_server_on_the_same_port_is_named() -> Result<()> {
    let first = cluster().start().await?;
    let url = first.config().await?.cluster_url;
    let address = url.authority().context("an address")?.to_string();
    let directory = TempDir::new()?;
    assert_rejected(directory.path(), &["run", "--listen", &address, "--", "true"], 1, "(coracle serve ")
        .await
}

#[tokio::test]
async fn help_is_shown_without_arguments() -> Result<()> {
    let directory = TempDir::new()?;
    let asked = run(directory.path(), &["help"]).await?;
    let nothing = run(directory.path(), &[]).await?;
    assert_eq!((asked.status.code(), nothing.status.code()), (Some(0), Some(2)));
    assert!(String::from_utf8(asked.stdout.clone())?.contains("\nCommands:\n"));
    assert_eq!(nothing.stderr, asked.stdout);
    Ok(())
}

/// Checks that two control planes with their own names are two contexts in addition to existing
/// ones, and that the last one started is current.
#[tokio::test]
async fn serve_merges_into_a_kubeconfig() -> Result<()> {
    const THEIRS: &str = "apiVersion: v1\nkind: Config\ncurrent-context: prod\nusers:\n- name: prod\n  user:\n    token: secret\n";
    let directory = TempDir::new()?;
    let file = directory.path().join("config");
    fs::write(&file, THEIRS)?;
    let mut servers = Vec::new();
    for (name, previous) in [("coracle", "\"prod\""), ("second", "\"coracle\"")] {
        let serve =
            ["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--kubeconfig", "config", "--name", name];
        let mut server = coracle(directory.path(), &serve).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(server.stderr.take().context("stderr")?).lines();
        let mut banner = String::new();
        while !banner.contains("export KUBECONFIG=") {
            banner += &timeout(DEADLINE, lines.next_line()).await??.context(banner.clone())?;
            banner.push('\n');
        }
        assert!(banner.contains(&format!("the current context was {previous}")), "{banner}");
        servers.push((server, lines));
    }
    let merged = Kubeconfig::read_from(&file)?;
    assert_eq!(merged.current_context.as_deref(), Some("second"));
    let users: Vec<_> = merged.auth_infos.iter().map(|user| user.name.as_str()).collect();
    assert_eq!(users, ["prod", "coracle", "second"]);
    for context in ["coracle", "second"] {
        let options = KubeConfigOptions { context: Some(context.to_owned()), ..Default::default() };
        let config = Config::from_custom_kubeconfig(merged.clone(), &options).await?;
        let response = Endpoint::new(&config)?.connect().await?.call("GET", "/readyz", &[], None).await?;
        assert_eq!(response.status, 200, "{context}: {response:?}");
    }
    for (mut server, _) in servers {
        server.kill().await?;
    }

    fs::write(&file, "kind: Deployment\n")?;
    let serve = ["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--kubeconfig", "config"];
    let output = run(directory.path(), &serve).await?;
    let stderr = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("config is not changed: its apiVersion is not v1"), "{stderr}");
    assert_eq!(fs::read_to_string(&file)?, "kind: Deployment\n");
    Ok(())
}

/// Checks the stop also with an open watch, which ends regularly. A busy machine may spoil one
/// attempt, but hardly three.
#[tokio::test]
async fn sigterm_stops_the_server_within_two_seconds() -> Result<()> {
    const LIMIT: Duration = Duration::from_secs(2);
    let data = TempDir::new()?;
    for path in ["/api/v1/namespaces", "/api/v1/namespaces?watch=true"] {
        let mut times = Vec::new();
        while times.len() < 3 && times.last().is_none_or(|took| *took >= LIMIT) {
            times.push(time_of_stop(data.path(), path).await?);
        }
        assert!(times.last() < Some(&LIMIT), "{path}: it took {times:?}");
    }
    Ok(())
}

/// Returns the time that a server takes to stop while a client has an open request.
async fn time_of_stop(data: &Path, path: &str) -> Result<Duration> {
    let cluster = cluster().data_dir(data).start().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let response = connection.open("GET", path, &[], None).await?;
    assert_eq!(response.status(), 200);
    let started = Instant::now();
    let status = cluster.stop().await?;
    let took = started.elapsed();
    assert_eq!(status.code(), Some(0), "{status}");
    let body = timeout(DEADLINE, response.into_body().collect()).await.context("the stream does not end")?;
    assert!(body.is_ok(), "{body:?}");
    Ok(took)
}

#[tokio::test]
async fn the_kubeconfig_is_written_when_the_server_is_ready() -> Result<()> {
    let directory = TempDir::new()?;
    let data = directory.path().join("data");
    let data_dir = data.to_str().context("its name")?;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir];
    let mut server = coracle(directory.path(), &serve).stderr(Stdio::null()).spawn()?;
    let kubeconfig = data.join("kubeconfig");
    let appears = async {
        while !kubeconfig.exists() {
            assert!(server.try_wait()?.is_none(), "it has ended");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        anyhow::Ok(())
    };
    timeout(DEADLINE, appears).await.context("no kubeconfig")??;
    // The file is complete when it appears, and the server is ready.
    let endpoint = Endpoint::new(&config(&kubeconfig).await?)?;
    let response = endpoint.connect().await?.call("GET", "/readyz", &[], None).await?;
    assert_eq!(response.status, 200, "{response:?}");

    let printed = run(directory.path(), &["kubeconfig", "--data-dir", data_dir]).await?;
    assert!(printed.status.success());
    assert_eq!(printed.stdout, fs::read(&kubeconfig)?);
    server.kill().await?;
    Ok(())
}

/// Checks that the environment configures `serve`, as in a container, but does not affect a `run`
/// in it.
#[tokio::test]
async fn the_environment_configures_serve_and_its_health_check() -> Result<()> {
    let directory = TempDir::new()?;
    let data = directory.path().join("data");
    let kubeconfig = data.join("kubeconfig");
    let address = TcpListener::bind("127.0.0.3:0")?.local_addr()?.to_string();
    let command = |arguments: &[&str]| {
        let mut command = coracle(directory.path(), arguments);
        command.env("CORACLE_DATA_DIR", &data).env("CORACLE_LISTEN", &address).env("KUBECONFIG", &kubeconfig);
        command.env("CORACLE_TLS_SAN", "coracle.example,192.0.2.7");
        command
    };
    let early = timeout(DEADLINE, command(&["ready"]).output()).await??;
    assert_eq!(early.status.code(), Some(1), "there is no kubeconfig yet");

    let mut server = command(&["serve"]).stderr(Stdio::null()).spawn()?;
    let becomes_ready = async {
        loop {
            let ready = command(&["ready"]).output().await?;
            if ready.status.success() {
                return anyhow::Ok(String::from_utf8(ready.stdout)?);
            }
            assert!(server.try_wait()?.is_none(), "it has ended: {}", String::from_utf8_lossy(&ready.stderr));
        }
    };
    let line = timeout(DEADLINE, becomes_ready).await.context("it is not ready")??;
    assert_eq!(line, format!("https://{address} is ready\n"));
    for name in ["coracle.example", "192.0.2.7"] {
        let mut config = config(&kubeconfig).await?;
        config.tls_server_name = Some(name.to_owned());
        let version = kube::Client::try_from(config)?.apiserver_version().await;
        version.with_context(|| format!("the certificate is not for {name}"))?;
    }
    // Both the data directory and the address are in use, and `run` has its own.
    let script = r#"grep -F "server: https://127.0.0.1:" "$KUBECONFIG""#;
    let beside = timeout(DEADLINE, command(&["run", "--", "sh", "-c", script]).output()).await??;
    assert!(beside.status.success(), "{}", String::from_utf8_lossy(&beside.stderr));
    let printed = timeout(DEADLINE, command(&["kubeconfig"]).output()).await??;
    assert_eq!(printed.stdout, fs::read(&kubeconfig)?);
    server.kill().await?;

    let late = timeout(DEADLINE, command(&["ready"]).output()).await??;
    let stderr = String::from_utf8(late.stderr)?;
    assert_eq!(late.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with(&format!("coracle: cannot reach https://{address}")), "{stderr}");

    let wrong = command(&["serve"]).env("CORACLE_LISTEN", "here").output();
    let stderr = String::from_utf8(timeout(DEADLINE, wrong).await??.stderr)?;
    assert!(stderr.starts_with("coracle: invalid value 'here' for CORACLE_LISTEN: "), "{stderr}");
    Ok(())
}

/// Returns an output that its reader has closed.
fn unread() -> Result<Stdio> {
    let (_, writer) = std::io::pipe()?;
    Ok(writer.into())
}

/// Checks that nobody has to read all of the output, and that a full disk is reported.
#[tokio::test]
async fn output_that_is_not_read_is_no_error() -> Result<()> {
    let directory = TempDir::new()?;
    for (output, code, line) in [
        (unread()?, 0, ""),
        (
            fs::OpenOptions::new().write(true).open("/dev/full")?.into(),
            1,
            "coracle: standard output: No space left",
        ),
    ] {
        let child = coracle(directory.path(), &["version"]).stdout(output).stderr(Stdio::piped()).spawn()?;
        let output = timeout(DEADLINE, child.wait_with_output()).await??;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.starts_with(line) && stderr.is_empty() == line.is_empty(), "{stderr}");
    }
    Ok(())
}

#[tokio::test]
async fn an_invalid_filter_of_the_log_is_an_error() -> Result<()> {
    let directory = TempDir::new()?;
    for arguments in [&["serve", "--ephemeral"][..], &["run", "--", "true"], &["settle"]] {
        let command = coracle(directory.path(), arguments).env("CORACLE_LOG", "coracle=loud").output();
        let output = timeout(DEADLINE, command).await??;
        let stderr = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("coracle: CORACLE_LOG: ") && stderr.lines().count() == 1, "{stderr}");
    }
    Ok(())
}

#[tokio::test]
async fn the_version_is_one_line() -> Result<()> {
    let directory = TempDir::new()?;
    for (arguments, want) in [
        (&["version"][..], concat!("coracle ", env!("CARGO_PKG_VERSION"), " (Kubernetes v1.36)\n")),
        (&["--version"], concat!("coracle ", env!("CARGO_PKG_VERSION"), "\n")),
    ] {
        let output = run(directory.path(), arguments).await?;
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout)?, want);
    }
    Ok(())
}
