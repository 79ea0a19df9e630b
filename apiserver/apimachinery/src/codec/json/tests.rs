//! kube-apiserver's responses to bodies of its own kinds; the messages are recorded.

use serde_json::{Value, json};

use super::*;
use crate::schema::schema;

fn kind(group: &str, kind: &str) -> StructId {
    schema().kind(group, "v1", kind).expect(kind)
}

#[test]
fn type_mismatches_have_the_real_servers_messages() {
    let crd = |schema: &str| {
        format!(
            r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{{"properties":{{"p":{schema}}}}}}}}}]}}}}"#
        )
    };
    let container = |member: &str| format!(r#"{{"spec":{{"containers":[{{{member}}}]}}}}"#);
    for (group, name, body, want) in [
        (
            "",
            "ConfigMap",
            r#"{"metadata":"a"}"#.to_owned(),
            "string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
        (
            "",
            "ConfigMap",
            r#"{"metadata":{"labels":5}}"#.into(),
            "number into Go struct field ObjectMeta.metadata.labels of type map[string]string",
        ),
        (
            "",
            "ConfigMap",
            r#"{"metadata":{"labels":{"x":1}}}"#.into(),
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "",
            "ConfigMap",
            r#"{"metadata":{"uid":true}}"#.into(),
            "bool into Go struct field ObjectMeta.metadata.uid of type types.UID",
        ),
        (
            "",
            "ConfigMap",
            r#"{"metadata":{"generation":1.5}}"#.into(),
            "number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
        ),
        (
            "",
            "ConfigMap",
            r#"{"metadata":{"creationTimestamp":5}}"#.into(),
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            "",
            "ConfigMap",
            r#"{"immutable":"yes"}"#.into(),
            "string into Go struct field ConfigMap.immutable of type bool",
        ),
        (
            "",
            "Secret",
            r#"{"data":{"a":5}}"#.into(),
            "number into Go struct field Secret.data of type []uint8",
        ),
        (
            "",
            "Secret",
            r#"{"data":{"a":[300]}}"#.into(),
            "number 300 into Go struct field Secret.data of type uint8",
        ),
        (
            "",
            "Pod",
            r#"{"spec":{"containers":{}}}"#.into(),
            "object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "",
            "Pod",
            r#"{"spec":{"containers":[5]}}"#.into(),
            "number into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            "",
            "Pod",
            r#"{"spec":{"restartPolicy":5}}"#.into(),
            "number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy",
        ),
        (
            "",
            "Pod",
            r#"{"spec":{"overhead":[]}}"#.into(),
            "array into Go struct field PodSpec.spec.overhead of type v1.ResourceList",
        ),
        (
            "",
            "Pod",
            r#"{"spec":{"volumes":[{"hostPath":{"path":1}}]}}"#.into(),
            "number into Go struct field HostPathVolumeSource.spec.volumes.VolumeSource.hostPath.path of type string",
        ),
        (
            "",
            "Pod",
            container(r#""livenessProbe":{"httpGet":{"port":true}}"#),
            "bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            "apps",
            "Deployment",
            r#"{"spec":{"replicas":"1"}}"#.into(),
            "string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps",
            "Deployment",
            r#"{"spec":{"replicas":99999999999}}"#.into(),
            "number 99999999999 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "authorization.k8s.io",
            "SubjectAccessReview",
            r#"{"spec":{"extra":{"a":5}}}"#.into(),
            "number into Go struct field SubjectAccessReviewSpec.spec.extra of type v1.ExtraValue",
        ),
        (
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            crd(r#"{"maximum":"a"}"#),
            "string into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.maximum of type float64",
        ),
        (
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            crd(r#"{"items":[1]}"#),
            "number into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties.items of type v1.JSONSchemaProps",
        ),
    ] {
        let want = format!("json: cannot unmarshal {want}");
        assert_eq!(
            decode(body.as_bytes(), kind(group, name)),
            Err(DecodeError::TypeMismatch(want)),
            "{body}"
        );
    }
    for (group, name, body, want) in [
        (
            "",
            "Pod",
            container(r#""resources":{"limits":{"cpu":"two"}}"#),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "",
            "Pod",
            container(r#""resources":{"limits":{"cpu":"1Gii"}}"#),
            "unable to parse quantity's suffix",
        ),
        (
            "",
            "ConfigMap",
            r#"{"metadata":{"deletionTimestamp":"now"}}"#.into(),
            r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#,
        ),
        ("", "Secret", r#"{"data":{"a":"A-_="}}"#.into(), "illegal base64 data at input byte 1"),
        (
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            crd(r#"{"additionalProperties":5}"#),
            "boolean or JSON schema expected",
        ),
    ] {
        let want = Err(DecodeError::TypeMismatch(want.to_owned()));
        assert_eq!(decode(body.as_bytes(), kind(group, name)), want, "{body}");
    }
}

#[test]
fn the_most_severe_error_is_reported() {
    for (body, want) in [
        // The first type mismatch, unless a type with an unmarshaler of its own rejects a value.
        (
            r#"{"metadata":{"name":5},"spec":5}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string",
        ),
        (
            r#"{"metadata":{"name":5},"spec":{"overhead":{"cpu":"x"}}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            r#"{"metadata":5,"kind":5}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (
            r#"{"metadata":5,"KIND":5}"#,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (
            r#"{"kind":5,"metadata":{}"#,
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (
            "[]",
            r#"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#,
        ),
    ] {
        let error = decode(body.as_bytes(), kind("", "Pod")).map_err(|error| error.to_string());
        assert_eq!(error, Err(want.to_owned()), "{body}");
    }
}

#[test]
fn decoded_objects_are_normalized() {
    for (group, name, body, want) in [
        ("", "ConfigMap", "null", json!({"metadata": {}})),
        (
            "",
            "ConfigMap",
            r#"{"data":{"a":"x","b":null},"binaryData":null,"metadata":{"name":"n","labels":{},"creationTimestamp":null}}"#,
            json!({"metadata": {"name": "n"}, "data": {"a": "x", "b": ""}}),
        ),
        (
            "",
            "Pod",
            r#"{"spec":{"hostNetwork":false,"containers":[{"name":"c","resources":{"limits":{"cpu":2,"memory":"2048Mi"}}},null]}}"#,
            json!({"metadata": {}, "spec": {"containers": [
                {"name": "c", "resources": {"limits": {"cpu": "2", "memory": "2Gi"}}}, {"name": "", "resources": {}}
            ]}, "status": {}}),
        ),
        (
            "apps",
            "Deployment",
            r#"{"spec":{"replicas":0,"selector":null,"strategy":{"rollingUpdate":{"maxSurge":"30%","maxUnavailable":1}}}}"#,
            json!({"metadata": {}, "spec": {
                "replicas": 0,
                "strategy": {"rollingUpdate": {"maxSurge": "30%", "maxUnavailable": 1}},
                "template": {"metadata": {}, "spec": {}},
            }, "status": {}}),
        ),
        (
            "apps",
            "StatefulSet",
            r#"{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05.9+01:00"}}"#,
            json!({
                "metadata": {"deletionTimestamp": "2026-01-02T02:04:05Z"},
                "spec": {"serviceName": "", "template": {"metadata": {}, "spec": {}}, "updateStrategy": {}},
                "status": {"availableReplicas": 0, "replicas": 0},
            }),
        ),
        (
            "apps",
            "ControllerRevision",
            r#"{"data":{"b":null,"a":[1.0,1e3,0.5]},"revision":0}"#,
            json!({
                "metadata": {}, "data": {"a": [1, 1000, 0.5], "b": null}, "revision": 0
            }),
        ),
        ("rbac.authorization.k8s.io", "Role", r#"{"rules":[]}"#, json!({"metadata": {}, "rules": []})),
        (
            "",
            "Secret",
            r#"{"data":{"a":"Q\nQ=\n=","b":[65,null]}}"#,
            json!({"metadata": {}, "data": {"a": "QQ==", "b": "QQA="}}),
        ),
    ] {
        let decoded = decode(body.as_bytes(), kind(group, name)).expect(body);
        assert_eq!(decoded, Decoded { value: want, strict: Vec::new() }, "{body}");
    }
}

#[test]
fn unknown_and_duplicate_fields_are_reported_in_order_and_merged() {
    let body = r#"{
        "metadata": {"name": "a", "lables": {"x": "y"}, "name": "b", "labels": {"k": "1", "k": "2"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1, "x": {"y": 1, "y": 2}}]}],
            "volumes": [{"hostPath": {"path": "/", "z": 1}}],
            "containers": [{"image": "j"}],
            "Containers": []
        },
        "metadata": {"labels": {"k": "3", "l": "4"}}
    }"#;
    let decoded = decode(body.as_bytes(), kind("", "Pod")).expect("a pod");
    assert_eq!(
        decoded.strict,
        [
            r#"unknown field "metadata.lables""#,
            r#"duplicate field "metadata.name""#,
            r#"duplicate field "metadata.labels.k""#,
            r#"unknown field "spec.containers[0].ports[0].x""#,
            r#"unknown field "spec.volumes[0].hostPath.z""#,
            r#"duplicate field "spec.containers""#,
            r#"unknown field "spec.Containers""#,
            r#"duplicate field "metadata""#,
        ]
    );
    assert_eq!(decoded.value["metadata"], json!({"name": "b", "labels": {"k": "3", "l": "4"}}));
    assert_eq!(decoded.value["spec"]["containers"][0]["name"], "c");
    assert_eq!(decoded.value["spec"]["containers"][0]["image"], "j");

    let many: Vec<String> = (0..150).map(|n| format!("\"u{n}\":1,\"u{n}\":2")).collect();
    let decoded = decode(format!("{{{}}}", many.join(",")).as_bytes(), kind("", "Pod")).expect("a pod");
    assert_eq!(decoded.strict.len(), 100);
}

#[test]
fn untyped_objects_keep_everything() {
    let decoded = decode_untyped(br#"{"kind":"W","b":{"x":null,"x":1},"a":[1,1.5,12345678901234567890]}"#);
    let decoded = decoded.expect("an object");
    assert_eq!(decoded.strict, [r#"duplicate field "b.x""#]);
    let mut text = Vec::new();
    write_untyped(&decoded.value, &mut text);
    let want = r#"{"a":[1,1.5,12345678901234567000],"b":{"x":1},"kind":"W"}"#;
    assert_eq!(String::from_utf8(text).as_deref(), Ok(want));
    assert!(matches!(decode_untyped(b"[]"), Err(DecodeError::Unreadable(_))));
}

#[test]
fn a_nested_value_is_written_by_its_own_type() {
    let part = json!({"uid": "u", "name": "x", "kind": "Event", "apiVersion": "v1"});
    let event = kind("", "Event");
    let ty = schema().type_at(event, "involvedObject").expect("a type");
    let mut text = Vec::new();
    write_type(&part, &ty, &mut text);
    assert_eq!(
        String::from_utf8(text).as_deref(),
        Ok(r#"{"kind":"Event","name":"x","uid":"u","apiVersion":"v1"}"#)
    );
}

#[test]
fn normalizing_equals_decoding() {
    let value: Value = json!({"metadata": {"labels": {"a": null}}, "data": {"k": 5}});
    let error = normalize(&value, kind("", "ConfigMap")).map_err(|error| error.to_string());
    let want = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string";
    assert_eq!(error, Err(want.to_owned()));
    for (sent, want) in [
        (json!(9_223_372_036_854_775_808_f64), "9223372036854775808"),
        (json!(1e21), "1e21"),
        (json!(1.0), "1.0"),
        (json!(-2.5), "-2.5"),
    ] {
        let value = json!({"metadata": {"generation": sent}});
        let error = normalize(&value, kind("", "ConfigMap")).map_err(|error| error.to_string());
        let want = format!(
            "json: cannot unmarshal number {want} into Go struct field ObjectMeta.metadata.generation of type int64"
        );
        assert_eq!(error, Err(want));
    }
}

#[test]
fn floats_are_read_as_they_are_written() {
    for float in ["9.999999999919999e+53", "0.1", "5e-324", "1.7976931348623157e+308", "123456789.12345679"] {
        let stored = parse_own(float.as_bytes()).expect(float);
        assert_eq!(Some(stored.to_string()), float.parse().ok().map(|float: f64| json!(float).to_string()));
        assert_eq!(stored.as_f64(), float.parse().ok(), "{float}");
    }
}

#[test]
fn members_that_are_not_asked_for_are_skipped() {
    let text = r#"{"metadata":{"name":"p"},"spec":{"a":{"b":[1,{"c":2}]},"\u0061b":3,"d":null},"status":7,"type":"t"}"#;
    for (pointers, want) in [
        (vec!["/spec/a", "/type"], json!({"spec": {"a": {"b": [1, {"c": 2}]}}, "type": "t"})),
        (vec!["/spec/a/b", "/spec/ab"], json!({"spec": {"a": {"b": [1, {"c": 2}]}, "ab": 3}})),
        (vec!["/spec/d", "/spec/none", "/none/at/all"], json!({"spec": {"d": null}})),
        (vec!["/spec/a/b", "/spec/a", "/sp"], json!({"spec": {"a": {"b": [1, {"c": 2}]}}})),
        (vec![], json!({})),
    ] {
        assert_eq!(parse_own_sparse(text.as_bytes(), pointers.clone()), Ok(want), "{pointers:?}");
    }
    let whole: Value = serde_json::from_str(text).expect("JSON");
    for pointers in [vec!["/status/phase"], vec!["/spec/d/e"], vec![""], vec!["/a~1b"]] {
        assert_eq!(parse_own_sparse(text.as_bytes(), pointers.clone()), Ok(whole.clone()), "{pointers:?}");
    }
    assert!(parse_own_sparse(br#"{"spec":"#, vec!["/spec"]).is_err());
}
