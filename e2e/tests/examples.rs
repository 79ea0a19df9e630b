//! Runs the walk-throughs in `e2e/examples` and in `docs/testing.md`. All `sh` blocks of a page run
//! in one shell, in order; the output of a block must be the `text` block after it, if there is
//! one. A `*` in it stands for any part of a line.

use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use coracle_e2e::kubectl::{kubectl, output, program};
use coracle_e2e::{binary, cluster};
use coracle_pattern::glob;
use tokio::process::Command;

/// Separates the outputs of two blocks.
const BLOCK_SEPARATOR: &str = "--- next block ---";

/// A block of commands, and its expected output.
struct Step {
    commands: String,
    expected: Option<String>,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else { continue };
        let block: String =
            lines.by_ref().take_while(|line| *line != "```").map(|line| line.to_owned() + "\n").collect();
        match (language, steps.last_mut()) {
            ("sh", _) => steps.push(Step { commands: block, expected: None }),
            ("text", Some(step)) => step.expected = Some(block),
            _ => {}
        }
    }
    steps
}

fn is_expected(text: &str, expected: &str) -> bool {
    let matches = |(text, expected): (&str, &str)| glob::matches(expected, text);
    text.lines().count() == expected.lines().count() && text.lines().zip(expected.lines()).all(matches)
}

/// Runs the blocks of a page in a shell, and compares their outputs.
///
/// - `shell`: a bash in a directory of the page's own
async fn follow(page: &str, mut shell: Command, kubectl: &Path) -> Result<()> {
    let steps = steps(page);
    let script: String =
        steps.iter().map(|step| format!("{}echo '{BLOCK_SEPARATOR}'\n", step.commands)).collect();
    shell.args([
        "-euo",
        "pipefail",
        "-c",
        &format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\nexec 2>&1\n{script}"),
    ]);
    let others = env::var_os("PATH").unwrap_or_default();
    let places =
        [kubectl, binary::coracle()].map(|program| program.parent().unwrap_or(Path::new(".")).to_owned());
    shell.env("PATH", env::join_paths(places.into_iter().chain(env::split_paths(&others)))?);
    let output = output(shell).await?;
    let text = String::from_utf8(output.stdout).context("no text")?;
    ensure!(output.status.success(), "{}\n{text}", output.status);
    for (step, text) in steps.iter().zip(text.split(&format!("{BLOCK_SEPARATOR}\n"))) {
        if let Some(expected) = &step.expected {
            ensure!(is_expected(text, expected), "{}\nprints\n{text}\nand not\n{expected}", step.commands);
        }
    }
    Ok(())
}

#[tokio::test]
async fn statefulset_slice_migration() -> Result<()> {
    let Some(kubectl) = kubectl() else { return Ok(()) };
    let page = fs::read_to_string(binary::workspace().join("e2e/examples/statefulset-slice-migration.md"))?;
    let home = tempfile::tempdir()?;
    let cluster = cluster().data_dir(&home.path().join("coracle-data")).start().await?;
    let mut shell = program(&cluster, "bash");
    shell.current_dir(home.path());
    follow(&page, shell, kubectl).await
}

#[tokio::test]
async fn a_failing_test_step_by_step() -> Result<()> {
    let Some(kubectl) = kubectl() else { return Ok(()) };
    let page = fs::read_to_string(binary::workspace().join("docs/testing.md"))?;
    let (_, section) = page.split_once("## A failing test, step by step").context("the section")?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let home = tempfile::tempdir()?;
    let mut shell = Command::new("bash");
    shell.current_dir(home.path()).env_remove("KUBECONFIG").kill_on_drop(true);
    follow(section, shell, kubectl).await
}
