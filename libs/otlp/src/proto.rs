//! The subset of OTLP's messages that is needed, with the field numbers of `opentelemetry.proto`,
//! version 1.

use prost::{Message, Oneof};

/// The request of `TraceService/Export`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceRequest {
    /// Spans, by resource.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// The response of `TraceService/Export`.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceResponse {
    /// The rejected spans; None if all were accepted.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<ExportTracePartialSuccess>,
}

/// The spans that a collector rejected.
#[derive(Clone, PartialEq, Message)]
pub struct ExportTracePartialSuccess {
    /// The number of rejected spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// The reason.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// The spans of a service.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    /// The service.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// The spans of the resource, by instrumentation library.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// A service.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// Such as `service.name`.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The spans of a library.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    /// The library.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The spans of the library.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// A library that makes spans.
#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    /// The name of the library.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The version of the library.
    #[prost(string, tag = "2")]
    pub version: String,
}

/// The kind of a span that serves a request.
pub const SPAN_KIND_SERVER: i32 = 2;

/// The code of a status that is an error.
pub const STATUS_CODE_ERROR: i32 = 2;

/// A span.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// The header `tracestate`.
    #[prost(string, tag = "3")]
    pub trace_state: String,
    /// 8 bytes; empty for the root of a trace.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// The name of the operation.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Such as [`SPAN_KIND_SERVER`].
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// The start of the operation, in nanoseconds of Unix time.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// The end of the operation, in nanoseconds of Unix time.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// The attributes of the span.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// Spans of other traces that it has to do with.
    #[prost(message, repeated, tag = "13")]
    pub links: Vec<Link>,
    /// The result of the span: whether it failed.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

/// A span of another trace.
#[derive(Clone, PartialEq, Message)]
pub struct Link {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
}

/// The result of a span: whether it failed.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// The error message.
    #[prost(string, tag = "2")]
    pub message: String,
    /// 0 for an unset status, or [`STATUS_CODE_ERROR`].
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// The name of the attribute.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value of the attribute.
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    /// The value itself.
    #[prost(oneof = "Value", tags = "1, 3")]
    pub value: Option<Value>,
}

/// The values of attributes that are used here.
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    /// A text.
    #[prost(string, tag = "1")]
    String(String),
    /// A number.
    #[prost(int64, tag = "3")]
    Int(i64),
}

impl KeyValue {
    /// Returns an attribute with a string value.
    pub fn string(key: &str, value: impl Into<String>) -> KeyValue {
        KeyValue::new(key, Value::String(value.into()))
    }

    /// Returns an attribute with an integer value.
    pub fn int(key: &str, value: impl Into<i64>) -> KeyValue {
        KeyValue::new(key, Value::Int(value.into()))
    }

    fn new(key: &str, value: Value) -> KeyValue {
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
    }
}
