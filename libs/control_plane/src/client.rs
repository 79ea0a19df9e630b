//! Clients in the process of the server.

use std::sync::Arc;

use coracle_apiserver::access::authenticate::{MASTERS, UserInfo};
use coracle_apiserver::access::tls::Peer;
use coracle_apiserver::serve::Api;
use http::header::{HeaderValue, USER_AGENT};
use tower::ServiceExt;

/// Creates a client of the API in this process, without a socket, as a user in `system:masters`.
///
/// - `agent`: returns the user agent of a request, in the task that sends it
pub fn client(
    api: &Api,
    user: &str,
    agent: impl Fn() -> HeaderValue + Clone + Send + 'static,
) -> kube::Client {
    let user = UserInfo::new(user, &[MASTERS]).authenticated();
    let api = api.for_peer(Peer::Known(Arc::new(user)));
    // The client calls the service in a task of its own, and leaves the rest to the task that makes
    // the request.
    let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
        let (api, agent) = (api.clone(), agent.clone());
        async move {
            request.headers_mut().insert(USER_AGENT, agent());
            api.oneshot(request).await
        }
    });
    kube::Client::new(service, "default")
}
