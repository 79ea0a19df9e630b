//! Admission of large requests: they wait for a permit before they take a seat, so that they do not
//! occupy the seats of small ones.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, Either};
use http::{HeaderMap, Response};
use tower::{Service, ServiceExt};

use crate::flow_control::{QueueLimits, QueueSet};
use crate::registry::Registry;
use crate::request::Verb;
use crate::request::info::ResourceRequest;
use crate::request::negotiate::Format;
use crate::serve::Body;
use crate::serve::exchange::{BufferedRequest, MeasuredRequest, RequestRefusal};
use crate::telemetry::latency::Phase;

/// The size of bodies and objects, in bytes, from which they are processed in the background, one
/// at a time: decoded, a hostile body can be hundreds of times its size.
const LARGE: usize = 64 << 10;
/// The factor for the size of bodies that can grow when they are decoded: by copies in a JSON
/// patch, or aliases in YAML.
const GROWTH_FACTOR: usize = 16;
/// The number of bytes that an object or a list in a body counts in addition to its size: `{}` may
/// get many defaults, and as many errors.
const NODE_WEIGHT: usize = 16;
/// The factor for the size of protobuf bodies: their nodes cannot be counted without decoding, and
/// have fewer bytes.
const PROTOBUF_FACTOR: usize = 4;
/// The groups of objects that are costly at any size, since expressions and patterns are compiled.
/// Extensions add others.
const COMPILED: [&str; 2] = ["admissionregistration.k8s.io", "apiextensions.k8s.io"];
/// The number of large requests in progress, and of those that may wait: of one flow, and of all.
/// Only one of them is processed at a time; the others wait for the store or for admission
/// webhooks.
pub const LARGE_LIMITS: QueueLimits = QueueLimits { seats: 4, waiting_per_flow: 300, waiting: 4000 };

/// Finds the large requests and delays them until they have a permit, which they keep until the
/// response.
#[derive(Clone)]
pub struct LargeRequestPermit<'a, S> {
    registry: &'a Registry,
    groups: &'static [&'static str],
    permits: &'a Arc<QueueSet>,
    inner: S,
}

impl<'a, S> LargeRequestPermit<'a, S> {
    /// Creates the layer.
    ///
    /// - `registry`: the registry of the objects that requests change.
    /// - `groups`: the API groups of objects that are costly at any size.
    /// - `permits`: the queue of permits, by user.
    pub fn new(
        registry: &'a Registry,
        groups: &'static [&'static str],
        permits: &'a Arc<QueueSet>,
        inner: S,
    ) -> LargeRequestPermit<'a, S> {
        LargeRequestPermit { registry, groups, permits, inner }
    }
}

impl<'a, S> Service<BufferedRequest> for LargeRequestPermit<'a, S>
where
    S: Service<MeasuredRequest, Response = Response<Body>, Error = RequestRefusal, Future: Send>
        + Clone
        + Send
        + 'a,
{
    type Response = Response<Body>;
    type Error = RequestRefusal;
    type Future = Either<BoxFuture<'a, Result<Response<Body>, RequestRefusal>>, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RequestRefusal>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: BufferedRequest) -> Self::Future {
        let BufferedRequest { context, user, flow, deadline, body } = request;
        let is_large = match (context.resource(), &body) {
            (Some(request), Some(body)) => {
                let body = body.as_ref().map_or(&[][..], |body| &body[..]);
                let changed = || if request.named { self.registry.size_of(request) } else { 0 };
                is_large(request, self.groups, &context.parts.headers, body, changed)
            }
            _ => false,
        };
        let request = MeasuredRequest { context, user, flow, deadline, body, is_large };
        if !is_large {
            return Either::Right(self.inner.call(request));
        }
        let (permits, inner) = (self.permits, self.inner.clone());
        Either::Left(Box::pin(async move {
            let _permit = {
                let _timer = request.context.latency.measure(Phase::Queue);
                permits.acquire(&request.user.name, request.deadline.of_queue()).await?
            };
            inner.oneshot(request).await
        }))
    }
}

/// Returns whether a request with a body takes long: by its group, its body, and the size of the
/// object that it changes.
fn is_large(
    request: &ResourceRequest,
    groups: &[&str],
    headers: &HeaderMap,
    body: &[u8],
    changed: impl FnOnce() -> usize,
) -> bool {
    let group = request.group.as_str();
    if COMPILED.contains(&group) || groups.contains(&group) {
        return true;
    }
    // The format that the body is decoded as later; a body in any other format is not decoded.
    let size = match Format::of_body(headers) {
        _ if request.verb == Verb::Patch => body.len() * GROWTH_FACTOR,
        Ok(Format::Yaml) => body.len() * GROWTH_FACTOR,
        Ok(Format::Protobuf) => body.len() * PROTOBUF_FACTOR,
        Ok(Format::Json) | Err(_) => body.len() + nodes(body) * NODE_WEIGHT,
    };
    size + changed() >= LARGE
}

/// Returns the number of objects and lists in a body; 0 if the body is too small for that to make
/// it large.
fn nodes(body: &[u8]) -> usize {
    match body.len() * (1 + NODE_WEIGHT) >= LARGE {
        true => body.iter().filter(|byte| matches!(byte, b'{' | b'[')).count(),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tower::service_fn;

    use super::*;
    use crate::access::UserInfo;
    use crate::serve::deadline::Deadline;
    use crate::serve::testing;

    /// The groups of extensions.
    const GROUPS: [&str; 1] = ["rbac.authorization.k8s.io"];

    #[test]
    fn size_and_growth_make_a_request_large() {
        let json = "application/json";
        let pod = "/api/v1/namespaces/n/pods/p";
        for (case, method, uri, content_type, body_size, changed, want) in [
            ("small", "PUT", pod, json, LARGE - 1, 0, false),
            ("a large body", "PUT", pod, json, LARGE, 0, true),
            ("a large object", "DELETE", pod, json, 0, LARGE, true),
            ("together", "PUT", pod, json, LARGE / 2, LARGE / 2, true),
            ("a small patch", "PATCH", pod, json, LARGE / GROWTH_FACTOR - 1, 0, false),
            ("a patch", "PATCH", pod, json, LARGE / GROWTH_FACTOR, 0, true),
            ("YAML", "PUT", pod, "application/yaml", LARGE / GROWTH_FACTOR, 0, true),
            (
                "YAML with parameters",
                "PUT",
                pod,
                "application/YAML; charset=utf-8",
                LARGE / GROWTH_FACTOR,
                0,
                true,
            ),
            ("protobuf", "PUT", pod, "application/vnd.kubernetes.protobuf", LARGE / PROTOBUF_FACTOR, 0, true),
            (
                "small protobuf",
                "PUT",
                pod,
                "application/vnd.kubernetes.protobuf",
                LARGE / PROTOBUF_FACTOR - 1,
                0,
                false,
            ),
            ("rules", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", json, 0, 0, true),
            (
                "expressions",
                "POST",
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
                json,
                0,
                0,
                true,
            ),
            ("schemas", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json, 0, 0, true),
        ] {
            let context = testing::received(method, uri, &[("content-type", content_type)]).context;
            let request = context.resource().expect("a resource");
            let body = vec![b' '; body_size];
            let got = is_large(request, &GROUPS, &context.parts.headers, &body, || changed);
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn many_objects_make_a_request_large() {
        let most = LARGE.div_ceil(3 + NODE_WEIGHT);
        for (objects, want) in [(most - 1, false), (most, true), (14_000, true)] {
            let context = testing::received("POST", "/api/v1/namespaces/n/pods", &[]).context;
            let request = context.resource().expect("a resource");
            let body = "{},".repeat(objects);
            assert_eq!(
                is_large(request, &GROUPS, &context.parts.headers, body.as_bytes(), || 0),
                want,
                "{objects}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_request_waits_for_a_permit() {
        let registry = testing::registry().await;
        let permits = QueueSet::with(QueueLimits { seats: 2, waiting_per_flow: 1, waiting: 1 });
        let inner = service_fn(|request: MeasuredRequest| {
            let code = if request.is_large { 202 } else { 200 };
            let mut response = Response::new(Body::empty());
            *response.status_mut() = http::StatusCode::from_u16(code).expect("a status");
            std::future::ready(Ok(response))
        });
        let send = async |size: usize| {
            let context = testing::received("POST", "/api/v1/namespaces/n/pods", &[]).context;
            let user = Arc::new(UserInfo::new("alice", &[]));
            let body = Some(Ok(Bytes::from(vec![b' '; size])));
            let request = BufferedRequest { context, user, flow: None, deadline: Deadline::default(), body };
            let response =
                LargeRequestPermit::new(&registry, &GROUPS, &permits, inner).oneshot(request).await;
            response.map(|response| response.status().as_u16()).map_err(|_| "rejected")
        };
        assert_eq!(send(LARGE).await, Ok(202));
        let now = tokio::time::Instant::now();
        let _permit = permits.acquire("alice", now).await.expect("the only permit of a user");
        assert_eq!(send(LARGE).await, Err("rejected"), "no permit in time");
        assert_eq!(now.elapsed(), Deadline::default().of_queue() - tokio::time::Instant::now());
        assert_eq!(send(LARGE - 1).await, Ok(200), "small ones need none");
    }
}
