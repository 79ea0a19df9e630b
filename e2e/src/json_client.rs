//! A JSON client of the API: objects are values, and paths are written out.
//!
//! It keeps tests of many kinds short, and returns the content of the response, not a typed
//! client's interpretation of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use crate::http::{Connection, Endpoint};
use crate::wait::DEADLINE;

/// Between two requests of a client that waits.
const POLL_PERIOD: Duration = Duration::from_millis(20);
/// A request that returns when nothing is left to happen, or after that period.
const SETTLE: (&str, &str) = ("/coracle/v1alpha1/settle", r#"{"quietFor": "0s", "timeout": "20ms"}"#);

/// A client for JSON requests over one connection.
pub struct JsonClient(Connection);

impl JsonClient {
    /// Connects to a server.
    ///
    /// # Errors
    /// It cannot be reached.
    pub async fn new(endpoint: &Endpoint) -> Result<JsonClient> {
        Ok(JsonClient(endpoint.connect().await?))
    }

    /// Sends a request and returns the status code of the response and its body. The body of an
    /// error may be plain text, as for a path that is not served; it is returned as a string.
    ///
    /// - `body`: an object. That of a PATCH is a JSON merge patch.
    ///
    /// # Errors
    /// There is no response, or a successful one is not JSON.
    pub async fn send(
        &mut self,
        method: &'static str,
        path: &str,
        body: Option<Value>,
    ) -> Result<(u16, Value)> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        let patch = [("content-type", Some("application/merge-patch+json"))];
        let headers = if method == "PATCH" { &patch[..] } else { &[] };
        let response = self.0.call(method, path, headers, body).await?;
        let value = match serde_json::from_slice(&response.body) {
            Err(_) if response.status >= 400 => json!(String::from_utf8_lossy(&response.body)),
            decoded => decoded?,
        };
        Ok((response.status, value))
    }

    /// Sends a request that must succeed, and returns the object in the response.
    ///
    /// # Errors
    /// There is no response, or it is an error.
    pub async fn call(&mut self, method: &'static str, path: &str, body: Option<Value>) -> Result<Value> {
        let (status, answer) = self.send(method, path, body).await?;
        ensure!(status < 300, "{method} {path}: {answer}");
        Ok(answer)
    }

    /// Creates an object in a collection.
    ///
    /// # Errors
    /// See [`JsonClient::call`].
    pub async fn create(&mut self, collection: &str, object: Value) -> Result<Value> {
        self.call("POST", collection, Some(object)).await
    }

    /// Reads an object or a list.
    ///
    /// # Errors
    /// See [`JsonClient::call`].
    pub async fn get(&mut self, path: &str) -> Result<Value> {
        self.call("GET", path, None).await
    }

    /// Returns the items of a list.
    ///
    /// # Errors
    /// The errors of [`JsonClient::call`], or the response is not a list.
    pub async fn list(&mut self, path: &str) -> Result<Vec<Value>> {
        Ok(items(&self.get(path).await?).context("not a list")?.clone())
    }

    /// Changes an object by a JSON merge patch.
    ///
    /// # Errors
    /// See [`JsonClient::call`].
    pub async fn patch(&mut self, path: &str, patch: Value) -> Result<Value> {
        self.call("PATCH", path, Some(patch)).await
    }

    /// Reads an object, changes it and writes it back whole; repeats that if another client wrote
    /// it in between, as a controller does that reports its status.
    ///
    /// # Errors
    /// See [`JsonClient::call`]; or others write all the time.
    pub async fn update(&mut self, path: &str, change: impl Fn(&mut Value)) -> Result<Value> {
        let began = Instant::now();
        loop {
            let mut object = self.get(path).await?;
            change(&mut object);
            let (status, answer) = self.send("PUT", path, Some(object)).await?;
            match status {
                200 => return Ok(answer),
                409 if began.elapsed() < DEADLINE => {}
                _ => bail!("PUT {path}: {answer}"),
            }
        }
    }

    /// Deletes an object or a collection.
    ///
    /// # Errors
    /// See [`JsonClient::call`].
    pub async fn delete(&mut self, path: &str) -> Result<Value> {
        self.call("DELETE", path, None).await
    }

    /// Creates a namespace with a generated name, and returns the name. Pods can be created in it.
    ///
    /// # Errors
    /// See [`JsonClient::call`]; it has no default ServiceAccount in time.
    pub async fn namespace(&mut self) -> Result<String> {
        let body = json!({"metadata": {"generateName": "test-"}});
        let namespace = self.create("/api/v1/namespaces", body).await?;
        let name = namespace["metadata"]["name"].as_str().context("no name")?.to_owned();
        self.until_items(&format!("/api/v1/namespaces/{name}/serviceaccounts"), 1).await?;
        Ok(name)
    }

    /// Reads an object or a list until it meets a condition, and returns it.
    ///
    /// # Errors
    /// See [`JsonClient::call`]; it does not meet the condition in time.
    pub async fn until(&mut self, path: &str, condition: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until_within(path, DEADLINE, condition).await
    }

    /// Reads until a condition holds, with a time limit of its own.
    ///
    /// # Errors
    /// See [`JsonClient::until`].
    pub async fn until_within(
        &mut self,
        path: &str,
        deadline: Duration,
        condition: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let (began, mut has_settled) = (Instant::now(), false);
        loop {
            let (status, value) = self.send("GET", path, None).await?;
            if status == 200 && condition(&value) {
                return Ok(value);
            }
            ensure!(began.elapsed() < deadline, "not in {deadline:?}: {path} is {value}");
            self.pause(&mut has_settled).await?;
        }
    }

    /// Waits until a list has this number of items, and returns these.
    ///
    /// # Errors
    /// See [`JsonClient::until`].
    pub async fn until_items(&mut self, path: &str, count: usize) -> Result<Vec<Value>> {
        let list = self.until(path, |list| items(list).is_some_and(|items| items.len() == count)).await?;
        Ok(items(&list).context("not a list")?.clone())
    }

    /// Waits until an object does not exist.
    ///
    /// # Errors
    /// There is no response, or the object exists for too long.
    pub async fn until_deleted(&mut self, path: &str) -> Result<()> {
        let (began, mut has_settled) = (Instant::now(), false);
        loop {
            let (status, value) = self.send("GET", path, None).await?;
            if status == 404 {
                return Ok(());
            }
            ensure!(began.elapsed() < DEADLINE, "not gone in {DEADLINE:?}: {value}");
            self.pause(&mut has_settled).await?;
        }
    }

    /// Pauses until the server is idle, or for a moment.
    ///
    /// - `has_settled`: whether the server was idle before, so that the awaited event depends on a
    ///   timer or on others
    async fn pause(&mut self, has_settled: &mut bool) -> Result<()> {
        if *has_settled {
            tokio::time::sleep(POLL_PERIOD).await;
        } else {
            let (path, body) = SETTLE;
            let response = self.0.call("POST", path, &[], Some(Bytes::from_static(body.as_bytes()))).await?;
            // 504: not yet. Any other status is from a server without that endpoint, or one that
            // rejects this client.
            *has_settled = response.status != 504;
        }
        Ok(())
    }

    /// Waits until `/readyz` succeeds.
    ///
    /// # Errors
    /// There is no response.
    pub async fn until_ready(&mut self) -> Result<()> {
        while self.0.call("GET", "/readyz", &[], None).await?.status != 200 {
            tokio::time::sleep(POLL_PERIOD).await;
        }
        Ok(())
    }

    /// Returns the number of requests for these resources to which the server has responded, from
    /// `apiserver_request_total`. It includes the requests of the controllers in the server's
    /// process, but no watches.
    ///
    /// # Errors
    /// There is no response.
    pub async fn requests(&mut self, resources: &[&str]) -> Result<u64> {
        self.requests_of(
            resources,
            &["GET", "LIST", "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"],
        )
        .await
    }

    /// Returns the number of requests as [`JsonClient::requests`], restricted to these verbs.
    ///
    /// # Errors
    /// There is no response.
    pub async fn requests_of(&mut self, resources: &[&str], verbs: &[&str]) -> Result<u64> {
        let response = self.0.call("GET", "/metrics", &[], None).await?;
        let text = String::from_utf8(response.body.to_vec())?;
        let has = |line: &str, label: &str, values: &[&str]| {
            values.iter().any(|value| line.contains(&format!(r#"{label}="{value}""#)))
        };
        let counts = text
            .lines()
            .filter(|line| line.starts_with("apiserver_request_total{"))
            .filter(|line| has(line, ",resource", resources) && has(line, ",verb", verbs))
            .filter_map(|line| line.rsplit_once(' '));
        Ok(counts.filter_map(|(_, count)| count.parse::<u64>().ok()).sum())
    }

    /// Waits for a period without any request for some resources.
    ///
    /// - `time`: the length of the period. The test takes at least as long.
    ///
    /// # Errors
    /// There are always requests.
    pub async fn until_at_rest(&mut self, resources: &[&str], time: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let before = self.requests(resources).await?;
            // A measurement: requests are counted for as long as this.
            tokio::time::sleep(time).await;
            let sent = self.requests(resources).await? - before;
            if sent == 0 {
                return Ok(());
            }
            ensure!(began.elapsed() < DEADLINE, "still {sent} requests about {resources:?} in {time:?}");
        }
    }
}

/// Returns the items of a list.
pub fn items(list: &Value) -> Option<&Vec<Value>> {
    list["items"].as_array()
}

/// Returns the status of a condition of an object, such as `True`.
pub fn condition<'a>(object: &'a Value, r#type: &str) -> Option<&'a str> {
    find_condition(object, r#type)?["status"].as_str()
}

/// Returns the reason of a condition of an object.
pub fn condition_reason<'a>(object: &'a Value, r#type: &str) -> Option<&'a str> {
    find_condition(object, r#type)?["reason"].as_str()
}

fn find_condition<'a>(object: &'a Value, r#type: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == r#type)
}
