//! The stored APIServices that have a service.

use std::sync::Arc;

use serde_json::Value;

use super::groups::{RemoteResource, RemoteVersion};
use super::{GROUP, PLURAL};
use crate::Result;
use crate::admission::generic::Source;
use crate::cluster::Cluster;
use crate::resource_info::ResourceTable;
use crate::webhook::{ServiceReference, TlsConfig, ca_bundle};

/// A group and version that another server serves.
#[derive(PartialEq)]
pub struct RemoteApi {
    /// The name of the APIService.
    pub name: String,
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The service of the server.
    pub service: ServiceReference,
    /// The TLS configuration for its connections.
    pub tls: TlsConfig,
    /// Whether the APIService has the condition `Available` with status `True`.
    pub is_available: bool,
    /// `groupPriorityMinimum` and `versionPriority`.
    pub priorities: (i64, i64),
}

/// The APIServices that have a service, current as of each request.
pub struct RemoteApis(Source<RemoteApi>);

impl Default for RemoteApis {
    fn default() -> RemoteApis {
        RemoteApis(Source::new(GROUP, PLURAL, |object| RemoteApi::read(object).into_iter().collect()))
    }
}

impl RemoteApi {
    fn read(object: &Value) -> Option<RemoteApi> {
        let spec = &object["spec"];
        let service = spec.get("service").filter(|service| service.is_object())?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let number = |name: &str| spec[name].as_i64().unwrap_or_default();
        Some(RemoteApi {
            name: text(&object["metadata"]["name"]),
            group: text(&spec["group"]),
            version: text(&spec["version"]),
            service: ServiceReference::read(service),
            tls: TlsConfig {
                ca_bundle: ca_bundle(spec),
                insecure: spec["insecureSkipTLSVerify"] == true,
                as_front_proxy: true,
            },
            is_available: conditions.iter().any(|c| c["type"] == "Available" && c["status"] == "True"),
            priorities: (number("groupPriorityMinimum"), number("versionPriority")),
        })
    }

    /// Returns the version with its resources, as discovery has it.
    pub(super) fn serving(&self, resources: Option<Arc<[RemoteResource]>>) -> RemoteVersion {
        let (group, version) = (self.group.clone(), self.version.clone());
        RemoteVersion { group, version, priorities: self.priorities, resources }
    }

    /// Returns the path of the version's discovery document. All its other paths are below it.
    pub fn path(&self) -> String {
        format!("/apis/{}/{}", self.group, self.version)
    }
}

impl RemoteApis {
    /// Returns all APIServices that have a service.
    ///
    /// # Errors
    /// An APIService that cannot be decoded.
    pub fn load(&self, cluster: &dyn Cluster) -> Result<Arc<[RemoteApi]>> {
        self.0.load(cluster)
    }

    /// Returns the APIServices that have a service, and the index of the one that serves a path;
    /// None if none does, or this server serves the path itself.
    ///
    /// # Errors
    /// As of [`RemoteApis::load`].
    pub fn find(
        &self,
        path: &str,
        local: &ResourceTable,
        cluster: &dyn Cluster,
    ) -> Result<Option<(Arc<[RemoteApi]>, usize)>> {
        // The OpenAPI document of a group and version is its server's.
        let path = path.strip_prefix("/openapi/v3").unwrap_or(path);
        let Some(rest) = path.strip_prefix("/apis/") else { return Ok(None) };
        let mut segments = rest.split('/');
        let (Some(group), Some(version)) = (segments.next(), segments.next()) else { return Ok(None) };
        if local.group(group).is_some_and(|group| group.version(version).is_some()) {
            return Ok(None);
        }
        let apis = self.load(cluster)?;
        let found = apis.iter().position(|api| api.group == group && api.version == version);
        Ok(found.map(|index| (apis, index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::testing::World;
    use serde_json::json;

    #[test]
    fn paths_belong_to_api_services_with_a_service() {
        let object = |name: &str, version: &str, service: Value| {
            json!({"metadata": {"name": name}, "spec": {"group": "g.example.com", "version": version, "service": service},
                   "status": {"conditions": [{"type": "Available", "status": "True"}]}})
        };
        let service = json!({"namespace": "ns", "name": "s", "port": 443});
        let world = World::default().with(GROUP, PLURAL, object("v1.g.example.com", "v1", service)).with(
            GROUP,
            PLURAL,
            object("v2.g.example.com", "v2", json!(null)),
        );
        let apis = RemoteApis::default();
        for (path, want) in [
            ("/apis/g.example.com/v1", Some("v1.g.example.com")),
            ("/apis/g.example.com/v1/namespaces/ns/things/x", Some("v1.g.example.com")),
            ("/openapi/v3/apis/g.example.com/v1", Some("v1.g.example.com")),
            ("/openapi/v3/apis/g.example.com/v2", None),
            ("/openapi/v3/api/v1", None),
            ("/apis/g.example.com/v2/things", None),
            ("/apis/g.example.com", None),
            ("/api/v1", None),
        ] {
            let found = apis.find(path, &ResourceTable::default(), &world).expect("readable");
            let name = found.map(|(apis, index)| (apis[index].name.clone(), apis[index].is_available));
            assert_eq!(name, want.map(|name| (name.to_owned(), true)), "{path}");
        }
    }
}
