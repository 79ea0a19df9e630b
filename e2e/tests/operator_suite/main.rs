//! The suite of an operator: tests of a table, in parallel, each of which begins with a control
//! plane for itself.
//!
//! - `CORACLE_STATE` chooses the control plane: a `fork` of a template for each test (the default),
//!   one of its `own` that is set up anew, or one that is `shared`, with clean-up. The last two are
//!   here to be compared with the first one.
//! - `CORACLE_TESTS` is the number of tests, 40 by default; 200 are all.
//! - `CORACLE_PARALLEL` is the number of tests at a time, 8 by default.
//!
//! `e2e/clients` has the same operator and suite in Go and in Python.

mod operator;
mod state;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use coracle_e2e::wait::until_object;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::operator::{Mooring, berth_of, berths, harbours};
use crate::state::{Mode, State, Suite, strict_harbour};

const IMAGE: &str = "quay.example/boat:1";
const REFUSAL: &str = "harbour main forbids images of rotten.example";

type Run = for<'a> fn(&'a State<'_>, i32) -> BoxFuture<'a, Result<()>>;

struct Scenario {
    name: &'static str,
    run: Run,
    /// It changes what the others rely on.
    is_exclusive: bool,
}

macro_rules! scenario {
    ($run:ident) => {
        Scenario {
            name: stringify!($run),
            run: |state, boats| $run(state, boats).boxed(),
            is_exclusive: false,
        }
    };
}

/// The tests of a Mooring, each of which runs for many numbers of boats.
const SCENARIOS: [Scenario; 10] = [
    scenario!(becomes_ready),
    scenario!(is_scaled),
    scenario!(follows_its_image),
    scenario!(restores_what_it_owns),
    scenario!(is_finalized),
    scenario!(is_deleted_in_the_foreground),
    scenario!(is_refused_for_its_image),
    scenario!(keeps_its_image),
    scenario!(has_limits),
    Scenario { is_exclusive: true, ..scenario!(obeys_a_new_harbour) },
];

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_keeps_its_promises() -> Result<()> {
    let (tests, parallel) = (number("CORACLE_TESTS", 40)?, number("CORACLE_PARALLEL", 8)?);
    let suite = Suite::start(Mode::from_environment()?).await?;
    let began = Instant::now();
    let results = stream::iter(0..tests).map(async |test| {
        let scenario = &SCENARIOS[test % SCENARIOS.len()];
        let boats = 1 + i32::try_from(test / SCENARIOS.len() % 5)?;
        let run = suite.run(scenario.is_exclusive, async |state| (scenario.run)(state, boats).await);
        run.await.with_context(|| format!("{} with {boats} boats", scenario.name))
    });
    let failures: Vec<_> =
        results.buffer_unordered(parallel).filter_map(async |result| result.err()).collect().await;
    println!("{tests} tests in {:.1?}, {parallel} at a time", began.elapsed());
    suite.stop().await?;
    ensure!(failures.is_empty(), "{} of {tests} tests failed: {failures:#?}", failures.len());
    Ok(())
}

fn number(variable: &str, default: usize) -> Result<usize> {
    match std::env::var(variable) {
        Ok(value) => value.parse().with_context(|| format!("{variable}={value}")),
        Err(_) => Ok(default),
    }
}

async fn becomes_ready(state: &State<'_>, boats: i32) -> Result<()> {
    let mooring = state.moor("tender", boats).await?;
    ensure!(mooring.status.as_ref().is_some_and(|status| status.ready == boats), "{mooring:?}");
    let settings = state.config_maps().get("tender").await?;
    let fleet = state.deployments().get("tender").await?;
    ensure!(settings.data.as_ref().is_some_and(|data| data["boats"] == boats.to_string()), "{settings:?}");
    ensure!(fleet.spec.as_ref().is_some_and(|spec| spec.replicas == Some(boats)), "{fleet:?}");
    for owners in [settings.owner_references(), fleet.owner_references()] {
        ensure!(owners.iter().any(|owner| Some(&owner.uid) == mooring.metadata.uid.as_ref()), "{owners:?}");
    }
    berths(state.client.clone()).get(&berth_of(&mooring)).await?;
    Ok(())
}

async fn is_scaled(state: &State<'_>, boats: i32) -> Result<()> {
    state.moor("tender", boats).await?;
    for boats in [boats + 3, boats] {
        state.patch(json!({"boats": boats})).await?;
        let mooring = state.until_ready("tender").await?;
        ensure!(
            mooring.status.as_ref().is_some_and(|status| status.ready == boats),
            "{boats} boats: {mooring:?}"
        );
    }
    Ok(())
}

async fn follows_its_image(state: &State<'_>, boats: i32) -> Result<()> {
    const NEW: &str = "quay.example/boat:2";
    state.moor("tender", boats).await?;
    state.patch(json!({"image": NEW})).await?;
    state.until_ready("tender").await?;
    for pod in state.pods().await?.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
        ensure!(image == Some(NEW), "{pod:?}");
    }
    Ok(())
}

async fn restores_what_it_owns(state: &State<'_>, boats: i32) -> Result<()> {
    state.moor("tender", boats).await?;
    let settings = state.config_maps();
    let is_restored = |settings: Option<&ConfigMap>| {
        let data = settings.and_then(|settings| settings.data.as_ref());
        data.is_some_and(|data| data["boats"] == boats.to_string())
    };
    let forged = Patch::Merge(json!({"data": {"boats": "forged"}}));
    let uid = settings.patch("tender", &PatchParams::default(), &forged).await?.metadata.uid;
    until_object(settings.clone(), "tender", is_restored).await?;

    settings.delete("tender", &DeleteParams::default()).await?;
    let is_new = |settings: Option<&ConfigMap>| settings.is_some_and(|settings| settings.metadata.uid != uid);
    until_object(settings, "tender", |settings| is_new(settings) && is_restored(settings)).await?;
    Ok(())
}

async fn is_finalized(state: &State<'_>, boats: i32) -> Result<()> {
    let mooring = state.moor("tender", boats).await?;
    state.moorings().delete("tender", &DeleteParams::background()).await?;
    until_object(state.moorings(), "tender", |mooring| mooring.is_none()).await?;
    ensure!(berths(state.client.clone()).get_opt(&berth_of(&mooring)).await?.is_none(), "its berth is left");
    // The garbage collector follows.
    until_object(state.config_maps(), "tender", |settings| settings.is_none()).await?;
    until_object(state.deployments(), "tender", |fleet| fleet.is_none()).await?;
    state.expect_no_pods().await
}

async fn is_deleted_in_the_foreground(state: &State<'_>, boats: i32) -> Result<()> {
    state.moor("tender", boats).await?;
    state.moorings().delete("tender", &DeleteParams::foreground()).await?;
    until_object(state.moorings(), "tender", |mooring| mooring.is_none()).await?;
    // Its dependents were deleted before it.
    ensure!(state.config_maps().get_opt("tender").await?.is_none(), "its ConfigMap is left");
    ensure!(state.deployments().get_opt("tender").await?.is_none(), "its Deployment is left");
    Ok(())
}

async fn is_refused_for_its_image(state: &State<'_>, boats: i32) -> Result<()> {
    refused(state.create("tender", boats, "rotten.example/boat:1").await, 403, REFUSAL)?;
    state.expect_no_pods().await
}

async fn keeps_its_image(state: &State<'_>, boats: i32) -> Result<()> {
    state.moor("tender", boats).await?;
    refused(state.patch(json!({"image": "rotten.example/boat:1"})).await, 403, REFUSAL)?;
    let fleet = state.deployments().get("tender").await?;
    ensure!(fleet.metadata.generation == Some(1), "{fleet:?}");
    Ok(())
}

async fn has_limits(state: &State<'_>, boats: i32) -> Result<()> {
    for boats in [-boats, 0, 20 + boats] {
        refused(state.create("tender", boats, IMAGE).await, 422, "spec.boats")?;
    }
    state.expect_no_pods().await
}

async fn obeys_a_new_harbour(state: &State<'_>, boats: i32) -> Result<()> {
    state.moor("tender", boats).await?;
    let harbours = harbours(state.client.clone());
    harbours.create(&PostParams::default(), &strict_harbour()).await?;
    let refusal = "harbour strict forbids images of quay.example";
    refused(state.create("second", boats, IMAGE).await, 403, refusal)?;
    // The first one goes on.
    state.patch(json!({"boats": boats + 1})).await?;
    state.until_ready("tender").await?;

    harbours.delete("strict", &DeleteParams::default()).await?;
    state.moor("second", boats).await?;
    Ok(())
}

fn refused(result: kube::Result<Mooring>, code: u16, reason: &str) -> Result<()> {
    let is_refusal = |error: &kube::Error| match error {
        kube::Error::Api(status) => status.code == code && status.message.contains(reason),
        _ => false,
    };
    ensure!(result.as_ref().is_err_and(is_refusal), "not refused since {reason}: {result:?}");
    Ok(())
}

impl State<'_> {
    pub fn moorings(&self) -> Api<Mooring> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &operator::resource("Mooring"))
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn pods(&self) -> Result<Vec<Pod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        Ok(pods.list(&ListParams::default()).await?.items)
    }

    async fn create(&self, name: &str, boats: i32, image: &str) -> kube::Result<Mooring> {
        let spec = operator::MooringSpec { boats, image: image.to_owned() };
        let mooring = Mooring::new(name, &operator::resource("Mooring"), spec);
        self.moorings().create(&PostParams::default(), &mooring).await
    }

    /// Creates a Mooring, and waits until it is ready.
    async fn moor(&self, name: &str, boats: i32) -> Result<Mooring> {
        self.create(name, boats, IMAGE).await?;
        self.until_ready(name).await
    }

    async fn patch(&self, spec: Value) -> kube::Result<Mooring> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.moorings().patch("tender", &PatchParams::default(), &patch).await
    }

    async fn until_ready(&self, name: &str) -> Result<Mooring> {
        let is_ready = |mooring: Option<&Mooring>| {
            mooring.is_some_and(|mooring| {
                let conditions = mooring.status.iter().flat_map(|status| &status.conditions);
                let mut current =
                    conditions.filter(|ready| ready.observed_generation == mooring.metadata.generation);
                current.any(|ready| ready.status == "True")
            })
        };
        until_object(self.moorings(), name, is_ready).await?.context("it was deleted")
    }

    /// Checks that there are no pods, and that none will come. Neighbors keep a shared control
    /// plane from settling.
    async fn expect_no_pods(&self) -> Result<()> {
        if let Some(control_plane) = self.control_plane {
            control_plane.settle().await?;
            let pods = self.pods().await?;
            ensure!(pods.is_empty(), "{pods:?}");
        }
        Ok(())
    }
}
