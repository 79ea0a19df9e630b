//! An API server in memory, called over HTTP.

use std::sync::Arc;

use bytes::Bytes;
use coracle_apimachinery::clock::Clock;
use coracle_apimachinery::resource_info::{CustomKind, CustomVersion, SharedResourceTable};
use coracle_apiserver::access::authenticate::{Authenticator, MASTERS, UserInfo};
use coracle_apiserver::access::authorize::{Authorizer, Mode};
use coracle_apiserver::access::jwt::SigningKey;
use coracle_apiserver::access::tls::Peer;
use coracle_apiserver::discovery::Discovery;
use coracle_apiserver::registry::{self, ObjectIndex, Registry};
use coracle_apiserver::serve::{Api, Body, Config};
use coracle_storage::log::EphemeralLog;
use coracle_storage::{Options, Store};
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;

pub const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";
/// The media type of a configuration that is applied.
pub const APPLY: &str = "application/apply-patch+yaml";
/// The media type of a merge patch.
pub const MERGE: &str = "application/merge-patch+json";

/// An API server in memory, whose client may do everything.
pub struct Server {
    api: Api,
    /// The resources that it serves.
    pub resources: Arc<SharedResourceTable>,
}

impl Server {
    pub async fn start() -> Server {
        let resources = SharedResourceTable::new(coracle_resources::built_in());
        let index = ObjectIndex::new(resources.clone());
        let store =
            Store::open(Box::new(EphemeralLog::new()), index, Options::default()).expect("an empty store");
        let clock: Clock = Arc::new(jiff::Timestamp::now);
        let authorizer = Arc::new(Authorizer::new(Mode::Rbac));
        let registry =
            Registry::new(registry::Config::new(store, resources.clone(), clock.clone(), authorizer.clone()));
        registry.bootstrap(6443, None, &|_| true).await.expect("the first objects");
        let discovery = Discovery::new("127.0.0.1:6443", [], resources.clone());
        let signing_key = Arc::new(SigningKey::ephemeral().expect("a key"));
        let authenticator = Authenticator::new(Vec::new(), clock);
        let config = Config::new(registry, authenticator, authorizer, signing_key, discovery);
        let user = UserInfo::new("admin", &[MASTERS]).authenticated();
        let api = Api::new(config).for_peer(Peer::Known(Arc::new(user)));
        Server { api, resources }
    }

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

    pub async fn send(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let headers = [(header::CONTENT_TYPE.as_str(), "application/json")];
        let response = self.call(method, path, &headers, body.to_string().into()).await;
        let code = response.status().as_u16();
        (code, read(response).await)
    }

    /// Serves a custom kind from now on.
    pub fn serve(&self, kind: &CustomKind, versions: Vec<CustomVersion>) {
        let resources = kind.resources(versions).expect("structural schemas");
        self.resources.replace(coracle_resources::built_in().with_custom(resources));
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        self.send(Method::GET, path, &Value::Null).await
    }

    pub async fn patch(&self, path: &str, media_type: &str, body: &Value) -> (u16, Value) {
        let headers = [(header::CONTENT_TYPE.as_str(), media_type)];
        let response = self.call(Method::PATCH, path, &headers, body.to_string().into()).await;
        let code = response.status().as_u16();
        (code, read(response).await)
    }
}

/// A response's JSON, or its text.
pub async fn read(response: Response<Body>) -> Value {
    let bytes = response.into_body().collect().await.expect("a whole body").to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into())
}

pub fn message(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["message"].as_str().unwrap_or(""))
}

/// A widget in v1.
pub fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}
