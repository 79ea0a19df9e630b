//! etcd, as envtest starts it: it reports that it is healthy. Nothing is stored in it.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use super::flags::{Dialect, Flag, FlagSet, Kind, Values};
use crate::run::Signals;

/// The program's name.
pub const NAME: &str = "etcd";
/// The output of `--version`.
pub const VERSION: &str = concat!("etcd Version: coracle ", env!("CARGO_PKG_VERSION"), "\n");

/// The default of `--listen-client-urls`.
const CLIENT_URL: &str = "http://localhost:2379";

/// etcd's flags.
pub const FLAGS: FlagSet = FlagSet { program: NAME, dialect: Dialect::Flag, flags: TABLE };

const fn without_effect(name: &'static str, kind: Kind) -> Flag {
    Flag { name, kind, is_used: false }
}

const TABLE: &[Flag] = &[
    without_effect("advertise-client-urls", Kind::List),
    without_effect("auto-compaction-mode", Kind::Text),
    without_effect("auto-compaction-retention", Kind::Text),
    without_effect("config-file", Kind::Text),
    Flag { name: "data-dir", kind: Kind::Text, is_used: true },
    without_effect("election-timeout", Kind::Int),
    without_effect("enable-pprof", Kind::Bool),
    without_effect("force-new-cluster", Kind::Bool),
    without_effect("heartbeat-interval", Kind::Int),
    without_effect("initial-advertise-peer-urls", Kind::List),
    without_effect("initial-cluster", Kind::Text),
    without_effect("initial-cluster-state", Kind::Text),
    without_effect("initial-cluster-token", Kind::Text),
    Flag { name: "listen-client-urls", kind: Kind::List, is_used: true },
    without_effect("listen-metrics-urls", Kind::List),
    without_effect("listen-peer-urls", Kind::List),
    without_effect("log-format", Kind::Text),
    without_effect("log-level", Kind::Text),
    without_effect("log-outputs", Kind::List),
    without_effect("logger", Kind::Text),
    without_effect("max-concurrent-streams", Kind::Int),
    without_effect("max-request-bytes", Kind::Int),
    without_effect("max-snapshots", Kind::Int),
    without_effect("max-txn-ops", Kind::Int),
    without_effect("max-wals", Kind::Int),
    without_effect("metrics", Kind::Text),
    without_effect("name", Kind::Text),
    without_effect("quota-backend-bytes", Kind::Int),
    without_effect("snapshot-count", Kind::Int),
    without_effect("strict-reconfig-check", Kind::Bool),
    without_effect("unsafe-no-fsync", Kind::Bool),
    without_effect("wal-dir", Kind::Text),
];

/// The server that the flags describe.
#[derive(Debug)]
pub struct Etcd {
    /// `HOST:PORT` of each URL.
    addresses: Vec<String>,
    data_dir: Option<PathBuf>,
}

impl Etcd {
    /// Builds the etcd program from its flags.
    ///
    /// # Errors
    /// One line about the flag that is wrong.
    pub fn new(values: &Values) -> Result<Etcd, String> {
        let mut urls = values.list("listen-client-urls");
        if urls.is_empty() {
            urls.push(CLIENT_URL.to_owned());
        }
        let address = |url: &String| {
            let host = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
            let has_port =
                |host: &&str| host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let host = host.filter(has_port).filter(|host| !host.contains('/')).map(str::to_owned);
            host.ok_or_else(|| format!("--listen-client-urls: {url:?} is not http://HOST:PORT"))
        };
        Ok(Etcd {
            addresses: urls.iter().map(address).collect::<Result<_, _>>()?,
            data_dir: values.text("data-dir").map(PathBuf::from),
        })
    }

    /// Reports its health until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The data directory cannot be made, or an address is not available.
    pub async fn run(self) -> Result<ExitCode> {
        let mut signals = Signals::new()?;
        if let Some(directory) = &self.data_dir {
            coracle_private_fs::create_directory(directory)
                .with_context(|| directory.display().to_string())?;
        }
        for address in &self.addresses {
            let listener = TcpListener::bind(address).await;
            let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
            tokio::spawn(serve(listener));
        }
        tracing::info!(addresses = self.addresses.join(" "), "serving /health");
        signals.next().await;
        Ok(ExitCode::SUCCESS)
    }
}

async fn serve(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream))),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Out of files, most likely: others have to be closed first.
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream) {
    let service = service_fn(|request| async move { Ok::<_, Infallible>(respond(&request)) });
    let served =
        http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection");
    }
}

fn respond(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (code, body) = match request.uri().path() {
        "/health" => (StatusCode::OK, r#"{"health":"true"}"#),
        _ => (StatusCode::NOT_FOUND, "404 page not found\n"),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = code;
    response
}

#[cfg(test)]
mod tests {
    use super::super::flags::Request;
    use super::*;

    fn etcd(arguments: &[&str]) -> Result<Etcd, String> {
        match FLAGS.parse(arguments.iter().copied()) {
            Ok(Request::Run(values)) => Etcd::new(&values),
            other => panic!("{arguments:?}: {other:?}"),
        }
    }

    #[test]
    fn the_argument_lists_of_envtest_are_accepted() {
        let urls = ["--advertise-client-urls=http://127.0.0.1:2", "--listen-client-urls=http://127.0.0.1:2"];
        for more in [
            &["--data-dir=/tmp/data", "--listen-peer-urls=http://127.0.0.1:3", "--unsafe-no-fsync=true"][..],
            &["--listen-peer-urls=http://localhost:0", "--data-dir=/tmp/data"],
            &["-quota-backend-bytes", "1", "--data-dir", "/tmp/data"],
        ] {
            let etcd = etcd(&[&urls[..], more].concat()).expect("accepted");
            assert_eq!(etcd.addresses, ["127.0.0.1:2"], "{more:?}");
            assert_eq!(etcd.data_dir.as_deref(), Some(std::path::Path::new("/tmp/data")), "{more:?}");
        }
        assert!(FLAGS.help().lines().any(|line| line.trim_start().starts_with("--unsafe-no-fsync")));
    }

    #[test]
    fn only_plain_http_is_served() {
        for url in ["https://127.0.0.1:1", "unix://x", "127.0.0.1:1", "http://127.0.0.1", "http://a:1/b"] {
            let error = etcd(&[&format!("--listen-client-urls={url}")]).expect_err(url);
            assert_eq!(error, format!("--listen-client-urls: {url:?} is not http://HOST:PORT"));
        }
        assert_eq!(etcd(&[]).expect("the default").addresses, ["localhost:2379"]);
    }
}
