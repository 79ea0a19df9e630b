use coracle_apimachinery::bootstrap::{self, Parameters};
use serde_json::json;

use super::*;
use crate::access::authorize::{ResourceTarget, Target};
use crate::telemetry::metrics::Metrics;

const PARAMETERS: Parameters<'_> = Parameters {
    now: "2026-01-02T03:04:05Z",
    secure_port: 6443,
    service_cidr: "10.0.0.0/24",
    kubernetes_ip: "10.0.0.1",
    is_selected: &|_| true,
};

/// The bootstrap objects of a cluster.
struct Bootstrapped(Mutex<(Vec<Value>, Vec<Value>)>);

impl ConfigurationSource for Bootstrapped {
    fn flow_configuration(&self) -> (Vec<Value>, Vec<Value>) {
        self.0.lock().clone()
    }

    fn flow_revisions(&self) -> Option<[u64; 2]> {
        None
    }
}

fn bootstrapped() -> Arc<Bootstrapped> {
    let of = |kind: &str| -> Vec<Value> {
        bootstrap::objects(&PARAMETERS)
            .into_iter()
            .filter(|object| object["kind"] == kind)
            .map(|mut object| {
                object["metadata"]["uid"] =
                    json!(format!("uid-of-{}", object["metadata"]["name"].as_str().unwrap()));
                object
            })
            .collect()
    };
    Arc::new(Bootstrapped(Mutex::new((of("FlowSchema"), of("PriorityLevelConfiguration")))))
}

fn controller() -> (FlowController, Metrics, Arc<Bootstrapped>) {
    let (metrics, source) = (Metrics::new(), bootstrapped());
    (FlowController::new(source.clone(), FlowControlMetrics::new(metrics.registry())), metrics, source)
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo::new(name, groups).authenticated()
}

fn on<'a>(verb: &'a str, group: &'a str, resource: &'a str, namespace: &'a str) -> RequestAttributes<'a> {
    let target = ResourceTarget { group, resource, namespace, ..ResourceTarget::default() };
    RequestAttributes { verb, target: Target::Resource(target) }
}

#[test]
fn requests_are_classified_as_in_kube_apiserver() {
    let (controller, _metrics, _) = controller();
    let path = |verb, path| RequestAttributes { verb, target: Target::Path(path) };
    let node = user("system:node:node-0", &["system:nodes"]);
    let account = user("system:serviceaccount:ns:robot", &["system:serviceaccounts"]);
    let system_account = user("system:serviceaccount:kube-system:robot", &["system:serviceaccounts"]);
    let manager = user("system:kube-controller-manager", &[]);
    let alice = user("alice", &["devs"]);
    for (user, request, flow, level) in [
        (&user("root", &["system:masters"]), on("create", "", "pods", "ns"), "exempt/", "exempt"),
        (&alice, path("get", "/healthz"), "probes/", "exempt"),
        (&alice, path("get", "/version"), "global-default/alice", "global-default"),
        (&alice, on("list", "", "pods", ""), "global-default/alice", "global-default"),
        (
            &node,
            on("update", "coordination.k8s.io", "leases", "kube-node-lease"),
            "system-node-high/system:node:node-0",
            "node-high",
        ),
        (&node, on("get", "", "nodes", ""), "system-node-high/system:node:node-0", "node-high"),
        (&node, on("get", "", "pods", "ns"), "system-nodes/system:node:node-0", "system"),
        (
            &account,
            on("get", "", "pods", "ns"),
            "service-accounts/system:serviceaccount:ns:robot",
            "workload-low",
        ),
        (&system_account, on("get", "", "pods", "ns"), "kube-system-service-accounts/ns", "workload-high"),
        (
            &system_account,
            on("update", "coordination.k8s.io", "leases", "ns"),
            "system-leader-election/system:serviceaccount:kube-system:robot",
            "leader-election",
        ),
        (&manager, on("create", "", "pods", "ns"), "kube-controller-manager/ns", "workload-high"),
        (
            &manager,
            on("get", "coordination.k8s.io", "leases", "kube-system"),
            "system-leader-election/system:kube-controller-manager",
            "leader-election",
        ),
        (
            &manager,
            on("delete", "coordination.k8s.io", "leases", "kube-system"),
            "kube-controller-manager/kube-system",
            "workload-high",
        ),
    ] {
        let got = controller.classify(user, &request).expect("a flow");
        let exempt = level == "exempt";
        assert_eq!(got.is_exempt(), exempt);
        assert_eq!(got.rule.level.name, level, "{} {request:?}", user.name);
        assert_eq!(got.key, if exempt { "" } else { flow }, "{} {request:?}", user.name);
        let schema = flow.split('/').next().unwrap();
        let headers = got.headers().map(|(_, value)| value.to_str().unwrap().to_owned());
        assert_eq!(headers, [format!("uid-of-{schema}"), format!("uid-of-{level}")]);
    }
}

#[test]
fn seats_are_divided_by_shares() {
    let (controller, metrics, _) = controller();
    let levels = &controller.configuration.load().levels;
    let seats = |level: &str| levels[level].queue_set.as_ref().map(|queue_set| queue_set.limits());
    for (level, want, waiting) in [
        ("global-default", 49, 300),
        ("workload-low", 245, 300),
        ("leader-election", 25, 200),
        ("catch-all", 13, 0),
    ] {
        let limits = seats(level).expect(level);
        assert_eq!((limits.seats, limits.waiting_per_flow), (want, waiting), "{level}");
    }
    assert!(seats("exempt").is_none());
    let text = metrics.render([]);
    assert!(
        text.contains(r#"apiserver_flowcontrol_nominal_limit_seats{priority_level="global-default"} 49"#)
    );
}

#[tokio::test]
async fn a_changed_priority_level_keeps_its_executing_requests() {
    let (controller, metrics, source) = controller();
    let alice = user("alice", &[]);
    let request = on("list", "", "pods", "");
    let later = || tokio::time::Instant::now() + Duration::from_secs(15);
    let first = controller.classify(&alice, &request).expect("a flow");
    let _seat = first.admit(later(), RequestKind::default()).await.expect("a seat");
    let shares = "/spec/limited/nominalConcurrencyShares";
    for level in &mut source.0.lock().1 {
        if let Some(shares) = level.pointer_mut(shares) {
            *shares = json!(0);
        }
    }
    let known = controller.configuration.load();
    let read = Configuration::read(&*source, &known.levels, &controller.metrics);
    controller.configuration.store(Arc::new(read));
    let second = controller.classify(&alice, &request).expect("a flow");
    let rejection = second.admit(tokio::time::Instant::now(), RequestKind::default()).await.err();
    assert_eq!(rejection, Some(Rejection::TimeOut));
    let text = metrics.render([]);
    for line in [
        r#"apiserver_flowcontrol_current_executing_requests{flow_schema="global-default",priority_level="global-default"} 1"#,
        r#"apiserver_flowcontrol_rejected_requests_total{flow_schema="global-default",priority_level="global-default",reason="time-out"} 1"#,
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
}
