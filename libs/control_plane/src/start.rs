//! The start of a control plane: the parts, and who knows whom.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle_apimachinery::allocation::SERVICE_CIDR;
use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::access::authenticate::{Authenticator, TokenAuthenticator};
use coracle_apiserver::access::certificate_signer::CertificateSigner;
use coracle_apiserver::access::certificates::Certificates;
use coracle_apiserver::access::front_proxy::FrontProxy;
use coracle_apiserver::access::jwt::{SigningKey, VerificationKey};
use coracle_apiserver::access::token_file::TokenFile;
use coracle_apiserver::admission::AdmissionMetrics;
use coracle_apiserver::admission::webhook::WebhookContext;
use coracle_apiserver::aggregator::{
    AvailabilityController, OpenApiController, RemoteDocuments, RemoteGroups, serve_when_provided,
};
use coracle_apiserver::apiextensions::CustomResources;
use coracle_apiserver::audit::Auditor;
use coracle_apiserver::discovery::Discovery;
use coracle_apiserver::flow_schema_status::FlowSchemaStatus;
use coracle_apiserver::policy_status::PolicyStatus;
use coracle_apiserver::registry::{self, ObjectIndex, Registry, open_store};
use coracle_apiserver::serve::listener::Listener;
use coracle_apiserver::serve::{Api, Config};
use coracle_apiserver::telemetry::health::Hook;
use coracle_apiserver::telemetry::metrics::Metrics;
use coracle_apiserver::telemetry::tracer::{Tracer, TracingConfiguration};
use coracle_apiserver::webhook::ClientManager;
use coracle_apiserver::webhook::ConversionMetrics;
use coracle_builtin::admission::{self, PluginContext};
use coracle_builtin::allocation::ServiceAllocator;
use coracle_builtin::rbac::RbacAuthorizer;
use coracle_builtin::services::EndpointServiceResolver;
use coracle_builtin::start::{Advertisement, bootstrap, publish_authentication};
use coracle_builtin::tokens::ServiceAccountTokens;
use coracle_clock::Clock;
use coracle_controller_runtime::supervise::Readiness;
use coracle_controllers::{CertificateTemplate, Settings, SignCertificate};
use coracle_storage::log::{EphemeralLog, Log, SledLog};
use coracle_storage::{Limits, Store};
use coracle_volumes::VolumeSettings;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::control_plane::{Elected, Running, client, scratch};
use crate::controllers::{self, Controllers};
use crate::etcd::EVENTS;
use crate::health::{ServerHealth, health};
use crate::maintenance::STORE;
use crate::options::ServiceAccountIssuer;
use crate::{ControlPlane, Error, Kinds, Options, data_dir};

/// The user of the controllers, as kube-controller-manager's.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// The controller that reports the type checking of ValidatingAdmissionPolicies.
const POLICY_STATUS_CONTROLLER: &str = "validatingadmissionpolicy-status-controller";

/// How long a start waits until the caches of the controllers are synced.
const CONTROLLERS_START: Duration = Duration::from_secs(10);

impl Options {
    pub(crate) async fn start(self, kinds: Kinds) -> Result<ControlPlane, Error> {
        self.within_ranges().start_valid(kinds).await
    }

    async fn start_valid(self, kinds: Kinds) -> Result<ControlPlane, Error> {
        // Cheap steps that can fail come first, so that an error in the configuration creates no files.
        let overrides = self.feature_gates.iter().map(|(name, value)| (name, *value));
        let features = Arc::new(FeatureGates::new(overrides)?);
        let tracing = self.tracing_config_file.as_deref().map(TracingConfiguration::read).transpose()?;
        let token_file = self.token_auth_file.as_deref().map(TokenFile::read).transpose()?;
        let clock = Clock::system();
        // Our own certificates are valid by the time of those who verify them.
        let real_time = Clock::system();
        let metrics = Metrics::new();
        let auditor = Auditor::new(&self.audit, metrics.registry(), clock.clone())?;
        let listener = Listener::bind(self.listen)
            .await
            .map_err(|cause| Error::Listen { address: self.listen, cause })?
            .with_goaway_chance(self.goaway_chance)
            .with_response_latency(self.response_latency);
        let tracer = Arc::new(match tracing {
            Some(configuration) => Tracer::new(
                &configuration,
                listener.address().to_string(),
                metrics.registry(),
                clock.clone(),
            )?,
            None => Tracer::default(),
        });
        let resources = SharedResourceTable::new((kinds.built_in)());
        let store = self.open_store(resources.clone()).await?;
        let certificates = self.certificates(&real_time)?;
        let tls = Arc::new(certificates.tls()?);
        let rbac = Arc::new(RbacAuthorizer::new(store.clone(), &resources.load()));
        let authorizer = Arc::new(self.mode.authorizer(&rbac));
        let signing_key = Arc::new(self.signing_key()?);
        let audiences = signing_key.issuers().to_vec();
        let mut tokens: Vec<Box<dyn TokenAuthenticator>> = Vec::new();
        if let Some(file) = token_file {
            tokens.push(Box::new(file.with_audiences(audiences.clone())));
        }
        let front_proxy = FrontProxy::generate(real_time.now().into())?;
        let services = EndpointServiceResolver::new(self.webhook_service_urls.iter().cloned());
        let clients =
            ClientManager::new(services).with_front_proxy(vec![front_proxy.certificate], front_proxy.key);
        let clients = Arc::new(clients);
        let registry_config =
            registry::Config::new(store.clone(), resources.clone(), clock.clone(), authorizer.clone());
        let service_cidr = self.service_cidr.unwrap_or(SERVICE_CIDR);
        let plugin_context = PluginContext {
            authorizer: authorizer.clone(),
            rbac,
            webhooks: WebhookContext {
                resources: resources.clone(),
                clients: clients.clone(),
                metrics: Arc::new(AdmissionMetrics::new(metrics.registry())),
            },
        };
        let max_pods = usize::try_from(self.max_pods).unwrap_or(usize::MAX);
        let max_pods = if max_pods == 0 { usize::MAX } else { max_pods };
        let registry = Arc::new(Registry::new(registry::Config {
            chain: admission::chain(&self.admission_plugins, &features, max_pods, &plugin_context),
            features: features.clone(),
            webhook_clients: clients,
            conversion_metrics: Arc::new(ConversionMetrics::new(metrics.registry())),
            allocator: Some(Box::new(ServiceAllocator::new(service_cidr))),
            ..registry_config
        }));
        tokens.push(Box::new(ServiceAccountTokens {
            key: signing_key.clone(),
            cluster: registry.clone(),
            clock: clock.clone(),
        }));
        let selection = self.controllers.clone();
        let is_selected = move |name: &str| controllers::is_selected(&selection, name);
        let (port, class) = (listener.address().port(), self.default_storage_class.as_deref());
        bootstrap(&registry, port, service_cidr, class, &is_selected)
            .await
            .map_err(|e| Error::Bootstrap(e.to_string()))?;
        publish_authentication(&registry, &certificates.client_ca_pem()?, &front_proxy.ca_pem)
            .await
            .map_err(|e| Error::Bootstrap(e.to_string()))?;
        let advertisement = self.advertise_address.map(|address| {
            let address = SocketAddr::new(address, listener.address().port());
            Advertisement::new(registry.clone(), address, controllers::hostname())
        });
        if let Some(advertisement) = &advertisement {
            advertisement.publish().await.map_err(|e| Error::Bootstrap(e.to_string()))?;
        }
        let (data, scratch) = self.data_directory()?;
        let readiness = Readiness::default();
        let ServerHealth { health, start_hooks, shutdown } = health(&store, &readiness);
        let other_paths = health.paths().chain(["/metrics".to_owned()]);
        let remote_groups = Arc::new(RemoteGroups::default());
        let remote_documents = Arc::new(RemoteDocuments::default());
        let discovery = Discovery::new(listener.address().to_string(), other_paths, resources)
            .with_remote(remote_groups.clone(), remote_documents.clone());
        let mut tasks = JoinSet::new();
        // In etcd they have leases.
        if self.etcd.is_none() {
            tasks.spawn(registry.clone().expire_objects(EVENTS, self.event_ttl));
        }
        if let Some(advertisement) = advertisement {
            tasks.spawn(advertisement.keep_identity());
        }
        tasks.spawn(CustomResources::new(registry.clone()).run());
        tasks.spawn(FlowSchemaStatus::new(registry.clone()).run());
        // It needs the types that are served, so it is no client as the other controllers are; it is selected as they are.
        if is_selected(POLICY_STATUS_CONTROLLER) {
            tasks.spawn(PolicyStatus::new(registry.clone()).run());
        }
        tasks.spawn(AvailabilityController::new(registry.clone(), remote_groups).run());
        tasks.spawn(OpenApiController::new(registry.clone(), remote_documents).run());
        if let Some(extension) = (kinds.extension)() {
            tasks.spawn(serve_when_provided(registry.clone(), extension));
        }
        let controller_metrics =
            coracle_controller_runtime::metrics::Metrics::new(metrics.registry().clone());
        let settings = self.settings(&certificates, signing_key.clone(), &data, features);
        let api = Api::new(Config {
            registry,
            authenticator: Authenticator::new(tokens, clock.clone())
                .with_audiences(audiences)
                .with_anonymous(self.anonymous_auth),
            authorizer,
            signing_key,
            extensions: coracle_builtin::extensions(),
            discovery,
            health,
            metrics,
            tracer: tracer.clone(),
            auditor: auditor.clone(),
        });
        let address = listener.address();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(listener.serve(
            api.clone(),
            tls,
            Box::pin(async {
                // A dropped sender stops the server as well.
                let _ = stopped.await;
            }),
        ));
        start_hooks.iter().for_each(Hook::finish);
        let controllers = Controllers {
            client: client(&api, CONTROLLER_MANAGER, coracle_controllers::USER_AGENT),
            clock,
            metrics: controller_metrics,
            readiness: readiness.clone(),
            settings,
            nodes: self.nodes,
            is_selected: Arc::new(is_selected),
        };
        let elected = match store.is_shared() {
            false => {
                tasks.spawn(controllers.run());
                None
            }
            true => {
                let (stop, stopped) = oneshot::channel();
                let work = tokio::spawn(controllers.run_elected(stopped));
                Some(Elected { stop, work })
            }
        };
        // From here on, dropping this future stops everything that was started.
        let control_plane = ControlPlane {
            api,
            certificates,
            address,
            shutdown,
            running: Some(Running { store, stop, serving, tasks, elected, auditor, tracer, scratch }),
            runtime: tokio::runtime::Handle::current(),
            own_kubeconfig: None.into(),
        };
        // If this takes too long, `/readyz` continues to report what is missing.
        #[expect(clippy::disallowed_methods, reason = "the caller waits for a bounded time")]
        let _ = tokio::time::timeout(CONTROLLERS_START, readiness.complete()).await;
        Ok(control_plane)
    }

    async fn open_store(&self, resources: Arc<SharedResourceTable>) -> Result<Store<ObjectIndex>, Error> {
        let (data_dir, durability) = (self.data_dir.clone(), self.durability);
        let options = coracle_storage::Options {
            limits: Limits {
                store_bytes: if self.max_store_bytes == 0 { u64::MAX } else { self.max_store_bytes },
                ..Limits::default()
            },
            ..store_options()
        };
        let etcd = self.etcd.as_ref().map(|etcd| etcd.log(resources.clone(), self.event_ttl)).transpose()?;
        let open = move || {
            let log: Box<dyn Log> = match (data_dir, etcd) {
                (None, None) => Box::new(EphemeralLog::new()),
                (None, Some(log)) => Box::new(log),
                (Some(directory), etcd) => {
                    data_dir::prepare(&directory)
                        .map_err(|cause| Error::File { path: directory.clone(), cause })?;
                    match etcd {
                        None => Box::new(SledLog::open(&directory.join(STORE), durability)?),
                        Some(log) => Box::new(log),
                    }
                }
            };
            Ok(open_store(log, resources, options)?)
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
            horizontal_pod_autoscaler_sync_period: self.horizontal_pod_autoscaler_sync_period,
            volumes: VolumeSettings::new(data.to_owned(), |gate| features.is_enabled(gate)),
            is_enabled: Arc::new(move |gate| features.is_enabled(gate)),
        }
    }

    /// The directory that contains the volumes; without a data directory a temporary one, which is removed when the second value is
    /// dropped.
    fn data_directory(&self) -> Result<(PathBuf, Option<tempfile::TempDir>), Error> {
        match &self.data_dir {
            None => {
                let failed = |cause| Error::File { path: std::env::temp_dir(), cause };
                let scratch = scratch().map_err(failed)?;
                Ok((scratch.path().to_owned(), Some(scratch)))
            }
            Some(path) => Ok((std::path::absolute(path).unwrap_or(path.clone()), None)),
        }
    }

    fn signing_key(&self) -> Result<SigningKey, Error> {
        let ServiceAccountIssuer { signing_key_file, key_files, issuers } = &self.service_accounts;
        let key = match (signing_key_file, &self.data_dir) {
            (Some(file), _) => SigningKey::in_file(file)?,
            (None, None) => SigningKey::ephemeral()?,
            (None, Some(directory)) => SigningKey::in_folder(&directory.join("pki"))?,
        };
        let mut others = Vec::new();
        for file in key_files {
            others.extend(VerificationKey::in_file(file)?);
        }
        Ok(key.with_verification_keys(others).with_issuers(issuers.clone()))
    }

    fn certificates(&self, clock: &Clock) -> Result<Certificates, Error> {
        let mut certificates = match &self.data_dir {
            None => Certificates::ephemeral(&self.tls_san, clock)?,
            Some(directory) => Certificates::in_folder(&directory.join("pki"), &self.tls_san, clock)?,
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
        let CertificateTemplate { request, usages, not_before, not_after } = template;
        signer.sign(request, usages, *not_before..*not_after).map_err(|error| error.to_string())
    })
}

/// The options of a store that reports on standard error when loading takes long.
#[expect(clippy::disallowed_methods, reason = "the time that loading takes is measured")]
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
