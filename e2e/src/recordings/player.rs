//! Plays recordings, and compares the responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::body::decode;
use super::names::Names;
use super::path::Path;
use super::watch::Watch;
use super::{Recording, Step};
use crate::http::{Connection, Endpoint, HttpResponse};

/// Timeout of a `wait`, and of a `collect` with recorded events, unless the recording has a longer
/// one: a slow machine is not a difference.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default timeout of a `collect` without recorded events.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between two polls, as in the recordings.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timeout for a new namespace to get its ServiceAccount.
const SERVICE_ACCOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of each request of the cleanup.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of a step.
#[derive(Debug)]
pub struct Verdict {
    /// The index of the step.
    pub step: usize,
    /// The request of the step.
    pub title: String,
    /// The differences from the recorded response; empty if it is equal.
    pub differences: Vec<String>,
}

/// The results of a recording.
#[derive(Debug)]
pub struct Played {
    /// The name of the recording, `area/name`.
    pub name: String,
    /// The results of the steps that were compared.
    pub verdicts: Vec<Verdict>,
    /// The number of steps with a response that were not played.
    pub left_out: usize,
}

impl Played {
    /// Returns the number of steps with an equal response.
    pub fn equal(&self) -> usize {
        self.verdicts.iter().filter(|v| v.differences.is_empty()).count()
    }

    /// Returns the number of steps with a compared response.
    pub fn compared(&self) -> usize {
        self.verdicts.len()
    }
}

/// The server that the recordings are played against.
pub struct Server {
    endpoint: Endpoint,
    /// Whether namespaces get a default ServiceAccount. Once a namespace did not get one, further
    /// recordings do not wait for it.
    creates_service_accounts: AtomicBool,
}

impl Server {
    /// Creates the server against which recordings are played.
    pub fn new(endpoint: Endpoint) -> Server {
        Server { endpoint, creates_service_accounts: AtomicBool::new(true) }
    }
}

/// Plays recordings, up to `jobs` of them concurrently; the results are in the order of their
/// names. `end` returns the step before which to stop.
pub async fn play(
    server: &Server,
    recordings: &[Recording],
    jobs: usize,
    end: impl Fn(&Recording, &[Step]) -> usize,
) -> Result<Vec<Played>> {
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    for recording in recordings {
        let steps = recording.steps()?;
        let end = end(recording, &steps);
        let plays = if recording.runs_alone() { &mut alone } else { &mut together };
        plays.push(play_one(server, recording, steps, end));
    }
    let mut played: Vec<Played> = stream::iter(alone).buffered(1).collect().await;
    played.extend(stream::iter(together).buffered(jobs).collect::<Vec<_>>().await);
    played.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(played)
}

async fn play_one(server: &Server, recording: &Recording, steps: Vec<Step>, end: usize) -> Played {
    let mut run = Run::new(server, recording);
    let mut verdicts = Vec::new();
    let left_out = steps[end..].iter().filter(|step| step.is_compared()).count();
    if end > 0 {
        run.prepare().await;
        for (number, step) in steps[..end].iter().enumerate() {
            // A step that cannot be played differs, with the error as its response.
            let got =
                run.step(step).await.unwrap_or_else(|error| Some(json!({"error": format!("{error:#}")})));
            if let (Some(want), Some(got)) = (&step.expect, &got) {
                let mut differences = Vec::new();
                compare(want, got, "", &mut differences);
                verdicts.push(Verdict { step: number, title: step.to_string(), differences });
            }
        }
        run.clean_up().await;
    }
    Played { name: recording.name(), verdicts, left_out }
}

/// The state of one recording that is played.
struct Run<'a> {
    server: &'a Server,
    recording: &'a Recording,
    names: Names,
    watches: HashMap<String, Watch>,
    connection: Option<Connection>,
}

impl<'a> Run<'a> {
    fn new(server: &'a Server, recording: &'a Recording) -> Run<'a> {
        let random = || uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
        let names = Names::new(&format!("replay-{}", random()), &random());
        Run { server, recording, names, watches: HashMap::new(), connection: None }
    }

    /// Creates the namespace, and waits for its default ServiceAccount.
    async fn prepare(&mut self) {
        if !self.recording.needs_namespace() {
            return;
        }
        let namespace = self.names.namespace().to_owned();
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        // A failure appears in the steps.
        let _ = self.call("POST", "/api/v1/namespaces", &[], Some(body.to_string().into())).await;
        let account = format!("/api/v1/namespaces/{namespace}/serviceaccounts/default");
        let end = Instant::now() + SERVICE_ACCOUNT_TIMEOUT;
        while self.recording.default_service_account
            && self.server.creates_service_accounts.load(Ordering::Relaxed)
            && !self.call("GET", &account, &[], None).await.is_ok_and(|response| response.status == 200)
        {
            if Instant::now() > end {
                self.server.creates_service_accounts.store(false, Ordering::Relaxed);
            }
            sleep(POLL_INTERVAL / 2).await;
        }
    }

    async fn clean_up(&mut self) {
        let mut paths: Vec<String> = self.recording.cleanup.iter().map(|p| self.names.expand(p)).collect();
        if self.recording.needs_namespace() {
            paths.push(format!("/api/v1/namespaces/{}", self.names.namespace()));
        }
        for path in paths {
            // Failures of the cleanup are ignored.
            let _ = timeout(CLEANUP_TIMEOUT, self.call("DELETE", &path, &[], None)).await;
        }
    }

    /// Plays one step; returns the value to compare, if it has a response.
    async fn step(&mut self, step: &Step) -> Result<Option<Value>> {
        if let Some(seconds) = step.sleep {
            sleep(Duration::from_secs_f64(seconds)).await;
            return Ok(None);
        }
        if let Some(path) = &step.watch {
            let name = step.name.clone().context("a watch without a name")?;
            let headers = step.headers.clone().into_iter().collect();
            let watch = Watch::open(&self.server.endpoint, self.names.expand(path), headers).await;
            self.watches.insert(name, watch);
            return Ok(None);
        }
        if let Some(name) = &step.collect {
            let patience = match step.timeout.map(Duration::from_secs_f64) {
                timeout if step.expects_events() => timeout.unwrap_or_default().max(WAIT_TIMEOUT),
                timeout => timeout.unwrap_or(COLLECT_TIMEOUT),
            };
            let watch = self.watches.get_mut(name).context("no such watch")?;
            let events = watch.collect(step.count, patience).await;
            events.iter().for_each(|event| self.save_variables(step, event));
            let events: Vec<Value> = events.into_iter().map(|event| self.shape(step, event)).collect();
            return Ok(Some(json!({"events": events})));
        }
        self.request(step).await.map(Some)
    }

    async fn request(&mut self, step: &Step) -> Result<Value> {
        let request = step.req.as_ref().or(step.wait.as_ref()).context("a step that does nothing")?;
        let request = self.names.expand(request);
        let (method, path) = request.split_once(' ').context("no path")?;
        let headers: Vec<(String, Option<String>)> = step
            .headers
            .iter()
            .map(|(name, value)| (self.names.expand(name), value.as_ref().map(|v| self.names.expand(v))))
            .collect();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect();
        let body = self.body(step)?;
        let timeout = step.timeout.map(Duration::from_secs_f64).unwrap_or_default();
        let end = Instant::now() + timeout.max(WAIT_TIMEOUT);
        let (response, got) = loop {
            let response = self.call(method, path, &headers, body.clone()).await?;
            let got = decode(&response.body);
            if step.wait.is_none() {
                break (response, got);
            }
            if self.is_met(&step.until, response.status, &got)? {
                // The awaited change is visible, but other controllers may still have to react to
                // it. When the recordings were made there was time for that before the next step,
                // which here can follow within a millisecond.
                sleep(POLL_INTERVAL).await;
                break (response, got);
            }
            if Instant::now() > end {
                let shape = self.shape(step, got);
                return Ok(json!({"status": response.status, "timedOut": true, "body": shape}));
            }
            sleep(POLL_INTERVAL).await;
        };
        self.save_variables(step, &got);
        let mut out = Map::new();
        out.insert("status".to_owned(), response.status.into());
        out.insert("body".to_owned(), self.shape(step, got));
        if let Some(warning) = header(&response, "warning") {
            out.insert("warning".to_owned(), self.names.normalize_text(&warning).into());
        }
        if !step.pick_headers.is_empty() {
            let picked = step.pick_headers.iter().map(|name| {
                let text = header(&response, name).unwrap_or_default();
                (name.clone(), self.names.normalize_text(&text).into())
            });
            out.insert("headers".to_owned(), Value::Object(picked.collect()));
        }
        Ok(Value::Object(out))
    }

    fn body(&self, step: &Step) -> Result<Option<Bytes>> {
        Ok(if let Some(raw) = &step.raw {
            Some(self.names.expand(raw).into())
        } else if let Some(base64) = &step.base64 {
            Some(base64::prelude::BASE64_STANDARD.decode(base64)?.into())
        } else {
            step.body.as_ref().map(|body| self.names.expand_json(body).into())
        })
    }

    /// Sends a request over the connection of the run, as long as it is open.
    async fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, Option<&str>)],
        body: Option<Bytes>,
    ) -> Result<HttpResponse> {
        let mut connection = match self.connection.take().filter(Connection::is_open) {
            Some(connection) => connection,
            None => self.server.endpoint.connect().await?,
        };
        let response = connection.call(method, path, headers, body).await?;
        self.connection = Some(connection);
        Ok(response)
    }

    fn save_variables(&mut self, step: &Step, body: &Value) {
        for (name, path) in &step.save {
            self.names.save(name, Path::parse(path).first(body));
        }
    }

    /// Returns `true` if all conditions of a `wait` are met.
    fn is_met(
        &self,
        until: &std::collections::BTreeMap<String, Value>,
        status: u16,
        body: &Value,
    ) -> Result<bool> {
        for (path, want) in until {
            let got = match path.strip_prefix("$len:") {
                _ if path == "$status" => Some(status.into()),
                Some(path) => Some(length(Path::parse(path).first(body))?.into()),
                None => Path::parse(path).first(body).cloned(),
            };
            // null counts as absent.
            let got = got.filter(|value| !value.is_null());
            let expects = |operator: &str| want.get(operator).is_some_and(|w| w == true);
            let met = if expects("absent") {
                got.is_none()
            } else if expects("present") {
                got.is_some()
            } else {
                got.unwrap_or_default() == self.names.expand_value(want)
            };
            if !met {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the part of a body that is compared.
    fn shape(&mut self, step: &Step, mut body: Value) -> Value {
        if !self.recording.managed_fields && !step.managed_fields {
            remove_everywhere(&mut body, "managedFields");
        }
        for path in self.recording.ignore.iter().chain(&step.ignore) {
            Path::parse(&self.names.expand(path)).remove(&mut body);
        }
        if let Some(picks) = &step.pick {
            let pick = |path: &String| {
                let values = Path::parse(&self.names.expand(path));
                let picked = match path.contains("[]") {
                    true => Value::from_iter(values.values(&body).into_iter().cloned()),
                    false => values.first(&body).cloned().unwrap_or_default(),
                };
                (path.clone(), picked)
            };
            body = Value::Object(picks.iter().map(pick).collect());
        }
        self.names.normalize(&body)
    }
}

/// Returns all values of a header, joined. Bytes are decoded as Latin-1, so that no value makes the
/// comparison fail.
fn header(response: &HttpResponse, name: &str) -> Option<String> {
    let latin =
        |value: &hyper::header::HeaderValue| value.as_bytes().iter().map(|b| char::from(*b)).collect();
    let values: Vec<String> = response.headers.get_all(name).iter().map(latin).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

fn length(value: Option<&Value>) -> Result<usize> {
    match value {
        None | Some(Value::Null) => Ok(0),
        Some(Value::Array(elements)) => Ok(elements.len()),
        Some(Value::Object(members)) => Ok(members.len()),
        Some(Value::String(text)) => Ok(text.chars().count()),
        Some(other) => anyhow::bail!("{other} has no length"),
    }
}

fn remove_everywhere(value: &mut Value, key: &str) {
    match value {
        Value::Object(members) => {
            members.remove(key);
            members.values_mut().for_each(|member| remove_everywhere(member, key));
        }
        Value::Array(elements) => elements.iter_mut().for_each(|element| remove_everywhere(element, key)),
        _ => {}
    }
}

/// Collects the paths at which two values differ.
fn compare(want: &Value, got: &Value, at: &str, out: &mut Vec<String>) {
    match (want, got) {
        (Value::Object(want), Value::Object(got)) => {
            let keys: std::collections::BTreeSet<&String> = want.keys().chain(got.keys()).collect();
            for key in keys {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                match (want.get(key), got.get(key)) {
                    (Some(want), Some(got)) => compare(want, got, &path, out),
                    (Some(want), None) => out.push(format!("{path}: missing, want {}", short(want))),
                    (None, Some(got)) => out.push(format!("{path}: unexpected {}", short(got))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(want), Value::Array(got)) => {
            if want.len() != got.len() {
                let all = short(&Value::from(got.as_slice()));
                out.push(format!("{at}: {} elements, want {}: {all}", got.len(), want.len()));
            }
            for (index, (want, got)) in want.iter().zip(got).enumerate() {
                compare(want, got, &format!("{at}[{index}]"), out);
            }
        }
        _ if want != got => out.push(format!("{at}: {}, want {}", short(got), short(want))),
        _ => {}
    }
}

/// Returns the beginning of a value, for messages.
fn short(value: &Value) -> String {
    value.to_string().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_by_path() {
        for (want, got, differences) in [
            (json!({"a": [1, {"b": "x"}]}), json!({"a": [1, {"b": "x"}]}), vec![]),
            (json!(1), json!(1.0), vec![": 1.0, want 1"]),
            (
                json!({"a": 1, "b": 2}),
                json!({"b": 3, "c": 4}),
                vec!["a: missing, want 1", "b: 3, want 2", "c: unexpected 4"],
            ),
            (json!({"a": [1, 2]}), json!({"a": [3]}), vec!["a: 1 elements, want 2: [3]", "a[0]: 3, want 1"]),
        ] {
            let mut found = Vec::new();
            compare(&want, &got, "", &mut found);
            assert_eq!(found, differences, "{want} {got}");
        }
    }
}
