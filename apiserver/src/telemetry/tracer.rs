//! Tracing: a span for each sampled request, sent to an OpenTelemetry collector.
//!
//! Sampling is as in kube-apiserver: the trace of a client in `system:masters` or
//! `system:monitoring` is recorded if the client records it, any other with the configured
//! probability. Requests of other clients begin a new trace, with a link to theirs, so that they
//! cannot make the server record more than configured.
//!
//! Source: `k8s.io/component-base/tracing`, `k8s.io/apiserver/pkg/endpoints/filters/traces.go`,
//! KEP-647.

use std::path::Path;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_otlp::proto::{KeyValue, Link, SPAN_KIND_SERVER, STATUS_CODE_ERROR, Span, Status};
use coracle_otlp::{EndpointError, Exporter, Service};
use prometheus::{IntCounter, Registry};
use serde::Deserialize;

use super::trace_context::SpanContext;
use crate::codec::yaml;

/// The collector if none is configured.
const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// A sampling rate of all requests.
const MILLION: i64 = 1_000_000;
/// Longer values of attributes are cut.
const MAX_ATTRIBUTE: usize = 1024;

/// The reasons for which requests cannot be traced: one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum TracingError {
    /// The file cannot be read.
    #[error("failed to read tracing config: unable to read tracing configuration from {path:?}: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The file is no TracingConfiguration.
    #[error("failed to read tracing config: unable to decode tracing configuration data: {0}")]
    Malformed(String),
    /// A field has no valid value.
    #[error("failed to validate tracing configuration: {0}")]
    Invalid(String),
    /// The collector has no address.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
}

/// `TracingConfiguration` of `apiserver.config.k8s.io`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TracingConfiguration {
    api_version: String,
    kind: String,
    endpoint: Option<String>,
    sampling_rate_per_million: Option<i64>,
}

impl TracingConfiguration {
    /// Reads a file of YAML or JSON.
    ///
    /// # Errors
    /// See [`TracingError`].
    pub fn read(file: &Path) -> Result<TracingConfiguration, TracingError> {
        let path = file.display().to_string();
        let data = std::fs::read(file).map_err(|cause| TracingError::Unreadable { path, cause })?;
        TracingConfiguration::parse(&data)
    }

    fn parse(data: &[u8]) -> Result<TracingConfiguration, TracingError> {
        const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
        let malformed = |error: &dyn std::fmt::Display| TracingError::Malformed(error.to_string());
        let document = yaml::to_json(data).map_err(|error| malformed(&error))?;
        // The error about another type would repeat the text, which may be a secret of another
        // file.
        if !document.json.starts_with(b"{") {
            return Err(malformed(&"it is no map"));
        }
        let mut configuration: TracingConfiguration =
            serde_json::from_slice(&document.json).map_err(|error| malformed(&error))?;
        let TracingConfiguration { api_version, kind, endpoint, sampling_rate_per_million: rate } =
            &mut configuration;
        let version = api_version.strip_prefix("apiserver.config.k8s.io/");
        if kind != "TracingConfiguration" || version.is_none_or(|version| !VERSIONS.contains(&version)) {
            return Err(TracingError::Malformed(format!("no kind {kind:?} in version {api_version:?}")));
        }
        let invalid = |field: &str, value: &dyn std::fmt::Display, why: &str| {
            Err(TracingError::Invalid(format!("{field}: Invalid value: {value}: {why}")))
        };
        match rate {
            Some(rate) if *rate < 0 => {
                return invalid("samplingRatePerMillion", rate, "sampling rate must be positive");
            }
            Some(rate) if *rate > MILLION => {
                let why = "sampling rate per million must be less than or equal to one million";
                return invalid("samplingRatePerMillion", rate, why);
            }
            _ => {}
        }
        if let Some(given) = endpoint {
            // Accepts gRPC's names: `dns:///HOST:PORT`.
            let address = match given.split_once("//") {
                None => given.as_str(),
                Some(("dns:", rest)) => rest.rsplit('/').next().unwrap_or_default(),
                Some((scheme, _)) => {
                    let scheme = scheme.trim_end_matches(':');
                    let why = format!("unsupported scheme: {scheme}.  Options are none and dns");
                    return invalid("endpoint", &format_args!("{given:?}"), &why);
                }
            };
            *given = address.to_owned();
        }
        Ok(configuration)
    }
}

/// Decides which requests are traced, and exports their spans. The default one exports none, and
/// only passes on the traces of clients.
#[derive(Default)]
pub struct Tracer {
    recorder: Option<Recorder>,
}

struct Recorder {
    exporter: Exporter,
    /// The number of traces that are recorded out of a million new ones.
    sampling_rate: u64,
    clock: Clock,
}

/// The span of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpan {
    /// The context that is passed to servers called for the request.
    pub context: SpanContext,
    /// The span of the client; None for the root of a trace.
    parent: Option<[u8; 8]>,
    /// The span of a client that is not trusted.
    link: Option<SpanContext>,
}

/// The properties of a served request.
pub struct ServedRequest<'a> {
    /// The method and the path with placeholders.
    pub name: String,
    /// The status code.
    pub status: u16,
    /// The time until the response began.
    pub took: Duration,
    /// The names and values of texts.
    pub texts: &'a [(&'static str, &'a str)],
    /// The names and values of numbers.
    pub numbers: &'a [(&'static str, u64)],
}

impl Tracer {
    /// Creates a tracer with a collector. It runs on the current tokio runtime.
    ///
    /// - `instance`: the ID of this server; unique among all that send to the same collector.
    /// - `registry`: exposes the number of dropped spans.
    ///
    /// # Errors
    /// The endpoint is not a valid address.
    pub fn new(
        configuration: &TracingConfiguration,
        instance: String,
        registry: &Registry,
        clock: Clock,
    ) -> Result<Tracer, TracingError> {
        let dropped = IntCounter::new(
            "coracle_tracing_dropped_spans_total",
            "Spans that were dropped because the collector does not take them in time.",
        );
        let register = |counter: IntCounter| registry.register(Box::new(counter.clone())).map(|()| counter);
        // The name is valid, and registered once.
        let dropped = dropped.and_then(register).ok();
        let count = move |spans| {
            if let Some(counter) = &dropped {
                counter.inc_by(spans);
            }
        };
        let endpoint = configuration.endpoint.as_deref().unwrap_or(DEFAULT_ENDPOINT);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let service = Service { name: "apiserver".to_owned(), instance, version };
        let exporter = Exporter::new(endpoint, &service, Box::new(count))?;
        let sampling_rate = configuration.sampling_rate_per_million.unwrap_or(0).unsigned_abs();
        Ok(Tracer { recorder: Some(Recorder { exporter, sampling_rate, clock }) })
    }

    /// Begins the span of a request; None if it has no trace.
    ///
    /// - `parent`: the span of the client.
    /// - `is_trusted`: whether the client may decide about sampling.
    pub fn begin(&self, parent: Option<SpanContext>, is_trusted: bool) -> Option<ServerSpan> {
        match &self.recorder {
            Some(recorder) => Some(begin(recorder.sampling_rate, parent, is_trusted)),
            None => parent.map(|context| ServerSpan { context, parent: None, link: None }),
        }
    }

    /// Returns whether a span is recorded, so that it must be ended.
    pub fn records(&self, span: &ServerSpan) -> bool {
        self.recorder.is_some() && span.context.is_sampled
    }

    /// Ends the span of a request, and exports it.
    pub fn end(&self, span: &ServerSpan, request: ServedRequest<'_>) {
        let Some(Recorder { exporter, clock, .. }) = &self.recorder else { return };
        let nanos = |time: i128| u64::try_from(time).unwrap_or(0);
        let now = clock.now().as_nanosecond();
        let took = i128::try_from(request.took.as_nanos()).unwrap_or(0);
        let ServerSpan { context, parent, link } = span;
        let texts = request.texts.iter().map(|(name, text)| KeyValue::string(name, cut(text)));
        let numbers = request
            .numbers
            .iter()
            .map(|(name, number)| KeyValue::int(name, i64::try_from(*number).unwrap_or(i64::MAX)));
        let status = KeyValue::int("http.response.status_code", request.status);
        exporter.export(Span {
            trace_id: context.trace_id.to_vec(),
            span_id: context.span_id.to_vec(),
            trace_state: context
                .state
                .as_ref()
                .and_then(|state| state.to_str().ok())
                .unwrap_or("")
                .to_owned(),
            parent_span_id: parent.map(Vec::from).unwrap_or_default(),
            name: request.name,
            kind: SPAN_KIND_SERVER,
            start_time_unix_nano: nanos(now - took),
            end_time_unix_nano: nanos(now),
            attributes: texts.chain(numbers).chain([status]).collect(),
            links: link
                .iter()
                .map(|link| Link { trace_id: link.trace_id.to_vec(), span_id: link.span_id.to_vec() })
                .collect(),
            status: (request.status >= 500)
                .then(|| Status { message: String::new(), code: STATUS_CODE_ERROR }),
        });
    }

    /// Waits a moment until the spans so far are sent.
    pub async fn flush(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.exporter.flush().await;
        }
    }
}

fn begin(sampling_rate: u64, parent: Option<SpanContext>, is_trusted: bool) -> ServerSpan {
    let [trace_id, span_id] = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()].map(uuid::Uuid::into_bytes);
    // The last eight bytes are random except for two bits, and not zero.
    let [.., a, b, c, d, e, f, g, h] = span_id;
    let span_id = [a, b, c, d, e, f, g, h];
    match parent {
        Some(parent) if is_trusted => ServerSpan {
            parent: Some(parent.span_id),
            context: SpanContext { span_id, ..parent },
            link: None,
        },
        link => {
            let context = SpanContext {
                trace_id,
                span_id,
                is_sampled: is_sampled(trace_id, sampling_rate),
                state: None,
            };
            ServerSpan { context, parent: None, link }
        }
    }
}

/// Returns whether a new trace is recorded. The decision is derived from the trace ID, so that all
/// servers with the same rate agree. It uses the low bits of the first half, because in a UUID the
/// second half begins with the variant.
fn is_sampled(trace_id: [u8; 16], rate: u64) -> bool {
    let [a, b, c, d, e, f, ..] = trace_id;
    let random = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    u128::from(random) * u128::from(MILLION.unsigned_abs()) < u128::from(rate) << 48
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_ATTRIBUTE);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(is_sampled: bool) -> SpanContext {
        SpanContext { trace_id: [1; 16], span_id: [2; 8], is_sampled, state: None }
    }

    #[test]
    fn configurations_are_checked_as_upstream() {
        let parse = |text: &str| {
            let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n";
            TracingConfiguration::parse(format!("{head}{text}").as_bytes())
        };
        let valid =
            parse("endpoint: dns:///collector:4317\nsamplingRatePerMillion: 1000000\n").expect("valid");
        assert_eq!(valid.endpoint.as_deref(), Some("collector:4317"));
        assert_eq!(valid.sampling_rate_per_million, Some(1_000_000));
        assert_eq!(parse("").expect("valid").endpoint, None);
        for (text, want) in [
            (
                "samplingRatePerMillion: -1",
                "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
            ),
            ("samplingRatePerMillion: 1000001", "must be less than or equal to one million"),
            ("endpoint: https://collector:4317", "unsupported scheme: https"),
            ("endPoint: x", "unknown field `endPoint`"),
            ("samplingRatePerMillion: x", "invalid type"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(want) && !error.contains('\n'), "{text}: {error}");
        }
        let other = TracingConfiguration::parse(b"apiVersion: v1\nkind: TracingConfiguration\n");
        assert!(other.is_err_and(|error| error.to_string().contains("no kind \"TracingConfiguration\"")));
    }

    #[test]
    fn clients_decide_what_is_recorded_if_they_are_trusted() {
        const ALL: u64 = 1_000_000;
        for (case, rate, given, is_trusted, want) in [
            ("a new trace", ALL, None, true, true),
            ("none is recorded", 0, None, true, false),
            ("the client's", 0, Some(true), true, true),
            ("not the client's", ALL, Some(false), true, false),
            ("a stranger's", 0, Some(true), false, false),
            ("a stranger's, by chance", ALL, Some(false), false, true),
        ] {
            let span = begin(rate, given.map(parent), is_trusted);
            assert_eq!(span.context.is_sampled, want, "{case}");
            let is_child = is_trusted && given.is_some();
            assert_eq!(span.parent, is_child.then_some([2; 8]), "{case}");
            assert_eq!(span.context.trace_id == [1; 16], is_child, "{case}");
            assert_eq!(span.link.is_some(), given.is_some() && !is_trusted, "{case}");
            assert_ne!(span.context.span_id, [2; 8], "{case}");
        }
    }

    #[test]
    fn traces_are_sampled_by_their_rate() {
        let sampled = (0..10_000).filter(|_| begin(250_000, None, false).context.is_sampled).count();
        // Ten standard deviations around the mean.
        assert!((2067..=2933).contains(&sampled), "{sampled}");
    }

    #[test]
    fn without_a_collector_traces_of_clients_are_passed_on() {
        let tracer = Tracer::default();
        let span = tracer.begin(Some(parent(true)), false).expect("a trace");
        assert_eq!(span.context, parent(true));
        assert!(!tracer.records(&span) && tracer.begin(None, true).is_none());
    }

    #[test]
    fn long_attributes_are_cut() {
        assert_eq!(cut(&"ä".repeat(MAX_ATTRIBUTE)).len(), MAX_ATTRIBUTE);
        assert_eq!(cut("short"), "short");
    }
}
