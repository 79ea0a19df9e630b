//! A watch stream that is read in the background, as a client would.

use std::time::Duration;

use anyhow::Result;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::body::decode;
use crate::http::Endpoint;

/// Timeout for the beginning of the response.
const START_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Watch {
    events: mpsc::UnboundedReceiver<Value>,
}

impl Watch {
    /// Opens the watch, and returns once the response has begun, so that later changes are
    /// received.
    pub async fn open(endpoint: &Endpoint, path: String, headers: Vec<(String, Option<String>)>) -> Watch {
        let (sender, events) = mpsc::unbounded_channel();
        let (begun, begins) = oneshot::channel();
        let endpoint = endpoint.clone();
        tokio::spawn(async move {
            let opened = async {
                let headers: Vec<_> = headers.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
                endpoint.connect().await?.open("GET", &path, &headers, None).await
            };
            let opened = opened.await;
            // The receiver may have timed out already; the events are still collected.
            let _ = begun.send(());
            if let Ok(response) = opened {
                // A stream that breaks ends; the events before count.
                let _ = read(response, &sender).await;
            }
        });
        let _ = timeout(START_TIMEOUT, begins).await;
        Watch { events }
    }

    /// Returns the next `count` events, or fewer if `patience` has passed.
    pub async fn collect(&mut self, count: usize, patience: Duration) -> Vec<Value> {
        let end = Instant::now() + patience;
        let mut events = Vec::new();
        while events.len() < count {
            match timeout_at(end, self.events.recv()).await {
                Ok(Some(event)) => events.push(event),
                Ok(None) | Err(_) => break,
            }
        }
        events
    }
}

async fn read(response: Response<Incoming>, events: &mpsc::UnboundedSender<Value>) -> Result<()> {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    if status != 200 {
        let body = body.collect().await?.to_bytes();
        events.send(json!({"httpStatus": status, "body": decode(&body)}))?;
        return Ok(());
    }
    let mut pending = Vec::new();
    while let Some(frame) = body.frame().await {
        pending.extend_from_slice(frame?.data_ref().map(AsRef::as_ref).unwrap_or_default());
        while let Some(end) = pending.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            events.send(serde_json::from_slice(&line)?)?;
        }
    }
    Ok(())
}
