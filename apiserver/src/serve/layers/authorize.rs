//! Authorization: whether a user may make a request.

use std::time::Instant;

use super::RequestFilter;
use crate::Error;
use crate::access::UserInfo;
use crate::access::authorize::{self, Authorizer};
use crate::serve::exchange::{AuthorizedRequest, ClassifiedRequest, RequestContext, RequestRefusal};
use crate::telemetry::metrics::Metrics;

/// Authorizes requests.
#[derive(Clone, Copy)]
pub struct Authorize<'a> {
    pub authorizer: &'a Authorizer,
    pub metrics: &'a Metrics,
}

impl Authorize<'_> {
    /// Authorizes a request and annotates its audit event with the decision and the reason.
    fn check_audited(&self, context: &RequestContext, user: &UserInfo) -> Result<(), Error> {
        let attributes = context.attributes();
        let decision = self.authorizer.decide(user, &attributes);
        let name = if decision.allowed { "allow" } else { "forbid" };
        context.audit.add_annotation("authorization.k8s.io/decision", name);
        context.audit.add_annotation("authorization.k8s.io/reason", decision.reason.as_str());
        match decision.allowed {
            true => Ok(()),
            false => Err(authorize::forbidden(user, &attributes, &decision.reason)),
        }
    }
}

impl<B> RequestFilter<ClassifiedRequest<B>> for Authorize<'_> {
    type Request = AuthorizedRequest<B>;
    type State = ();
    type Error = RequestRefusal;

    fn request(&self, request: ClassifiedRequest<B>) -> Result<(AuthorizedRequest<B>, ()), RequestRefusal> {
        let ClassifiedRequest { context, user, flow, body } = request;
        let began = Instant::now();
        let decided = match context.audit.is_enabled() {
            true => self.check_audited(&context, &user),
            false => self.authorizer.check(&user, &context.attributes()),
        };
        self.metrics.authorization(decided.is_ok(), began.elapsed());
        decided.map_err(RequestRefusal::Denied)?;
        Ok((AuthorizedRequest { context, user, flow, body }, ()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Response;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::access::authenticate::MASTERS;
    use crate::access::impersonate::Impersonator;
    use crate::serve::Body;
    use crate::serve::exchange::{AuthenticatedRequest, ReceivedRequest};
    use crate::serve::layers::{Impersonate, filter};
    use crate::serve::testing;
    use crate::testing::always_deny;

    #[tokio::test]
    async fn requests_are_made_for_the_impersonated_user_or_denied() {
        let authorizer = always_deny();
        let impersonator = Impersonator::default();
        let as_bob = [("impersonate-user", "bob")];
        let as_root = [("impersonate-user", "root"), ("impersonate-group", MASTERS)];
        let nobody = [("impersonate-group", "devs")];
        for (case, group, headers, want) in [
            ("a master", MASTERS, &[][..], Ok("alice")),
            ("a stranger", "devs", &[], Err(403)),
            ("as a stranger", MASTERS, &as_bob, Err(403)),
            ("as a master", MASTERS, &as_root, Ok("root")),
            ("a stranger as a master", "devs", &as_root, Err(403)),
            ("as a group of nobody", MASTERS, &nobody, Err(400)),
        ] {
            let metrics = Metrics::new();
            let impersonate = Impersonate { authorizer: &authorizer, impersonator: &impersonator };
            let stack = ServiceBuilder::new()
                .layer(filter(impersonate))
                .map_request(|AuthenticatedRequest { context, user, body }| ClassifiedRequest {
                    context,
                    user,
                    flow: None,
                    body,
                })
                .layer(filter(Authorize { authorizer: &authorizer, metrics: &metrics }))
                .service_fn(|request: AuthorizedRequest<_>| {
                    let mut response = Response::new(Body::empty());
                    let name = request.user.name.parse().expect("a header value");
                    response.headers_mut().insert("user", name);
                    std::future::ready(Ok(response))
                });
            let ReceivedRequest { context, body } = testing::received("GET", "/api/v1/secrets", headers);
            let user = Arc::new(UserInfo::new("alice", &[group]).authenticated());
            let response = stack.oneshot(AuthenticatedRequest { context, user, body }).await;
            let got = match &response {
                Ok(response) => Ok(response.headers()["user"].to_str().expect("text")),
                Err(RequestRefusal::Denied(error)) => Err(error.code()),
                Err(other) => panic!("{case}: {other:?}"),
            };
            assert_eq!(got, want, "{case}");
            let text = metrics.render([]);
            // Impersonation is refused before the request is authorized.
            let counted = match case {
                "a stranger as a master" | "as a group of nobody" => None,
                _ if want.is_ok() => Some(r#"authorization_attempts_total{result="allowed"} 1"#),
                _ => Some(r#"authorization_attempts_total{result="no-opinion"} 1"#),
            };
            let line = text.lines().find(|line| line.starts_with("authorization_attempts_total{"));
            assert_eq!(line, counted, "{case}");
        }
    }
}
