//! A running control plane, and its end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use coracle_apiserver::access::certificates;
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::Api;
use coracle_apiserver::serve::listener::max_open_files;
use coracle_kubeconfig::{Access, Name};
use coracle_storage::{Store, StoreError};
use coracle_testing_api::{LOGIN_PATH, Testing};
use futures::future::BoxFuture;
use http::HeaderValue;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::client::client;
use crate::data_dir::temporary_directory;
use crate::error::Error;
use crate::forks::{Family, Place, context};
use crate::kinds::Kinds;
use crate::options::{self, ForkOptions, Options};
use crate::recording::Recording;
use crate::start::{Kinship, Origin, Running, start};

pub use coracle_kubeconfig::Error as KubeconfigError;
pub use coracle_problems::{Error as ProblemsError, Problems};

/// A running control plane. Dropping it stops it in the background, as long as the runtime exists
/// on which it was started.
pub struct ControlPlane {
    running: Running,
    name: Name,
    own_kubeconfig: Mutex<Option<TempDir>>,
    family: Arc<Family>,
    /// The place of a fork; None for the original control plane.
    _place: Option<Arc<Place>>,
}

impl ControlPlane {
    /// The default of [`Options::max_store_bytes`], as of etcd's `--quota-backend-bytes`. All
    /// objects are held in memory.
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
            let name = options.name.clone();
            let family = Family::new(options.max_forks, max_open_files());
            let kinship = Kinship { family: family.clone(), origin: None, name: "" };
            let running = start(options, kinds, kinship).await?;
            Ok(ControlPlane { running, name, own_kubeconfig: Mutex::default(), family, _place: None })
        });
        start
    }

    /// Makes a fork: a control plane of its own in this process, in memory, that begins with the
    /// objects, the revisions, the history and the time of this one. It is ready to serve when this
    /// returns, and goes on if this one ends.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Forks`] beyond [`Options::max_forks`].
    pub fn fork(
        &self,
        options: ForkOptions,
    ) -> impl Future<Output = Result<ControlPlane, Error>> + Send + '_ {
        ControlPlane::fork_of(&self.running.origin, &self.family, None, options)
    }

    /// Makes a fork.
    ///
    /// - `fork`: the name; None for one that no client finds by its name
    pub(crate) fn fork_of<'a>(
        origin: &'a Arc<Origin>,
        family: &'a Arc<Family>,
        fork: Option<&'a str>,
        fork_options: ForkOptions,
    ) -> BoxFuture<'a, Result<ControlPlane, Error>> {
        Box::pin(async move {
            let place = family.place(&origin.lineage)?;
            if let Some(bytes) = origin.store.full_space_of_forks() {
                return Err(Error::SpaceOfForks(bytes));
            }
            let is_running = origin.clock.is_running();
            let options = origin.options.of_fork(origin.address.ip(), is_running, fork_options);
            let name = fork.map_or_else(|| options.name.clone(), |fork| context(&options.name, fork));
            let fork = fork.unwrap_or_default().to_owned();
            let (origin, own_family) = (origin.clone(), family.clone());
            let place = Arc::new(place);
            let kept = place.clone();
            let starting = async move {
                let kinship = Kinship { family: own_family.clone(), origin: Some(&origin), name: &fork };
                let running = start(options, origin.kinds, kinship).await;
                // Others may have taken the space that was left.
                let running = running.map_err(|error| match origin.store.full_space_of_forks() {
                    Some(bytes) if matches!(error, Error::Bootstrap(_)) => Error::SpaceOfForks(bytes),
                    _ => error,
                })?;
                let (own_kubeconfig, family) = (Mutex::default(), own_family);
                Ok(ControlPlane { running, name, own_kubeconfig, family, _place: Some(kept) })
            };
            place.worker.run(starting).await.map_err(Error::Workers)?
        })
    }

    /// Returns the revision of the store at the start; a fork's is a revision of its parent.
    pub fn began_at(&self) -> u64 {
        self.running.began_at.0
    }

    /// Returns a kubeconfig of the server, without the credentials of a user.
    pub(crate) fn kubeconfig_of_server(&self) -> String {
        let ca_pem = self.running.certificates.ca_pem();
        coracle_kubeconfig::document_without_user(&self.name, &self.url(), ca_pem)
    }

    /// Returns the store of the objects.
    pub(crate) fn store(&self) -> Store<ObjectIndex> {
        self.running.store.clone()
    }

    /// Returns the directory of the volumes.
    #[cfg(test)]
    pub(crate) fn volumes(&self) -> PathBuf {
        self.running.origin.volumes.directories.own.clone()
    }

    /// Returns the API, to which the original control plane passes requests below a fork's path.
    pub(crate) fn api(&self) -> Api {
        self.running.api.clone()
    }

    /// Returns the URL of the server, such as `https://127.0.0.1:6443`.
    pub fn url(&self) -> String {
        server_url(self.running.address)
    }

    /// Returns a link to the live page that works once, within an hour; None without the endpoints
    /// for tests, or if the operating system provides no random bytes.
    pub fn page_link(&self) -> Option<String> {
        let token = self.running.sessions.as_ref()?.issue_link().ok()?;
        Some(format!("{}{LOGIN_PATH}?token={token}", self.url()))
    }

    /// Returns a kubeconfig for the user `coracle-admin`, with the certificates inline.
    pub fn kubeconfig(&self) -> String {
        self.with_access(|access| coracle_kubeconfig::document(&self.name, access))
    }

    /// Merges the kubeconfig into a file, atomically, and makes its context the current one. The
    /// clusters, users and contexts of others stay. Returns the name of the former current context,
    /// if it was another one. Blocks while another program holds the file's lock, for at most 10 s.
    ///
    /// # Errors
    /// The file cannot be written, is not a kubeconfig, has an entry with this name by another
    /// program, or is locked.
    pub fn write_kubeconfig(&self, file: &Path) -> Result<Option<String>, KubeconfigError> {
        self.with_access(|access| coracle_kubeconfig::merge(file, &self.name, access))
    }

    /// Creates a file with the kubeconfig.
    ///
    /// # Errors
    /// There is a file already, or it cannot be written.
    pub fn create_kubeconfig(&self, file: &Path) -> Result<(), KubeconfigError> {
        self.with_access(|access| coracle_kubeconfig::create(file, &self.name, access))
    }

    /// Writes the kubeconfig to a temporary directory, which is removed with the control plane.
    /// Returns the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn own_kubeconfig(&self) -> Result<PathBuf, KubeconfigError> {
        let mut own = self.own_kubeconfig.lock();
        if let Some(directory) = &*own {
            return Ok(directory.path().join("kubeconfig"));
        }
        let within = std::env::temp_dir();
        let io_error = |source: io::Error| KubeconfigError::Io { path: within.clone(), source };
        let directory = temporary_directory(&within).map_err(io_error)?;
        let file = directory.path().join("kubeconfig");
        self.create_kubeconfig(&file)?;
        *own = Some(directory);
        Ok(file)
    }

    fn with_access<T>(&self, use_access: impl FnOnce(&Access) -> T) -> T {
        let certificates = &self.running.certificates;
        use_access(&Access {
            server: &self.url(),
            ca_pem: certificates.ca_pem(),
            certificate_pem: &certificates.admin().certificate_pem,
            key_pem: &certificates.admin_key_pem(),
        })
    }

    /// Returns a client with the rights of the kubeconfig's user. It calls the server in this
    /// process, without a socket.
    pub fn client(&self) -> kube::Client {
        let agent = || HeaderValue::from_static(concat!("coracle/", env!("CARGO_PKG_VERSION")));
        client(&self.running.api, certificates::ADMIN, agent)
    }

    /// Reads the objects that are not ready, have failed or are terminating, and their newest
    /// events, within 6 seconds.
    ///
    /// # Errors
    /// The server does not respond.
    pub async fn problems(&self) -> Result<Problems, ProblemsError> {
        coracle_problems::collect(self.client(), None).await
    }

    /// Returns the file in which the control plane is recorded, if it is.
    pub fn record(&self) -> Option<&Path> {
        self.running.origin.recording.as_ref().map(Recording::path)
    }

    /// Returns the test interface of the control plane: its clock, and whether it has settled.
    pub fn testing(&self) -> &Testing {
        &self.running.testing
    }

    /// Waits until the store has failed for good: a disk with errors, or changes of an etcd
    /// cluster that can no longer be followed. Then writes are refused, and what is read may be
    /// outdated; another start loads what is stored.
    pub async fn failed(&self) -> StoreError {
        self.running.store.failed().await
    }

    /// Makes `/readyz` fail, by its check `shutdown`, while everything is served as before. That is
    /// the first step of a shutdown behind a load balancer, which needs some time to choose other
    /// servers (`coracle serve --shutdown-delay-duration`).
    pub fn fail_readiness(&self) {
        self.running.shutdown.finish();
    }

    /// Stops accepting connections, ends watches, lets requests finish, and flushes the store to
    /// disk. Clients that watch can go on from their last revision at the next start.
    ///
    /// # Errors
    /// The store could not be closed: the last writes may not be on disk.
    pub async fn shutdown(self) -> Result<(), StoreError> {
        self.fail_readiness();
        let ControlPlane { running, own_kubeconfig, family, _place, .. } = self;
        let Running { mut started, api, testing, store, origin, .. } = running;
        started.stop_and_drop((api, testing, store, origin, own_kubeconfig, family, _place)).await
    }
}

/// Returns the URL of a listener for clients on this machine.
fn server_url(listen: SocketAddr) -> String {
    let reachable = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    format!("https://{}", SocketAddr::new(reachable, listen.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_urls_are_reachable_from_this_machine() {
        for (listen, want) in [
            ("127.0.0.1:6443", "https://127.0.0.1:6443"),
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("[::]:2", "https://[::1]:2"),
            ("10.1.2.3:3", "https://10.1.2.3:3"),
        ] {
            assert_eq!(server_url(listen.parse().expect(listen)), want);
        }
    }
}
