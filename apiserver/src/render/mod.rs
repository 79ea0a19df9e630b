//! stub
use serde_json::{Value, json};
pub fn partial_metadata(o: &Value, v: &str) -> Value {
    json!({"kind":"PartialObjectMetadata","apiVersion":v,"metadata":o["metadata"]})
}
pub mod table {
    use serde_json::{Value, json};
    #[derive(Clone, Copy)]
    pub enum IncludeObject {
        None,
        Metadata,
        Object,
    }
    pub struct Request<'a> {
        pub group: &'a str,
        pub kind: &'a str,
        pub api_version: &'a str,
        pub objects: &'a [Value],
        pub metadata: &'a Value,
        pub include: IncludeObject,
        pub columns: bool,
        pub now: jiff::Timestamp,
    }
    pub fn table(r: &Request) -> Value {
        json!({"kind":"Table","apiVersion":r.api_version,"metadata":r.metadata,"columnDefinitions":[],"rows":[]})
    }
}
