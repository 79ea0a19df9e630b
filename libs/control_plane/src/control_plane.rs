//! A running control plane, and its end.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use coracle_apiserver::access::authenticate::{MASTERS, UserInfo};
use coracle_apiserver::access::certificates::{self, Certificates};
use coracle_apiserver::access::kubeconfig;
use coracle_apiserver::access::tls::Peer;
use coracle_apiserver::audit::Auditor;
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::Api;
use coracle_apiserver::telemetry::health::Hook;
use coracle_apiserver::telemetry::tracer::Tracer;
use coracle_storage::{Store, StoreError};
use http::header::{HeaderValue, USER_AGENT};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::{Error, Kinds, Options};

/// A running control plane. Dropping it stops it in the background, as long as the runtime exists on which it was started.
pub struct ControlPlane {
    pub(crate) api: Api,
    pub(crate) certificates: Certificates,
    pub(crate) address: SocketAddr,
    /// Finished when the shutdown begins.
    pub(crate) shutdown: Hook,
    /// None while it is being stopped.
    pub(crate) running: Option<Running>,
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) own_kubeconfig: std::sync::Mutex<Option<tempfile::TempDir>>,
}

/// The parts that have to be stopped.
pub(crate) struct Running {
    pub(crate) store: Store<ObjectIndex>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) serving: JoinHandle<()>,
    /// The controllers, and what the API server does without being asked. They write to the store.
    pub(crate) tasks: JoinSet<()>,
    /// Ends the controllers that take part in a leader election, which releases the lease.
    pub(crate) elected: Option<Elected>,
    pub(crate) auditor: Option<Arc<Auditor>>,
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) scratch: Option<tempfile::TempDir>,
}

/// Controllers that run while this process holds the lease.
pub(crate) struct Elected {
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) work: JoinHandle<()>,
}

impl Elected {
    /// Stops the controllers, and releases the lease if it is held.
    async fn stop(self) {
        // The election may have ended already.
        let _ = self.stop.send(());
        let _ = self.work.await;
    }
}

impl Running {
    /// Stops all parts in order.
    ///
    /// # Errors
    /// The store could not be closed.
    async fn stop(self) -> Result<(), StoreError> {
        let Running { store, stop, serving, mut tasks, elected, auditor, tracer, scratch } = self;
        if let Some(elected) = elected {
            elected.stop().await;
        }
        // These stop first, so that nothing writes while the store closes.
        tasks.shutdown().await;
        // The server may have ended already.
        let _ = stop.send(());
        let _ = serving.await;
        if let Some(auditor) = auditor {
            auditor.flush().await;
        }
        tracer.flush().await;
        let closed = store.close().await;
        if let Err(error) = &closed {
            tracing::error!(%error, "the store did not close");
        }
        if let Some(Err(error)) = scratch.map(tempfile::TempDir::close) {
            tracing::error!(%error, "the directory of the volumes is not removed");
        }
        closed
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // Immediately, since a runtime that is shutting down runs no further tasks.
            running.tasks.abort_all();
            if let Some(elected) = &running.elected {
                elected.work.abort();
            }
            self.runtime.spawn(running.stop());
        }
    }
}

impl ControlPlane {
    /// The default of [`Options::max_store_bytes`], as of etcd's `--quota-backend-bytes`. All objects are held in memory.
    pub const MAX_STORE_BYTES: u64 = 2 << 30;

    /// The default of [`Options::max_pods`]: the largest cluster that Kubernetes is tested with.
    pub const MAX_PODS: u32 = 150_000;

    /// Starts a control plane; it is ready to serve when this returns.
    ///
    /// # Errors
    /// See [`Error`]; nothing keeps running then.
    pub fn start(options: Options, kinds: Kinds) -> impl Future<Output = Result<ControlPlane, Error>> + Send {
        // In a box, so that no crate that waits for it compiles all of it.
        let start: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(options.start(kinds));
        start
    }

    /// The URL of the server, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> String {
        kubeconfig::server_url(self.address)
    }

    /// A kubeconfig for the user `coracle-admin`, with the certificates inline.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::document(&self.url(), &self.certificates)
    }

    /// Writes the kubeconfig atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_kubeconfig(&self, file: &Path) -> io::Result<()> {
        kubeconfig::write(file, &self.kubeconfig())
    }

    /// Writes the kubeconfig to a temporary directory, which is removed with the control plane. Returns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn own_kubeconfig(&self) -> io::Result<PathBuf> {
        let mut own = self.own_kubeconfig.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if own.is_none() {
            *own = Some(scratch()?);
        }
        let file = own.as_ref().map(|dir| dir.path().join("kubeconfig")).unwrap_or_default();
        self.write_kubeconfig(&file)?;
        Ok(file)
    }

    /// A client with the rights of the kubeconfig's user. It calls the server in this process, without a socket.
    pub fn client(&self) -> kube::Client {
        client(&self.api, certificates::ADMIN, concat!("coracle/", env!("CARGO_PKG_VERSION")))
    }

    /// Waits until the store has failed for good: a disk with errors, or an etcd cluster whose changes can no longer be followed.
    /// Then writes are refused, and what is read may be outdated; another start loads what is stored.
    pub async fn failed(&self) -> StoreError {
        match &self.running {
            Some(running) => running.store.failed().await,
            None => StoreError::Closed,
        }
    }

    /// Makes `/readyz` fail, by its check `shutdown`, while everything is served as before. That is the first step of a shutdown
    /// behind a load balancer, which needs some time to choose other servers (`--shutdown-delay-duration`).
    pub fn fail_readiness(&self) {
        self.shutdown.finish();
    }

    /// Stops accepting connections, ends watches, lets requests finish, and flushes the store to disk. Clients that watch can go on from
    /// their last revision at the next start.
    ///
    /// # Errors
    /// The store could not be closed: the last writes may not be on disk.
    pub async fn shutdown(mut self) -> Result<(), StoreError> {
        self.fail_readiness();
        match self.running.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }
}

/// A client of the API in this process, without a socket, for a user in `system:masters`.
pub(crate) fn client(api: &Api, user: &str, agent: &'static str) -> kube::Client {
    let user = UserInfo::new(user, &[MASTERS]).authenticated();
    let api = api.for_peer(Peer::Known(Arc::new(user)));
    let api = tower::util::MapRequest::new(api, move |mut request: http::Request<kube::client::Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(agent));
        request
    });
    kube::Client::new(api, "default")
}

/// A temporary directory, removed when it is dropped.
pub(crate) fn scratch() -> io::Result<tempfile::TempDir> {
    coracle_private_fs::temporary_directory("coracle-", &std::env::temp_dir())
}
