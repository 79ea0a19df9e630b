//! Nodes that are cordoned, drained, tainted and lost, pods that a client binds or that are
//! preempted, and certificates that are requested: from the view of their users.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_e2e::cluster::Builder;
use coracle_e2e::kubectl::{Scenario, run_scenario};
use coracle_e2e::{Cluster, cluster};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodCondition};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Config, Resource};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

struct Setup {
    cluster: Cluster,
    client: Client,
    pods: Api<Pod>,
    nodes: Api<Node>,
}

impl Setup {
    async fn start(nodes: &str) -> Result<Setup> {
        Setup::of(cluster().flag("--nodes", nodes)).await
    }

    async fn of(builder: Builder) -> Result<Setup> {
        let cluster = builder.with_service_account().start().await?;
        let client = cluster.client().await?;
        let (pods, nodes) = (Api::default_namespaced(client.clone()), Api::all(client.clone()));
        Ok(Setup { cluster, client, pods, nodes })
    }

    async fn create(&self, name: &str, spec: Value) -> Result<Pod> {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "img:1"}]},
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        Ok(self.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?)
    }

    async fn set_silent(&self, node: &str, value: Value) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"sim.coracle.dev/silent": value}}});
        self.nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn messages(&self, reason: &str) -> Result<Vec<String>> {
        let events = Api::<Event>::all(self.client.clone());
        let events = events.list(&ListParams::default().fields(&format!("reason={reason}"))).await?;
        Ok(events.into_iter().filter_map(|event| event.message).collect())
    }
}

async fn until<K>(api: Api<K>, name: &str, is_so: impl Fn(&K) -> bool) -> Result<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let so = await_condition(api, name, |object: Option<&K>| object.is_some_and(&is_so));
    let so = timeout(DEADLINE, so).await.with_context(|| format!("{name} does not come to be so"))??;
    so.with_context(|| format!("{name} is gone"))
}

fn condition<'a>(pod: &'a Pod, r#type: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == r#type)
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

fn has_taint(node: &Node, key: &str, effect: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == key && taint.effect == effect)
}

#[tokio::test]
async fn nodes_are_cordoned_drained_and_tainted() -> Result<()> {
    let scenario: &Scenario = &[
        ("run web --image=img:1 --restart=Never", &["pod/web created"]),
        ("wait --for=condition=Ready pod/web", &["condition met"]),
        ("cordon node-0", &["node/node-0 cordoned"]),
        ("get node node-0", &["Ready,SchedulingDisabled"]),
        (
            "wait --for=jsonpath={.spec.taints[0].key}=node.kubernetes.io/unschedulable node/node-0",
            &["condition met"],
        ),
        ("run late --image=img:1 --restart=Never", &["pod/late created"]),
        ("wait --for=condition=Ready pod/late", &["condition met"]),
        ("get pod late -o wide", &["node-1"]),
        ("drain node-0 --force --ignore-daemonsets", &["evicting pod default/web", "node/node-0 drained"]),
        ("! get pod web", &["NotFound"]),
        ("uncordon node-0", &["node/node-0 uncordoned"]),
        (
            "wait --for=jsonpath={.metadata.annotations.node\\.alpha\\.kubernetes\\.io/ttl}=0 node/node-0",
            &["condition met"],
        ),
        ("taint node node-1 gpu=yes:NoExecute", &["node/node-1 tainted"]),
        ("wait --for=delete pod/late", &[]),
        ("taint node node-1 gpu-", &["node/node-1 untainted"]),
        (
            "get events --field-selector reason=TaintManagerEviction",
            &["Marking for deletion Pod default/late"],
        ),
    ];
    run_scenario(cluster().flag("--nodes", "2"), scenario).await
}

#[tokio::test]
async fn a_silent_node_loses_its_pods_and_comes_back() -> Result<()> {
    let setup = Setup::of(cluster().flag("--nodes", "2").flag("--clock", "manual")).await?;
    let on = |node: &str| json!({"nodeName": node});
    let tolerant = json!({"nodeName": "node-1", "tolerations": [{"operator": "Exists"}]});
    let short = json!({"nodeName": "node-1", "tolerations": [{
        "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1,
    }]});
    for (name, spec) in [("here", on("node-0")), ("stays", tolerant), ("goes", short)] {
        setup.create(name, spec).await?;
        until(setup.pods.clone(), name, is_ready).await?;
    }
    setup.set_silent("node-1", json!("true")).await?;
    // A silent node is noticed after fifty seconds.
    setup.cluster.advance("1m").await?;
    let unknown = |node: &Node| {
        has_taint(node, "node.kubernetes.io/unreachable", "NoSchedule")
            && has_taint(node, "node.kubernetes.io/unreachable", "NoExecute")
    };
    let node = until(setup.nodes.clone(), "node-1", unknown).await?;
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    for condition in &conditions {
        ensure!(condition.status == "Unknown", "{condition:?}");
        ensure!(condition.reason.as_deref() == Some("NodeStatusUnknown"), "{condition:?}");
    }
    until(setup.pods.clone(), "stays", |pod| !is_ready(pod)).await?;
    let goes = until(setup.pods.clone(), "goes", |pod| pod.metadata.deletion_timestamp.is_some()).await?;
    let target = condition(&goes, "DisruptionTarget").context("no condition")?;
    ensure!(target.reason.as_deref() == Some("DeletionByTaintManager"), "{target:?}");
    let here = setup.pods.get("here").await?;
    ensure!(is_ready(&here), "pods of other nodes are left alone");
    setup.set_silent("node-1", Value::Null).await?;
    setup.cluster.advance("10s").await?;
    until(setup.nodes.clone(), "node-1", |node| {
        !has_taint(node, "node.kubernetes.io/unreachable", "NoSchedule")
            && !has_taint(node, "node.kubernetes.io/unreachable", "NoExecute")
    })
    .await?;
    until(setup.pods.clone(), "stays", is_ready).await?;
    let gone = await_condition(
        setup.pods.clone(),
        "goes",
        kube::runtime::conditions::is_deleted(goes.metadata.uid.as_deref().unwrap_or_default()),
    );
    timeout(DEADLINE, gone).await.context("the pod stays")??;
    let messages = setup.messages("NodeNotReady").await?;
    for wanted in ["Node node-1 status is now: NodeNotReady", "Node is not ready"] {
        ensure!(messages.iter().any(|message| message == wanted), "{messages:?}");
    }
    setup.cluster.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_kubelet_rejects_what_does_not_fit() -> Result<()> {
    let setup = Setup::start("1").await?;
    let port = json!({
        "nodeName": "node-0",
        "containers": [{"name": "c", "image": "img:1", "ports": [{"containerPort": 80, "hostPort": 80}]}],
    });
    setup.create("first", port.clone()).await?;
    until(setup.pods.clone(), "first", is_ready).await?;
    let too_much = json!({"requests": {"cpu": "33"}});
    for (name, spec, reason) in [
        ("port", port.clone(), "NodePorts"),
        ("affinity", json!({"nodeName": "node-0", "nodeSelector": {"no": "such"}}), "NodeAffinity"),
        (
            "cpu",
            json!({"nodeName": "node-0", "containers": [{"name": "c", "image": "img:1", "resources": too_much}]}),
            "OutOfcpu",
        ),
    ] {
        setup.create(name, spec).await?;
        let failed = |pod: &Pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Failed"));
        let pod = until(setup.pods.clone(), name, failed).await?;
        let status = pod.status.context("no status")?;
        ensure!(status.reason.as_deref() == Some(reason), "{name}: {status:?}");
        ensure!(status.message.is_some_and(|message| message.starts_with("Pod was rejected: ")), "{name}");
    }
    setup.pods.delete("first", &DeleteParams::default().grace_period(0)).await?;
    setup.create("second", port).await?;
    until(setup.pods.clone(), "second", is_ready).await?;
    Ok(())
}

#[tokio::test]
async fn an_important_pod_preempts_another_one() -> Result<()> {
    let setup = Setup::start("1").await?;
    let classes = Api::<PriorityClass>::all(setup.client.clone());
    let class = json!({"metadata": {"name": "important"}, "value": 1000});
    classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    let asking =
        |cpu: &str| json!([{"name": "c", "image": "img:1", "resources": {"requests": {"cpu": cpu}}}]);
    for (name, cpu) in [("small", "1"), ("large", "30")] {
        setup.create(name, json!({"containers": asking(cpu)})).await?;
        until(setup.pods.clone(), name, is_ready).await?;
    }
    let important = json!({"containers": asking("30"), "priorityClassName": "important"});
    let preemptor = setup.create("important", important).await?;
    let pod = until(setup.pods.clone(), "important", is_ready).await?;
    ensure!(pod.spec.and_then(|spec| spec.node_name).as_deref() == Some("node-0"));
    ensure!(is_ready(&setup.pods.get("small").await?));
    ensure!(setup.pods.get_opt("large").await?.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
    let uid = preemptor.metadata.uid.unwrap_or_default();
    let wanted = format!("Preempted by pod {uid} on node node-0");
    let has_event = async {
        while !setup.messages("Preempted").await?.contains(&wanted) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    timeout(DEADLINE, has_event).await.context("no event")??;
    Ok(())
}

#[tokio::test]
async fn an_approved_request_becomes_a_certificate_that_authenticates() -> Result<()> {
    let setup = Setup::start("0").await?;
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    params.distinguished_name.push(DnType::OrganizationName, "developers");
    let request = params.serialize_request(&key)?.pem()?;
    let requests = Api::<CertificateSigningRequest>::all(setup.client.clone());
    let mut object: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"name": "jane"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "request": "", "usages": ["client auth"]},
    }))?;
    object.spec.request = k8s_openapi::ByteString(request.into_bytes());
    let mut object = requests.create(&PostParams::default(), &object).await?;
    object.status = serde_json::from_value(json!({
        "conditions": [{"type": "Approved", "status": "True", "reason": "Test"}],
    }))?;
    requests.replace_subresource("approval", "jane", &PostParams::default(), &object).await?;
    let issued = until(requests, "jane", |request| {
        request.status.as_ref().is_some_and(|status| status.certificate.is_some())
    })
    .await?;
    let certificate = issued.status.and_then(|status| status.certificate).context("no certificate")?;
    let mut config: Config = setup.cluster.config().await?;
    let encode = |bytes: &[u8]| STANDARD.encode(bytes);
    config.auth_info.client_certificate_data = Some(encode(&certificate.0));
    config.auth_info.client_key_data = Some(encode(key.serialize_pem().as_bytes()).into());
    let jane = Client::try_from(config)?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = Api::<SelfSubjectReview>::all(jane);
    let review = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
    let user = review.status.and_then(|status| status.user_info).context("no user")?;
    ensure!(user.username.as_deref() == Some("jane"), "{user:?}");
    ensure!(user.groups.unwrap_or_default().contains(&"developers".to_owned()));
    Ok(())
}

#[tokio::test]
async fn rules_of_cluster_roles_are_aggregated() -> Result<()> {
    let setup = Setup::start("0").await?;
    let roles = Api::<ClusterRole>::all(setup.client.clone());
    let rule = json!([{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}]);
    let role = json!({
        "metadata": {"name": "things", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": rule,
    });
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let has_rule = |role: &ClusterRole| {
        let groups = role.rules.iter().flatten().flat_map(|rule| rule.api_groups.iter().flatten());
        groups.into_iter().any(|group| group == "example.com")
    };
    // The roles for editors and administrators aggregate that of viewers.
    for name in ["view", "edit", "admin"] {
        until(roles.clone(), name, has_rule).await?;
    }
    roles.delete("things", &DeleteParams::default()).await?;
    until(roles, "admin", |role| !has_rule(role)).await?;
    Ok(())
}
