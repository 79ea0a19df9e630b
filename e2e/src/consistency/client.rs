//! Clients that write, read, list and watch ConfigMaps at random, and record their observations.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Version;
use super::register::{Input, Operation, Output};
use super::stream::{EventKind, Listed, Objects, Observed, Stream, Writes};
use crate::http::{Connection, Endpoint};
use crate::json_client::JsonClient;
use crate::random::Rng;

/// The collection of a history's objects.
pub const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";

/// The interval at which a connection is checked for its end.
const POLL: Duration = Duration::from_millis(50);

/// Timeout for the end of a watch.
const DEADLINE: Duration = Duration::from_secs(60);

/// The record of all clients together. Clones share it.
#[derive(Clone, Default)]
pub struct History {
    clock: Arc<AtomicU64>,
    values: Arc<AtomicU64>,
    records: Arc<Mutex<Records>>,
}

#[derive(Default)]
struct Records {
    operations: HashMap<String, Vec<Operation>>,
    values: HashMap<u64, String>,
    lists: Vec<Listed>,
}

impl History {
    /// Returns an empty history with times and values that continue those of this one.
    pub fn next(&self) -> History {
        History { clock: self.clock.clone(), values: self.values.clone(), records: Arc::default() }
    }

    /// Records a list as reads of these objects.
    ///
    /// - `called`: a time of [`now`](Self::now) from before the list.
    pub fn observe(&self, listed: &Listed, keys: &[String], called: u64) {
        let returned = self.now();
        let mut records = self.lock();
        for key in keys {
            let output = Output::Read(listed.objects.get(key).copied());
            let operation = Operation { input: Input::Read, output, called, returned };
            records.operations.entry(key.clone()).or_default().push(operation);
        }
    }

    /// Returns the next time of the history's clock, which counts calls.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the operations on each object.
    pub fn operations(&self) -> BTreeMap<String, Vec<Operation>> {
        let records = self.lock();
        records.operations.iter().map(|(key, list)| (key.clone(), list.clone())).collect()
    }

    /// Returns the revisions of all acknowledged creations and updates, in any order.
    pub fn revisions(&self) -> Vec<u64> {
        let records = self.lock();
        let revision = |operation: &Operation| match operation.output {
            Output::Written(revision) => Some(revision),
            _ => None,
        };
        records.operations.values().flatten().filter_map(revision).collect()
    }

    /// Returns the writes against which watches are checked.
    pub fn writes(&self) -> Writes {
        let records = self.lock();
        let mut writes = Writes { values: records.values.clone(), ..Writes::default() };
        for (key, list) in &records.operations {
            for operation in list {
                match (operation.input, operation.output) {
                    (Input::Create { value } | Input::Update { value, .. }, Output::Written(revision)) => {
                        writes.acknowledged.insert(revision, (key.clone(), value));
                    }
                    (Input::Delete { expected }, Output::Deleted) => {
                        writes.deleted.insert((key.clone(), expected));
                    }
                    _ => {}
                }
            }
        }
        writes
    }

    /// Returns the recorded lists.
    pub fn lists(&self) -> Vec<Listed> {
        self.lock().lists.clone()
    }

    /// Returns the number of recorded operations.
    pub fn len(&self) -> usize {
        self.lock().operations.values().map(Vec::len).sum()
    }

    /// Returns `true` if nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock()
    }
}

/// A client that executes random operations one after the other, up to a number of them or until
/// its server has ended.
pub struct Client {
    history: History,
    rng: Rng,
    keys: Vec<String>,
    /// The last observed versions, for writes with preconditions that often hold.
    seen: HashMap<String, Version>,
    connection: Connection,
}

impl Client {
    /// Connects to one of several API servers over the same data.
    ///
    /// - `keys`: the names of the objects.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn new(history: &History, endpoint: &Endpoint, seed: u64, keys: &[String]) -> Result<Client> {
        let rng = Rng(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed + 1));
        let connection = endpoint.connect().await?;
        Ok(Client { history: history.clone(), rng, keys: keys.to_vec(), seen: HashMap::new(), connection })
    }

    /// Executes a number of operations. Returns whether the server was available to the end.
    ///
    /// # Errors
    /// A response that is invalid for the operation.
    pub async fn run(&mut self, count: usize) -> Result<bool> {
        for _ in 0..count {
            if !self.one().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn one(&mut self) -> Result<bool> {
        let Some(key) = self.keys.get(self.rng.below(self.keys.len())).cloned() else { bail!("no keys") };
        if self.rng.one_in(12) {
            return self.list().await;
        }
        let seen = self.seen.get(&key).copied();
        let value = self.history.values.fetch_add(1, Ordering::SeqCst);
        let input = match (self.rng.below(10), seen) {
            (0..=2, _) => Input::Read,
            (3..=4, _) | (_, None) => Input::Create { value },
            (5..=6, Some(version)) => Input::Delete { expected: version.revision },
            (_, Some(version)) => Input::Update { expected: version.revision, value },
        };
        let called = self.history.now();
        if let Input::Create { value } | Input::Update { value, .. } = input {
            self.history.lock().values.insert(value, key.clone());
        }
        let response = self.send(&key, input).await;
        let returned = self.history.now();
        let (output, is_there) = match response {
            Ok((status, object)) => (self.outcome(&key, input, status, &object)?, true),
            Err(_) => (Output::Unknown, false),
        };
        let is_unknown = output == Output::Unknown;
        if !(is_unknown && input == Input::Read) {
            let returned = if is_unknown { u64::MAX } else { returned };
            let operation = Operation { input, output, called, returned };
            self.history.lock().operations.entry(key).or_default().push(operation);
        }
        Ok(is_there)
    }

    async fn send(&mut self, key: &str, input: Input) -> Result<(u16, Value)> {
        let path = format!("{COLLECTION}/{key}");
        let (method, path, body) = match input {
            Input::Read => ("GET", path, None),
            Input::Create { value } => ("POST", COLLECTION.to_owned(), Some(object(key, None, value))),
            Input::Update { expected, value } => ("PUT", path, Some(object(key, Some(expected), value))),
            Input::Delete { expected } => {
                let preconditions = json!({"resourceVersion": expected.to_string()});
                ("DELETE", path, Some(json!({"preconditions": preconditions})))
            }
        };
        let body = body.map(|body| Bytes::from(body.to_string()));
        let response = self.connection.call(method, &path, &[], body).await?;
        Ok((response.status, serde_json::from_slice(&response.body)?))
    }

    fn outcome(&mut self, key: &str, input: Input, status: u16, object: &Value) -> Result<Output> {
        let output = match (input, status) {
            (Input::Read, 200) => Output::Read(Some(version(object)?)),
            (Input::Read, 404) => Output::Read(None),
            (Input::Create { .. }, 201) | (Input::Update { .. }, 200) => {
                Output::Written(version(object)?.revision)
            }
            (Input::Delete { .. }, 200) => Output::Deleted,
            (_, 409) => Output::Conflict,
            (Input::Update { .. } | Input::Delete { .. }, 404) => Output::NotFound,
            // The outcome of a write is unknown if the server is about to end.
            (_, 500..) => Output::Unknown,
            _ => bail!("{input:?}: {status} {object}"),
        };
        match output {
            Output::Read(Some(_)) | Output::Written(_) => {
                self.seen.insert(key.to_owned(), version(object)?);
            }
            Output::Read(None) | Output::Deleted | Output::NotFound => {
                self.seen.remove(key);
            }
            Output::Conflict | Output::Unknown => {}
        }
        Ok(output)
    }

    async fn list(&mut self) -> Result<bool> {
        let Ok(response) = self.connection.call("GET", COLLECTION, &[], None).await else { return Ok(false) };
        ensure!(response.status == 200, "{response:?}");
        let listed = listed(&serde_json::from_slice(&response.body)?)?;
        for (key, version) in &listed.objects {
            self.seen.insert(key.clone(), *version);
        }
        self.history.lock().lists.push(listed);
        Ok(true)
    }
}

/// Lists the objects of a history.
///
/// # Errors
/// The list fails.
pub async fn list(endpoint: &Endpoint) -> Result<Listed> {
    let response = endpoint.connect().await?.call("GET", COLLECTION, &[], None).await?;
    ensure!(response.status == 200, "{response:?}");
    listed(&serde_json::from_slice(&response.body)?)
}

/// Writes an object that is not one of the history's. Returns its revision: a watch that has seen
/// it has seen everything before.
///
/// - `text`: another one each time.
///
/// # Errors
/// It cannot be written.
pub async fn mark(endpoint: &Endpoint, text: &str) -> Result<u64> {
    let mut client = JsonClient::new(endpoint).await?;
    let object = json!({"metadata": {"name": "mark"}, "data": {"text": text}});
    let (status, marked) = client.send("PATCH", &format!("{COLLECTION}/mark"), Some(object.clone())).await?;
    if status == 404 {
        return revision(&client.create(COLLECTION, object).await?);
    }
    ensure!(status == 200, "{marked}");
    revision(&marked)
}

/// A watch that is resumed when it ends, and sometimes ended.
pub struct Watch {
    /// The observed events.
    pub stream: Stream,
    rng: Rng,
    /// The average number of events after which the connection is closed; 0 for never.
    patience: usize,
}

impl Watch {
    /// Creates a watch that begins at a list.
    ///
    /// - `patience`: the average number of events after which the connection is closed; 0 for
    ///   never.
    pub fn new(from: Listed, seed: u64, patience: usize) -> Watch {
        let stream = Stream { initial: from.objects, after: from.revision, observed: Vec::new() };
        Watch { stream, rng: Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1), patience }
    }

    /// Returns the revision up to which the watch has observed everything.
    pub fn revision(&self) -> u64 {
        let revision = |observed: &Observed| match observed {
            Observed::Event { version, .. } => version.revision,
            Observed::Bookmark(revision) => *revision,
        };
        self.stream.observed.last().map_or(self.stream.after, revision)
    }

    /// Watches until a revision is observed, or until the server has ended and sends no more
    /// events. Returns `true` if the revision was observed.
    ///
    /// - `until`: the revision; 0 while it is not known
    /// - `server_has_exited`: set when the server has ended
    ///
    /// # Errors
    /// The watch is rejected, or sends an invalid event.
    pub async fn follow(
        &mut self,
        endpoint: &Endpoint,
        until: &AtomicU64,
        server_has_exited: &AtomicBool,
    ) -> Result<bool> {
        let mut began = Instant::now();
        loop {
            let is_known = until.load(Ordering::SeqCst) > 0;
            let path =
                format!("{COLLECTION}?watch=1&allowWatchBookmarks=true&resourceVersion={}", self.revision());
            let opened = match endpoint.connect().await {
                Ok(mut connection) => connection.open("GET", &path, &[], None).await,
                Err(error) => Err(error),
            };
            match opened {
                Ok(response) => {
                    ensure!(response.status() == 200, "the watch is refused: {}", response.status());
                    if self.read(response.into_body(), until, server_has_exited).await? {
                        return Ok(true);
                    }
                    // The time begins when the revision is known.
                    if !is_known {
                        began = Instant::now();
                    }
                }
                Err(error) => {
                    ensure!(
                        server_has_exited.load(Ordering::SeqCst) || began.elapsed() < DEADLINE,
                        "{error:#}"
                    )
                }
            }
            if server_has_exited.load(Ordering::SeqCst) {
                return Ok(false);
            }
            ensure!(began.elapsed() < DEADLINE, "revision {} is not seen", until.load(Ordering::SeqCst));
        }
    }

    async fn read(
        &mut self,
        mut body: hyper::body::Incoming,
        until: &AtomicU64,
        server_has_exited: &AtomicBool,
    ) -> Result<bool> {
        let mut text = Vec::new();
        loop {
            let wanted = until.load(Ordering::SeqCst);
            if wanted > 0 && self.revision() >= wanted {
                return Ok(true);
            }
            let frame = match timeout(POLL, body.frame()).await {
                Err(_) if server_has_exited.load(Ordering::SeqCst) => return Ok(false),
                Err(_) => continue,
                Ok(None | Some(Err(_))) => return Ok(false),
                Ok(Some(Ok(frame))) => frame,
            };
            text.extend_from_slice(frame.data_ref().context("trailers")?);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                self.event(&serde_json::from_slice(&line)?)?;
                if self.patience > 0 && self.rng.one_in(self.patience) {
                    return Ok(false);
                }
            }
        }
    }

    fn event(&mut self, event: &Value) -> Result<()> {
        let object = &event["object"];
        let kind = match event["type"].as_str() {
            Some("ADDED") => EventKind::Added,
            Some("MODIFIED") => EventKind::Modified,
            Some("DELETED") => EventKind::Deleted,
            Some("BOOKMARK") => {
                self.stream.observed.push(Observed::Bookmark(revision(object)?));
                return Ok(());
            }
            _ => bail!("{event}"),
        };
        if object["data"]["value"].is_null() {
            // An object of others shows how far the watch is.
            self.stream.observed.push(Observed::Bookmark(revision(object)?));
            return Ok(());
        }
        let key = object["metadata"]["name"].as_str().context("no name")?.to_owned();
        self.stream.observed.push(Observed::Event { kind, key, version: version(object)? });
        Ok(())
    }
}

fn object(key: &str, expected: Option<u64>, value: u64) -> Value {
    let mut object = json!({"metadata": {"name": key}, "data": {"value": value.to_string()}});
    if let Some(expected) = expected {
        object["metadata"]["resourceVersion"] = json!(expected.to_string());
    }
    object
}

fn version(object: &Value) -> Result<Version> {
    let value = object["data"]["value"].as_str().with_context(|| object.to_string())?.parse()?;
    Ok(Version { revision: revision(object)?, value })
}

fn revision(object: &Value) -> Result<u64> {
    let revision = object["metadata"]["resourceVersion"].as_str().with_context(|| object.to_string())?;
    Ok(revision.parse()?)
}

fn listed(list: &Value) -> Result<Listed> {
    let mut objects = Objects::new();
    // Objects of others have no value.
    for item in
        list["items"].as_array().context("no list")?.iter().filter(|item| !item["data"]["value"].is_null())
    {
        objects.insert(item["metadata"]["name"].as_str().context("no name")?.to_owned(), version(item)?);
    }
    Ok(Listed { revision: revision(list)?, objects })
}
