//! Random requests with the responses that a real kube-apiserver has given before
//! (`e2e/peer/differential.sample.gz`): the responses must be as equal as they were.
//! `e2e/peer/differences.md` lists what differs, and why.

use std::env;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use coracle_e2e::binary::workspace;
use coracle_e2e::{cluster, recordings, skipped};
use tokio::process::Command;
use tokio::time::timeout;

/// The least scores of the sample, in percent: of outcomes, and of whole answers. They never
/// decrease.
const FLOORS: [&str; 4] = ["--outcome", "99.8", "--answer", "98.9"];

/// Far longer than the replay takes.
const DEADLINE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_to_random_requests_are_those_of_a_real_server() -> Result<()> {
    if !has_python().await {
        assert!(env::var_os("CI").is_none(), "there is no python3");
        skipped::report("there is no python3");
        return Ok(());
    }
    let cluster = cluster()
        .flag("--token-auth-file", recordings::directory().join("tokens.csv"))
        .flag("--authorization-mode", "RBAC")
        .flag("--default-storage-class", "none")
        .flag("--controllers", "")
        .flag("--nodes", "0")
        .start()
        .await?;
    let peer = workspace().join("e2e/peer");
    let mut replay = Command::new("python3");
    replay.arg("-B").arg(peer.join("differential")).arg("replay");
    replay.args(["--server", &cluster.config().await?.cluster_url.to_string()]);
    replay.args(FLOORS).args(["--token", recordings::ADMIN_TOKEN]).arg(peer.join("differential.sample.gz"));
    replay.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(DEADLINE, replay.output()).await.context("the replay does not end")??;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    ensure!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

async fn has_python() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import sys; sys.exit(sys.version_info < (3, 10))"]);
    python.status().await.is_ok_and(|status| status.success())
}
