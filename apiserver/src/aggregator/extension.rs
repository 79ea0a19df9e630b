//! Extension groups of this server: served, with a local APIService, from the first object on that
//! provides them.
//!
//! The stored APIService preserves that across restarts. If a client has stored one that refers to
//! a service, the group is served by that service.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use super::{GROUP, PLURAL};
use crate::Result;
use crate::apiextensions::local_api_service_status;
use crate::cluster::Cluster;
use crate::names::GroupResource;
use crate::object_meta::ObjectMeta;
use crate::registry::Registry;
use crate::registry::deletion::rfc3339;
use crate::resource_info::ExtensionGroup;
use crate::timers::API_GROUP_RETRY;

/// The delay before a failed registration is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Waits until a group is provided, and serves it then.
pub fn serve_when_provided(registry: Arc<Registry>, extension: ExtensionGroup) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let bucket: Arc<str> = extension.source.to_string().into();
        let (mut work, mut is_served) = (None, false);
        loop {
            let revision = registry.store.revision();
            let mut registration = registration(&registry, &extension);
            let has_to_register =
                matches!(registration, Ok(Registration::None)) && is_provided(&registry, &extension, &bucket);
            if !is_served && (has_to_register || matches!(registration, Ok(Registration::Local))) {
                // Discovery has it before watches report its APIService.
                registry.resources.add_group(extension.group.clone());
                is_served = true;
            }
            if has_to_register {
                registration = register(&registry, &extension).await.map(|()| Registration::Local);
            }
            match registration {
                Ok(Registration::Remote | Registration::Local) => return,
                Ok(Registration::None) => {}
                Err(error) => {
                    let group = &*extension.group.name;
                    tracing::warn!(group, %error, "an API group cannot be registered");
                    let retry = registry.clock().sleep(API_GROUP_RETRY.after(RETRY));
                    drop(retry.of(group.to_owned()).await);
                    continue;
                }
            }
            drop(work.take());
            // If history has been compacted since, everything is read again anyway.
            let Ok(mut changes) = registry.store.watch(&bucket, revision) else { continue };
            while let Ok(events) = changes.next().await {
                let mut after = events.iter().filter_map(|event| event.after.as_ref());
                if after.any(|object| (extension.is_provided_by)(&object.bytes)) {
                    break;
                }
            }
            work = Some(registry.clock().activity().begin());
        }
    })
}

/// The server of a group: none, this one, or the service of an APIService.
enum Registration {
    None,
    Local,
    Remote,
}

fn api_services(extension: &ExtensionGroup) -> impl Iterator<Item = &Value> {
    extension.objects.iter().filter(|object| object["kind"] == "APIService")
}

fn registration(registry: &Registry, extension: &ExtensionGroup) -> Result<Registration> {
    let resource = GroupResource::new(GROUP, PLURAL);
    for service in api_services(extension) {
        match Cluster::get(registry, &resource, "", service.name())? {
            None => return Ok(Registration::None),
            Some(stored) if stored["spec"]["service"].is_object() => return Ok(Registration::Remote),
            Some(_) => {}
        }
    }
    Ok(Registration::Local)
}

fn is_provided(registry: &Registry, extension: &ExtensionGroup, bucket: &Arc<str>) -> bool {
    let snapshot = registry.store.snapshot().bucket(bucket);
    snapshot.iter().any(|object| (extension.is_provided_by)(&object.bytes))
}

/// Creates the objects of a group; its APIServices come last, and are available.
async fn register(registry: &Registry, extension: &ExtensionGroup) -> Result<()> {
    let others = extension.objects.iter().filter(|object| object["kind"] != "APIService");
    for object in others.chain(api_services(extension)) {
        let mut object = object.clone();
        if object["kind"] == "APIService" {
            object["status"] = local_api_service_status(&rfc3339(registry.now()));
        }
        registry.create_as_server(object).await?;
    }
    Ok(())
}
