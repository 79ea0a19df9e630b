//! The initial state of a test: definitions and fixtures, a running operator, and a namespace
//! without Moorings.

use anyhow::{Result, bail};
use coracle::ControlPlane;
use coracle_e2e::wait::until_object;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::RwLock;
use uuid::Uuid;

use crate::IMAGE;
use crate::operator::{Harbour, HarbourSpec, Operator, Webhooks, harbours, ignore_not_found, resource};

const DEFINITIONS: &str = include_str!("../../clients/harbour/definitions.yaml");

/// The control plane of a test.
#[derive(Clone, Copy, PartialEq)]
pub enum Mode {
    Fork,
    Own,
    Shared,
}

impl Mode {
    pub fn from_environment() -> Result<Mode> {
        Ok(match std::env::var("CORACLE_STATE").as_deref() {
            Ok("fork") | Err(_) => Mode::Fork,
            Ok("own") => Mode::Own,
            Ok("shared") => Mode::Shared,
            Ok(other) => bail!("CORACLE_STATE is {other}: not fork, own or shared"),
        })
    }
}

/// The environment of a test.
pub struct State<'a> {
    pub client: Client,
    pub namespace: String,
    /// The control plane, if the test has it for itself.
    pub control_plane: Option<&'a ControlPlane>,
}

/// The state shared by all tests.
pub struct Suite {
    mode: Mode,
    webhooks: Webhooks,
    /// The template of all forks, or the control plane of all tests.
    base: ControlPlane,
    /// The operator of the control plane of all tests.
    operator: Option<Operator>,
    /// A read lock for each test on a shared control plane, and a write lock for an exclusive one.
    tests: RwLock<()>,
}

impl Suite {
    pub async fn start(mode: Mode) -> Result<Suite> {
        let (webhooks, base) = (Webhooks::start().await?, start().await?);
        let mut operator = None;
        if mode == Mode::Shared {
            operator = Some(Operator::start(base.client(), &webhooks).await?);
        }
        Ok(Suite { mode, webhooks, base, operator, tests: RwLock::default() })
    }

    pub async fn stop(self) -> Result<()> {
        if let Some(operator) = self.operator {
            operator.stop().await?;
        }
        Ok(self.base.shutdown().await?)
    }

    /// Runs a test. An exclusive one changes state that the others depend on.
    pub async fn run(
        &self,
        is_exclusive: bool,
        test: impl AsyncFnOnce(&State<'_>) -> Result<()>,
    ) -> Result<()> {
        match self.mode {
            Mode::Fork => self.run_alone(self.base.fork().await?, test).await,
            Mode::Own => self.run_alone(start().await?, test).await,
            Mode::Shared if is_exclusive => {
                let _alone = self.tests.write().await;
                self.run_beside_others(test).await
            }
            Mode::Shared => {
                let _beside_others = self.tests.read().await;
                self.run_beside_others(test).await
            }
        }
    }

    /// Runs a test that has a control plane for itself.
    async fn run_alone(
        &self,
        control_plane: ControlPlane,
        test: impl AsyncFnOnce(&State<'_>) -> Result<()>,
    ) -> Result<()> {
        let client = control_plane.client();
        let operator = Operator::start(client.clone(), &self.webhooks).await?;
        test(&State { client, namespace: "default".to_owned(), control_plane: Some(&control_plane) }).await?;
        operator.stop().await?;
        Ok(control_plane.shutdown().await?)
    }

    /// Runs a test in a namespace of the control plane of all, and cleans up.
    async fn run_beside_others(&self, test: impl AsyncFnOnce(&State<'_>) -> Result<()>) -> Result<()> {
        let client = self.base.client();
        let namespaces = Api::<Namespace>::all(client.clone());
        let namespace = format!("test-{}", Uuid::new_v4());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        namespaces.create(&PostParams::default(), &object).await?;
        let state = State { client, namespace, control_plane: None };
        let result = test(&state).await;
        for mooring in state.moorings().list(&ListParams::default()).await?.items {
            // Foreground deletion: its dependents are deleted before it.
            let deleted = state.moorings().delete(&mooring.name_any(), &DeleteParams::foreground()).await;
            ignore_not_found(deleted.map(drop))?;
            until_object(state.moorings(), &mooring.name_any(), |mooring| mooring.is_none()).await?;
        }
        let harbours = harbours(state.client.clone());
        ignore_not_found(harbours.delete("strict", &DeleteParams::default()).await.map(drop))?;
        // This is not waited for: no other test uses it, and it takes seconds by design.
        namespaces.delete(&state.namespace, &DeleteParams::default()).await?;
        result
    }
}

/// Starts a control plane with the definitions and 100 fixtures, one of which is a running
/// workload.
async fn start() -> Result<ControlPlane> {
    let control_plane = ControlPlane::builder().ephemeral().start().await?;
    let client = control_plane.client();
    for definition in DEFINITIONS.split("---\n") {
        let request = Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
            .header(CONTENT_TYPE, "application/yaml")
            .body(definition.into())?;
        client.request::<Value>(request).await?;
    }
    // After this they are served.
    control_plane.settle().await?;
    let main = DynamicObject::new("main", &resource("Harbour"));
    Api::all_with(client.clone(), &resource("Harbour")).create(&PostParams::default(), &main).await?;
    let lighthouse: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "lighthouse"},
        "spec": {
            "selector": {"matchLabels": {"app": "lighthouse"}},
            "template": {
                "metadata": {"labels": {"app": "lighthouse"}},
                "spec": {"containers": [{"name": "lighthouse", "image": IMAGE}]},
            },
        },
    }))?;
    Api::namespaced(client.clone(), "kube-public").create(&PostParams::default(), &lighthouse).await?;
    for number in 0..98 {
        let kind = ["Buoy", "Crane", "Pier", "Pilot", "Tug"][number % 5];
        let fixture = DynamicObject::new(&format!("fixture-{number}"), &resource(kind));
        let fixtures = Api::<DynamicObject>::default_namespaced_with(client.clone(), &resource(kind));
        fixtures.create(&PostParams::default(), &fixture).await?;
    }
    control_plane.settle().await?;
    Ok(control_plane)
}

/// Returns a Harbour that forbids the images of most tests.
pub fn strict_harbour() -> Harbour {
    let spec = HarbourSpec { forbidden: vec!["quay.example".to_owned()] };
    Harbour::new("strict", &resource("Harbour"), spec)
}
