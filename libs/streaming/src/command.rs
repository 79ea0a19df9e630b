//! The streams of a command: what it reads and writes, the size of its terminal, and at last its
//! outcome.
//!
//! Source: `k8s.io/kubelet/pkg/cri/streaming/remotecommand`.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channels::{self, Layout};
use crate::handshake::{Handshake, Transport, Version};
use crate::session::{Closed, Receiver, STREAM_TYPE, Sender, Session, Stream};
use crate::spdy;

/// The time that a client has to open its streams.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

const STDIN: &str = "stdin";
const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";
const ERROR: &str = "error";
const RESIZE: &str = "resize";

/// The streams that a client wants: the options of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The client sends input.
    pub stdin: bool,
    /// The client takes output.
    pub stdout: bool,
    /// The client takes the output of errors apart from it.
    pub stderr: bool,
    /// There is a terminal, on which errors are output like any other.
    pub tty: bool,
}

/// The streams of a command, which its client has opened.
#[derive(Debug)]
pub struct Command {
    /// The input; None if the client sends none.
    pub stdin: Option<Receiver>,
    /// Each change of the terminal's size, as JSON with `Width` and `Height`; None if there is no
    /// terminal.
    pub resize: Option<Receiver>,
    stdout: Option<Sender>,
    stderr: Option<Sender>,
    error: Sender,
    version: Version,
}

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ended with the exit code 0.
    Succeeded,
    /// It ended with another exit code.
    Exited {
        /// The exit code.
        code: i32,
        /// The program and its arguments, for the message.
        command: Vec<String>,
    },
    /// It could not be executed, for a reason.
    Failed(String),
}

impl Command {
    /// Sends output. It is left out if the client takes none.
    ///
    /// # Errors
    /// The client closed the connection.
    pub async fn stdout(&self, data: Bytes) -> Result<(), Closed> {
        match &self.stdout {
            Some(stdout) => stdout.send(data).await,
            None => Ok(()),
        }
    }

    /// Sends output of errors. It is left out if the client takes none.
    ///
    /// # Errors
    /// The client closed the connection.
    pub async fn stderr(&self, data: Bytes) -> Result<(), Closed> {
        match &self.stderr {
            Some(stderr) => stderr.send(data).await,
            None => Ok(()),
        }
    }

    /// Sends the outcome and ends all streams.
    ///
    /// # Errors
    /// The client closed the connection.
    pub async fn finish(self, outcome: &Outcome) -> Result<(), Closed> {
        let text = match self.version {
            Version::V4 | Version::V5 => outcome.status(),
            Version::V1 | Version::V2 | Version::V3 => outcome.message(),
        };
        for output in [self.stdout, self.stderr].into_iter().flatten() {
            output.finish().await?;
        }
        self.error.send(text.into()).await?;
        self.error.finish().await
    }

    /// Waits until the requested streams of a session are open, and returns them; None if the
    /// client closed or opened other ones.
    async fn open(session: &mut Session, wanted: Wanted, version: Version) -> Option<Command> {
        let names = wanted.names(version);
        let mut streams: HashMap<&str, Stream> = HashMap::new();
        while streams.len() < names.len() {
            let stream = session.accept().await?;
            let name = names.iter().find(|name| **name == stream.header(STREAM_TYPE))?;
            streams.insert(name, stream);
        }
        let mut take = |name: &str| streams.remove(name);
        let [stdin, resize] = [STDIN, RESIZE].map(|name| take(name).map(|stream| stream.receiver));
        let [stdout, stderr] = [STDOUT, STDERR].map(|name| take(name).map(|stream| stream.sender));
        Some(Command { stdin, resize, stdout, stderr, error: take(ERROR)?.sender, version })
    }
}

impl Wanted {
    /// Returns the names of the streams.
    fn names(self, version: Version) -> Vec<&'static str> {
        let names = [
            (STDIN, self.stdin),
            (STDOUT, self.stdout),
            (STDERR, self.stderr && !self.tty),
            (ERROR, true),
            (RESIZE, self.tty && version >= Version::V3),
        ];
        names.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| name).collect()
    }

    /// Returns the channels of a WebSocket; the numbers do not depend on the requested streams.
    fn layout(self, version: Version, base64: bool) -> Layout {
        const NUMBERS: [(&str, u8); 5] = [(STDIN, 0), (STDOUT, 1), (STDERR, 2), (ERROR, 3), (RESIZE, 4)];
        let names = self.names(version);
        let channels: Vec<(u8, &str)> = NUMBERS
            .iter()
            .filter(|(name, _)| names.contains(name))
            .map(|(name, number)| (*number, *name))
            .collect();
        // An empty message shows that the connection is open.
        let lowest = channels.iter().find(|(_, name)| [STDOUT, STDERR, ERROR].contains(name));
        let greeting = lowest.map(|(number, _)| (*number, Bytes::new())).into_iter().collect();
        let channels = channels
            .into_iter()
            .map(|(number, name)| (number, vec![(STREAM_TYPE.to_owned(), name.to_owned())]));
        Layout { channels: channels.collect(), greeting, has_close: version >= Version::V5, base64 }
    }
}

impl Outcome {
    /// Returns the outcome as a Status in JSON.
    fn status(&self) -> String {
        let status = match self {
            Outcome::Succeeded => json!({"metadata": {}, "status": "Success"}),
            Outcome::Exited { code, .. } => json!({
                "metadata": {}, "status": "Failure", "message": self.message(), "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Outcome::Failed(reason) => json!({
                "metadata": {}, "status": "Failure", "message": self.message(), "reason": "InternalError",
                "details": {"causes": [{"message": reason}]}, "code": 500,
            }),
        };
        status.to_string()
    }

    /// Returns the message of the outcome; "" if it is a success.
    fn message(&self) -> String {
        match self {
            Outcome::Succeeded => String::new(),
            Outcome::Exited { code, command } => format!(
                "command terminated with non-zero exit code: error executing command [{}], exit code {code}",
                command.join(" ")
            ),
            Outcome::Failed(reason) => format!("Internal error occurred: {reason}"),
        }
    }
}

/// Serves the streams of a command over an upgraded connection, until the handler has returned or
/// the client closes.
///
/// - `handle`: is not called if the client does not open the streams that it wants
pub async fn serve_command<IO, H>(
    io: IO,
    handshake: &Handshake,
    wanted: Wanted,
    handle: impl FnOnce(Command) -> H,
) where
    IO: AsyncRead + AsyncWrite + Unpin,
    H: Future<Output = ()>,
{
    let version = handshake.version;
    let handle = async move |mut session: Session| {
        if let Some(command) = open_within(OPEN_TIMEOUT, Command::open(&mut session, wanted, version)).await {
            handle(command).await;
        }
    };
    match handshake.transport {
        Transport::Channels { base64 } => channels::serve(io, wanted.layout(version, base64), handle).await,
        Transport::Spdy => spdy::serve(io, handle).await,
        // No such protocol is offered for commands.
        Transport::Tunnel => {}
    }
}

#[expect(clippy::disallowed_methods, reason = "protects the server from clients that open no streams")]
async fn open_within<T>(limit: Duration, streams: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::time::timeout(limit, streams).await.ok().flatten()
}

#[cfg(test)]
mod tests;
