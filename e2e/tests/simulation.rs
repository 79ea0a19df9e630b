//! The simulation beyond running pods: usage, logs that are followed, claims of devices; and the
//! controllers that are off by default.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster;
use coracle_e2e::cluster::Cluster;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::kubectl::{command, kubectl, output, run_scenario};
use coracle_e2e::wait::{DEADLINE, until, until_object};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::time::timeout;

/// Containers that request 100m and use 250m.
const WEB: &str = r#"patch deployment web -p {"spec":{"template":{"metadata":{"annotations":{"sim.coracle.dev/cpu":"250m","sim.coracle.dev/memory":"64Mi"}},"spec":{"containers":[{"name":"web","resources":{"requests":{"cpu":"100m"}}}]}}}}"#;

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
}

fn idle_pod(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "img"}],
        },
    })
}

async fn running(client: &Client, name: &str) -> Result<Pod> {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let is_running = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.status.as_ref())
            .is_some_and(|status| status.phase.as_deref() == Some("Running"))
    };
    until_object(pods, name, is_running).await?.context("it is there")
}

#[tokio::test]
async fn deployments_are_scaled_by_the_usage_of_their_pods() -> Result<()> {
    run_scenario(
        cluster().flag("--horizontal-pod-autoscaler-sync-period", "1s"),
        &[
            ("! top pods", &["Metrics API not available"]),
            ("create deployment web --image=web:1", &["created"]),
            ("rollout status deployment/web --timeout=30s", &["successfully rolled out"]),
            ("wait --for=create apiservice/v1beta1.metrics.k8s.io --timeout=20s", &[]),
            ("wait --for=condition=Available apiservice/v1beta1.metrics.k8s.io --timeout=20s", &["condition met"]),
            ("get apiservices v1beta1.metrics.k8s.io", &["Local", "True"]),
            // A pod without requests.
            ("top pods", &["CPU(cores)", "MEMORY(bytes)", "web-", "1m", "8Mi"]),
            ("top nodes", &["node-0", "51m", "264Mi"]),
            (WEB, &["patched"]),
            ("rollout status deployment/web --timeout=30s", &["successfully rolled out"]),
            ("top pods", &["web-", "250m", "64Mi"]),
            ("top pods -l app=nothing", &["No resources found"]),
            ("autoscale deployment web --cpu-percent=50 --min=1 --max=3", &["autoscaled"]),
            ("wait --for=jsonpath={.status.desiredReplicas}=3 hpa/web --timeout=40s", &["condition met"]),
            (
                "wait --for=jsonpath={.status.conditions[?(@.type=='ScalingLimited')].reason}=TooManyReplicas hpa/web --timeout=40s",
                &["condition met"],
            ),
            (
                "describe hpa web",
                &[
                    "resource cpu on pods  (as a percentage of request):  250% (250m) / 50%",
                    "AbleToScale", "ScalingActive", "ValidMetricFound", "SuccessfulRescale",
                ],
            ),
            ("wait --for=jsonpath={.status.readyReplicas}=3 deployment/web --timeout=30s", &["condition met"]),
            // The usage decreases, and so does the number of replicas.
            (
                r#"patch hpa web -p {"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":0}}}}"#,
                &["patched"],
            ),
            (
                r#"patch deployment web -p {"spec":{"template":{"metadata":{"annotations":{"sim.coracle.dev/cpu":"10m"}}}}}"#,
                &["patched"],
            ),
            ("wait --for=jsonpath={.status.desiredReplicas}=1 hpa/web --timeout=50s", &["condition met"]),
            ("wait --for=jsonpath={.spec.replicas}=1 deployment/web --timeout=30s", &["condition met"]),
        ],
    )
    .await
}

#[tokio::test]
async fn a_kubelet_observes_each_generation_of_a_pod() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let client = cluster.client().await?;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    create(&pods, idle_pod("pod", json!({}))).await?;
    running(&client, "pod").await?;
    let observed = async || Ok(pods.get("pod").await?.status.unwrap_or_default());
    for generation in 1..4 {
        let patch = json!({"spec": {"activeDeadlineSeconds": 10_000 - generation}});
        if generation > 1 {
            pods.patch("pod", &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        until("the generation is observed", observed, |status| {
            let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
            status.observed_generation == Some(generation)
                && ready.is_some_and(|ready| ready.observed_generation == Some(generation))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn containers_are_resized_and_replaced_while_they_run() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let client = cluster.client().await?;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let resize = async |name: &str, container: Value| {
        let patch = Patch::Strategic(json!({"spec": {"containers": [container]}}));
        pods.patch_subresource("resize", name, &PatchParams::default(), &patch).await
    };
    let requests = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    for (name, cpu) in [("first", "20"), ("second", "10")] {
        let mut pod = idle_pod(name, json!({}));
        pod["spec"]["containers"][0]["resources"] = requests(cpu)["resources"].clone();
        create(&pods, pod).await?;
        running(&client, name).await?;
    }
    let pending = |pod: &Pod| {
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.find(|condition| condition.type_ == "PodResizePending")?.message.clone()
    };
    let allocated = |pod: &Pod| -> Option<String> {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        Some(statuses[0].allocated_resources.as_ref()?.get("cpu")?.0.clone())
    };

    // The node has 32 processors.
    resize("first", requests("25")).await?;
    let waits =
        until("it waits", async || Ok(pods.get("first").await?), |pod| pending(pod).is_some()).await?;
    let message = "Node didn't have enough resource: cpu, requested: 25000, used: 10000, capacity: 32000";
    assert_eq!((pending(&waits).as_deref(), allocated(&waits).as_deref()), (Some(message), Some("20")));
    resize("second", requests("7")).await?;
    let has =
        |cpu: &'static str| move |pod: &Pod| pending(pod).is_none() && allocated(pod).as_deref() == Some(cpu);
    until("the other has made room", async || Ok(pods.get("first").await?), has("25")).await?;
    resize("first", requests("30")).await?;
    until("it waits", async || Ok(pods.get("first").await?), |pod| pending(pod).is_some()).await?;

    let other = Patch::Strategic(json!({"spec": {"containers": [{"name": "c", "image": "other"}]}}));
    pods.patch("second", &PatchParams::default(), &other).await?;
    until(
        "it is replaced",
        async || Ok(pods.get("second").await?),
        |pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            statuses
                .into_iter()
                .any(|status| status.restart_count == 1 && status.image == "other" && status.ready)
        },
    )
    .await?;
    pods.delete("second", &DeleteParams::default()).await?;
    until("its end has made room", async || Ok(pods.get("first").await?), has("30")).await?;

    Api::<Node>::all(client.clone()).cordon("node-0").await?;
    let events = Api::<Event>::default_namespaced(client);
    until(
        "events",
        async || Ok(events.list(&ListParams::default()).await?.items),
        |events| {
            let about = |name: &str| -> Vec<_> {
                let about = events.iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
                about.filter_map(|event| event.reason.as_deref()).collect()
            };
            let reasons = ["ResizeDeferred", "ResizeStarted", "ResizeCompleted"];
            reasons.iter().all(|reason| about("first").contains(reason))
                && about("second").contains(&"Killing")
                && about("node-0").contains(&"NodeNotSchedulable")
        },
    )
    .await
    .map(drop)
}

#[tokio::test]
async fn metrics_are_served_once_a_pod_is_measured() -> Result<()> {
    let cluster = cluster().flag("--simulation-profile", "inert").with_service_account().start().await?;
    let client = cluster.client().await?;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    create(&pods, idle_pod("plain", json!({}))).await?;
    running(&client, "plain").await?;
    let groups = client.list_api_groups().await?;
    ensure!(groups.groups.iter().all(|group| group.name != "metrics.k8s.io"), "{groups:?}");
    let mut busy = idle_pod("busy", json!({"sim.coracle.dev/cpu": "1500m"}));
    busy["metadata"]["labels"] = json!({"app": "busy"});
    create(&pods, busy).await?;
    running(&client, "busy").await?;
    let resource = ApiResource {
        group: "metrics.k8s.io".into(),
        version: "v1beta1".into(),
        api_version: "metrics.k8s.io/v1beta1".into(),
        kind: "PodMetrics".into(),
        plural: "pods".into(),
    };
    let metrics = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource);
    let served = async || Ok(metrics.get_opt("busy").await?.is_some());
    until("its metrics are served", served, |served| *served).await?;
    let names = async |selector: &str| -> Result<Vec<String>> {
        let listed = metrics.list(&ListParams::default().labels(selector)).await?;
        Ok(listed.items.iter().map(ResourceExt::name_any).collect())
    };
    ensure!(
        names("").await? == ["busy"]
            && names("app=busy").await? == ["busy"]
            && names("app!=busy").await?.is_empty()
    );
    let missing = metrics.get("plain").await.err().context("it is not measured")?;
    ensure!(
        missing.to_string().contains(r#"podmetrics.metrics.k8s.io "default/plain" not found"#),
        "{missing}"
    );
    let mut connection = cluster.endpoint().await?.connect().await?;
    let mut get = async |path: &str, accept: &str| -> Result<String> {
        let response = connection.call("GET", path, &[("Accept", Some(accept))], None).await?;
        ensure!(response.status == 200, "{path}: {response:?}");
        Ok(String::from_utf8_lossy(&response.body).into_owned())
    };
    let discovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for (path, accept, want) in [
        ("/apis", "application/json", r#""groupVersion":"metrics.k8s.io/v1beta1""#),
        ("/apis", discovery, r#""kind":"NodeMetrics""#),
        ("/apis/metrics.k8s.io/v1beta1", "application/json", r#""kind":"PodMetrics""#),
        (
            "/openapi/v3/apis/metrics.k8s.io/v1beta1",
            "application/json",
            "io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics",
        ),
        ("/apis/metrics.k8s.io/v1beta1/nodes/node-0", "application/json", r#""cpu":"1500m""#),
        (
            "/apis/metrics.k8s.io/v1beta1/pods",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            r#""name":"Window""#,
        ),
        ("/apis/metrics.k8s.io/v1beta1/pods", "application/vnd.kubernetes.protobuf", "PodMetricsList"),
    ] {
        let text = get(path, accept).await?;
        ensure!(text.contains(want), "{path} as {accept}: no {want} in {text}");
    }
    Ok(())
}

#[tokio::test]
async fn logs_are_followed_until_the_pod_is_deleted() -> Result<()> {
    let Some(kubectl) = kubectl() else { return Ok(()) };
    let cluster = cluster().with_service_account().start().await?;
    let client = cluster.client().await?;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    create(&pods, idle_pod("web", json!({"sim.coracle.dev/log": "one\ntwo"}))).await?;
    running(&client, "web").await?;
    let follow = |line: &str| -> Result<_> {
        let mut child = command(&cluster, kubectl, line).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok((child, lines))
    };
    let (mut following, mut lines) = follow("logs -f web --tail=1")?;
    let mut expect = async |want: Option<&str>| -> Result<()> {
        let line = timeout(DEADLINE, lines.next_line()).await.with_context(|| format!("no {want:?}"))??;
        ensure!(line.as_deref() == want, "{line:?} instead of {want:?}");
        Ok(())
    };
    expect(Some("two")).await?;
    for (log, want) in [("one\ntwo\nthree", "three"), ("one\ntwo\nthree\nfour\n", "four"), ("anew", "anew")] {
        let patch = json!({"metadata": {"annotations": {"sim.coracle.dev/log": log}}});
        pods.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await?;
        expect(Some(want)).await?;
    }
    let limited = output(command(&cluster, kubectl, "logs web --timestamps --limit-bytes=12")).await?;
    ensure!(limited.stdout.len() == 12, "{limited:?}");
    pods.delete("web", &DeleteParams::default()).await?;
    expect(None).await?;
    ensure!(timeout(DEADLINE, following.wait()).await??.success());

    // A container that ends and is restarted has a log of its own each time.
    let restarting =
        idle_pod("job", json!({"sim.coracle.dev/exit-after": "1s", "sim.coracle.dev/log": "done"}));
    create(&pods, restarting).await?;
    running(&client, "job").await?;
    let (mut following, mut lines) = follow("logs -f job")?;
    let mut text = String::new();
    timeout(DEADLINE, lines.get_mut().read_to_string(&mut text)).await??;
    ensure!(text == "done\n" && following.wait().await?.success(), "{text}");
    Ok(())
}

#[tokio::test]
async fn claims_are_made_from_templates_and_deleted_with_their_pod() -> Result<()> {
    let cluster = cluster().with_service_account().start().await?;
    let client = cluster.client().await?;
    let claims = Api::<ResourceClaim>::default_namespaced(client.clone());
    let templates = Api::<ResourceClaimTemplate>::default_namespaced(client.clone());
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut pod = idle_pod("web", json!({}));
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "gpus"}]);
    create(&pods, pod).await?;
    let events = Api::<k8s_openapi::api::core::v1::Event>::default_namespaced(client.clone());
    let warned = async || {
        let events = events.list(&ListParams::default()).await?;
        Ok(events
            .items
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("FailedResourceClaimCreation")))
    };
    let event = until("a warning", warned, Option::is_some).await?.and_then(|event| event.message);
    let want = r#"PodResourceClaim gpu: resource claim template "gpus": resourceclaimtemplate.resource.k8s.io "gpus" not found"#;
    ensure!(event.as_deref() == Some(want), "{event:?}");
    create(&templates, json!({
        "metadata": {"name": "gpus"},
        "spec": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        },
    }))
    .await?;
    let recorded = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
        statuses.iter().find(|status| status.name == "gpu")?.resource_claim_name.clone()
    };
    let pod = until_object(pods.clone(), "web", |pod| pod.is_some_and(|pod| recorded(pod).is_some())).await?;
    let name = pod.as_ref().and_then(recorded).context("the name of the claim")?;
    ensure!(name.starts_with("web-gpu-"), "{name}");
    let claim = claims.get(&name).await?;
    ensure!(claim.labels().get("a").map(String::as_str) == Some("b"), "{claim:?}");
    ensure!(
        claim.annotations().get("resource.kubernetes.io/pod-claim-name").map(String::as_str) == Some("gpu")
    );
    let owner = claim.owner_references().first().context("no owner")?;
    ensure!(owner.name == "web" && owner.controller == Some(true) && owner.block_owner_deletion.is_none());
    pods.delete("web", &DeleteParams::default()).await?;
    until_object(claims, &name, |claim| claim.is_none()).await?;
    Ok(())
}

#[tokio::test]
async fn bootstrap_tokens_sign_and_expire() -> Result<()> {
    let selection = "*,bootstrap-signer-controller,token-cleaner-controller";
    let cluster = cluster().flag("--controllers", selection).flag("--nodes", "0").start().await?;
    let client = cluster.client().await?;
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-public");
    let secrets = Api::<Secret>::namespaced(client, "kube-system");
    create(&config_maps, json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "text"}}))
        .await?;
    let token = |id: &str, expiration: String| {
        json!({
            "metadata": {"name": format!("bootstrap-token-{id}")}, "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true",
                "expiration": expiration,
            },
        })
    };
    let soon = (k8s_openapi::jiff::Timestamp::now() + std::time::Duration::from_secs(10)).to_string();
    create(&secrets, token("aaaaaa", "2099-01-01T00:00:00Z".to_owned())).await?;
    create(&secrets, token("bbbbbb", soon)).await?;
    let signs = |config_map: Option<&ConfigMap>, id: &str| {
        let data = config_map.and_then(|config_map| config_map.data.as_ref());
        data.is_some_and(|data| data.contains_key(&format!("jws-kubeconfig-{id}")))
    };
    until_object(config_maps.clone(), "cluster-info", |found| {
        signs(found, "aaaaaa") && signs(found, "bbbbbb")
    })
    .await?;
    until_object(secrets.clone(), "bootstrap-token-bbbbbb", |secret| secret.is_none()).await?;
    until_object(config_maps, "cluster-info", |found| signs(found, "aaaaaa") && !signs(found, "bbbbbb"))
        .await?;
    ensure!(secrets.get_opt("bootstrap-token-aaaaaa").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn a_request_for_a_certificate_is_approved_on_the_command_line() -> Result<()> {
    let Some(kubectl) = kubectl() else { return Ok(()) };
    let cluster: Cluster = cluster().flag("--nodes", "0").start().await?;
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "jane");
    let request = params.serialize_request(&key)?.pem()?;
    let requests =
        Api::<k8s_openapi::api::certificates::v1::CertificateSigningRequest>::all(cluster.client().await?);
    let mut object = json!({
        "metadata": {"name": "jane"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
    });
    object["spec"]["request"] = serde_json::to_value(k8s_openapi::ByteString(request.into_bytes()))?;
    create(&requests, object).await?;
    for (line, want) in [
        ("get csr", "Pending"),
        ("certificate approve jane", "certificatesigningrequest.certificates.k8s.io/jane approved"),
        ("wait --for=jsonpath={.status.conditions[0].type}=Approved csr/jane --timeout=20s", "condition met"),
        ("wait --for=jsonpath={.status.certificate} csr/jane --timeout=20s", "condition met"),
        ("get csr", "Approved,Issued"),
    ] {
        let output = output(command(&cluster, kubectl, line)).await?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(text.contains(want), "kubectl {line}: {output:?}");
    }
    let issued =
        requests.get("jane").await?.status.and_then(|status| status.certificate).context("issued")?;
    std::fs::write(cluster.directory().join("jane.crt"), issued.0)?;
    std::fs::write(cluster.directory().join("jane.key"), key.serialize_pem())?;
    let file = |name: &str| cluster.directory().join(name).display().to_string();
    let line =
        format!("auth whoami --client-certificate={} --client-key={}", file("jane.crt"), file("jane.key"));
    let whoami = output(command(&cluster, kubectl, &line)).await?;
    ensure!(String::from_utf8_lossy(&whoami.stdout).contains("jane"), "{whoami:?}");
    Ok(())
}

/// Creates a class just before its Ingress, so that it is not cached yet: its controller would find
/// our address there.
#[tokio::test]
async fn an_ingress_of_a_new_class_gets_no_address() -> Result<()> {
    const GROUP: &str = "/apis/networking.k8s.io/v1";
    const PAIRS: usize = 40;
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let ingresses = format!("{GROUP}/namespaces/default/ingresses");
    let ingress = |name: &str, class: &str| {
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        json!({"metadata": {"name": name}, "spec": {"ingressClassName": class, "defaultBackend": backend}})
    };
    for pair in 0..PAIRS {
        let name = format!("class-{pair}");
        let class = json!({"metadata": {"name": name}, "spec": {"controller": "example.com/ingress"}});
        client.create(&format!("{GROUP}/ingressclasses"), class).await?;
        client.create(&ingresses, ingress(&name, &name)).await?;
    }
    // The last one has no controller. Once it has an address, the others have been processed.
    client.create(&ingresses, ingress("last", "missing")).await?;
    let address = |ingress: &Value| ingress["status"]["loadBalancer"]["ingress"][0]["ip"].clone();
    client.until(&format!("{ingresses}/last"), |ingress| address(ingress).is_string()).await?;
    let all = client.list(&ingresses).await?;
    ensure!(all.len() == PAIRS + 1, "{}", all.len());
    let addressed = all.iter().filter(|ingress| address(ingress).is_string()).count();
    ensure!(addressed == 1, "{addressed} of {PAIRS} have our address");
    Ok(())
}
