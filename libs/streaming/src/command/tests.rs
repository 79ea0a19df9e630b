use tokio::io::{DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::handshake::Purpose;
use crate::testing::{DEADLINE, Received, SpdyClient, WebSocketClient, handshake};

const ALL: Wanted = Wanted { stdin: true, stdout: true, stderr: true, tty: false };

/// Serves a program that copies its input to its output, up to its end, complains, and ends with a
/// code.
fn serve_cat(protocol: &str, wanted: Wanted, code: i32) -> (DuplexStream, JoinHandle<()>) {
    let (client, server) = duplex(1 << 10);
    let handshake = handshake(Purpose::Command, protocol);
    let served = async move {
        serve_command(server, &handshake, wanted, async |mut command| {
            if let Some(mut stdin) = command.stdin.take() {
                while let Some(data) = stdin.next().await {
                    if command.stdout(data).await.is_err() {
                        return;
                    }
                }
            }
            let _ = command.stderr(Bytes::from_static(b"done")).await;
            let outcome = match code {
                0 => Outcome::Succeeded,
                code => Outcome::Exited { code, command: vec!["cat".to_owned(), "-".to_owned()] },
            };
            let _ = command.finish(&outcome).await;
        })
        .await;
    };
    (client, tokio::spawn(served))
}

async fn ended(served: JoinHandle<()>) {
    tokio::time::timeout(DEADLINE, served).await.expect("it ends").expect("no panic");
}

const FAILURE: &str = r#"{"details":{"causes":[{"message":"3","reason":"ExitCode"}]},"message":"command terminated with non-zero exit code: error executing command [cat -], exit code 3","metadata":{},"reason":"NonZeroExitCode","status":"Failure"}"#;

#[tokio::test]
async fn input_ends_over_a_websocket_of_version_5() {
    let (io, served) = serve_cat("v5.channel.k8s.io", ALL, 3);
    let mut client = WebSocketClient::new(io).await;
    assert_eq!(client.next().await.as_deref(), Some(&b"\x01"[..]), "the greeting");
    let long = [&[0][..], &[b'x'; 100_000]].concat();
    let sent = async {
        client.send(Message::binary(long)).await;
        client.send(Message::binary(&b"\x09nobody reads this"[..])).await;
        client.send(Message::binary(&b"\xff\x00"[..])).await;
        client.rest().await
    };
    let received = sent.await;
    let of = |channel: u8| -> Vec<u8> {
        received
            .iter()
            .filter(|message| message[0] == channel)
            .flat_map(|message| message[1..].to_vec())
            .collect()
    };
    assert_eq!(of(1), [b'x'; 100_000]);
    assert_eq!(of(2), b"done");
    assert_eq!(String::from_utf8(of(3)).unwrap(), FAILURE);
    drop(client);
    ended(served).await;
}

#[tokio::test]
async fn the_outcome_is_a_status_since_version_4() {
    let wanted = Wanted { stdin: false, stderr: false, ..ALL };
    for (protocol, code, want) in [
        ("v4.channel.k8s.io", 0, r#"{"metadata":{},"status":"Success"}"#),
        ("v4.channel.k8s.io", 3, FAILURE),
        ("channel.k8s.io", 0, ""),
        (
            "channel.k8s.io",
            3,
            "command terminated with non-zero exit code: error executing command [cat -], exit code 3",
        ),
    ] {
        let (io, served) = serve_cat(protocol, wanted, code);
        let mut client = WebSocketClient::new(io).await;
        let received = client.rest().await;
        assert_eq!(received[0], &b"\x01"[..]);
        let text: Vec<u8> = received[1..].iter().flat_map(|message| message[1..].to_vec()).collect();
        assert_eq!(String::from_utf8(text).unwrap(), want, "{protocol} {code}");
        drop(client);
        ended(served).await;
    }
}

#[tokio::test]
async fn messages_may_be_text() {
    let wanted = Wanted { stdin: false, stdout: false, stderr: true, tty: false };
    let (io, served) = serve_cat("v4.base64.channel.k8s.io", wanted, 0);
    let mut client = WebSocketClient::new(io).await;
    // "done", and then the status.
    let received = client.rest().await;
    assert_eq!(received[..2], ["2", "2ZG9uZQ=="]);
    assert!(received[2].starts_with(b"3"));
    drop(client);
    ended(served).await;
}

#[tokio::test]
async fn streams_of_spdy_may_come_in_any_order() {
    let (io, served) = serve_cat("spdy v4.channel.k8s.io", ALL, 0);
    let mut client = SpdyClient::new(io);
    for (stream, name) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
        client.open(stream, &[("Streamtype", name)]).await;
        assert_eq!(client.next().await, Some(Received::Reply(stream)));
    }
    client.send(&crate::spdy::frame::ping(9)).await;
    assert_eq!(client.next().await, Some(Received::Pong(9)));
    client.data(3, b"hello", false).await;
    assert_eq!(client.next().await, Some(Received::Data(5, b"hello".to_vec())));
    client.data(3, b"", true).await;
    assert_eq!(client.next().await, Some(Received::Data(7, b"done".to_vec())));
    assert_eq!(client.next().await, Some(Received::End(5)));
    assert_eq!(client.next().await, Some(Received::End(7)));
    assert_eq!(
        client.next().await,
        Some(Received::Data(1, br#"{"metadata":{},"status":"Success"}"#.to_vec()))
    );
    assert_eq!(client.next().await, Some(Received::End(1)));
    assert_eq!(client.next().await, Some(Received::GoAway(7)));
    assert_eq!(client.next().await, None);
    drop(client);
    ended(served).await;
}

#[tokio::test]
async fn a_client_that_closes_ends_the_command() {
    for protocol in ["v5.channel.k8s.io", "spdy v4.channel.k8s.io"] {
        let (io, served) = serve_cat(protocol, ALL, 0);
        drop(io);
        ended(served).await;
    }
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_is_disconnected() {
    use crate::spdy::frame;
    let huge = frame::data(0, 0xff_ffff, 0);
    let huge = [&[0x80, 3, 0, 1], &huge[4..]].concat();
    for (case, bytes) in [
        ("another version", b"\x80\x02\x00\x01\x00\x00\x00\x00".to_vec()),
        ("a huge control frame", huge),
        ("no compression", frame::syn_stream(1, b"streamtype")),
        ("a short frame", b"\x80\x03\x00\x06\x00\x00\x00\x01\x00".to_vec()),
    ] {
        let (io, served) = serve_cat("spdy v4.channel.k8s.io", ALL, 0);
        let mut client = SpdyClient::new(io);
        client.send(&bytes).await;
        assert_eq!(client.next().await, None, "{case}");
        ended(served).await;
    }
    let (io, served) = serve_cat("spdy v4.channel.k8s.io", ALL, 0);
    let mut client = SpdyClient::new(io);
    client.open(2, &[("streamtype", "error")]).await;
    assert_eq!(client.next().await, None, "an even stream");
    ended(served).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_streams_is_left_alone() {
    let (io, served) = serve_cat("spdy v4.channel.k8s.io", ALL, 0);
    let mut client = SpdyClient::new(io);
    client.open(1, &[("streamtype", "error")]).await;
    assert_eq!(client.next().await, Some(Received::Reply(1)));
    assert_eq!(client.next().await, Some(Received::GoAway(1)));
    drop(client);
    served.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_left_alone() {
    let (client, server) = duplex(16);
    let handshake = handshake(Purpose::Command, "v4.channel.k8s.io");
    let wanted = Wanted { stdin: false, ..ALL };
    serve_command(server, &handshake, wanted, async |command| {
        // More than is queued, and less.
        let _ = command.stdout(Bytes::from_static(&[b'x'; 1_000_000])).await;
        let _ = command.finish(&Outcome::Succeeded).await;
    })
    .await;
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_does_not_read_ends_with_its_client() {
    for protocol in ["v5.channel.k8s.io", "spdy v4.channel.k8s.io"] {
        let (io, server) = duplex(1 << 10);
        let handshake = handshake(Purpose::Command, protocol);
        let served = tokio::spawn(async move {
            serve_command(server, &handshake, ALL, async |_command| std::future::pending().await).await;
        });
        let data = vec![b'x'; 1 << 20];
        let send = async {
            if protocol.starts_with("spdy") {
                let mut client = SpdyClient::new(io);
                for (stream, name) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")] {
                    client.open(stream, &[("streamtype", name)]).await;
                    assert_eq!(client.next().await, Some(Received::Reply(stream)));
                }
                client.data(3, &data, false).await;
            } else {
                let mut client = WebSocketClient::new(io).await;
                client.send(Message::binary([&[0], &data[1..]].concat())).await;
                client.send(Message::binary([&[0], &data[1..]].concat())).await;
            }
        };
        // The client sends more than is taken, and leaves.
        let _ = tokio::time::timeout(DEADLINE, send).await;
        served.await.expect("no panic");
    }
}

#[tokio::test]
async fn a_ping_at_the_end_cuts_nothing_off() {
    let (io, server) = duplex(1 << 10);
    let handshake = handshake(Purpose::Command, "spdy v4.channel.k8s.io");
    let wanted = Wanted { stdin: false, stderr: false, ..ALL };
    let served = tokio::spawn(async move {
        serve_command(server, &handshake, wanted, async |command| {
            let _ = command.stdout(Bytes::from_static(&[b'x'; 100_000])).await;
            let _ = command.finish(&Outcome::Succeeded).await;
        })
        .await;
    });
    let mut client = SpdyClient::new(io);
    for (stream, name) in [(1, "error"), (3, "stdout")] {
        client.open(stream, &[("streamtype", name)]).await;
        assert_eq!(client.next().await, Some(Received::Reply(stream)));
    }
    // The handler has returned by the time at which the writer waits for this client.
    let mut length = match client.next().await {
        Some(Received::Data(3, data)) => data.len(),
        other => panic!("{other:?}"),
    };
    let (mut outcome, mut pings) = (Vec::new(), 0);
    while let Some(received) = client.next().await {
        match received {
            Received::Data(3, data) => {
                length += data.len();
                pings += 1;
                client.send(&crate::spdy::frame::ping(pings * 2 + 1)).await;
            }
            Received::Data(1, data) => outcome.extend(data),
            _ => {}
        }
    }
    assert_eq!((length, outcome.is_empty()), (100_000, false));
    drop(client);
    ended(served).await;
}

#[tokio::test]
async fn what_a_client_sends_before_it_leaves_is_handled() {
    for protocol in ["v5.channel.k8s.io", "spdy v4.channel.k8s.io"] {
        let (io, server) = duplex(1 << 16);
        let handshake = handshake(Purpose::Command, protocol);
        let wanted = Wanted { stdin: true, stderr: false, ..ALL };
        let (heard, hears) = tokio::sync::oneshot::channel();
        let served = tokio::spawn(async move {
            serve_command(server, &handshake, wanted, async move |mut command| {
                let (mut stdin, mut length) = (command.stdin.take().expect("stdin"), 0);
                while let Some(data) = stdin.next().await {
                    tokio::task::yield_now().await;
                    length += data.len();
                }
                let _ = heard.send(length);
            })
            .await;
        });
        if protocol.starts_with("spdy") {
            let mut client = SpdyClient::new(io);
            for (stream, name) in [(1, "error"), (3, "stdin"), (5, "stdout")] {
                client.open(stream, &[("streamtype", name)]).await;
                assert_eq!(client.next().await, Some(Received::Reply(stream)));
            }
            client.data(3, &[b'x'; 50_000], false).await;
        } else {
            let mut client = WebSocketClient::new(io).await;
            client.send(Message::binary([&[0][..], &[b'x'; 50_000]].concat())).await;
        }
        assert_eq!(hears.await, Ok(50_000), "{protocol}");
        ended(served).await;
    }
}

#[tokio::test]
async fn a_client_cannot_send_messages_of_any_size() {
    let (io, served) = serve_cat("v5.channel.k8s.io", ALL, 0);
    let mut socket = WebSocketClient::new(io).await;
    assert!(socket.next().await.is_some(), "the greeting");
    let large = vec![0; channels::MAX_MESSAGE_LENGTH + 1];
    socket.try_send(Message::binary(large)).await;
    assert!(socket.rest().await.is_empty());
    ended(served).await;
}
