//! An API server in memory, with all built-in kinds and admission plugins, called over HTTP without
//! a socket: the one fixture of tests that need a whole server.
#![warn(missing_docs)]

use std::sync::Arc;

use bytes::Bytes;
use coracle_apimachinery::allocation::SERVICE_CIDR;
use coracle_apimachinery::features::FeatureGates;
use coracle_apimachinery::resource_info::{CustomKind, CustomVersion, ResourceInfo, SharedResourceTable};
use coracle_apiserver::access::authenticate::{Authenticator, MASTERS, UserInfo};
use coracle_apiserver::access::authorize::Authorizer;
use coracle_apiserver::access::jwt::SigningKey;
use coracle_apiserver::access::tls::Peer;
use coracle_apiserver::admission::AdmissionChain;
use coracle_apiserver::admission::webhook::WebhookContext;
use coracle_apiserver::discovery::Discovery;
use coracle_apiserver::registry::{self, ObjectIndex, Registry};
use coracle_apiserver::serve::{Api, Body, Config};
use coracle_apiserver::webhook::ClientManager;
use coracle_builtin::admission::{PluginContext, PluginSelection, chain};
use coracle_builtin::allocation::ServiceAllocator;
use coracle_builtin::rbac::RbacAuthorizer;
use coracle_builtin::services::EndpointServiceResolver;
use coracle_builtin::start::{bootstrap, initial_objects};
use coracle_clock::Clock;
use coracle_storage::log::EphemeralLog;
use coracle_storage::{Options, Store};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tower::ServiceExt;

/// The media type of a configuration that is applied.
pub const APPLY: &str = "application/apply-patch+yaml";
/// The media type of a merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// An API server in memory, with the first objects of a cluster. Its client may do everything.
pub struct TestServer {
    /// The API, called by the administrator.
    pub api: Api,
    /// The resources that it serves.
    pub resources: Arc<SharedResourceTable>,
    /// The stock of cluster IPs and node ports.
    pub allocator: ServiceAllocator,
    /// Decides what others than its client may do.
    pub authorizer: Arc<Authorizer>,
}

impl TestServer {
    /// Starts a server of the built-in kinds.
    pub async fn start() -> TestServer {
        TestServer::with(Vec::new(), |_| {}).await
    }

    /// Starts a server that has custom kinds and further admission plugins, too.
    pub async fn with(
        custom: Vec<ResourceInfo>,
        add_plugins: impl FnOnce(&mut AdmissionChain),
    ) -> TestServer {
        let resources = SharedResourceTable::new(coracle_resources::built_in().with_custom(custom));
        let index = ObjectIndex::new(resources.clone());
        let store =
            Store::open(Box::new(EphemeralLog::new()), index, Options::default()).expect("an empty store");
        let clock = Clock::system();
        let rbac = Arc::new(RbacAuthorizer::new(store.clone(), &resources.load()));
        let authorizer = Arc::new(Authorizer::new(rbac.clone()));
        let clients = Arc::new(ClientManager::new(EndpointServiceResolver::default()));
        let webhooks = WebhookContext {
            resources: resources.clone(),
            clients: clients.clone(),
            metrics: Arc::default(),
        };
        let plugins =
            PluginContext { authorizer: authorizer.clone(), rbac, webhooks, identities: Arc::default() };
        let selection = PluginSelection::default();
        let mut chain = chain(&selection, &FeatureGates::DEFAULT, usize::MAX, &plugins);
        add_plugins(&mut chain);
        let allocator = ServiceAllocator::new(SERVICE_CIDR);
        let registry = Arc::new(Registry::new(registry::Config {
            chain,
            webhook_clients: clients,
            allocator: Some(Box::new(allocator.clone())),
            ..registry::Config::new(store, resources.clone(), clock.clone(), authorizer.clone())
        }));
        let objects = initial_objects(clock.now(), 6443, SERVICE_CIDR, None, &|_| true);
        bootstrap(&registry, &objects).await.expect("the first objects");
        let signing_key = Arc::new(SigningKey::ephemeral().expect("a key"));
        let discovery = Discovery::new("127.0.0.1:6443", [], resources.clone());
        let authenticator = Authenticator::new(Vec::new(), clock);
        let config = Config::new(registry, authenticator, authorizer.clone(), signing_key, discovery);
        let api = Api::new(Config {
            extensions: coracle_builtin::extensions(coracle_behavior::Profile::default(), Arc::default()),
            ..config
        });
        let admin = UserInfo::new("admin", &[MASTERS]).authenticated();
        TestServer { api: api.for_peer(Peer::Known(Arc::new(admin))), resources, allocator, authorizer }
    }

    /// Sends a request.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response<Body> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        self.api.clone().oneshot(request).await.expect("infallible")
    }

    /// Sends JSON. Returns the status code and the body of the response.
    pub async fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        self.send_as(method, path, "application/json", body).await
    }

    /// Sends a GET. Returns the status code and the body of the response.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, &Value::Null).await
    }

    /// Sends a PATCH of a media type. Returns the status code and the body of the response.
    pub async fn patch(&self, path: &str, media_type: &str, body: &Value) -> (u16, Value) {
        self.send_as(Method::PATCH, path, media_type, body).await
    }

    async fn send_as(&self, method: Method, path: &str, media_type: &str, body: &Value) -> (u16, Value) {
        let headers = [(header::CONTENT_TYPE.as_str(), media_type)];
        let response = self.call(method, path, &headers, body.to_string().into()).await;
        let code = response.status().as_u16();
        (code, read(response).await)
    }

    /// Serves a custom kind from now on, and no other one.
    pub fn serve(&self, kind: &CustomKind, versions: Vec<CustomVersion>) {
        let resources = kind.resources(versions).expect("structural schemas");
        self.resources.replace(coracle_resources::built_in().with_custom(resources));
    }
}

/// Reads the JSON of a response, or its text.
pub async fn read(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into())
}
