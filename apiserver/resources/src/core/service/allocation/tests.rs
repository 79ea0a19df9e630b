use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::ip::Cidr;

use super::*;

const TAKEN: &str = r#"{"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
    "ports": [{"port": 80, "nodePort": 30001}], "healthCheckNodePort": 30002}}"#;

fn allocators(dry_run: bool) -> Allocators<'static> {
    let taken = || -> Value { serde_json::from_str(TAKEN).expect("a service") };
    let range = Cidr::parse("10.0.0.0/24").expect("a block");
    let (addresses, ports) =
        (move || addresses(&taken()).collect(), move || held_node_ports(&taken()).collect());
    Allocators::new(range, addresses, ports, dry_run)
}

/// Returns the resulting Service, or the error message.
fn allocated(spec: Value, old: Option<Value>, dry_run: bool) -> Result<Value, String> {
    let with_defaults = |spec: Value| {
        let mut service = json!({"metadata": {"name": "s"}, "spec": spec});
        super::super::ServiceStrategy.default(&mut service);
        service
    };
    let mut service = with_defaults(spec);
    let old = old.map(with_defaults);
    let result = allocate(&mut service, old.as_ref(), &mut allocators(dry_run), &mut |_| 0);
    result.map(|()| service["spec"].take()).map_err(|error| error.to_string())
}

#[test]
fn new_services_get_addresses_and_ports() {
    let port = json!([{"port": 80}]);
    for (case, spec, dry_run, member, want) in [
        ("the first of the upper band", json!({"ports": port}), false, "/clusterIPs", json!(["10.0.0.17"])),
        (
            "one that is asked for",
            json!({"ports": port, "clusterIP": "10.0.0.9"}),
            false,
            "/clusterIPs",
            json!(["10.0.0.9"]),
        ),
        ("a dry run's address", json!({"ports": port}), true, "/clusterIP", json!("10.0.0.0")),
        (
            "a dry run takes nothing",
            json!({"ports": port, "clusterIP": "10.0.0.1"}),
            true,
            "/clusterIP",
            json!("10.0.0.1"),
        ),
        (
            "headless",
            json!({"clusterIP": "None", "selector": {"a": "b"}}),
            false,
            "/ipFamilies",
            json!(["IPv4"]),
        ),
        (
            "headless without selector",
            json!({"clusterIP": "None"}),
            false,
            "/ipFamilies",
            json!(["IPv4", "IPv6"]),
        ),
        (
            "headless without selector",
            json!({"clusterIP": "None"}),
            false,
            "/ipFamilyPolicy",
            json!("RequireDualStack"),
        ),
        ("an external name", json!({"type": "ExternalName"}), false, "/clusterIP", Value::Null),
        (
            "a policy is kept",
            json!({"ports": port, "ipFamilyPolicy": "PreferDualStack"}),
            false,
            "/ipFamilies",
            json!(["IPv4"]),
        ),
        ("a node port", json!({"type": "NodePort", "ports": port}), false, "/ports/0/nodePort", json!(30086)),
        (
            "a node port that is asked for",
            json!({"type": "NodePort", "ports": [{"port": 1, "nodePort": 32000}]}),
            false,
            "/ports/0/nodePort",
            json!(32000),
        ),
        (
            "both protocols share it",
            json!({"type": "NodePort", "ports": [{"port": 53, "name": "a"}, {"port": 53, "name": "b", "protocol": "UDP", "nodePort": 30053}]}),
            false,
            "/ports/0/nodePort",
            json!(30053),
        ),
        (
            "a dry run's node ports",
            json!({"type": "NodePort", "ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}),
            true,
            "/ports/1/nodePort",
            json!(32770),
        ),
        (
            "a balancer without node ports",
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": port}),
            false,
            "/ports/0/nodePort",
            Value::Null,
        ),
        (
            "a health check",
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": port}),
            false,
            "/healthCheckNodePort",
            json!(30087),
        ),
    ] {
        let spec = allocated(spec, None, dry_run).expect(case);
        assert_eq!(spec.pointer(member).cloned().unwrap_or_default(), want, "{case}");
    }
}

#[test]
fn unavailable_addresses_and_ports_are_rejected() {
    let port = json!([{"port": 80}]);
    for (case, spec, dry_run, want) in [
        (
            "taken",
            json!({"ports": port, "clusterIP": "10.0.0.1"}),
            false,
            r#"spec.clusterIPs: Invalid value: ["10.0.0.1"]: failed to allocate IP 10.0.0.1: provided IP is already allocated"#,
        ),
        (
            "the broadcast address",
            json!({"ports": port, "clusterIP": "10.0.0.255"}),
            false,
            r#"spec.clusterIPs: Invalid value: ["10.0.0.255"]: failed to allocate IP 10.0.0.255: the provided network does not match the current range"#,
        ),
        (
            "another range",
            json!({"ports": port, "clusterIP": "10.1.0.0"}),
            true,
            r#"spec.clusterIPs: Invalid value: ["10.1.0.0"]: failed to allocate IP 10.1.0.0: the provided IP (10.1.0.0) is not in the valid range. The range of valid IPs is 10.0.0.0/24"#,
        ),
        (
            "another family",
            json!({"ports": port, "clusterIP": "fd00::1"}),
            false,
            r#"spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster"#,
        ),
        (
            "another family by name",
            json!({"ports": port, "ipFamilies": ["IPv6"]}),
            false,
            r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#,
        ),
        (
            "two families",
            json!({"ports": port, "ipFamilyPolicy": "RequireDualStack"}),
            false,
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
        ),
        (
            "a port out of range",
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 100}]}),
            false,
            "spec.ports[0].nodePort: Invalid value: 100: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (
            "a taken port",
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]}),
            false,
            "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
        ),
        (
            "a port that is asked for twice",
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30011}, {"port": 81, "nodePort": 30011}]}),
            false,
            "spec.ports[1].nodePort: Invalid value: 30011: provided port is already allocated",
        ),
    ] {
        let message = allocated(spec, None, dry_run).expect_err(case);
        assert_eq!(message, format!("Service \"s\" is invalid: {want}"), "{case}");
    }
    let message = allocated(
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": port, "healthCheckNodePort": 30001}),
        None,
        false,
    );
    assert_eq!(
        message.expect_err("taken"),
        "Internal error occurred: failed to allocate requested HealthCheck NodePort 30001: provided port is already allocated"
    );
}

#[test]
fn changed_services_keep_or_release_what_they_have() {
    let plain = json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.5", "clusterIPs": ["10.0.0.5"],
        "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack"});
    let with = |change: Value| {
        let mut spec = plain.clone();
        for (member, value) in change.as_object().expect("members") {
            spec[member] = value.clone();
        }
        spec
    };
    let external = json!({"type": "ExternalName", "externalName": "a.b"});
    let node = with(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30005}]}));
    for (case, old, new, member, want) in [
        (
            "what was allocated is kept",
            plain.clone(),
            json!({"ports": [{"port": 81}]}),
            "/clusterIPs",
            json!(["10.0.0.5"]),
        ),
        (
            "a node port is kept by name",
            node.clone(),
            json!({"type": "NodePort", "ports": [{"port": 81}]}),
            "/ports/0/nodePort",
            json!(30005),
        ),
        (
            "an address to begin with",
            external.clone(),
            json!({"ports": [{"port": 80}]}),
            "/clusterIP",
            json!("10.0.0.17"),
        ),
        (
            "a node port to begin with",
            plain.clone(),
            json!({"type": "NodePort", "ports": [{"port": 80}]}),
            "/ports/0/nodePort",
            json!(30086),
        ),
        (
            "a change of the address is left to the rules",
            plain.clone(),
            with(json!({"clusterIP": "10.0.0.6"})),
            "/clusterIPs",
            json!(["10.0.0.6"]),
        ),
        ("no address any more", plain.clone(), external.clone(), "/clusterIP", Value::Null),
    ] {
        let spec = allocated(new, Some(old), false).expect(case);
        assert_eq!(spec.pointer(member).cloned().unwrap_or_default(), want, "{case}");
    }
}

#[test]
fn a_full_range_is_reported() {
    let range = Cidr::parse("10.0.0.0/30").expect("a block");
    let mut allocators = Allocators::new(range, BTreeSet::new, BTreeSet::new, false);
    let taken: Vec<_> =
        (0..3).map(|_| allocators.allocate_next_address(&mut |_| 0).map(|ip| ip.to_string())).collect();
    assert_eq!(taken, [Some("10.0.0.1".to_owned()), Some("10.0.0.2".to_owned()), None]);
}
