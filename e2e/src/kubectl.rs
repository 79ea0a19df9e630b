//! The real kubectl, against a control plane of a test's own.
//!
//! It is `$KUBECTL`, or what Go builds of `e2e/kubectl`, or the one on the path. A scenario is a table: a command line, and what must
//! be in its output; one that begins with `!` must fail.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use crate::binary;
use crate::cluster::{Builder, Cluster};
use crate::wait::DEADLINE;

pub type Scenario = [(&'static str, &'static [&'static str])];

/// Where kubectl is, if it can be had.
pub fn kubectl() -> Option<&'static Path> {
    static KUBECTL: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = KUBECTL.get_or_init(|| match env::var_os("KUBECTL") {
        Some(path) => Some(std::path::absolute(path).expect("KUBECTL")),
        None => build().or_else(on_the_path),
    });
    if found.is_none() {
        assert!(env::var_os("CI").is_none(), "there is no kubectl, and no Go to build it");
        // Not by `eprintln`, which nobody sees of a test that passes.
        let _ = writeln!(io::stderr(), "SKIPPED: there is no kubectl, and no Go to build it");
    }
    found.as_deref()
}

fn build() -> Option<PathBuf> {
    // Else it takes itself for a development version, whose name `kubectl version` cannot read.
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

/// A command line for a control plane, in the directory of the manifests.
pub fn command(cluster: &Cluster, kubectl: &Path, line: &str) -> Command {
    let mut command = program(cluster, kubectl);
    command.args(line.split_whitespace());
    command.current_dir(binary::workspace().join("e2e/tests/manifests"));
    command.env("KUBE_EDITOR", "sed -i s/web:1/web:edited/");
    command
}

/// A program as somebody runs it who works with a control plane.
pub fn program(cluster: &Cluster, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("KUBECONFIG", cluster.kubeconfig());
    // kubectl's caches, and no preferences of whoever runs the tests.
    command.env("HOME", cluster.directory());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// What a command says, once it has ended.
pub async fn output(mut command: Command) -> Result<Output> {
    Ok(timeout(DEADLINE, command.output()).await.with_context(|| format!("{command:?} does not end"))??)
}

pub async fn run_scenario(cluster: Builder, scenario: &Scenario) -> Result<()> {
    let Some(kubectl) = kubectl() else { return Ok(()) };
    let cluster = cluster.start().await?;
    for (line, wanted) in scenario {
        let (line, succeeds) = line.strip_prefix("! ").map_or((*line, true), |line| (line, false));
        let output = output(command(&cluster, kubectl, line)).await?;
        let text = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
        ensure!(output.status.success() == succeeds, "kubectl {line}: {}\n{text}", output.status);
        for want in *wanted {
            ensure!(text.contains(want), "kubectl {line}: no {want:?} in\n{text}");
        }
    }
    Ok(())
}
