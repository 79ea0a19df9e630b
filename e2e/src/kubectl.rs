//! The real kubectl, run against a control plane of the test.
//!
//! It is `$KUBECTL`, or what Go builds from `e2e/kubectl`, or the one on the path. A scenario is a
//! table of command lines, each with texts that its output must contain; a line that begins with
//! `!` must fail, and one that begins with `~` is repeated until the texts are there.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use crate::binary;
use crate::cluster::{Builder, Cluster};
use crate::skipped;
use crate::wait::DEADLINE;

/// Command lines, each with the texts that its output must contain.
pub type Scenario = [(&'static str, &'static [&'static str])];

/// Returns the path of kubectl, if there is one.
pub fn kubectl() -> Option<&'static Path> {
    static KUBECTL: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = KUBECTL.get_or_init(|| match env::var_os("KUBECTL") {
        Some(path) => Some(std::path::absolute(path).expect("KUBECTL")),
        None => build().or_else(on_the_path),
    });
    if found.is_none() {
        assert!(env::var_os("CI").is_none(), "there is no kubectl, and no Go to build it");
        skipped::report("there is no kubectl, and no Go to build it");
    }
    found.as_deref()
}

fn build() -> Option<PathBuf> {
    // Without it kubectl is a development version, and `kubectl version` cannot parse its name.
    const VERSION: &str = "-X k8s.io/component-base/version.gitVersion=v1.36.2";
    let program = binary::target().join("kubectl");
    let mut go = std::process::Command::new("go");
    go.args(["build", "-buildvcs=false", "-ldflags", VERSION, "-o"]).arg(&program).arg(".");
    go.current_dir(binary::workspace().join("e2e/kubectl"));
    go.status().is_ok_and(|status| status.success()).then_some(program)
}

fn on_the_path() -> Option<PathBuf> {
    let directories = env::var_os("PATH")?;
    env::split_paths(&directories)
        .map(|directory| directory.join("kubectl"))
        .find(|program| program.is_file())
}

/// Builds a kubectl command for a control plane, run in the directory of the manifests.
pub fn command(cluster: &Cluster, kubectl: &Path, line: &str) -> Command {
    let mut command = program(cluster, kubectl);
    command.args(line.split_whitespace());
    command.current_dir(binary::workspace().join("e2e/tests/manifests"));
    command.env("KUBE_EDITOR", "sed -i s/web:1/web:edited/");
    command
}

/// Builds a command with the environment of a user of the control plane.
pub fn program(cluster: &Cluster, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("KUBECONFIG", cluster.kubeconfig());
    // For kubectl's caches; it also hides the preferences of the user who runs the tests.
    command.env("HOME", cluster.directory());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command to its end, and returns its output.
pub async fn output(mut command: Command) -> Result<Output> {
    Ok(timeout(DEADLINE, command.output()).await.with_context(|| format!("{command:?} does not end"))??)
}

/// Runs a scenario against a new control plane; it is skipped if there is no kubectl.
///
/// # Errors
/// A command that fails or succeeds unexpectedly, or a text that its output lacks.
pub async fn run_scenario(cluster: Builder, scenario: &Scenario) -> Result<()> {
    let Some(kubectl) = kubectl() else { return Ok(()) };
    let cluster = cluster.start().await?;
    for (line, wanted) in scenario {
        let (line, succeeds) = line.strip_prefix("! ").map_or((*line, true), |line| (line, false));
        let (line, repeats) = line.strip_prefix("~ ").map_or((line, false), |line| (line, true));
        let began = Instant::now();
        loop {
            let output = output(command(&cluster, kubectl, line)).await?;
            let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
            ensure!(output.status.success() == succeeds, "kubectl {line}: {}\n{text}", output.status);
            match wanted.iter().find(|want| !text.contains(**want)) {
                None => break,
                Some(_) if repeats && began.elapsed() < DEADLINE => {}
                Some(want) => bail!("kubectl {line}: no {want:?} in\n{text}"),
            }
        }
    }
    Ok(())
}
