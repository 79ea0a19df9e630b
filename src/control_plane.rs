//! A running control plane.

use std::path::{Path, PathBuf};

use crate::{
    Builder, ClockHandle, Error, ForkOptions, KubeconfigError, Problems, ProblemsError, SettleRequest,
    Settled, StoreError, TestingError,
};

/// A running control plane.
///
/// It runs on the runtime that it is started on, of either flavor, so that each test has one of
/// its own: a `#[tokio::test]` has this body.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::{Api, PostParams};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let control_plane = coracle::ControlPlane::builder().ephemeral().nodes(0).start().await?;
/// // In this process, without a socket; `kubeconfig` is for clients of other processes.
/// let maps = Api::<ConfigMap>::default_namespaced(control_plane.client());
/// let settings = serde_json::from_value(serde_json::json!({
///     "metadata": {"name": "settings"}, "data": {"color": "blue"},
/// }))?;
/// let created = maps.create(&PostParams::default(), &settings).await?;
/// assert!(created.metadata.uid.is_some());
/// control_plane.shutdown().await?;
/// # Ok(())
/// # }
/// ```
///
/// A process may have many of them; `examples/many.rs` measures what each takes. What takes most
/// are the caches of the controllers: [`Builder::controllers`] selects those that a test needs.
///
/// [`shutdown`](Self::shutdown) stops it in order. Dropping it does the same in the background, as
/// long as the runtime exists on which it was started; soon after, its data directory can be opened
/// again.
pub struct ControlPlane(pub(crate) coracle_control_plane::ControlPlane);

impl ControlPlane {
    /// The default of [`Builder::max_store_bytes`], as of etcd's `--quota-backend-bytes`. All
    /// objects are held in memory.
    pub const MAX_STORE_BYTES: u64 = coracle_control_plane::ControlPlane::MAX_STORE_BYTES;

    /// The default of [`Builder::max_pods`]: the largest cluster that Kubernetes is tested with.
    pub const MAX_PODS: u32 = coracle_control_plane::ControlPlane::MAX_PODS;

    /// Returns the builder of a control plane in memory, on any free port of the loopback address,
    /// with RBAC.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the URL of the server, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Returns a kubeconfig for the user `coracle-admin`, with the certificates inline.
    pub fn kubeconfig(&self) -> String {
        self.0.kubeconfig()
    }

    /// Merges the kubeconfig into a file, atomically, and makes its context the current one. The
    /// clusters, users and contexts of others stay. Returns the name of the former current context,
    /// if it was another one. Blocks while another program holds the file's lock, for at most 10 s.
    ///
    /// # Errors
    /// The file cannot be written, is not a kubeconfig, has an entry with this name by another
    /// program, or is locked.
    pub fn write_kubeconfig(&self, file: &Path) -> Result<Option<String>, KubeconfigError> {
        self.0.write_kubeconfig(file)
    }

    /// Writes the kubeconfig to a temporary directory, which is removed with the control plane.
    /// Returns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn own_kubeconfig(&self) -> Result<PathBuf, KubeconfigError> {
        self.0.own_kubeconfig()
    }

    /// Returns a client with the rights of the kubeconfig's user. It calls the server in this
    /// process, without a socket.
    pub fn client(&self) -> kube::Client {
        self.0.client()
    }

    /// Waits until nothing is left to happen at this moment of the clock: every change is followed
    /// to the end of the reconciliations that it caused, every watch has been delivered, no request
    /// is under way, and nothing was written for 50 ms.
    ///
    /// # Errors
    /// The control plane has not settled within 10 s; the error names what is under way.
    pub async fn settle(&self) -> Result<Settled, TestingError> {
        self.settle_by(&SettleRequest::default()).await
    }

    /// Waits until the control plane has settled, with other times, or for clients that must have
    /// been seen.
    ///
    /// # Errors
    /// The control plane has not settled in time, or a value is out of range.
    pub async fn settle_by(&self, request: &SettleRequest) -> Result<Settled, TestingError> {
        self.0.testing().settle(request).await
    }

    /// Returns a link to the live page, which shows all objects with their owners and states, live
    /// and at earlier revisions. The link works once, within an hour. Returns `None` without the
    /// endpoints for tests, or if the operating system provides no random bytes.
    pub fn page_link(&self) -> Option<String> {
        self.0.page_link()
    }

    /// Returns the clock.
    pub fn clock(&self) -> ClockHandle {
        ClockHandle(self.0.testing().clone())
    }

    /// Makes a fork: a control plane of its own in this process, in memory, that begins with the
    /// objects, the revisions, the history and the time of this one. What happens in one is never
    /// seen in the other. It goes on if this one ends.
    ///
    /// It costs what differs, so that a test can have one of its own of a control plane that was
    /// set up once:
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let template = coracle::ControlPlane::builder().ephemeral().start().await?;
    /// // ... definitions, fixtures ...
    /// let one = template.fork().await?;
    /// let other = template.fork().await?;
    /// assert_ne!(one.url(), other.url());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// It cannot be started, or there are as many forks as [`Builder::max_forks`] allows.
    pub async fn fork(&self) -> Result<ControlPlane, Error> {
        self.fork_with(ForkOptions::default()).await
    }

    /// Makes a [`fork`](Self::fork) with options of its own, such as another clock, or the webhooks
    /// of its test.
    ///
    /// # Errors
    /// As for [`fork`](Self::fork).
    pub async fn fork_with(&self, options: ForkOptions) -> Result<ControlPlane, Error> {
        Ok(ControlPlane(self.0.fork(options).await?))
    }

    /// Returns the revision of the store at the start, a `resourceVersion`; a fork's is a revision
    /// of its parent.
    pub fn began_at(&self) -> u64 {
        self.0.began_at()
    }

    /// Reads the objects that are not ready, have failed or are terminating, and their newest
    /// events, within 6 seconds: the facts to look at when a test has failed. The text of what it
    /// returns has a line for each; `coracle problems` prints the same.
    ///
    /// # Errors
    /// The server does not respond.
    pub async fn problems(&self) -> Result<Problems, ProblemsError> {
        self.0.problems().await
    }

    /// Waits until the store has failed for good: a disk with errors, or changes of an etcd
    /// cluster that can no longer be followed. Then writes are refused, and what is read may be
    /// outdated; another start loads what is stored.
    pub async fn failed(&self) -> StoreError {
        self.0.failed().await
    }

    /// Makes `/readyz` fail, by its check `shutdown`, while everything is served as before. That is
    /// the first step of a shutdown behind a load balancer, which needs some time to choose other
    /// servers (`coracle serve --shutdown-delay-duration`).
    pub fn fail_readiness(&self) {
        self.0.fail_readiness();
    }

    /// Stops accepting connections, ends watches, lets requests finish, and flushes the store to
    /// disk. Clients that watch can go on from their last revision at the next start.
    ///
    /// # Errors
    /// The store could not be closed: the last writes may not be on disk.
    pub async fn shutdown(self) -> Result<(), StoreError> {
        self.0.shutdown().await
    }
}
