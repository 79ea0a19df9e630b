//! Shared parts of the tests of layers.

use std::sync::Arc;

use bytes::Bytes;
use coracle_apimachinery::bootstrap::{Parameters, initial_objects};
use coracle_clock::Clock;
use coracle_storage::log::EphemeralLog;
use coracle_storage::{Options, Store};
use http::Request;
use http_body_util::Full;

use super::exchange::{AuthorizedRequest, ReceivedRequest};
use crate::Error;
use crate::access::UserInfo;
use crate::access::authenticate::Authenticator;
use crate::access::authorize::{self, Authorizer};
use crate::flow_control::{FlowControlMetrics, FlowController};
use crate::registry::{self, CreateOnly, ObjectIndex, Registry};
use crate::resource_info::SharedResourceTable;
use crate::telemetry::metrics::Metrics;

/// The body of a request.
pub type TestBody = Full<Bytes>;

/// Returns a body of these bytes.
pub fn body(bytes: impl Into<Bytes>) -> TestBody {
    Full::new(bytes.into())
}

/// Returns a request without a body, as the first layer receives it.
pub fn received(method: &str, uri: &str, headers: &[(&str, &str)]) -> ReceivedRequest<TestBody> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    ReceivedRequest::new(request.body(body("")).expect("a request"))
}

/// Returns a request that is authorized for a user.
pub fn authorized(method: &str, uri: &str, user: &str) -> AuthorizedRequest<TestBody> {
    let ReceivedRequest { context, body } = received(method, uri, &[]);
    AuthorizedRequest { context, user: Arc::new(UserInfo::new(user, &[])), flow: None, body }
}

/// Returns the error of a user who may not list pods.
pub fn forbidden(user: &str) -> Error {
    let context = received("GET", "/api/v1/pods", &[]).context;
    authorize::forbidden(&UserInfo::new(user, &[]), &context.attributes(), "")
}

/// Returns an authenticator without tokens.
pub fn authenticator() -> Authenticator {
    Authenticator::new(Vec::new(), Clock::mock(jiff::Timestamp::UNIX_EPOCH).0)
}

/// Returns a registry with the objects that a new cluster has.
pub async fn registry() -> Arc<Registry> {
    let resources = SharedResourceTable::new(coracle_resources::built_in());
    let index = ObjectIndex::new(resources.clone());
    let store =
        Store::open(Box::new(EphemeralLog::new()), index, Options::default()).expect("an empty store");
    let authorizer = Arc::new(Authorizer::always_allow());
    let config = registry::Config::new(store, resources, Clock::system(), authorizer);
    let registry = Arc::new(Registry::new(config));
    let objects = initial_objects(&Parameters {
        now: "2026-01-02T03:04:05Z",
        secure_port: 6443,
        service_cidr: "10.0.0.0/24",
        kubernetes_ip: "10.0.0.1",
        is_selected: &|_| true,
    });
    registry.bootstrap(&objects, &CreateOnly).await.expect("the first objects");
    registry
}

/// Returns flow control by the FlowSchemas in a registry.
pub fn flow_controller(registry: &Arc<Registry>) -> FlowController {
    FlowController::new(registry.clone(), FlowControlMetrics::new(Metrics::new().registry()))
}
