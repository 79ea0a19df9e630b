use std::collections::BTreeSet;

use serde_json::Value;

use super::*;

const PODS: RequestLabels<'static> = RequestLabels {
    verb: "LIST",
    group: "",
    version: "v1",
    resource: "pods",
    subresource: "",
    scope: "namespace",
    component: "apiserver",
    dry_run: "",
};

fn busy() -> Metrics {
    let metrics = Metrics::new();
    for code in [200, 200, 404] {
        metrics.request(&PODS, code, Duration::from_millis(30), Duration::ZERO, 2_000);
    }
    let dry = RequestLabels { verb: "POST", dry_run: "All", scope: "resource", ..PODS };
    metrics.request(&dry, 201, Duration::from_millis(1), Duration::ZERO, 10);
    metrics.watch("", "v1", "pods").sent(1500);
    metrics.tls_handshake_error();
    metrics.storage_size(5_000);
    metrics
}

fn stored() -> Vec<StoredObjects> {
    let of = |group: &str, resource: &str, objects| StoredObjects {
        group: group.to_owned(),
        resource: resource.to_owned(),
        objects,
    };
    vec![of("", "pods", 3), of("apps", "deployments", 0)]
}

#[test]
fn refused_and_ended_requests_are_counted() {
    let metrics = Metrics::new();
    metrics.rejected(&PODS, 429);
    metrics.terminated(&PODS, 429);
    metrics.terminated(&PODS, 504);
    metrics.requested_deprecated(&PODS, "1.32");
    let text = metrics.render([]);
    let pods = r#"group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1""#;
    for line in [
        format!(r#"apiserver_request_total{{code="429",component="apiserver",dry_run="",{pods}}} 1"#),
        format!(r#"apiserver_request_terminations_total{{code="429",component="apiserver",{pods}}} 1"#),
        format!(r#"apiserver_request_terminations_total{{code="504",component="apiserver",{pods}}} 1"#),
        r#"apiserver_requested_deprecated_apis{group="",removed_release="1.32",resource="pods",subresource="",version="v1"} 1"#.to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
    }
    assert!(!text.contains("apiserver_request_duration_seconds_count{"), "it was not executed");
}

#[test]
fn counts_are_rendered() {
    let metrics = busy();
    let longrunning_values = metrics.longrunning(&RequestLabels { verb: "WATCH", ..PODS });
    let inflight = metrics.inflight(true);
    let text = metrics.render(stored());
    let pods = r#"group="",resource="pods",scope="namespace",subresource="",verb="LIST",version="v1""#;
    for line in [
        format!(r#"apiserver_request_total{{code="200",component="apiserver",dry_run="",{pods}}} 2"#),
        format!(r#"apiserver_request_total{{code="404",component="apiserver",dry_run="",{pods}}} 1"#),
        format!(r#"apiserver_request_duration_seconds_count{{component="apiserver",dry_run="",{pods}}} 3"#),
        format!(r#"apiserver_response_sizes_bucket{{component="apiserver",{pods},le="1000"}} 0"#),
        format!(r#"apiserver_response_sizes_bucket{{component="apiserver",{pods},le="10000"}} 3"#),
        format!(r#"apiserver_response_sizes_bucket{{component="apiserver",{pods},le="1e+06"}} 3"#),
        r#"apiserver_watch_events_total{group="",resource="pods",version="v1"} 1"#.to_owned(),
        r#"apiserver_current_inflight_requests{request_kind="mutating"} 1"#.to_owned(),
        r#"apiserver_current_inflight_requests{request_kind="readOnly"} 0"#.to_owned(),
        r#"apiserver_resource_objects{group="apps",resource="deployments"} 0"#.to_owned(),
        r#"apiserver_storage_objects{resource="deployments.apps"} 0"#.to_owned(),
        r#"apiserver_storage_objects{resource="pods"} 3"#.to_owned(),
        r#"apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 5000"#.to_owned(),
        "# TYPE apiserver_request_total counter".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
    }
    assert!(!text.contains(
        r#"sli_duration_seconds_count{component="apiserver",group="",resource="pods",scope="resource""#
    ));
    assert!(text.contains(r#"verb="WATCH",version="v1"} 1"#));
    drop((longrunning_values, inflight));
    let text = metrics.render([]);
    assert!(text.contains(r#"verb="WATCH",version="v1"} 0"#));
    assert!(!text.contains("apiserver_storage_objects{"));
}

/// Compares every name, type and label with kube-apiserver's.
#[test]
fn names_types_and_labels_match_the_real_servers() {
    let facts = crate::testing::facts("apiserver-metrics.json");
    let metrics = busy();
    metrics.build_info(&[("git_version", "v1.36.2"), ("major", "1")]);
    let _lasting = metrics.longrunning(&PODS);
    metrics.render(stored());
    for family in metrics.registry.gather() {
        let fact = &facts[family.name()];
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        assert_eq!(fact["type"].as_str(), Some(kind.as_str()), "{}", family.name());
        let labels: BTreeSet<&str> =
            family.get_metric()[0].get_label().iter().map(|label| label.name()).collect();
        let known: BTreeSet<&str> =
            fact["labels"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        assert!(labels.is_subset(&known), "{}: {labels:?} of {known:?}", family.name());
    }
}

/// Checks that counting a known request takes much less time than responding to it. The bound is
/// ten times the budget, for a busy machine and a build without optimization.
#[test]
fn counting_is_fast() {
    let metrics = busy();
    let rounds = 500;
    // The fastest of many: what else the machine does slows the others.
    let times = (0..20).map(|_| {
        let started = std::time::Instant::now();
        for _ in 0..rounds {
            metrics.request(&PODS, 200, Duration::from_micros(80), Duration::ZERO, 2_000);
        }
        started.elapsed() / rounds
    });
    let each = times.min().expect("some rounds");
    eprintln!("{each:?} a request");
    assert!(each < Duration::from_micros(3), "{each:?}");
}
