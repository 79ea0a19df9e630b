//! `coracle log`: the versions of objects, with their authors and changed fields, and the requests
//! that were refused.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use coracle_testing_api::{Log, LogEntry, Writer};

use super::Endpoints;
use super::diff::field_line;
use super::why::place;
use crate::cli::LogFlags;
use crate::output;

/// The time that the server has to respond.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Prints the log, oldest first.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// There is no such resource, or the control plane cannot be reached or refuses.
pub async fn print(kubeconfig: Option<&Path>, flags: &LogFlags) -> Result<()> {
    let endpoints = Endpoints::new(kubeconfig, READ_TIMEOUT).await?;
    let log: Log =
        endpoints.get(&format!("log?{}", query(flags, endpoints.client.default_namespace())?)).await?;
    output::write(&flags.output.format(&log, text)?);
    Ok(())
}

/// Builds the query of the request.
///
/// - `default_namespace`: the namespace of one object, unless the flags have another
fn query(flags: &LogFlags, default_namespace: &str) -> Result<String> {
    let LogFlags { object, name, namespace, diff, since, user_agent, limit, output: _ } = flags;
    let limit = limit.to_string();
    let mut query = form_urlencoded::Serializer::new(String::new());
    match object.as_deref() {
        // A resource alone selects all of its objects.
        Some(resource) if name.is_none() && !resource.contains('/') => {
            query.append_pair("resource", resource);
            query.append_pair("namespace", namespace.as_deref().unwrap_or_default());
        }
        Some(object) => {
            let (resource, name) = place(object, name.as_deref())?;
            query.append_pair("resource", resource);
            query.append_pair("namespace", namespace.as_deref().unwrap_or(default_namespace));
            query.append_pair("name", name);
        }
        None => drop(query.append_pair("namespace", namespace.as_deref().unwrap_or_default())),
    }
    for (member, value) in [("since", since), ("userAgent", user_agent)] {
        query.append_pair(member, value.as_deref().unwrap_or_default());
    }
    Ok(query.append_pair("limit", &limit).append_pair("diff", if *diff { "true" } else { "false" }).finish())
}

/// Formats the log: a line for each entry, and one for each of its fields.
fn text(log: &Log) -> String {
    if log.entries.is_empty() {
        return "no versions and no refused requests are known\n".to_owned();
    }
    let mut text = String::new();
    if log.is_truncated {
        text.push_str("... and more before\n");
    }
    for entry in log.entries.iter().rev() {
        let line = line(entry);
        // Writing to a text does not fail.
        let _ = writeln!(text, "{}", line.trim_end());
        for field in &entry.fields {
            let _ = writeln!(text, "    {}", printable(&field_line(field)));
        }
        if let Some(code) = entry.code {
            let _ = writeln!(text, "    {code} {}: {}", printable(&entry.reason), printable(&entry.message));
        }
    }
    text
}

/// Describes an entry in a line: when, what was done with which object, and by whom.
fn line(entry: &LogEntry) -> String {
    let LogEntry { resource, namespace, name, user, user_agent, .. } = entry;
    let (at, revision) = (time(entry), entry.revision.as_deref().unwrap_or_default());
    let subresource = Some(&*entry.subresource).filter(|name| !name.is_empty());
    let verb = subresource.map_or_else(|| entry.verb.clone(), |name| format!("{} {name}", entry.verb));
    let place =
        [&**namespace, &**name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let writer = Writer { user: user.clone(), user_agent: user_agent.clone(), verb: entry.verb.clone() };
    let by = if user.is_empty() { String::new() } else { format!("  by {writer}") };
    let outcome = match (entry.code, entry.is_deletion, entry.count) {
        (Some(_), _, 0 | 1) => "  refused",
        (Some(_), _, _) => "  refused again and again",
        (None, true, _) => "  removed",
        (None, false, _) => "",
    };
    printable(&format!("{at:<12} {revision:>7}  {verb:<13} {resource} {place}{outcome}{by}"))
}

/// Returns the time of day in UTC.
fn time(entry: &LogEntry) -> &str {
    let time = entry.time.as_deref().and_then(|time| time.split_once('T')).map_or("-", |(_, time)| time);
    time.get(..12).unwrap_or_else(|| time.trim_end_matches('Z'))
}

/// Returns a text without the control characters that a client can send.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use coracle_testing_api::FieldDiff;
    use serde_json::json;

    use super::*;

    fn entry() -> LogEntry {
        LogEntry {
            revision: Some("123".to_owned()),
            time: Some("2026-11-27T10:11:12.345678Z".to_owned()),
            resource: "pods".to_owned(),
            namespace: "shop".to_owned(),
            name: "web-0".to_owned(),
            verb: "patch".to_owned(),
            subresource: "status".to_owned(),
            user: "alice".to_owned(),
            user_agent: "kubectl/v1.36 (linux/amd64)".to_owned(),
            ..LogEntry::default()
        }
    }

    #[test]
    fn entries_are_lines_with_the_oldest_first() {
        assert_eq!(text(&Log::default()), "no versions and no refused requests are known\n");
        let field = FieldDiff { path: ".status.phase".to_owned(), from: None, to: Some(json!("Running")) };
        let changed = LogEntry { fields: vec![field], ..entry() };
        let refused = LogEntry {
            revision: None,
            verb: "update".to_owned(),
            subresource: String::new(),
            user: String::new(),
            user_agent: String::new(),
            code: Some(409),
            reason: "Conflict".to_owned(),
            message: "it was\u{1b}[31m modified".to_owned(),
            count: 2,
            ..entry()
        };
        let removed = LogEntry { is_deletion: true, time: None, user_agent: String::new(), ..entry() };
        let log = Log { entries: vec![removed, refused, changed], is_truncated: true, ..Log::default() };
        let want = "\
... and more before
10:11:12.345     123  patch status  pods shop/web-0  by alice with kubectl
    .status.phase: (none) -> \"Running\"
10:11:12.345          update        pods shop/web-0  refused again and again
    409 Conflict: it was [31m modified
-                123  patch status  pods shop/web-0  removed  by alice
";
        assert_eq!(text(&log), want);
    }

    #[test]
    fn flags_select_one_object_a_resource_or_everything() {
        let flags = |object: Option<&str>, name: Option<&str>, namespace: Option<&str>| LogFlags {
            object: object.map(str::to_owned),
            name: name.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            diff: true,
            since: Some("5m".to_owned()),
            user_agent: None,
            limit: 7,
            output: Default::default(),
        };
        for (object, name, namespace, want) in [
            (Some("pod/web-0"), None, None, Some("resource=pod&namespace=shop&name=web-0")),
            (Some("pod"), Some("web-0"), Some("a"), Some("resource=pod&namespace=a&name=web-0")),
            (Some("pod"), None, None, Some("resource=pod&namespace=")),
            (None, None, Some("a"), Some("namespace=a")),
            (Some("pod/"), None, None, None),
        ] {
            let query = query(&flags(object, name, namespace), "shop").ok();
            let want = want.map(|want| format!("{want}&since=5m&userAgent=&limit=7&diff=true"));
            assert_eq!(query, want, "{object:?}");
        }
    }
}
