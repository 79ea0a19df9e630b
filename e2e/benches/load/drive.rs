//! The load driver: sends requests over many connections for some time, and measures their
//! durations.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::{Connection, Endpoint};
use futures::future::try_join_all;

/// The duration of the measurement of each row.
const TIME: Duration = Duration::from_secs(3);

/// The measurement of one row.
#[derive(Clone, Copy, Default)]
pub struct Figure {
    pub requests: usize,
    pub per_second: f64,
    pub p99_ms: f64,
    /// The processor time that the server used for each request, if its processes are known.
    pub processor_us: Option<f64>,
}

/// A request of the load.
pub struct Request {
    method: &'static str,
    path: String,
    content_type: Option<&'static str>,
    body: Option<Bytes>,
}

impl Request {
    pub fn new(method: &'static str, path: String) -> Request {
        Request { method, path, content_type: None, body: None }
    }

    /// Returns a PATCH request with this media type.
    pub fn patch(content_type: &'static str, path: String, body: String) -> Request {
        let request = Request::new("PATCH", path).body(body.into());
        Request { content_type: Some(content_type), ..request }
    }

    pub fn body(self, body: Bytes) -> Request {
        Request { body: Some(body), ..self }
    }

    pub async fn send(self, connection: &mut Connection) -> Result<Bytes> {
        let headers: &[(&str, Option<&str>)] = &[("content-type", self.content_type)];
        let headers = if self.content_type.is_some() { headers } else { &[] };
        let response = connection.call(self.method, &self.path, headers, self.body).await?;
        ensure!(
            response.status < 300,
            "{} {}: {}",
            self.method,
            self.path,
            String::from_utf8_lossy(&response.body)
        );
        Ok(response.body)
    }
}

/// Sends the requests that `make` returns for 0, 1, 2, ... over `connections` connections, until it
/// returns None or the time is over.
pub async fn drive(
    endpoint: &Endpoint,
    connections: usize,
    make: impl Fn(usize) -> Option<Request> + Sync,
) -> Result<Figure> {
    let next = AtomicUsize::new(0);
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(endpoint.connect().await?);
    }
    let began = Instant::now();
    let workers = open.into_iter().map(|mut connection| {
        let (next, make) = (&next, &make);
        async move {
            let mut latencies = Vec::new();
            while began.elapsed() < TIME {
                let Some(request) = make(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let sent = Instant::now();
                request.send(&mut connection).await?;
                latencies.push(sent.elapsed());
            }
            Ok::<_, anyhow::Error>(latencies)
        }
    });
    let latencies = try_join_all(workers).await?.concat();
    Ok(figure(latencies, began.elapsed()))
}

pub fn figure(mut latencies: Vec<Duration>, took: Duration) -> Figure {
    latencies.sort();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
    let requests = latencies.len();
    let per_second = requests as f64 / took.as_secs_f64();
    Figure { requests, per_second, p99_ms: p99.as_secs_f64() * 1e3, processor_us: None }
}
