//! The small controllers, tested twice: in the control plane, and in a process of their own.

use std::path::PathBuf;
use std::pin::pin;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coracle_e2e::http::Endpoint;
use coracle_e2e::{Cluster, binary, cluster};
use futures::future::try_join_all;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(60);

/// A control plane, and its controllers.
struct Scenario {
    cluster: Cluster,
    client: Client,
    /// The process of the controllers, if they have one.
    out_of_process: Option<Controllers>,
    _data: TempDir,
}

impl Scenario {
    async fn start(out_of_process: bool) -> Result<Scenario> {
        let data = TempDir::new()?;
        let builder = cluster().data_dir(data.path());
        let cluster =
            if out_of_process { builder.flag("--controllers", "").start() } else { builder.start() }.await?;
        let key = data.path().join("pki/service-account.key");
        let out_of_process = out_of_process.then(|| Controllers::start(&cluster, Some(key))).transpose()?;
        Ok(Scenario { client: cluster.client().await?, cluster, out_of_process, _data: data })
    }

    async fn end(self) -> Result<()> {
        if let Some(controllers) = self.out_of_process {
            assert!(controllers.stop().await?.status.success());
        }
        Ok(())
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), "scenario")
    }

    async fn create<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        Ok(self.api::<K>().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    async fn create_namespace(&self) -> Result<Api<Namespace>> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        let metadata = ObjectMeta { name: Some("scenario".to_owned()), ..ObjectMeta::default() };
        namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
        Ok(namespaces)
    }
}

/// A process of `coracle controllers`, killed at the end of its test.
struct Controllers(Child);

impl Controllers {
    fn start(cluster: &Cluster, key: Option<PathBuf>) -> Result<Controllers> {
        let mut command = Command::new(binary::coracle());
        command.arg("controllers").arg("--kubeconfig").arg(cluster.kubeconfig());
        if let Some(key) = key {
            command.arg("--service-account-private-key-file").arg(key);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        Ok(Controllers(command.spawn().context("coracle controllers")?))
    }

    /// Sends SIGTERM, and waits for the exit, before the lease would expire.
    async fn stop(self) -> Result<Output> {
        let id = self.0.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        let started = Instant::now();
        rustix::process::kill_process(id.context("it has ended before")?, rustix::process::Signal::TERM)?;
        let output = self.end().await?;
        assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());
        Ok(output)
    }

    async fn end(self) -> Result<Output> {
        Ok(timeout(DEADLINE, self.0.wait_with_output()).await.context("it does not end")??)
    }
}

/// Waits until an object, or its absence, meets a condition.
async fn until<K>(api: &Api<K>, name: &str, is: impl Fn(Option<&K>) -> bool) -> Result<Option<K>>
where
    K: Resource + Clone + std::fmt::Debug + Send + DeserializeOwned + 'static,
{
    let waiting = pin!(await_condition(api.clone(), name, |object: Option<&K>| is(object)));
    Ok(timeout(DEADLINE, waiting).await.with_context(|| format!("waiting for {name}"))??)
}

fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

/// Returns the messages of the conditions that are true.
fn failure_messages(namespace: Option<&Namespace>) -> Vec<String> {
    let conditions = namespace.and_then(|n| n.status.as_ref()?.conditions.as_ref());
    let bad = conditions.into_iter().flatten().filter(|condition| condition.status == "True");
    bad.filter_map(|condition| condition.message.clone()).collect()
}

async fn a_namespace_is_deleted_with_its_content(out_of_process: bool) -> Result<()> {
    let scenario = Scenario::start(out_of_process).await?;
    let namespaces = scenario.create_namespace().await?;
    let name = |name: &str| json!({"metadata": {"name": name}});
    let many = (0..50).map(|n| scenario.create::<ConfigMap>(name(&format!("many-{n}"))));
    try_join_all(many).await?;
    scenario
        .create::<ConfigMap>(json!({"metadata": {"name": "held", "finalizers": ["scenario.example/hold"]}}))
        .await?;
    scenario.create::<Secret>(name("secret")).await?;
    scenario.create::<Role>(name("role")).await?;
    scenario
        .create::<Service>(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}))
        .await?;
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    scenario
        .create::<Deployment>(json!({"metadata": {"name": "web"}, "spec": {
            "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template,
        }}))
        .await?;
    until(&scenario.api::<ServiceAccount>(), "default", |account| account.is_some()).await?;
    // No node runs the pod, so only the test ends it.
    scenario
        .create::<Pod>(json!({
            "metadata": {"name": "slow", "annotations": {"sim.coracle.dev/ignore": "true"}},
            "spec": {"nodeName": "nowhere", "terminationGracePeriodSeconds": 600,
                     "containers": [{"name": "c", "image": "i"}]},
        }))
        .await?;

    namespaces.delete("scenario", &DeleteParams::default()).await?;
    let pods = scenario.api::<Pod>();
    until(&pods, "slow", |pod| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())).await?;
    let updated = until(&namespaces, "scenario", |namespace| {
        namespace.and_then(|n| n.status.as_ref()?.conditions.as_ref()).is_some_and(|all| all.len() == 5)
    });
    assert_eq!(failure_messages(updated.await?.as_ref()), [""; 0], "nothing is said while pods remain");
    let held = scenario.api::<ConfigMap>().get("held").await?;
    assert_eq!(held.metadata.deletion_timestamp, None, "nothing goes before the pods");

    // That the last pod is gone is noticed; the deletion is tried again in five minutes only.
    pods.delete("slow", &DeleteParams::default().grace_period(0)).await?;
    let updated = until(&namespaces, "scenario", |namespace| !failure_messages(namespace).is_empty()).await?;
    assert_eq!(
        failure_messages(updated.as_ref()),
        [
            "Some resources are remaining: configmaps. has 1 resource instances",
            "Some content in the namespace has finalizers remaining: scenario.example/hold in 1 resource instances",
        ]
    );
    let free = merge(json!({"metadata": {"finalizers": null}}));
    scenario.api::<ConfigMap>().patch("held", &PatchParams::default(), &free).await?;
    until(&namespaces, "scenario", |namespace| namespace.is_none()).await?;

    // A namespace of the same name is empty.
    scenario.create_namespace().await?;
    assert_eq!(scenario.api::<Secret>().list(&Default::default()).await?.items.len(), 0);
    assert_eq!(scenario.api::<Service>().list(&Default::default()).await?.items.len(), 0);
    scenario.end().await
}

async fn default_objects_of_a_namespace_are_recreated(out_of_process: bool) -> Result<()> {
    let scenario = Scenario::start(out_of_process).await?;
    scenario.create_namespace().await?;
    let accounts = scenario.api::<ServiceAccount>();
    let first = until(&accounts, "default", |account| account.is_some()).await?;
    accounts.delete("default", &DeleteParams::default()).await?;
    let uid = first.and_then(|account| account.metadata.uid);
    until(&accounts, "default", |account| account.is_some_and(|account| account.metadata.uid != uid)).await?;

    let certificates = scenario.api::<ConfigMap>();
    const NAME: &str = "kube-root-ca.crt";
    let first = until(&certificates, NAME, |config_map| config_map.is_some()).await?;
    let first = first.and_then(|config_map| config_map.data).context("its data")?;
    assert!(first["ca.crt"].starts_with("-----BEGIN CERTIFICATE-----"));
    let as_first =
        |config_map: Option<&ConfigMap>| config_map.is_some_and(|c| c.data.as_ref() == Some(&first));
    let other = merge(json!({"data": {"ca.crt": "other", "more": "data"}}));
    certificates.patch(NAME, &PatchParams::default(), &other).await?;
    until(&certificates, NAME, as_first).await?;
    let gone = certificates.get(NAME).await?.metadata.uid;
    certificates.delete(NAME, &DeleteParams::default()).await?;
    until(&certificates, NAME, |c| as_first(c) && c.is_some_and(|c| c.metadata.uid != gone)).await?;
    scenario.end().await
}

async fn tokens_live_in_secrets(out_of_process: bool) -> Result<()> {
    const TYPE: &str = "kubernetes.io/service-account-token";
    let scenario = Scenario::start(out_of_process).await?;
    scenario.create_namespace().await?;
    let (secrets, accounts) = (scenario.api::<Secret>(), scenario.api::<ServiceAccount>());
    let of_bot = |name: &str| {
        json!({"type": TYPE, "metadata": {
            "name": name, "annotations": {"kubernetes.io/service-account.name": "bot"},
        }})
    };
    scenario.create::<ServiceAccount>(json!({"metadata": {"name": "bot"}})).await?;
    scenario.create::<Secret>(of_bot("token")).await?;
    let filled = until(&secrets, "token", |secret| {
        secret.and_then(|secret| secret.data.as_ref()).is_some_and(|data| data.contains_key("token"))
    });
    let data = filled.await?.and_then(|secret| secret.data).context("its data")?;
    assert_eq!(data["namespace"].0, b"scenario");
    let endpoint =
        Endpoint::with_token(&scenario.cluster.config().await?, std::str::from_utf8(&data["token"].0)?)?;
    let mut connection = endpoint.connect().await?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let response = connection.call("POST", path, &[], Some(review.clone().into())).await?;
    assert_eq!(response.status, 201, "{response:?}");
    let response: Value = serde_json::from_slice(&response.body)?;
    assert_eq!(response["status"]["userInfo"]["username"], "system:serviceaccount:scenario:bot");

    accounts.delete("bot", &DeleteParams::default()).await?;
    until(&secrets, "token", |secret| secret.is_none()).await?;
    assert_eq!(connection.call("POST", path, &[], Some(review.into())).await?.status, 401);
    scenario.create::<Secret>(of_bot("late")).await?;
    until(&secrets, "late", |secret| secret.is_none()).await?;
    scenario.end().await
}

/// Makes tests of each scenario, with the controllers in the control plane and in a process of
/// their own.
macro_rules! scenarios {
    ($($scenario:ident)*) => {
        mod within {
            $(#[tokio::test]
            async fn $scenario() -> anyhow::Result<()> { super::$scenario(false).await })*
        }
        mod out_of_process {
            $(#[tokio::test]
            async fn $scenario() -> anyhow::Result<()> { super::$scenario(true).await })*
        }
    };
}

scenarios! { a_namespace_is_deleted_with_its_content default_objects_of_a_namespace_are_recreated tokens_live_in_secrets }

fn holder(lease: Option<&Lease>) -> Option<String> {
    lease?.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())
}

#[tokio::test]
async fn one_process_leads_at_a_time() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let leases = Api::<Lease>::namespaced(cluster.client().await?, "kube-system");
    const NAME: &str = "kube-controller-manager";
    let first = Controllers::start(&cluster, None)?;
    let leader = holder(until(&leases, NAME, |lease| holder(lease).is_some()).await?.as_ref());

    // A released lease is acquired soon, before it expires.
    let second = Controllers::start(&cluster, None)?;
    assert!(first.stop().await?.status.success());
    let started = Instant::now();
    until(&leases, NAME, |lease| holder(lease).is_some_and(|now| Some(now) != leader)).await?;
    assert!(started.elapsed() < Duration::from_secs(10), "it took {:?}", started.elapsed());

    // A process that loses the lease exits, so that two never work at the same time.
    let other = merge(json!({"spec": {"holderIdentity": "other", "leaseDurationSeconds": 3600}}));
    leases.patch(NAME, &PatchParams::default(), &other).await?;
    let output = second.end().await?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().last(), Some("coracle: leaderelection lost"));
    assert_eq!(holder(Some(&leases.get(NAME).await?)).as_deref(), Some("other"));
    Ok(())
}
