//! Record: what the server keeps of each request, written when its response begins.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method, Response, header};

use super::RequestFilter;
use crate::audit::user_agent;
use crate::request::RequestInfo;
use crate::resource_info::SharedResourceTable;
use crate::serve::deadline::Deadline;
use crate::serve::exchange::{ReceivedRequest, RequestContext};
use crate::serve::{Body, CompletedRequest, ObserveRequests};
use crate::telemetry::latency::Phase;
use crate::telemetry::metrics::{Metrics, RequestLabels};
use crate::telemetry::slow_requests::{self, SlowRequest, SlowRequests};
use crate::telemetry::tracer::{ServedRequest, ServerSpan, Tracer};

/// Counts and times requests, records the status code in their span, and logs those that are slow.
#[derive(Clone, Copy)]
pub struct RecordRequest<'a> {
    pub metrics: &'a Metrics,
    pub resources: &'a SharedResourceTable,
    pub slow_requests: &'a SlowRequests,
    pub tracer: &'a Tracer,
    pub observer: Option<&'a dyn ObserveRequests>,
    /// Whether requests come from a component of the control plane.
    pub is_own: bool,
    /// The other end of the connection, where there is one.
    pub remote: Option<IpAddr>,
}

impl<B> RequestFilter<ReceivedRequest<B>> for RecordRequest<'_> {
    type Request = ReceivedRequest<B>;
    type State = Arc<RequestContext>;
    type Error = Infallible;

    fn request(
        &self,
        request: ReceivedRequest<B>,
    ) -> Result<(ReceivedRequest<B>, Arc<RequestContext>), Infallible> {
        let context = request.context.clone();
        Ok((request, context))
    }

    fn response(&self, context: Arc<RequestContext>, response: Response<Body>) -> Response<Body> {
        let code = response.status().as_u16();
        context.span.record("code", code);
        let took = context.received_at.elapsed();
        if let Some(observer) = self.observer {
            observer.completed(&CompletedRequest::new(&context, code, took, self.is_own));
        }
        self.count(&context, code, took, response.body().size());
        if took >= slow_requests::THRESHOLD && !context.is_long_running() && !context.is_extension() {
            self.log_slow(&context, code, took);
        }
        if let Some(span) = context.server_span.get()
            && self.tracer.records(span)
        {
            self.end_span(span, &context, code, took);
        }
        tracing::debug!(parent: &context.span, ?took, "answered");
        response
    }
}

impl RecordRequest<'_> {
    /// Counts a request that reached its handler, and one that was refused or ended so that the
    /// server is not overloaded.
    fn count(&self, context: &RequestContext, code: u16, took: Duration, bytes: usize) {
        if context.is_handled()
            && let Some(labels) = labels_of_served(context)
        {
            let waited = context.latency.get(Phase::Webhooks) + context.latency.get(Phase::Queue);
            self.metrics.request(&labels, code, took, waited, bytes);
        }
        let is_rejected = code == 429 && !context.is_handled();
        if (is_rejected || has_timed_out(context, code, took))
            && let Some(labels) = labels(context, self.resources)
        {
            if is_rejected {
                self.metrics.rejected(&labels, code);
            }
            self.metrics.terminated(&labels, code);
        }
    }

    fn end_span(&self, span: &ServerSpan, context: &RequestContext, status: u16, took: Duration) {
        let RequestContext { parts, audit_id, latency, .. } = context;
        let millis = |phase| u64::try_from(latency.get(phase).as_millis()).unwrap_or(u64::MAX);
        let client = self.remote.map(|address| address.to_string()).unwrap_or_default();
        let (agent, audit_id) = (agent_of(parts), String::from_utf8_lossy(audit_id.as_bytes()));
        let request = ServedRequest {
            name: span_name(&parts.method, &context.info),
            status,
            took,
            texts: &[
                ("http.request.method", parts.method.as_str()),
                // Without the query, which may have secrets.
                ("url.path", parts.uri.path()),
                ("user_agent.original", &agent),
                ("client.address", &client),
                ("audit-id", &audit_id),
            ],
            numbers: &[
                ("coracle.body_ms", millis(Phase::Body)),
                ("coracle.queue_ms", millis(Phase::Queue)),
                ("coracle.admission_ms", millis(Phase::Admission)),
                ("coracle.webhooks_ms", millis(Phase::Webhooks)),
                ("coracle.store_ms", millis(Phase::Store)),
            ],
        };
        self.tracer.end(span, request);
    }

    fn log_slow(&self, context: &RequestContext, status: u16, took: Duration) {
        let RequestContext { parts, audit_id, user, latency, .. } = context;
        self.slow_requests.log(&SlowRequest {
            audit_id: &String::from_utf8_lossy(audit_id.as_bytes()),
            verb: context.attributes().verb,
            path: parts.uri.path(),
            user: user.get().map_or("", |user| &user.name),
            user_agent: &agent_of(parts),
            client: self.remote,
            status,
            took,
            latency,
        });
    }
}

/// Returns whether the deadline of a request has ended it.
fn has_timed_out(context: &RequestContext, code: u16, took: Duration) -> bool {
    code == 504
        && !context.is_long_running()
        && Deadline::timeout_of(&context.query).is_ok_and(|timeout| took >= timeout)
}

/// Returns the `User-Agent` of a request, cut to the length that is audited.
fn agent_of(parts: &Parts) -> String {
    let agent = parts.headers.get(header::USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    user_agent(&String::from_utf8_lossy(agent))
}

/// Returns the name of a request's span: the method, and the path with placeholders for names, to
/// limit the number of different names.
fn span_name(method: &Method, info: &RequestInfo) -> String {
    let RequestInfo::Resource(request) = info else { return method.to_string() };
    let prefix = if request.group.is_empty() { "api" } else { "apis" };
    let placeholder = |value: &str, text: &'static str| if value.is_empty() { "" } else { text };
    let parts = [
        prefix,
        &request.group,
        &request.version,
        placeholder(&request.namespace, "namespaces/{:namespace}"),
        &request.resource,
        placeholder(&request.name, "{:name}"),
        &request.subresource,
    ];
    let path: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    format!("{method} /{}", path.join("/"))
}

/// Returns the labels under which a request is counted, before it has reached a handler. None for a
/// request that is not served and therefore not counted, because its labels would be unbounded.
pub fn labels<'a>(context: &'a RequestContext, resources: &SharedResourceTable) -> Option<RequestLabels<'a>> {
    match &context.info {
        RequestInfo::Resource(request) if !resources.load().serves(request) => None,
        _ => labels_of_served(context),
    }
}

fn labels_of_served(context: &RequestContext) -> Option<RequestLabels<'_>> {
    let RequestContext { parts, query, info, .. } = context;
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let apply = content_type.is_some_and(|t| t.starts_with("application/apply-patch"));
    let dry_run = if query.first("dryRun") == Some("All") { "All" } else { "" };
    RequestLabels::of(info, &parts.method, apply, dry_run)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::serve::layers::filter;
    use crate::serve::testing;

    #[test]
    fn spans_are_named_without_names() {
        for (method, uri, want) in [
            ("GET", "/healthz", "GET"),
            ("GET", "/api/v1/pods?limit=1", "GET /api/v1/pods"),
            (
                "PUT",
                "/api/v1/namespaces/n/pods/p/status",
                "PUT /api/v1/namespaces/{:namespace}/pods/{:name}/status",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/n/deployments/d",
                "DELETE /apis/apps/v1/namespaces/{:namespace}/deployments/{:name}",
            ),
        ] {
            let context = testing::received(method, uri, &[]).context;
            assert_eq!(span_name(&context.parts.method, &context.info), want, "{uri}");
        }
    }

    #[tokio::test]
    async fn requests_that_reach_a_handler_or_are_too_many_are_counted() {
        let patch = [("content-type", "application/apply-patch+yaml")];
        for (method, uri, headers, is_handled, code, want) in [
            ("GET", "/api/v1/pods", &[][..], true, 418, Some(r#"verb="LIST",version="v1""#)),
            ("PATCH", "/api/v1/namespaces/n/pods/p?dryRun=All", &patch, true, 418, Some(r#"dry_run="All""#)),
            ("PATCH", "/api/v1/namespaces/n/pods/p", &patch, true, 200, Some(r#"verb="APPLY""#)),
            ("GET", "/healthz", &[], true, 418, Some(r#"subresource="/healthz""#)),
            ("GET", "/api/v1/pods", &[], false, 403, None),
            ("GET", "/api/v1/pods", &[], false, 429, Some(r#"resource="pods""#)),
            ("GET", "/api/v1/unknown", &[], false, 404, None),
            ("GET", "/api/v1/unknown", &[], false, 429, None),
            ("GET", "/unknown", &[], true, 404, None),
        ] {
            let (metrics, resources) =
                (Metrics::new(), SharedResourceTable::new(coracle_resources::built_in()));
            let (slow_requests, tracer) = (SlowRequests::default(), Tracer::default());
            let record = RecordRequest {
                metrics: &metrics,
                resources: &resources,
                slow_requests: &slow_requests,
                tracer: &tracer,
                observer: None,
                is_own: false,
                remote: None,
            };
            let stack =
                ServiceBuilder::new().layer(filter(record)).service_fn(|request: ReceivedRequest<_>| {
                    if is_handled {
                        request.context.set_handled();
                    }
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                    std::future::ready(Ok(response))
                });
            let Ok(_) = stack.oneshot(testing::received(method, uri, headers)).await;
            let text = metrics.render([]);
            let counted = text.lines().find(|line| line.starts_with("apiserver_request_total{"));
            match (counted, want) {
                (Some(line), Some(want)) => {
                    let code = format!(r#"code="{code}""#);
                    assert!(line.contains(want) && line.contains(&code), "{method} {uri}: {line}");
                }
                (counted, want) => assert_eq!(counted, want, "{method} {uri}"),
            }
            let is_terminated = text.contains("apiserver_request_terminations_total{");
            assert_eq!(is_terminated, code == 429 && want.is_some(), "{method} {uri}");
        }
    }
}
