//! `coracle diff`: the objects that differ between control planes, or between revisions of one.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use coracle_testing_api::{Diff, FieldDiff, ObjectChange, ObjectDiff};
use serde_json::Value;

use super::Endpoints;
use crate::cli::DiffFlags;
use crate::output;

/// The time that the server has to respond.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The characters of a value that are printed.
const MAX_VALUE_LENGTH: usize = 80;

/// Prints what differs. Returns `true` if nothing does.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// There is no such fork or revision, or the control plane cannot be reached or refuses.
pub async fn print(kubeconfig: Option<&Path>, flags: &DiffFlags) -> Result<bool> {
    let DiffFlags { fork, other, from, to, namespace, output: format, exit_code: _ } = flags;
    let is_label = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if let Some(name) = fork.iter().chain(other).find(|name| !is_label(name)) {
        bail!("{name:?} is no name of a fork");
    }
    let endpoints = Endpoints::new(kubeconfig, READ_TIMEOUT).await?;
    let mut query = form_urlencoded::Serializer::new(String::new());
    match (fork, other, from) {
        (Some(base), Some(fork), _) => query.append_pair("base", base).append_pair("fork", fork),
        (Some(fork), None, _) => query.append_pair("fork", fork),
        (None, _, from) => query.append_pair("from", &from.unwrap_or_default().to_string()),
    };
    if let Some(to) = to {
        query.append_pair("to", &to.to_string());
    }
    if let Some(namespace) = namespace {
        query.append_pair("namespace", namespace);
    }
    let diff: Diff = endpoints.get(&format!("diff?{}", query.finish())).await?;
    output::write(&format.format(&diff, text)?);
    Ok(diff.objects.is_empty() && !diff.is_truncated)
}

/// Formats the differences: a line for each object, and one for each of its fields.
fn text(diff: &Diff) -> String {
    if diff.objects.is_empty() && !diff.is_truncated {
        return "no differences\n".to_owned();
    }
    let mut text = String::new();
    for ObjectDiff { resource, namespace, name, change, fields } in &diff.objects {
        let slash = if namespace.is_empty() { "" } else { "/" };
        let change = match change {
            ObjectChange::Added => "added",
            ObjectChange::Removed => "removed",
            ObjectChange::Changed => "changed",
            ObjectChange::Replaced => "replaced by another one",
        };
        // Writing to a text does not fail.
        let _ = writeln!(text, "{resource} {namespace}{slash}{name} {change}");
        for field in fields {
            let _ = writeln!(text, "  {}", field_line(field));
        }
    }
    if diff.is_truncated {
        text.push_str("... and more\n");
    }
    text
}

/// Formats the change of a field.
pub(super) fn field_line(FieldDiff { path, from, to }: &FieldDiff) -> String {
    format!("{path}: {} -> {}", shown(from.as_ref()), shown(to.as_ref()))
}

/// Formats a value in one line, cut if it is long.
fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "(none)".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(MAX_VALUE_LENGTH) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_lines() {
        assert_eq!(text(&Diff::default()), "no differences\n");
        let object = |change, fields| ObjectDiff {
            resource: "deployments.apps".to_owned(),
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            change,
            fields,
        };
        let field = |path: &str, from, to| FieldDiff { path: path.to_owned(), from, to };
        let fields = vec![
            field(".spec.replicas", Some(json!(3)), Some(json!(5))),
            field(".spec.paused", None, Some(json!("x".repeat(100)))),
        ];
        let mut node = object(ObjectChange::Removed, Vec::new());
        (node.resource, node.namespace) = ("nodes".to_owned(), String::new());
        let diff = Diff { objects: vec![object(ObjectChange::Changed, fields), node], is_truncated: true };
        let long = format!("\"{}...", "x".repeat(MAX_VALUE_LENGTH - 1));
        let want = format!(
            "deployments.apps shop/web changed\n  .spec.replicas: 3 -> 5\n  .spec.paused: (none) -> {long}\nnodes web removed\n... and more\n"
        );
        assert_eq!(text(&diff), want);
    }
}
