//! Coracle: a Kubernetes control plane in one small binary, and a library for tests that need a control plane of their own.
//!
//! ```no_run
//! # async fn example() -> Result<(), coracle::Error> {
//! let control_plane = coracle::ControlPlane::builder().ephemeral().start().await?;
//! let kubeconfig: String = control_plane.kubeconfig();
//! // ... point any client at it ...
//! // With a data directory, all writes are on disk after this.
//! let _ = control_plane.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! This crate assembles the parts: the API is in `apiserver/`, the log in `storage/`, the loops in `controllers/`.

#![warn(missing_docs)]

pub mod controllers;
mod data_dir;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use coracle_apimachinery::clock::Clock;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::access::authenticate::{Authenticator, MASTERS, TokenAuthenticator, UserInfo};
use coracle_apiserver::access::authorize::Authorizer;
use coracle_apiserver::access::certificate_signer::CertificateSigner;
use coracle_apiserver::access::certificates::{self, CertificateError, Certificates};
use coracle_apiserver::access::front_proxy::FrontProxy;
use coracle_apiserver::access::jwt::{KeyError, SigningKey, VerificationKey};
use coracle_apiserver::access::kubeconfig;
use coracle_apiserver::access::service_account_token::ServiceAccountTokens;
use coracle_apiserver::access::tls::Peer;
use coracle_apiserver::access::token_file::{TokenFile, TokenFileError};
use coracle_apiserver::access::validity::WallClock;
use coracle_apiserver::aggregator::{AvailabilityController, RemoteGroups, publish_authentication};
use coracle_apiserver::apiextensions::CustomResources;
use coracle_apiserver::discovery::Discovery;
use coracle_apiserver::policy_status::PolicyStatus;
use coracle_apiserver::registry::{ObjectIndex, Registry};
use coracle_apiserver::serve::listener::Listener;
use coracle_apiserver::serve::{Api, Config};
use coracle_apiserver::telemetry::health::{Endpoint, Health, Hook};
use coracle_apiserver::telemetry::metrics::Metrics;
use coracle_apiserver::webhook::ClientManager;
use coracle_controllers::{CertificateTemplate, Readiness, Settings, SignCertificate};
use coracle_storage::log::{EphemeralLog, LogError, SledLog};
use coracle_storage::{Limits, Store};
use http::header::{HeaderValue, USER_AGENT};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use coracle_apimachinery::features::{self, FeatureGates, GateError};
pub use coracle_apimachinery::validation::ip::Cidr;
pub use coracle_apiserver::access::authorize::Mode;
pub use coracle_apiserver::admission::{PluginError, PluginSelection};
pub use coracle_apiserver::webhook::{ServiceUrl, ServiceUrlError};
pub use coracle_storage::StoreError;
pub use coracle_storage::log::Durability;

/// The user of the controllers, as kube-controller-manager's.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// How long a start waits until the caches of the controllers are synced.
const CONTROLLERS_START: Duration = Duration::from_secs(10);

/// Why a control plane did not start. Each is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not available.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address to serve on.
        address: SocketAddr,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The log cannot be opened: it is in use, damaged, or not readable.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The CA or the serving certificate cannot be read, created or stored.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The key that signs service account tokens cannot be read, created or stored.
    #[error(transparent)]
    SigningKey(#[from] KeyError),
    /// The file of bearer tokens cannot be read.
    #[error(transparent)]
    TokenFile(#[from] TokenFileError),
    /// A feature gate is unknown or locked.
    #[error(transparent)]
    FeatureGate(#[from] GateError),
    /// The bootstrap objects cannot be stored.
    #[error("cannot make the first objects: {0}")]
    Bootstrap(String),
    /// A file or directory cannot be used.
    #[error("{path}: {cause}", path = .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
}

/// Where the data is kept.
#[derive(Clone, Debug)]
enum DataLocation {
    Memory,
    Directory(PathBuf),
}

/// How service account tokens are signed and verified, where it is not by a key of our own.
#[derive(Clone, Debug, Default)]
struct ServiceAccountIssuer {
    signing_key_file: Option<PathBuf>,
    key_files: Vec<PathBuf>,
    issuers: Vec<String>,
}

/// The configuration of a control plane that has not been started. It is made by [`ControlPlane::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    location: DataLocation,
    listen: SocketAddr,
    mode: Mode,
    webhook_service_urls: Vec<ServiceUrl>,
    tls_san: Vec<String>,
    token_auth_file: Option<PathBuf>,
    serving_files: Option<(PathBuf, PathBuf)>,
    client_ca_file: Option<PathBuf>,
    service_accounts: ServiceAccountIssuer,
    service_cidr: Option<Cidr>,
    controllers: Vec<String>,
    feature_gates: BTreeMap<String, bool>,
    admission_plugins: PluginSelection,
    nodes: usize,
    durability: Durability,
    max_store_bytes: u64,
    event_ttl: Duration,
    default_storage_class: Option<String>,
}

impl Builder {
    /// Keeps all data in memory; the default.
    pub fn ephemeral(mut self) -> Builder {
        self.location = DataLocation::Memory;
        self
    }

    /// Keeps the data in a directory, which is created if it is missing.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Builder {
        self.location = DataLocation::Directory(directory.into());
        self
    }

    /// The address to serve on; port 0, the default, is any free one.
    pub fn listen(mut self, address: SocketAddr) -> Builder {
        self.listen = address;
        self
    }

    /// How requests are authorized; RBAC by default.
    pub fn authorization(mut self, mode: Mode) -> Builder {
        self.mode = mode;
        self
    }

    /// Adds names and addresses to the server's certificate.
    pub fn tls_san(mut self, names: impl IntoIterator<Item = String>) -> Builder {
        self.tls_san.extend(names);
        self
    }

    /// A file of bearer tokens in kube-apiserver's format (`--token-auth-file`).
    pub fn token_auth_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.token_auth_file = Some(file.into());
        self
    }

    /// Files with the certificate to serve with and its key, instead of a certificate of our own authority. If both are
    /// missing, a certificate is written there.
    pub fn serving_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Builder {
        self.serving_files = Some((certificate.into(), key.into()));
        self
    }

    /// A file of authorities whose client certificates are trusted as well (`--client-ca-file`).
    pub fn client_ca_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.client_ca_file = Some(file.into());
        self
    }

    /// The private key that signs service account tokens (`--service-account-signing-key-file`): RSA or ECDSA P-256.
    pub fn service_account_signing_key_file(mut self, file: impl Into<PathBuf>) -> Builder {
        self.service_accounts.signing_key_file = Some(file.into());
        self
    }

    /// Files of public keys or certificates that verify service account tokens too (`--service-account-key-file`).
    pub fn service_account_key_files(mut self, files: impl IntoIterator<Item = PathBuf>) -> Builder {
        self.service_accounts.key_files.extend(files);
        self
    }

    /// The issuers of service account tokens (`--service-account-issuer`): the first is in new tokens, all are accepted.
    pub fn service_account_issuers(mut self, issuers: impl IntoIterator<Item = String>) -> Builder {
        self.service_accounts.issuers.extend(issuers);
        self
    }

    /// The IPv4 block of the cluster IPs of Services (`--service-cluster-ip-range`); 10.0.0.0/24 by default. For a new store.
    pub fn service_cidr(mut self, block: Cidr) -> Builder {
        self.service_cidr = Some(block);
        self
    }

    /// Where Services can be reached to which webhooks, conversions and APIServices refer (`--webhook-service-url`), if not by
    /// their EndpointSlices.
    pub fn webhook_service_urls(mut self, urls: impl IntoIterator<Item = ServiceUrl>) -> Builder {
        self.webhook_service_urls.extend(urls);
        self
    }

    /// The controllers to run, in the syntax of kube-controller-manager's `--controllers`; `*` by default. Unknown names are
    /// ignored: see [`controllers::check_selection`].
    pub fn controllers(mut self, selection: impl IntoIterator<Item = String>) -> Builder {
        self.controllers = selection.into_iter().collect();
        self
    }

    /// Overrides feature gates. [`Builder::start`] fails for unknown and locked ones.
    pub fn feature_gates(mut self, gates: impl IntoIterator<Item = (String, bool)>) -> Builder {
        self.feature_gates.extend(gates);
        self
    }

    /// The admission plugins to run; kube-apiserver's defaults unless set.
    pub fn admission_plugins(mut self, selection: PluginSelection) -> Builder {
        self.admission_plugins = selection;
        self
    }

    /// The number of simulated nodes; 1 by default.
    pub fn nodes(mut self, count: usize) -> Builder {
        self.nodes = count;
        self
    }

    /// When writes are on disk, with a data directory; at most 50 ms after the response by default.
    pub fn durability(mut self, durability: Durability) -> Builder {
        self.durability = durability;
        self
    }

    /// The maximum size of all objects together in bytes; 0 is no limit. Above it, writes that grow the store are rejected as by
    /// etcd's quota. [`ControlPlane::MAX_STORE_BYTES`] by default.
    pub fn max_store_bytes(mut self, bytes: u64) -> Builder {
        self.max_store_bytes = bytes;
        self
    }

    /// How long Events are kept after their last write, an hour by default; zero keeps them forever.
    pub fn event_ttl(mut self, ttl: Duration) -> Builder {
        self.event_ttl = ttl;
        self
    }

    /// The default StorageClass, which is created at the start together with `NAME-wait`; None for neither. `standard` by default.
    pub fn default_storage_class(mut self, name: Option<String>) -> Builder {
        self.default_storage_class = name;
        self
    }

    /// Starts the control plane; it is ready to serve when this returns.
    ///
    /// # Errors
    /// See [`Error`]; nothing keeps running then.
    pub async fn start(self) -> Result<ControlPlane, Error> {
        // Cheap steps that can fail come first, so that an error in the configuration creates no files.
        let overrides = self.feature_gates.iter().map(|(name, value)| (name, *value));
        let features = Arc::new(FeatureGates::new(overrides)?);
        let token_file = self.token_auth_file.as_deref().map(TokenFile::read).transpose()?;
        let listener = Listener::bind(self.listen)
            .await
            .map_err(|cause| Error::Listen { address: self.listen, cause })?;
        let resources = SharedResourceTable::new(coracle_resources::built_in());
        let store = self.open_store(resources.clone()).await?;
        let certificates = self.certificates()?;
        let tls = Arc::new(certificates.tls()?);
        let authorizer = Arc::new(Authorizer::new(self.mode));
        let signing_key = Arc::new(self.signing_key()?);
        let audiences = signing_key.issuers().to_vec();
        let mut tokens: Vec<Box<dyn TokenAuthenticator>> = Vec::new();
        if let Some(file) = token_file {
            tokens.push(Box::new(file.with_audiences(audiences.clone())));
        }
        let clock: Clock = Arc::new(jiff::Timestamp::now);
        let registry = Registry::new(store.clone(), resources.clone(), clock.clone(), &authorizer);
        let front_proxy = FrontProxy::generate(SystemTime::now())?;
        let clients = ClientManager::new(self.webhook_service_urls.iter().cloned())
            .with_front_proxy(vec![front_proxy.certificate], front_proxy.key);
        let registry = registry.with_webhook_clients(Arc::new(clients));
        let registry = registry.with_options(features.clone(), &self.admission_plugins, &authorizer);
        let registry = Arc::new(match self.service_cidr {
            Some(block) => registry.with_service_cidr(block),
            None => registry,
        });
        tokens.push(Box::new(ServiceAccountTokens {
            key: signing_key.clone(),
            cluster: registry.clone(),
            clock: clock.clone(),
        }));
        registry
            .bootstrap(listener.address().port(), self.default_storage_class.as_deref())
            .await
            .map_err(|e| Error::Bootstrap(e.to_string()))?;
        publish_authentication(&registry, certificates.ca_pem(), &front_proxy.ca_pem)
            .await
            .map_err(|e| Error::Bootstrap(e.to_string()))?;
        let (data, scratch) = self.data_directory()?;
        let readiness = Readiness::default();
        let (health, start_hooks) = health(&store, &readiness);
        let other_paths = health.paths().chain(["/metrics".to_owned()]);
        let remote_groups = Arc::new(RemoteGroups::default());
        let discovery = Discovery::new(listener.address().to_string(), other_paths, resources)
            .with_remote_groups(remote_groups.clone());
        let metrics = Metrics::new();
        let event_expiry = tokio::spawn(registry.clone().expire_events(self.event_ttl));
        let custom_resources = CustomResources::new(registry.clone()).run();
        let policy_status = PolicyStatus::new(registry.clone()).run();
        let custom_resources = tokio::spawn(async move {
            tokio::join!(custom_resources, policy_status);
        });
        let aggregator = tokio::spawn(AvailabilityController::new(registry.clone(), remote_groups).run());
        let options = coracle_controllers::Options {
            clock: coracle_controllers::Clock::system(),
            metrics: coracle_controllers::Metrics::new(metrics.registry().clone()),
            readiness: readiness.clone(),
            settings: self.settings(&certificates, signing_key.clone(), &data, features),
        };
        let api = Api::new(Config {
            registry,
            authenticator: Authenticator::new(tokens, clock.clone()).with_audiences(audiences),
            authorizer,
            signing_key,
            discovery,
            health,
            metrics,
        });
        let address = listener.address();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(listener.serve(api.clone(), tls, async {
            // A dropped sender stops the server as well.
            let _ = stopped.await;
        }));
        start_hooks.iter().for_each(Hook::finish);
        let selection = self.controllers;
        let controllers = coracle_controllers::run(
            client(&api, CONTROLLER_MANAGER, coracle_controllers::USER_AGENT),
            options,
            move |name| controllers::is_selected(&selection, name),
        );
        let controllers = tokio::spawn(controllers);
        // From here on, dropping this future stops everything that was started.
        let control_plane = ControlPlane {
            api,
            certificates,
            address,
            running: Some(Running {
                store,
                stop,
                serving,
                controllers,
                event_expiry,
                custom_resources,
                aggregator,
                scratch,
            }),
            runtime: tokio::runtime::Handle::current(),
            own_kubeconfig: None.into(),
        };
        // If this takes too long, `/readyz` continues to report what is missing.
        let _ = tokio::time::timeout(CONTROLLERS_START, readiness.complete()).await;
        Ok(control_plane)
    }

    async fn open_store(&self, resources: Arc<SharedResourceTable>) -> Result<Store<ObjectIndex>, Error> {
        let (location, durability) = (self.location.clone(), self.durability);
        let options = coracle_storage::Options {
            limits: Limits {
                store_bytes: if self.max_store_bytes == 0 { u64::MAX } else { self.max_store_bytes },
                ..Limits::default()
            },
            ..store_options()
        };
        let index = ObjectIndex::new(resources);
        let open = move || match location {
            DataLocation::Memory => Ok(Store::open(EphemeralLog::new(), index, options)?),
            DataLocation::Directory(directory) => {
                data_dir::prepare(&directory)
                    .map_err(|cause| Error::File { path: directory.clone(), cause })?;
                let log = SledLog::open(&directory.join("store"), durability)?;
                Ok(Store::open(log, index, options)?)
            }
        };
        match tokio::task::spawn_blocking(open).await {
            Ok(opened) => opened,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down, and the caller with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// The settings of the controllers that cannot be read from the API.
    fn settings(
        &self,
        certificates: &Certificates,
        key: Arc<SigningKey>,
        data: &Path,
        features: Arc<FeatureGates>,
    ) -> Settings {
        Settings {
            // There is one server and one store: whatever was admitted is stored within this time. It is no shorter because
            // clients see a terminating namespace for a while in a real cluster, and rely on it.
            namespace_grace: Duration::from_secs(2),
            root_ca: Some(certificates.ca_pem().to_owned()),
            sign: Some(Arc::new(move |claims| key.sign(claims))),
            sign_certificate: Some(sign_certificate(certificates.signer())),
            nodes: Some(self.nodes),
            is_enabled: Arc::new(move |gate| features.is_enabled(gate)),
            data: data.to_owned(),
        }
    }

    /// The directory that contains the volumes; without a data directory a temporary one, which is removed when the second value is
    /// dropped.
    fn data_directory(&self) -> Result<(PathBuf, Option<tempfile::TempDir>), Error> {
        match &self.location {
            DataLocation::Memory => {
                let failed = |cause| Error::File { path: std::env::temp_dir(), cause };
                let scratch = scratch().map_err(failed)?;
                Ok((scratch.path().to_owned(), Some(scratch)))
            }
            DataLocation::Directory(path) => Ok((std::path::absolute(path).unwrap_or(path.clone()), None)),
        }
    }

    fn signing_key(&self) -> Result<SigningKey, Error> {
        let ServiceAccountIssuer { signing_key_file, key_files, issuers } = &self.service_accounts;
        let key = match (signing_key_file, &self.location) {
            (Some(file), _) => SigningKey::in_file(file)?,
            (None, DataLocation::Memory) => SigningKey::ephemeral()?,
            (None, DataLocation::Directory(directory)) => SigningKey::in_folder(&directory.join("pki"))?,
        };
        let mut others = Vec::new();
        for file in key_files {
            others.extend(VerificationKey::in_file(file)?);
        }
        Ok(key.with_verification_keys(others).with_issuers(issuers.clone()))
    }

    fn certificates(&self) -> Result<Certificates, Error> {
        let clock: WallClock = Arc::new(SystemTime::now);
        let mut certificates = match &self.location {
            DataLocation::Memory => Certificates::ephemeral(&self.tls_san, &clock)?,
            DataLocation::Directory(directory) => {
                Certificates::in_folder(&directory.join("pki"), &self.tls_san, &clock)?
            }
        };
        if let Some((certificate, key)) = &self.serving_files {
            certificates = certificates.with_serving_files(certificate, key)?;
        }
        if let Some(file) = &self.client_ca_file {
            certificates = certificates.with_client_ca_file(file)?;
        }
        Ok(certificates)
    }
}

/// Issues the certificates of CertificateSigningRequests by the authority of our own client certificates.
fn sign_certificate(signer: CertificateSigner) -> SignCertificate {
    Arc::new(move |template| {
        let CertificateTemplate { request_pem, usages, not_before, not_after } = template;
        signer.sign(request_pem, usages, *not_before..*not_after).map_err(|error| error.to_string())
    })
}

/// A temporary directory, removed when it is dropped.
fn scratch() -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("coracle-").tempdir()
}

/// The checks of the server's health, and the steps of its start.
fn health(store: &Store<ObjectIndex>, controllers: &Readiness) -> (Health, Vec<Hook>) {
    const HOOKS: [&str; 3] =
        ["start-apiserver-admission-initializer", "rbac/bootstrap-roles", "bootstrap-controller"];
    let mut health = Health::new();
    let store = store.clone();
    let ready = store.clone();
    // A server with a full disk still serves reads and deletions: it is alive but not ready, since a restart would not help.
    health.check("etcd", &[Endpoint::Healthz, Endpoint::Livez], move || {
        store.health().map_err(|e| e.to_string())
    });
    health.check("etcd", &[Endpoint::Readyz], move || ready.readiness().map_err(|e| e.to_string()));
    let controllers = controllers.clone();
    health.check("informer-sync", &[Endpoint::Readyz], move || match controllers.missing() {
        missing if missing.is_empty() => Ok(()),
        missing => Err(format!("not synced yet: {}", missing.join(", "))),
    });
    let hooks = HOOKS.iter().map(|name| health.hook(name)).collect();
    (health, hooks)
}

/// A client of the API in this process, without a socket, for a user in `system:masters`.
fn client(api: &Api, user: &str, agent: &'static str) -> kube::Client {
    let user = UserInfo::new(user, &[MASTERS]).authenticated();
    let api = api.for_peer(Peer::Known(Arc::new(user)));
    let api = tower::util::MapRequest::new(api, move |mut request: http::Request<kube::client::Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(agent));
        request
    });
    kube::Client::new(api, "default")
}

/// The options of a store that reports on standard error when loading takes long.
fn store_options() -> coracle_storage::Options {
    const QUIET: Duration = Duration::from_secs(1);
    let started = std::time::Instant::now();
    let mut reported = started;
    coracle_storage::Options {
        progress: Some(Box::new(move |versions| {
            if reported.elapsed() > QUIET {
                reported = std::time::Instant::now();
                eprintln!("coracle: loading, {versions} versions so far");
            }
        })),
        ..coracle_storage::Options::default()
    }
}

/// A running control plane.
///
/// [`shutdown`](Self::shutdown) stops it in order. Dropping it does the same in the background, as long as the runtime exists on
/// which it was started; soon after, its data directory can be opened again.
pub struct ControlPlane {
    api: Api,
    certificates: Certificates,
    address: SocketAddr,
    /// None while it is being stopped.
    running: Option<Running>,
    runtime: tokio::runtime::Handle,
    own_kubeconfig: std::sync::Mutex<Option<tempfile::TempDir>>,
}

/// The parts that have to be stopped.
struct Running {
    store: Store<ObjectIndex>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    controllers: JoinHandle<()>,
    /// The task that deletes expired Events.
    event_expiry: JoinHandle<()>,
    /// The task that serves what CustomResourceDefinitions define.
    custom_resources: JoinHandle<()>,
    aggregator: JoinHandle<()>,
    scratch: Option<tempfile::TempDir>,
}

impl Running {
    /// Stops all parts in order.
    ///
    /// # Errors
    /// The store could not be closed.
    async fn stop(self) -> Result<(), StoreError> {
        let Running {
            store,
            stop,
            serving,
            controllers,
            event_expiry,
            custom_resources,
            aggregator,
            scratch,
        } = self;
        // The controllers stop first, so that nothing writes while the store closes.
        for task in [controllers, event_expiry, custom_resources, aggregator] {
            task.abort();
            let _ = task.await;
        }
        // The server may have ended already.
        let _ = stop.send(());
        let _ = serving.await;
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
        if let Some(running) = self.running.take() {
            // Immediately, since a runtime that is shutting down runs no further tasks.
            running.controllers.abort();
            running.event_expiry.abort();
            running.custom_resources.abort();
            running.aggregator.abort();
            self.runtime.spawn(running.stop());
        }
    }
}

impl ControlPlane {
    /// The default of [`Builder::max_store_bytes`], as of etcd's `--quota-backend-bytes`. All objects are held in memory.
    pub const MAX_STORE_BYTES: u64 = 2 << 30;

    /// A control plane in memory, on any free port of the loopback address, with RBAC.
    pub fn builder() -> Builder {
        Builder {
            location: DataLocation::Memory,
            listen: ([127, 0, 0, 1], 0).into(),
            mode: Mode::Rbac,
            webhook_service_urls: Vec::new(),
            tls_san: Vec::new(),
            token_auth_file: None,
            serving_files: None,
            client_ca_file: None,
            service_accounts: ServiceAccountIssuer::default(),
            service_cidr: None,
            controllers: vec!["*".to_owned()],
            feature_gates: BTreeMap::new(),
            admission_plugins: PluginSelection::default(),
            nodes: 1,
            durability: Durability::Interval(Duration::from_millis(50)),
            max_store_bytes: Self::MAX_STORE_BYTES,
            event_ttl: Duration::from_secs(3600),
            default_storage_class: Some("standard".to_owned()),
        }
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

    /// Stops accepting connections, lets requests finish, and flushes the store to disk.
    ///
    /// # Errors
    /// The store could not be closed: the last writes may not be on disk.
    pub async fn shutdown(mut self) -> Result<(), StoreError> {
        match self.running.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }
}
