//! Responses of other servers: whatever is decoded is within the limits of responses.

use coracle_apimachinery::codec::json;
use coracle_apimachinery::codec::limits::{Limits, measure};
use coracle_apimachinery::schema::schema;

/// Tests a review of a webhook, or a document of an aggregated server, decoded as each such type.
pub fn server_response(data: &[u8]) -> bool {
    let limits = Limits::RESPONSE;
    let mut was_decoded = false;
    for (group, kind) in [
        ("admission.k8s.io", "AdmissionReview"),
        ("apiextensions.k8s.io", "ConversionReview"),
        ("", "APIResourceList"),
    ] {
        let id = schema().kind(group, "v1", kind).expect("a kind of the table");
        let Ok(value) = json::decode_response(data, id, &["request"], limits) else { continue };
        was_decoded = true;
        assert!(value["request"].is_null(), "it was skipped");
        let size = measure(&value);
        // A type has a few members that every object gets.
        assert!(size.depth <= limits.depth && size.collections <= limits.collections + 10, "{size:?}");
    }
    let mut members = 0;
    let visited = json::for_each_member(data, |name, text| {
        members += 1;
        assert!(json::for_each_member(text, |_, _| {}).is_ok(), "the text of a member is a value: {name}");
    });
    if let Ok(decoded) = json::decode_value(data) {
        assert_eq!(visited, Ok(()));
        let decoded = decoded.value.as_object().map_or(0, |object| object.len());
        assert!(members >= decoded, "{members} of {decoded} members");
    }
    was_decoded
}
