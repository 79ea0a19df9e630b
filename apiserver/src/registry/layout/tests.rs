use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;

fn layout() -> RegistryLayout {
    RegistryLayout::new("/registry", SharedResourceTable::new(coracle_resources::built_in()))
}

#[test]
fn names_are_those_of_kube_apiserver() {
    let layout = layout();
    for (bucket, name, want) in [
        ("configmaps", "default/a", "/registry/configmaps/default/a"),
        ("services", "default/web", "/registry/services/specs/default/web"),
        ("endpoints", "default/web", "/registry/services/endpoints/default/web"),
        ("nodes", "n1", "/registry/minions/n1"),
        ("replicationcontrollers", "default/a", "/registry/controllers/default/a"),
        ("ingresses.networking.k8s.io", "default/web", "/registry/ingress/default/web"),
        ("deployments.apps", "default/web", "/registry/deployments/default/web"),
        ("leases.coordination.k8s.io", "kube-system/l", "/registry/leases/kube-system/l"),
        ("endpointslices.discovery.k8s.io", "default/s", "/registry/endpointslices/default/s"),
        ("clusterroles.rbac.authorization.k8s.io", "system:node", "/registry/clusterroles/system:node"),
        ("ipaddresses.networking.k8s.io", "10.0.0.1", "/registry/ipaddresses/10.0.0.1"),
        ("ranges", "servicenodeports", "/registry/ranges/servicenodeports"),
        ("events", "default/e", "/registry/events/default/e"),
        (
            "apiservices.apiregistration.k8s.io",
            "v1.apps",
            "/registry/apiregistration.k8s.io/apiservices/v1.apps",
        ),
        (
            "customresourcedefinitions.apiextensions.k8s.io",
            "widgets.example.com",
            "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com",
        ),
        ("widgets.example.com", "default/w", "/registry/example.com/widgets/default/w"),
        ("gadgets.a.b.example.com", "g", "/registry/a.b.example.com/gadgets/g"),
    ] {
        let key = Key::new(bucket, name);
        assert_eq!(layout.name(&key), want);
        assert_eq!(layout.key(want), Some(key), "{want}");
    }
}

#[test]
fn what_is_no_object_has_no_key() {
    let layout = layout();
    for name in [
        "/registry/masterleases/10.0.0.1",
        "/registry/coracle/progress",
        "/registry/health",
        "/registry/services/web",
        "/registry/pods/",
        "/registry/pods/a/b/c",
        "/registry/example.com/widgets",
        "/registry",
        "/other/pods/a/b",
        "compact_rev_key",
    ] {
        assert_eq!(layout.key(name), None, "{name}");
    }
}

#[test]
fn prefixes_have_one_slash_at_each_end() {
    for (prefix, want) in
        [("/registry", "/registry/"), ("registry/", "/registry/"), ("/", "/"), ("", "/"), ("/a/b", "/a/b/")]
    {
        let layout = RegistryLayout::new(prefix, SharedResourceTable::new(coracle_resources::built_in()));
        assert_eq!(layout.prefix(), want, "{prefix}");
        let key = Key::new("pods", "n/p");
        assert_eq!(layout.name(&key), format!("{want}pods/n/p"));
        assert_eq!(layout.key(&layout.name(&key)), Some(key));
    }
}

/// Checks that every built-in resource has a distinct place.
#[test]
fn every_bucket_comes_back() {
    let layout = layout();
    for bucket in layout.paths.keys() {
        let key = Key::new(bucket.clone(), "ns/name");
        assert_eq!(layout.key(&layout.name(&key)), Some(key));
    }
    assert_eq!(layout.paths.len(), layout.buckets.len());
}

/// Compares with the values that kube-apiserver stores, generated with the published Go types, with
/// the bytes to store for each.
#[test]
fn values_of_kube_apiserver_are_read() {
    let layout = layout();
    for line in include_str!("samples.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.splitn(3, ' ');
        let (Some(name), Some(value), Some(want)) = (columns.next(), columns.next(), columns.next()) else {
            panic!("{line}")
        };
        let key = layout.key(name).expect(name);
        let value = Bytes::from(STANDARD.decode(value).expect(name));
        let stored = layout.decode(&key, &value).expect(name);
        let want = want.replace("\\n", "\n");
        assert_eq!(String::from_utf8_lossy(&stored), want, "{name}");
        // A value written by this server is read back to the same bytes.
        let written = layout.encode(&stored);
        assert!(!String::from_utf8_lossy(&written).contains("resourceVersion"), "{name}");
        assert_eq!(layout.decode(&key, &written).expect(name), stored, "{name}");
    }
}

#[test]
fn custom_resources_are_json_in_the_order_of_names() {
    let layout = layout();
    let key = Key::new("widgets.example.com", "default/w");
    let value = Bytes::from_static(
        b"{\"apiVersion\":\"example.com/v1\",\"data\":{\"resourceVersion\":\"\"},\"kind\":\"Widget\",\"metadata\":{\"generation\":1,\"name\":\"w\",\"uid\":\"1\"}}\n",
    );
    let stored = layout.decode(&key, &value).expect("JSON");
    assert!(stored.ends_with(b"\"name\":\"w\",\"resourceVersion\":\"\",\"uid\":\"1\"}}\n"), "{stored:?}");
    assert_eq!(layout.encode(&stored), value);
}

#[test]
fn what_cannot_be_read_is_reported() {
    let layout = layout();
    for (value, want) in [
        (&b"k8s:enc:aescbc:v1:key1:xxxx"[..], "it may be encrypted"),
        (b"\xd9\xd9\xf7\xa1", "neither JSON nor protobuf"),
        (b"{\"kind\":\"ConfigMap\"", "unexpected end of JSON input"),
        (b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v7\",\"metadata\":{}}", "is not known"),
        (b"k8s\0\x0a\x0f", "EOF"),
    ] {
        let error = layout
            .decode(&Key::new("configmaps", "n/a"), &Bytes::from_static(value))
            .expect_err("unreadable");
        assert!(error.to_string().contains(want), "{error}");
    }
}

#[test]
fn values_that_are_nested_too_deep_are_unreadable() {
    let layout = layout();
    for bucket in ["configmaps", "widgets.example.com"] {
        let key = Key::new(bucket, "default/deep");
        for (levels, is_readable) in [(500, true), (5_000, false), (1_000_000, false)] {
            let deep = format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"deep"}},"spec":{}{}}}"#,
                "[".repeat(levels),
                "]".repeat(levels)
            );
            let decoded = layout.decode(&key, &deep.into());
            assert_eq!(decoded.is_ok(), is_readable, "{bucket}, {levels} levels");
        }
    }
}
