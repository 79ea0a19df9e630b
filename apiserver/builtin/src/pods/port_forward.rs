//! Port-forward to simulated pods: to the processes that annotations name for their ports.
//!
//! Source: `k8s.io/kubelet/pkg/cri/streaming/portforward`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::serve::{Connected, ServeUpgraded};
use coracle_apiserver::webhook::TransportError;
use coracle_behavior::{FORWARD, PodBehavior};
use coracle_streaming::{Forward, Forwards, Handshake, Purpose, serve_forwards};
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::command::refuse;
use crate::forwarding::{ForwardAccess, PAGE, no_process};

/// The connections of one client at once. Others are refused: if they waited, those that exist
/// could not end.
const MAX_CONNECTIONS: usize = 1000;
/// The ports that a request may name.
const MAX_PORTS: usize = 64;
/// The time in which a process has to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The bytes that are read from a process at once.
const BUFFER: usize = 16 << 10;

/// Connects a client to the ports of a pod.
///
/// - `life`: a stream that ends with the pod
///
/// # Errors
/// 400 for a request that asks for no upgrade, and if no process stands for any port of the pod.
pub fn connect(
    pod: &Value,
    behavior: PodBehavior,
    access: &ForwardAccess,
    mut life: BoxStream<'static, String>,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Connected> {
    let handshake = match Handshake::negotiate(headers, Purpose::PortForward) {
        Ok(handshake) => handshake,
        Err(refusal) => return refuse(&refusal),
    };
    // Clients of channels wait for what comes over them, whatever the response is.
    if behavior.first_port().is_none() && !handshake.needs_ports() {
        return Err(Error::bad_request(format!(
            "port-forward to pod {} is not simulated: no process stands for its ports; name one with the annotation \
             {FORWARD}: PORT=127.0.0.1:PORT ({PAGE})",
            pod.name()
        )));
    }
    let ports = ports(query)?;
    if ports.is_empty() && handshake.needs_ports() {
        return Err(Error::bad_request("query parameter \"port\" is required"));
    }
    let response_headers = handshake.headers.clone();
    let (name, uid, access) = (pod.name().to_owned(), pod.uid().to_owned(), access.clone());
    let serve: ServeUpgraded = Box::new(move |io| {
        async move {
            let address = |port| match behavior.address_of(port) {
                Some(address) => access.check(address).map(|()| address),
                None => Err(no_process(port)),
            };
            let pod = format!("{name}, uid {uid}");
            let forward = async |forwards| {
                let ended = async { while life.next().await.is_some() {} };
                tokio::select! {
                    () = serve_all(forwards, address, &pod) => {}
                    () = ended => {}
                }
            };
            serve_forwards(io, &handshake, &ports, forward).await;
        }
        .boxed()
    });
    Ok(Connected::Streams { headers: response_headers, serve })
}

/// Returns the ports in a query.
///
/// # Errors 400 for an invalid port, for a port that is named twice, and for too many ports.
fn ports(query: &Query) -> Result<Vec<u16>> {
    let mut ports = Vec::new();
    for text in query.all("ports").flat_map(|ports| ports.split(',')).filter(|text| !text.is_empty()) {
        let port = text.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| {
            Error::bad_request(format!(
                "unable to parse {} as a port",
                coracle_apimachinery::field::quote(text)
            ))
        })?;
        if ports.contains(&port) || ports.len() >= MAX_PORTS {
            let message = format!("a port that is named twice, or more than {MAX_PORTS} ports");
            return Err(Error::bad_request(message));
        }
        ports.push(port);
    }
    Ok(ports)
}

/// Serves connections until the client makes no more, and those that it made have ended.
///
/// - `address`: the address that a port leads to
/// - `pod`: the pod in messages
async fn serve_all(
    mut forwards: Forwards,
    address: impl Fn(u16) -> std::result::Result<SocketAddr, String>,
    pod: &str,
) {
    let mut connections = FuturesUnordered::new();
    let mut is_done = false;
    while !is_done || !connections.is_empty() {
        tokio::select! {
            forward = forwards.next(), if !is_done => match forward {
                // A rejected connection ends at once, unless the client does not read; then it is
                // dropped.
                Some(_) if connections.len() >= 2 * MAX_CONNECTIONS => {}
                Some(forward) => {
                    let is_allowed = connections.len() < MAX_CONNECTIONS;
                    let refusal = || format!("the client has {MAX_CONNECTIONS} connections already");
                    let address = if is_allowed { address(forward.port) } else { Err(refusal()) };
                    connections.push(serve_one(address, forward, pod));
                }
                None => is_done = true,
            },
            Some(()) = connections.next() => {}
        }
    }
}

/// Serves a connection to a port.
async fn serve_one(address: std::result::Result<SocketAddr, String>, forward: Forward, pod: &str) {
    let Forward { port, receiver, sender, error } = forward;
    let connected = match address {
        Ok(address) => dial(address).await.map_err(|error| {
            let cause = TransportError::dial(&address.to_string(), &error);
            format!("failed to connect to {address}: {cause}")
        }),
        Err(reason) => Err(reason),
    };
    match connected {
        Ok(process) => copy(process, receiver, sender).await,
        Err(reason) => {
            let text = format!("error forwarding port {port} to pod {pod}: {reason}");
            let _ = error.send(text.into()).await;
            let _ = sender.finish().await;
        }
    }
    let _ = error.finish().await;
}

#[expect(clippy::disallowed_methods, reason = "protects the server from processes that accept no connection")]
async fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Copies in both directions until the process ends the connection or the client disconnects.
async fn copy(
    process: TcpStream,
    mut receiver: coracle_streaming::Receiver,
    sender: coracle_streaming::Sender,
) {
    let (mut reader, mut writer) = process.into_split();
    let to_process = async {
        while let Some(data) = receiver.next().await {
            if writer.write_all(&data).await.is_err() {
                break;
            }
        }
        if receiver.is_reset() {
            return;
        }
        // The process may answer what it has read.
        let _ = writer.shutdown().await;
        std::future::pending::<()>().await;
    };
    let to_client = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(BUFFER);
            match reader.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if sender.send(buffer.split().freeze()).await.is_err() {
                return;
            }
        }
        let _ = sender.finish().await;
    };
    tokio::select! {
        () = to_process => {}
        () = to_client => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_requests() {
        let many: Vec<String> = (1..=MAX_PORTS + 1).map(|port| format!("ports={port}")).collect();
        for (query, want) in [
            ("", Some(vec![])),
            ("ports=80&ports=443,8080", Some(vec![80, 443, 8080])),
            ("ports=0", None),
            ("ports=x", None),
            ("ports=80&ports=80", None),
            (&many.join("&"), None),
        ] {
            assert_eq!(ports(&Query::parse(query)).ok(), want, "{query}");
        }
    }
}
