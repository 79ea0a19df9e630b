//! Clients in the process of the server.

use std::sync::Arc;

use coracle_apiserver::access::authenticate::{MASTERS, UserInfo};
use coracle_apiserver::access::tls::Peer;
use coracle_apiserver::serve::Api;
use http::header::{HeaderValue, USER_AGENT};

/// A client of the API in this process, without a socket, for a user in `system:masters`.
///
/// - `agent`: the user agent
pub fn client(api: &Api, user: &str, agent: &str) -> kube::Client {
    // The name of a controller or a program.
    let agent = HeaderValue::from_str(agent).unwrap_or_else(|_| HeaderValue::from_static("coracle"));
    let user = UserInfo::new(user, &[MASTERS]).authenticated();
    let api = api.for_peer(Peer::Known(Arc::new(user)));
    let api = tower::util::MapRequest::new(api, move |mut request: http::Request<kube::client::Body>| {
        request.headers_mut().insert(USER_AGENT, agent.clone());
        request
    });
    kube::Client::new(api, "default")
}
