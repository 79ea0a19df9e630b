//! A running control plane, and its end.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use coracle_apiserver::access::{certificates, kubeconfig};
use coracle_storage::StoreError;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::client::client;
use crate::data_dir::temporary_directory;
use crate::error::Error;
use crate::kinds::Kinds;
use crate::options::{self, Options};
use crate::start::{Running, start};

/// A running control plane. Dropping it stops it in the background, as long as the runtime exists on which it was started.
pub struct ControlPlane {
    running: Running,
    own_kubeconfig: Mutex<Option<TempDir>>,
}

impl ControlPlane {
    /// The default of [`Options::max_store_bytes`], as of etcd's `--quota-backend-bytes`. All objects are held in memory.
    pub const MAX_STORE_BYTES: u64 = options::MAX_STORE_BYTES;

    /// The default of [`Options::max_pods`]: the largest cluster that Kubernetes is tested with.
    pub const MAX_PODS: u32 = options::MAX_PODS;

    /// Starts a control plane; it is ready to serve when this returns.
    ///
    /// # Errors
    /// See [`Error`]; nothing keeps running then.
    pub fn start(options: Options, kinds: Kinds) -> impl Future<Output = Result<ControlPlane, Error>> + Send {
        // In a box, so that no crate that waits for it compiles all of it.
        let start: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let running = start(options, kinds).await?;
            Ok(ControlPlane { running, own_kubeconfig: Mutex::default() })
        });
        start
    }

    /// The URL of the server, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> String {
        kubeconfig::server_url(self.running.address)
    }

    /// A kubeconfig for the user `coracle-admin`, with the certificates inline.
    pub fn kubeconfig(&self) -> String {
        kubeconfig::document(&self.url(), &self.running.certificates)
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
        let mut own = self.own_kubeconfig.lock();
        if own.is_none() {
            *own = Some(temporary_directory(&std::env::temp_dir())?);
        }
        let file = own.as_ref().map(|dir| dir.path().join("kubeconfig")).unwrap_or_default();
        self.write_kubeconfig(&file)?;
        Ok(file)
    }

    /// A client with the rights of the kubeconfig's user. It calls the server in this process, without a socket.
    pub fn client(&self) -> kube::Client {
        client(&self.running.api, certificates::ADMIN, concat!("coracle/", env!("CARGO_PKG_VERSION")))
    }

    /// Waits until the store has failed for good: a disk with errors, or an etcd cluster whose changes can no longer be followed.
    /// Then writes are refused, and what is read may be outdated; another start loads what is stored.
    pub async fn failed(&self) -> StoreError {
        self.running.store.failed().await
    }

    /// Makes `/readyz` fail, by its check `shutdown`, while everything is served as before. That is the first step of a shutdown
    /// behind a load balancer, which needs some time to choose other servers (`coracle serve --shutdown-delay-duration`).
    pub fn fail_readiness(&self) {
        self.running.shutdown.finish();
    }

    /// Stops accepting connections, ends watches, lets requests finish, and flushes the store to disk. Clients that watch can go on from
    /// their last revision at the next start.
    ///
    /// # Errors
    /// The store could not be closed: the last writes may not be on disk.
    pub async fn shutdown(mut self) -> Result<(), StoreError> {
        self.fail_readiness();
        self.running.started.stop().await
    }
}
