//! Authentication: the user of a request.

use std::time::Instant;

use super::RequestFilter;
use crate::Error;
use crate::access::authenticate::{Authenticator, MISPLACED_SPACE, UNAUTHENTICATED, has_misplaced_space};
use crate::access::tls::Peer;
use crate::serve::connections::Connection;
use crate::serve::exchange::{AuthenticatedRequest, ReceivedRequest, RequestRefusal};
use crate::telemetry::metrics::{AuthenticationResult, Metrics};

/// Authenticates requests. The first authenticated request on a connection counts the connection
/// for its user; a user who has too many gets 429.
#[derive(Clone, Copy)]
pub struct Authenticate<'a> {
    pub authenticator: &'a Authenticator,
    pub peer: &'a Peer,
    /// None in process.
    pub connection: Option<&'a Connection>,
    pub metrics: &'a Metrics,
}

impl<B> RequestFilter<ReceivedRequest<B>> for Authenticate<'_> {
    type Request = AuthenticatedRequest<B>;
    type State = ();
    type Error = RequestRefusal;

    fn request(&self, request: ReceivedRequest<B>) -> Result<(AuthenticatedRequest<B>, ()), RequestRefusal> {
        let ReceivedRequest { context, body } = request;
        if has_misplaced_space(&context.parts.headers) {
            context.warnings.extend([MISPLACED_SPACE.to_owned()]);
        }
        let began = Instant::now();
        let user = self.authenticator.authenticate_request(&context.parts, self.peer);
        if let Some(remaining) = self.authenticator.remaining_validity(self.peer) {
            self.metrics.client_certificate(remaining);
        }
        let result = match &user {
            Ok(user) => AuthenticationResult::Success(&user.name),
            Err(_) if self.authenticator.has_credentials(&context.parts, self.peer) => {
                AuthenticationResult::Error
            }
            Err(_) => AuthenticationResult::Failure,
        };
        self.metrics.authentication(result, began.elapsed());
        let user = user?;
        // A request is authenticated once.
        let _ = context.user.set(user.clone());
        if let Some(connection) = self.connection
            && !connection.authenticated(&user, user.is_in(UNAUTHENTICATED))
        {
            return Err(Error::too_many_requests().into());
        }
        Ok((AuthenticatedRequest { context, user, body }, ()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Response;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::access::UserInfo;
    use crate::serve::Body;
    use crate::serve::connections::{ConnectionLimits, Connections};
    use crate::serve::layers::filter;
    use crate::serve::testing;

    #[tokio::test]
    async fn requests_have_a_user_or_are_refused() {
        let known = || Peer::Known(Arc::new(UserInfo::new("carol", &[])));
        // The second connection of a user who may have one.
        let limits = ConnectionLimits { total: 10, pending: 5, per_user: 1, reserve: 0 };
        let connections = Connections::new(limits);
        let connect = || connections.admit().expect("a place");
        let first = connect();
        assert!(first.authenticated(&UserInfo::new("carol", &[]), false));
        for (case, peer, token, connection, want) in [
            ("nobody", Peer::Unidentified, None, None, Ok("system:anonymous")),
            ("in process", known(), None, None, Ok("carol")),
            ("a bad token", Peer::Unidentified, Some("Bearer x"), None, Err(401)),
            ("on his connection", known(), None, Some(first.clone()), Ok("carol")),
            ("on one too many", known(), None, Some(connect()), Err(429)),
            ("nobody there", Peer::Unidentified, None, Some(connect()), Ok("system:anonymous")),
        ] {
            let authenticator = testing::authenticator();
            let metrics = Metrics::new();
            let authenticate = Authenticate {
                authenticator: &authenticator,
                peer: &peer,
                connection: connection.as_deref(),
                metrics: &metrics,
            };
            let stack = ServiceBuilder::new().layer(filter(authenticate)).service_fn(
                |request: AuthenticatedRequest<_>| {
                    let mut response = Response::new(Body::empty());
                    let name = request.user.name.parse().expect("a header value");
                    response.headers_mut().insert("user", name);
                    std::future::ready(Ok(response))
                },
            );
            let headers: Vec<_> = token.into_iter().map(|token| ("authorization", token)).collect();
            let response = stack.oneshot(testing::received("GET", "/api/v1/pods", &headers)).await;
            let got = match &response {
                Ok(response) => Ok(response.headers()["user"].to_str().expect("text")),
                Err(RequestRefusal::Error(error)) => Err(error.code()),
                Err(other) => panic!("{case}: {other:?}"),
            };
            assert_eq!(got, want, "{case}");
            let counted = match want {
                Err(401) => r#"authentication_attempts{result="error"} 1"#,
                // A user with too many connections is authenticated.
                _ => r#"authentication_attempts{result="success"} 1"#,
            };
            assert!(metrics.render([]).contains(counted), "{case}");
        }
    }
}
