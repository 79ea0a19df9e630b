//! Clients in the process of the server.

use std::sync::Arc;

use coracle_apiserver::access::authenticate::{MASTERS, UserInfo};
use coracle_apiserver::access::tls::Peer;
use coracle_apiserver::serve::Api;
use http::header::{HeaderValue, USER_AGENT};

/// A client of the API in this process, without a socket, for a user in `system:masters`.
pub fn client(api: &Api, user: &str, agent: &'static str) -> kube::Client {
    let user = UserInfo::new(user, &[MASTERS]).authenticated();
    let api = api.for_peer(Peer::Known(Arc::new(user)));
    let api = tower::util::MapRequest::new(api, move |mut request: http::Request<kube::client::Body>| {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(agent));
        request
    });
    kube::Client::new(api, "default")
}
