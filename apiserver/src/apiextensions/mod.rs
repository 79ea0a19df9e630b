//! CustomResourceDefinitions: names, serves and cleans up the resources that clients define.
//!
//! One task processes the stored definitions. It decides which of them have their names accepted
//! and are established, adds their resources to the table of served resources, and deletes the
//! objects of terminating ones. A resource is served before the status of its definition reports it
//! as established.
//!
//! | file | owns |
//! | --- | --- |
//! | `definition.rs` | a stored definition: its names, and its resources |
//! | `known.rs` | definitions that another control plane has parsed already |
//! | `status.rs` | the conditions and accepted names of a definition among others of its group |
//! | `webhook_converter.rs` | conversion by a webhook |
//! | `auto_registration.rs` | the APIServices of custom groups |
//! | `cleanup.rs` | the deletion of a definition's objects |
//!
//! Start at [`CustomResources::run`].
//!
//! Source: apiextensions-apiserver, its naming, establishing and finalizing controllers.

mod auto_registration;
mod cleanup;
mod definition;
mod known;
mod status;
mod webhook_converter;

pub(crate) use auto_registration::local_api_service_status;
pub use known::KnownDefinitions;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Delay;
use futures::future::{self, BoxFuture};
use serde_json::Value;

use crate::names::GroupResource;
use crate::registry::deletion::rfc3339;
use crate::registry::{Reconcile, Registry, Stored, Target, parse};
use crate::resource_info::{Conversion, ResourceInfo, ResourceTable};
use crate::timers::{CUSTOM_RESOURCE_DEFINITION_CONTENT, CUSTOM_RESOURCE_DEFINITION_RETRY};
use crate::{Error, Result};

use auto_registration::{ApiServiceKeeper, WantedApiServices};
use definition::Definition;
use webhook_converter::WebhookConverter;

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// The wait before the next try after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// kube-apiserver's interval of looking for custom resources of a terminating definition. The first
/// looks come sooner here.
const MAX_CONTENT_DELAY: Duration = Duration::from_secs(5);

/// Serves custom resources.
pub struct CustomResources {
    registry: Arc<Registry>,
    /// The bucket of definitions in the store.
    bucket: Arc<str>,
    /// The built-in resources.
    built_in: Arc<ResourceTable>,
    known: KnownDefinitions,
    /// The parsed definitions, by name.
    definitions: HashMap<String, Definition>,
    /// The custom resources in the table.
    served: Vec<Arc<ResourceInfo>>,
    /// The groups and versions that have an APIService.
    registered: Option<BTreeSet<(String, String)>>,
    /// The same, as soon as they are wanted.
    wanted: WantedApiServices,
    /// The groups with names and conditions to decide.
    pending: HashSet<String>,
    /// The number of looks in a row that found custom resources of terminating definitions.
    looks: u32,
}

impl Reconcile for CustomResources {
    async fn reconcile(&mut self) -> Option<Delay> {
        self.reconcile_all().await
    }
}

impl CustomResources {
    /// Serves the established definitions, in addition to the built-in resources of the registry.
    ///
    /// - `known`: definitions that need not be parsed
    pub fn new(registry: Arc<Registry>, known: KnownDefinitions) -> CustomResources {
        let built_in = registry.resources.built_in().clone();
        let mut resources = CustomResources {
            registry,
            bucket: GroupResource::new(GROUP, PLURAL).to_string().into(),
            built_in,
            known,
            definitions: HashMap::new(),
            served: Vec::new(),
            registered: None,
            wanted: WantedApiServices::default(),
            pending: HashSet::new(),
            looks: 0,
        };
        resources.read();
        resources.serve();
        if resources.served.is_empty() {
            // The table of a fork may contain resources that are no longer defined.
            resources.registry.resources.replace(ResourceTable::clone(&resources.built_in));
        }
        resources
    }

    /// Follows the stored definitions until the future is dropped.
    pub fn run(self) -> BoxFuture<'static, ()> {
        let keeper = ApiServiceKeeper { registry: self.registry.clone(), wanted: self.wanted.clone() };
        let kept = self.registry.clone().run_reconciler(ApiServiceKeeper::bucket(), keeper);
        let followed = self.registry.clone().run_reconciler(self.bucket.clone(), self);
        Box::pin(async move { _ = future::join(followed, kept).await })
    }

    /// Updates everything from the current definitions. Returns the delay until the next time, if
    /// one is needed without a change of definitions.
    async fn reconcile_all(&mut self) -> Option<Delay> {
        self.read();
        let pending = std::mem::take(&mut self.pending);
        let now = rfc3339(self.registry.now());
        let beside = self.definitions.values().filter(|definition| pending.contains(&definition.group));
        let planned = status::plan(beside, &now);
        for (name, status) in &planned {
            if let Some(definition) = self.definitions.get_mut(name) {
                definition.adopt(status);
            }
        }
        self.serve();
        let (mut retry, mut has_content) = (false, false);
        for (name, status) in planned {
            let stored = self.change(&name, |definition| definition["status"] = status.clone()).await;
            if failed(&name, stored) {
                self.pending.extend(self.definitions.get(&name).map(|definition| definition.group.clone()));
                retry = true;
            }
        }
        if let Err(error) = self.register_api_services().await {
            tracing::warn!(%error, "the APIServices of custom groups are not up to date");
            retry = true;
        }
        let terminating = self.definitions.values().filter(|definition| definition.is_to_be_cleaned_up());
        let terminating: Vec<String> = terminating.map(|definition| definition.name.clone()).collect();
        for name in terminating {
            match self.clean_up(&name).await {
                Ok(is_done) => has_content |= !is_done,
                Err(error) => retry |= failed(&name, Err(error)),
            }
        }
        if retry {
            return Some(CUSTOM_RESOURCE_DEFINITION_RETRY.after(RETRY));
        }
        self.looks = if has_content { self.looks.saturating_add(1) } else { 0 };
        let delay = MAX_CONTENT_DELAY.min(RETRY.saturating_mul(self.looks));
        has_content.then(|| CUSTOM_RESOURCE_DEFINITION_CONTENT.after(delay))
    }

    /// Reads the definitions that have changed since the last call.
    fn read(&mut self) {
        let stored = self.registry.store.snapshot().bucket(&self.bucket);
        let mut known = std::mem::take(&mut self.definitions);
        for object in stored.iter() {
            let name = object.key.name().to_string();
            let definition = match known.remove(&name) {
                Some(definition) if definition.revision == object.revision => Some(definition),
                previous => {
                    let definition = self.definition(object, previous.as_ref());
                    self.pending.extend(definition.as_ref().map(|definition| definition.group.clone()));
                    definition
                }
            };
            self.definitions.extend(definition.map(|definition| (name, definition)));
        }
        self.pending.extend(known.into_values().map(|definition| definition.group));
    }

    fn definition(&self, object: &Arc<Stored>, previous: Option<&Definition>) -> Option<Definition> {
        let owner = Arc::downgrade(&self.registry);
        let converter =
            |webhook: &Value| Conversion::Remote(Arc::new(WebhookConverter::new(owner.clone(), webhook)));
        if previous.is_none()
            && let Some(known) = self.known.get(object)
        {
            return Some(known.elsewhere(converter));
        }
        let value = parse(object).ok()?;
        let definition = Definition::read(&value, converter, object.created, object.revision, previous);
        self.known.put(object, definition.elsewhere(converter));
        Some(definition)
    }

    /// Replaces the table of resources, if it changes: everything derived from it is derived again.
    fn serve(&mut self) {
        let mut served: Vec<&Definition> =
            self.definitions.values().filter(|definition| definition.established).collect();
        served.sort_by_key(|definition| definition.created);
        let custom = served.into_iter().flat_map(|definition| definition.resources.iter().cloned());
        let custom: Vec<Arc<ResourceInfo>> = custom.collect();
        let is_same = |(a, b): (&Arc<ResourceInfo>, &Arc<ResourceInfo>)| Arc::ptr_eq(a, b);
        if custom.len() != self.served.len() || !custom.iter().zip(&self.served).all(is_same) {
            self.registry.resources.replace(self.built_in.with(custom.iter().cloned()));
            self.served = custom;
        }
    }

    /// Changes a stored definition, through its status.
    async fn change(&self, name: &str, edit: impl Fn(&mut Value)) -> Result<()> {
        let info = self.registry.find(GROUP, "v1", PLURAL).ok_or(Error::UnknownResource)?;
        let changed = |current: &Value| {
            let mut definition = current.clone();
            edit(&mut definition);
            Ok(definition)
        };
        let target = Target { info, namespace: String::new(), name: name.to_owned() };
        self.registry.rewrite_status(&target, false, changed).await
    }
}

/// Logs a failure and returns whether to retry. A deleted definition needs no retry.
fn failed(name: &str, outcome: Result<()>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(error) if error.code() == 404 => false,
        Err(error) => {
            tracing::warn!(%name, %error, "a CustomResourceDefinition is not up to date");
            true
        }
    }
}
