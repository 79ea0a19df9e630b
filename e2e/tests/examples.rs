//! Runs the walk-throughs in `e2e/examples`. All `sh` blocks of a page run in one shell, in order; the output of a block must be the
//! `text` block after it, if there is one. A `*` in it stands for the rest of a line.

use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use coracle_e2e::kubectl::{kubectl, output, program};
use coracle_e2e::{binary, cluster};

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
    let matches = |(text, expected): (&str, &str)| match expected.split_once('*') {
        Some((begin, _)) => text.starts_with(begin),
        None => text == expected,
    };
    text.lines().count() == expected.lines().count() && text.lines().zip(expected.lines()).all(matches)
}

#[tokio::test]
async fn statefulset_slice_migration() -> Result<()> {
    let Some(kubectl) = kubectl() else { return Ok(()) };
    let page = fs::read_to_string(binary::workspace().join("e2e/examples/statefulset-slice-migration.md"))?;
    let steps = steps(&page);
    let home = tempfile::tempdir()?;
    let cluster = cluster().data_dir(&home.path().join("coracle-data")).start().await?;
    let script: String =
        steps.iter().map(|step| format!("{}echo '{BLOCK_SEPARATOR}'\n", step.commands)).collect();
    let mut shell = program(&cluster, "bash");
    shell.args(["-euo", "pipefail", "-c", &format!("exec 2>&1\n{script}")]).current_dir(home.path());
    let others = env::var_os("PATH").unwrap_or_default();
    let places = [kubectl.parent().unwrap_or(Path::new(".")).to_owned()];
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
