//! An operator on kube-rs: a Deployment, a ConfigMap and a Berth for each Mooring, and a webhook
//! that refuses images.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use coracle_e2e::webhook;
use futures::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::gvk::GroupVersionKind;
use kube::core::{NotUsed, Object};
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::finalizer::{self, Event, finalizer};
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

const FINALIZER: &str = "harbour.example/berth";

/// A place for a number of boats: a Deployment with a replica for each.
pub type Mooring = Object<MooringSpec, MooringStatus>;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MooringSpec {
    pub boats: i32,
    pub image: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct MooringStatus {
    #[serde(default)]
    pub ready: i32,
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// The rules for the Moorings of all namespaces.
pub type Harbour = Object<HarbourSpec, NotUsed>;

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HarbourSpec {
    /// The registries whose images no Mooring may have.
    pub forbidden: Vec<String>,
}

/// Returns a resource of the operator.
pub fn resource(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("harbour.example", "v1", kind))
}

pub fn harbours(client: Client) -> Api<Harbour> {
    Api::all_with(client, &resource("Harbour"))
}

/// Returns the API of berths: cluster-scoped objects, which a Mooring cannot own.
pub fn berths(client: Client) -> Api<DynamicObject> {
    Api::all_with(client, &resource("Berth"))
}

pub fn berth_of(mooring: &Mooring) -> String {
    format!("{}-{}", mooring.namespace().unwrap_or_default(), mooring.name_any())
}

/// A running operator.
pub struct Operator {
    moorings: Store<Mooring>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Operator {
    /// Starts the operator, and registers its webhook.
    pub async fn start(client: Client, webhooks: &Webhooks) -> Result<Operator> {
        webhooks.register(client.clone()).await?;
        let (stop, stopped) = oneshot::channel::<()>();
        let config = watcher::Config::default;
        let moorings = Api::<Mooring>::all_with(client.clone(), &resource("Mooring"));
        let controller = Controller::new_with(moorings, config(), resource("Mooring"));
        let moorings = controller.store();
        let running = controller
            .owns(Api::<Deployment>::all(client.clone()), config())
            .owns(Api::<ConfigMap>::all(client.clone()), config())
            .graceful_shutdown_on(async { drop(stopped.await) })
            .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(20)), Arc::new(client))
            .for_each(async |result| {
                // It is tried again.
                if let Err(error @ controller::Error::ReconcilerFailed(..)) = result {
                    println!("{error:?}");
                }
            });
        Ok(Operator { moorings, stop, running: tokio::spawn(running) })
    }

    /// Stops the operator after the reconciliations that are under way.
    pub async fn stop(self) -> Result<()> {
        // A controller that is stopped before its first list has arrived never ends.
        self.moorings.wait_until_ready().await?;
        drop(self.stop);
        Ok(self.running.await?)
    }
}

type ReconcileError = finalizer::Error<kube::Error>;

async fn reconcile(mooring: Arc<Mooring>, client: Arc<Client>) -> Result<Action, ReconcileError> {
    let client = client.as_ref().clone();
    let namespace = mooring.namespace().unwrap_or_default();
    let moorings = Api::<Mooring>::namespaced_with(client.clone(), &namespace, &resource("Mooring"));
    finalizer(&moorings, FINALIZER, mooring, async |event| {
        match event {
            Event::Apply(mooring) => apply(&client, &moorings, &mooring).await?,
            Event::Cleanup(mooring) => {
                let deleted =
                    berths(client.clone()).delete(&berth_of(&mooring), &DeleteParams::default()).await;
                ignore_not_found(deleted.map(drop))?;
            }
        }
        Ok(Action::await_change())
    })
    .await
}

async fn apply(client: &Client, moorings: &Api<Mooring>, mooring: &Mooring) -> kube::Result<()> {
    let (namespace, name) = (mooring.namespace().unwrap_or_default(), mooring.name_any());
    let params = PatchParams::apply("harbour").force();
    let berth = berth_of(mooring);
    let document = json!({"apiVersion": "harbour.example/v1", "kind": "Berth", "metadata": {"name": berth}});
    berths(client.clone()).patch(&berth, &params, &Patch::Apply(document)).await?;

    let labels = json!({"mooring": name});
    let owner = mooring.controller_owner_ref(&resource("Mooring"));
    // A deletion in the foreground waits for those alone that block it.
    let owner = owner.map(|owner| OwnerReference { block_owner_deletion: Some(true), ..owner });
    let owned = json!({"name": name, "ownerReferences": [owner]});
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": owned,
        "data": {"boats": mooring.spec.boats.to_string()}});
    let config_maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    config_maps.patch(&name, &params, &Patch::Apply(settings)).await?;
    let fleet = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": owned, "spec": {
        "replicas": mooring.spec.boats,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "boat", "image": mooring.spec.image}]},
        },
    }});
    let deployments = Api::<Deployment>::namespaced(client.clone(), &namespace);
    let fleet = deployments.patch(&name, &params, &Patch::Apply(fleet)).await?;

    let status = status_of(mooring, &fleet);
    if mooring.status.as_ref() != Some(&status) {
        let patch = json!({"status": status});
        let patched = moorings.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        ignore_not_found(patched.map(drop))?;
    }
    Ok(())
}

fn status_of(mooring: &Mooring, fleet: &Deployment) -> MooringStatus {
    let counts = fleet.status.clone().unwrap_or_default();
    let boats = Some(mooring.spec.boats);
    let is_ready = counts.observed_generation == fleet.metadata.generation
        && [counts.replicas, counts.updated_replicas, counts.ready_replicas]
            .iter()
            .all(|count| *count == boats);
    let (status, reason) = if is_ready { ("True", "Moored") } else { ("False", "Arriving") };
    let before = mooring.status.as_ref().and_then(|status| status.conditions.first());
    let changed_at =
        before.filter(|before| before.status == status).map(|before| before.last_transition_time.clone());
    MooringStatus {
        ready: counts.ready_replicas.unwrap_or_default(),
        conditions: vec![Condition {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            observed_generation: mooring.metadata.generation,
            last_transition_time: changed_at.unwrap_or_else(|| Time(Timestamp::now())),
        }],
    }
}

pub fn ignore_not_found(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(error)) if error.code == 404 => Ok(()),
        other => other,
    }
}

/// A server of the webhooks of all control planes, each of which has a path.
pub struct Webhooks {
    address: SocketAddr,
    ca_bundle: String,
    clients: Arc<Mutex<HashMap<String, Client>>>,
}

impl Webhooks {
    pub async fn start() -> Result<Webhooks> {
        let clients = Arc::new(Mutex::new(HashMap::new()));
        let known = clients.clone();
        let (address, ca_bundle) = webhook::serve(&["127.0.0.1"], Arc::default(), move |request| {
            let client = known.lock().get(request.uri().path()).cloned();
            async move { respond(client.context("an unknown path")?, request).await }
        })
        .await?;
        Ok(Webhooks { address, ca_bundle, clients })
    }

    /// Makes a control plane call its webhook.
    async fn register(&self, client: Client) -> Result<()> {
        let path = format!("/{}", Uuid::new_v4());
        self.clients.lock().insert(path.clone(), client.clone());
        let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": "harbour"},
            "webhooks": [{
                "name": "images.harbour.example",
                "clientConfig": {"url": format!("https://{}{path}", self.address), "caBundle": self.ca_bundle},
                "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["harbour.example"],
                    "apiVersions": ["v1"], "resources": ["moorings"]}],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }],
        }))?;
        Api::all(client).create(&PostParams::default(), &configuration).await?;
        Ok(())
    }
}

async fn respond(client: Client, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let review: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
    let request = &review["request"];
    let (image, before) = (&request["object"]["spec"]["image"], &request["oldObject"]["spec"]["image"]);
    let mut response = json!({"uid": request["uid"], "allowed": true});
    // An image that was allowed once may stay, or else no finalizer could be removed.
    if image != before
        && let Some(reason) = refusal(client, image.as_str().context("an image")?).await?
    {
        response["allowed"] = false.into();
        response["status"] = json!({"code": 403, "reason": "Forbidden", "message": reason});
    }
    let review = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    Ok(Response::new(Full::new(review.to_string().into())))
}

/// Returns the reason if a Harbour forbids an image.
async fn refusal(client: Client, image: &str) -> Result<Option<String>> {
    let registry = image.split('/').next().unwrap_or_default();
    let harbours = harbours(client).list(&ListParams::default()).await?;
    let forbids = |harbour: &&Harbour| harbour.spec.forbidden.iter().any(|forbidden| forbidden == registry);
    let reason = |harbour: &Harbour| format!("harbour {} forbids images of {registry}", harbour.name_any());
    Ok(harbours.items.iter().find(forbids).map(reason))
}
