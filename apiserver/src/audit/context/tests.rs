use super::*;

fn audited(level: Level, omit_managed_fields: bool) -> AuditContext {
    let context = AuditContext::default();
    context.begin(RequestAuditConfig { level, omit_managed_fields, ..Default::default() }, Event::default());
    context
}

fn headers(content_type: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, http::HeaderValue::from_static(content_type))])
}

fn event(context: &AuditContext) -> Event {
    context.request().expect("audited").event().clone()
}

fn text(json: Option<Vec<u8>>) -> Option<String> {
    json.map(|json| String::from_utf8(json).expect("text"))
}

#[test]
fn the_first_value_of_an_annotation_stays() {
    let context = audited(Level::Metadata, false);
    for (key, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("b", "2")] {
        context.add_annotation(key, value);
    }
    context.add_annotation_at(Level::Request, "c", "4");
    let annotations: Vec<_> = event(&context).annotations.into_iter().collect();
    assert_eq!(annotations, [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
    let off = AuditContext::default();
    off.add_annotation("a", "1");
    off.log_panic("x");
    assert!(!off.is_enabled());
}

#[test]
fn bodies_are_recorded_from_their_level_on() {
    let secret = json!({"kind": "Secret", "apiVersion": "v1", "data": {"k": "aGlk"},
        "metadata": {"name": "s", "uid": "u", "resourceVersion": "7", "managedFields": [{"manager": "m"}]}});
    let body = Bytes::from(format!("{secret}\n"));
    let id = schema().kind("", "v1", "Secret").expect("secrets");
    for (level, request, response) in
        [(Level::Metadata, false, false), (Level::Request, true, false), (Level::RequestResponse, true, true)]
    {
        let context = audited(level, false);
        context.log_request_object(&secret, &TypeRef::Struct(id));
        context.log_response(200, &headers("application/json"), Some(&body));
        let event = event(&context);
        let reference = event.object_ref.expect("of the object");
        assert_eq!((&*reference.name, &*reference.uid, &*reference.resource_version), ("s", "u", "7"));
        let has_data = |object: &Option<Vec<u8>>| text(object.clone()).is_some_and(|t| t.contains("aGlk"));
        assert_eq!((has_data(&event.request_object), has_data(&event.response_object)), (request, response));
        assert_eq!(event.response_status, Some(json!({"metadata": {}, "code": 200})), "{level:?}");
    }
}

#[test]
fn managed_fields_are_left_out_where_the_policy_says_so() {
    let object = |extra: &str| {
        format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"managedFields":[{{"manager":"m"}}],"name":"p"}}{extra}}}"#
        )
    };
    let list = format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{}]}}"#, object(""));
    let table =
        format!(r#"{{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{{"object":{}}}]}}"#, object(""));
    for body in [object(""), list, table] {
        let context = audited(Level::RequestResponse, true);
        context.log_response(200, &headers("application/json"), Some(&Bytes::from(body.clone())));
        let got = text(event(&context).response_object).expect("an object");
        assert!(!got.contains("managedFields") && got.contains(r#""name":"p""#), "{body}: {got}");
    }
    let context = audited(Level::Request, true);
    let pod = serde_json::from_str(&object("")).expect("JSON");
    context.log_request_object(&pod, &TypeRef::Struct(schema().kind("", "v1", "Pod").expect("pods")));
    assert!(!text(event(&context).request_object).expect("an object").contains("managedFields"));
}

#[test]
fn the_status_of_a_response_is_recorded_in_every_format() {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m",
        "reason": "NotFound", "details": {"name": "p", "kind": "pods"}, "code": 404});
    let id = schema().named("io.k8s.apimachinery.pkg.apis.meta.v1.Status").expect("Status");
    let mut plain = Vec::new();
    codec::json::write_object(&status, id, &mut plain);
    let want = json!({"metadata": {}, "status": "Failure", "message": "m", "reason": "NotFound",
        "details": {"name": "p", "kind": "pods"}, "code": 404});
    for (content_type, body) in [
        ("application/json", plain.clone()),
        ("application/json", codec::json::indent(&plain)),
        ("application/yaml", yaml::from_json(&status)),
        ("application/vnd.kubernetes.protobuf", protobuf::encode(&status, id)),
    ] {
        let context = audited(Level::Metadata, false);
        context.log_response(404, &headers(content_type), Some(&body.into()));
        let event = event(&context);
        assert_eq!(
            (event.response_status, event.response_object),
            (Some(want.clone()), None),
            "{content_type}"
        );
    }
    let context = audited(Level::RequestResponse, false);
    context.log_response(404, &headers("text/plain"), Some(&Bytes::from_static(b"404 page not found")));
    let event = event(&context);
    assert_eq!(
        (event.response_status, event.response_object),
        (Some(json!({"metadata": {}, "code": 404})), None)
    );
}

#[test]
fn patches_are_recorded_as_json() {
    for (patch, is_yaml, want) in [
        ("{\"a\": [1,\n \"b c\"]}", false, Some(r#"{"a":[1,"b c"]}"#)),
        ("a: [1, b]\n", true, Some(r#"{"a":[1,"b"]}"#)),
        ("{", false, None),
    ] {
        let context = audited(Level::Request, false);
        context.log_request_patch(patch.as_bytes(), is_yaml);
        assert_eq!(text(event(&context).request_object).as_deref(), want, "{patch}");
    }
}
