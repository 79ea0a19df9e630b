use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::handshake::Purpose;
use crate::testing::{DEADLINE, Received, SpdyClient, WebSocketClient, handshake};

/// Serves ports of which each echoes, except those below 10, which are refused.
fn serve_echo(protocol: &str, ports: &'static [u16]) -> (DuplexStream, JoinHandle<()>) {
    let (client, server) = duplex(1 << 10);
    let handshake = handshake(Purpose::PortForward, protocol);
    let served = async move {
        serve_forwards(server, &handshake, ports, async |mut forwards| {
            while let Some(Forward { port, mut receiver, sender, error }) = forwards.next().await {
                if port < 10 {
                    let _ = error.send(format!("port {port} is refused").into()).await;
                    let _ = error.finish().await;
                    continue;
                }
                while let Some(data) = receiver.next().await {
                    if sender.send(data).await.is_err() {
                        return;
                    }
                }
                let _ = sender.finish().await;
                let _ = error.finish().await;
            }
        })
        .await;
    };
    (client, tokio::spawn(served))
}

async fn ended(served: JoinHandle<()>) {
    tokio::time::timeout(DEADLINE, served).await.expect("it ends").expect("no panic");
}

/// Opens the two streams of a connection.
async fn connect(client: &mut SpdyClient, first: u32, port: &str, id: &str) {
    for (stream, name) in [(first, "error"), (first + 2, "data")] {
        let mut headers = vec![("streamtype", name), ("port", port)];
        headers.extend((!id.is_empty()).then_some(("requestid", id)));
        client.open(stream, &headers).await;
        assert_eq!(client.next().await, Some(Received::Reply(stream)));
    }
}

async fn forward_two_ports(mut client: SpdyClient) {
    for (first, id) in [(1, "0"), (5, "")] {
        connect(&mut client, first, "8080", id).await;
        client.data(first + 2, b"ping", false).await;
        assert_eq!(client.next().await, Some(Received::Data(first + 2, b"ping".to_vec())));
        client.data(first + 2, b"", true).await;
        assert_eq!(client.until_end(first + 2).await, b"");
        assert_eq!(client.next().await, Some(Received::End(first)));
    }
    connect(&mut client, 9, "9", "x").await;
    assert_eq!(client.until_end(9).await, b"port 9 is refused");
}

#[tokio::test]
async fn connections_over_spdy() {
    let (io, served) = serve_echo("portforward.k8s.io", &[]);
    forward_two_ports(SpdyClient::new(io)).await;
    ended(served).await;
}

#[tokio::test]
async fn connections_over_spdy_within_a_websocket() {
    let (io, served) = serve_echo("SPDY/3.1+portforward.k8s.io", &[]);
    let (near, far) = duplex(100);
    // The client's end of the tunnel, which cuts the bytes in odd places.
    let tunnel = tokio::spawn(async move {
        use futures::{SinkExt, StreamExt};
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let socket = tokio_tungstenite::WebSocketStream::from_raw_socket(
            io,
            tokio_tungstenite::tungstenite::protocol::Role::Client,
            None,
        );
        let (mut outgoing, mut incoming) = socket.await.split();
        let (mut reader, mut writer) = tokio::io::split(far);
        let send = async {
            let mut buffer = [0; 7];
            while let Ok(read @ 1..) = reader.read(&mut buffer).await {
                outgoing.send(Message::binary(buffer[..read].to_vec())).await.expect("taken");
            }
        };
        let receive = async {
            while let Some(Ok(Message::Binary(bytes))) = incoming.next().await {
                writer.write_all(&bytes).await.expect("taken");
            }
        };
        tokio::select! { () = send => {} () = receive => {} }
    });
    forward_two_ports(SpdyClient::new(near)).await;
    ended(tunnel).await;
    ended(served).await;
}

#[tokio::test]
async fn connections_over_the_channels_of_a_websocket() {
    let (io, served) = serve_echo("v4.channel.k8s.io", &[9, 8080]);
    let mut client = WebSocketClient::new(io).await;
    for greeting in [b"\x00\x09\x00", b"\x01\x09\x00", b"\x02\x90\x1f", b"\x03\x90\x1f"] {
        assert_eq!(client.next().await.as_deref(), Some(&greeting[..]));
    }
    assert_eq!(client.next().await.as_deref(), Some(&b"\x01port 9 is refused"[..]));
    client.send(Message::binary(&b"\x02ping"[..])).await;
    assert_eq!(client.next().await.as_deref(), Some(&b"\x02ping"[..]));
    drop(client);
    ended(served).await;
}

#[tokio::test]
async fn streams_without_a_port_or_a_purpose_are_passed_over() {
    let (io, served) = serve_echo("portforward.k8s.io", &[]);
    let mut client = SpdyClient::new(io);
    for (stream, name, port) in
        [(1, "error", "0"), (3, "error", "65536"), (5, "stdin", "80"), (7, "data", "x")]
    {
        client.open(stream, &[("streamtype", name), ("port", port), ("requestid", "r")]).await;
        assert_eq!(client.next().await, Some(Received::Reply(stream)));
    }
    connect(&mut client, 9, "8080", "r").await;
    client.data(11, b"ping", false).await;
    assert_eq!(client.next().await, Some(Received::Data(11, b"ping".to_vec())));
    drop(client);
    ended(served).await;
}

#[tokio::test]
async fn a_reset_ends_both_directions() {
    let (io, server) = duplex(1 << 10);
    let handshake = handshake(Purpose::PortForward, "portforward.k8s.io");
    let served = tokio::spawn(async move {
        serve_forwards(server, &handshake, &[], async |mut forwards| {
            let Forward { mut receiver, sender, .. } = forwards.next().await.expect("a connection");
            assert_eq!(receiver.next().await, None);
            assert!(receiver.is_reset());
            assert!(sender.send(Bytes::from_static(b"x")).await.is_err());
        })
        .await;
    });
    let mut client = SpdyClient::new(io);
    connect(&mut client, 1, "80", "0").await;
    client.send(&crate::spdy::frame::refused(3)).await;
    assert_eq!(client.next().await, Some(Received::GoAway(3)));
    drop(client);
    ended(served).await;
}

#[tokio::test]
async fn a_client_cannot_open_any_number_of_streams() {
    let (io, server) = duplex(1 << 10);
    let handshake = handshake(Purpose::PortForward, "portforward.k8s.io");
    let served = tokio::spawn(async move {
        serve_forwards(server, &handshake, &[], async |mut forwards| {
            let mut all = Vec::new();
            while let Some(forward) = forwards.next().await {
                all.push(forward);
            }
        })
        .await;
    });
    let mut client = SpdyClient::new(io);
    let (mut stream, mut refused) = (1, 0);
    for number in 0..2100 {
        let id = number.to_string();
        for name in ["error", "data"] {
            client.open(stream, &[("streamtype", name), ("port", "80"), ("requestid", &id)]).await;
            match client.next().await.expect("a reply") {
                Received::Reply(_) => {}
                Received::Refused(_) => refused += 1,
                other => panic!("{other:?}"),
            }
            stream += 2;
        }
    }
    assert!(refused > 0, "{refused}");
    drop(client);
    ended(served).await;
}

#[tokio::test]
async fn halves_of_connections_are_bounded() {
    let (io, served) = serve_echo("portforward.k8s.io", &[]);
    let mut client = SpdyClient::new(io);
    let (mut refused, more) = (0, u32::try_from(MAX_PENDING).expect("a small number") + 100);
    for number in 0..more {
        let id = number.to_string();
        client.open(number * 2 + 1, &[("streamtype", "error"), ("port", "80"), ("requestid", &id)]).await;
        match client.next().await.expect("a reply") {
            Received::Reply(_) => {}
            Received::Refused(_) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    // Connections that were dropped for others release their places.
    assert_eq!(refused, 0);
    let next = more * 2 + 1;
    client.open(next, &[("streamtype", "data"), ("port", "80"), ("requestid", "0")]).await;
    assert_eq!(client.next().await, Some(Received::Reply(next)));
    connect(&mut client, next + 2, "8080", "last").await;
    client.data(next + 4, b"ping", false).await;
    assert_eq!(client.next().await, Some(Received::Data(next + 4, b"ping".to_vec())));
    drop(client);
    ended(served).await;
}
