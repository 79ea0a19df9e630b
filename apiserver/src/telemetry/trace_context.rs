//! Trace context: which span of which trace a request is, as the headers `traceparent` and
//! `tracestate` have it.
//!
//! Calls that are made for a request continue its trace: [`scope`] runs the work for it, and
//! [`inject`] adds the headers to what that sends.
//!
//! Source: W3C Trace Context, level 1.

use std::future::Future;

use http::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// A longer `tracestate` is not passed on. The recommendation has vendors pass on 512 characters at
/// least.
const MAX_STATE: usize = 512;
/// The flag of traces that are recorded.
const SAMPLED: u8 = 1;

tokio::task_local! {
    /// The span of the request that is executed.
    static CURRENT: Option<SpanContext>;
}

/// A span, as other processes know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace; not all zero.
    pub trace_id: [u8; 16],
    /// The span in it; not all zero.
    pub span_id: [u8; 8],
    /// Whether the trace is recorded.
    pub is_sampled: bool,
    /// `tracestate`, which is passed on unread.
    pub state: Option<HeaderValue>,
}

impl SpanContext {
    /// Returns the client's span; None if the headers have none, or a malformed one.
    pub fn of(headers: &HeaderMap) -> Option<SpanContext> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return None };
        let mut fields = value.to_str().ok()?.split('-');
        let (version, trace_id, span_id, flags) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let [version] = hex::<1>(version)?;
        // Later versions may have more fields.
        if version == 0xff || (version == 0 && fields.next().is_some()) {
            return None;
        }
        let (trace_id, span_id, [flags]) = (hex(trace_id)?, hex(span_id)?, hex(flags)?);
        if trace_id == [0; 16] || span_id == [0; 8] {
            return None;
        }
        let state = headers.get(TRACESTATE).filter(|state| state.len() <= MAX_STATE).cloned();
        Some(SpanContext { trace_id, span_id, is_sampled: flags & SAMPLED != 0, state })
    }

    /// Formats the header `traceparent` of this span.
    pub fn traceparent(&self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        format!("00-{}-{}-{:02x}", hex(&self.trace_id), hex(&self.span_id), u8::from(self.is_sampled))
    }
}

/// Decodes bytes from hexadecimal digits, which are lower case in these headers.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Runs the work for a request, whose calls of others [`inject`] makes part of the trace.
pub fn scope<F: Future>(context: Option<SpanContext>, work: F) -> impl Future<Output = F::Output> + use<F> {
    CURRENT.scope(context, work)
}

/// Adds the headers of the current request's span; none outside of requests, and without a trace.
pub fn inject(headers: &mut HeaderMap) {
    let inject = |context: &Option<SpanContext>| {
        let Some(context) = context else { return };
        if let Ok(value) = HeaderValue::from_str(&context.traceparent()) {
            headers.insert(TRACEPARENT, value);
            headers.extend(context.state.clone().map(|state| (TRACESTATE, state)));
        }
    };
    // Outside of requests there is nothing to add.
    let _ = CURRENT.try_with(inject);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parse(values: &[&str]) -> Option<SpanContext> {
        let value = |text: &&str| (TRACEPARENT, HeaderValue::from_str(text).expect("a header"));
        let mut headers = HeaderMap::new();
        values.iter().map(value).for_each(|(name, value)| _ = headers.append(name, value));
        SpanContext::of(&headers)
    }

    #[test]
    fn a_header_is_read_as_it_is_written() {
        let context = parse(&[PARENT]).expect("a span");
        assert!(context.is_sampled);
        assert_eq!(context.traceparent(), PARENT);
        let unsampled = PARENT.replace("-01", "-00");
        assert_eq!(parse(&[&unsampled]).map(|context| context.traceparent()), Some(unsampled));
    }

    #[test]
    fn malformed_headers_are_ignored() {
        for (values, is_valid) in [
            (&[][..], false),
            (&[PARENT, PARENT], false),
            (&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"], false),
            (&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"], false),
            (&["cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"], true),
            (&["ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"], false),
            (&["00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"], false),
            (&["00-00000000000000000000000000000000-b7ad6b7169203331-01"], false),
            (&["00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"], false),
            (&["00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01"], false),
            (&[""], false),
        ] {
            assert_eq!(parse(values).is_some(), is_valid, "{values:?}");
        }
    }

    #[tokio::test]
    async fn calls_for_a_request_have_its_span() {
        let mut context = parse(&[PARENT]).expect("a span");
        context.state = Some(HeaderValue::from_static("a=b"));
        let injected = async {
            let mut headers = HeaderMap::new();
            inject(&mut headers);
            headers
        };
        let headers = scope(Some(context), injected).await;
        assert_eq!(
            (&headers[TRACEPARENT], &headers[TRACESTATE]),
            (&PARENT.parse().unwrap(), &"a=b".parse().unwrap())
        );
        let mut none = HeaderMap::new();
        inject(&mut none);
        assert!(none.is_empty());
    }
}
