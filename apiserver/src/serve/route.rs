//! Routing: the resource, subresource and verb that a path and a method name.

use std::sync::Arc;

use http::Method;

use super::call::Call;
use crate::request::Verb;
use crate::resource_info::{Connection, Endpoint, ResourceInfo, Subresource};
use crate::{Error, Result};

/// The destination of a path.
pub(super) struct Route {
    pub info: Arc<ResourceInfo>,
    /// The index of the subresource among those of the resource.
    subresource: Option<usize>,
}

impl Route {
    pub fn subresource(&self) -> Option<&Subresource> {
        self.info.subresources.get(self.subresource?)
    }

    pub fn connection(&self) -> Option<(&Subresource, Connection)> {
        let subresource = self.subresource()?;
        match subresource.endpoint {
            Endpoint::Connect(connection) => Some((subresource, connection)),
            _ => None,
        }
    }

    /// Returns `true` if the response can be a Table. Objects that are created only for their
    /// response (reviews, evictions, bindings, tokens) have no columns.
    pub fn has_tables(&self, verb: Verb) -> bool {
        match self.subresource() {
            Some(subresource) => subresource.printer.is_some(),
            None => verb != Verb::Create || self.info.has_verb("get"),
        }
    }
}

impl Call<'_> {
    /// Finds the resource, and refuses paths whose shape does not fit it.
    pub(super) fn route(&self) -> Result<Route> {
        let request = self.request;
        let table = self.shared.registry.resources.load();
        let group = table.group(&request.group);
        let is_custom = group.is_some_and(|group| group.custom);
        if request.verb == Verb::Proxy && !is_custom {
            // The removed `/api/v1/proxy/…` paths.
            return Err(Error::UnknownResource);
        }
        let unknown = if is_custom || group.is_none() { Error::PageNotFound } else { Error::UnknownResource };
        let found = table.find(&request.group, &request.version, &request.resource);
        let info = found.ok_or(unknown)?.clone();
        if info.is_custom() {
            return self.custom_route(info);
        }
        // Clients make such a path of an empty namespace, and mean all of them.
        let is_of_all = request.in_namespace && request.namespace.is_empty();
        if info.namespaced && is_of_all && request.named {
            return Err(Error::bad_request("Namespace parameter required."));
        }
        let fits = if info.namespaced {
            let is_read = matches!(request.verb, Verb::List | Verb::Watch);
            let is_everywhere = if is_of_all { is_read } else { !request.in_namespace };
            request.in_namespace && !is_of_all || !request.named && is_everywhere && info.has_verb("list")
        } else {
            !request.in_namespace
        };
        // An object that is created only for its response has no path of its own.
        let is_created_only = !["get", "list"].iter().any(|verb| info.has_verb(verb));
        if is_created_only && request.named {
            return Err(Error::UnknownResource);
        }
        let empty_segment = request.named && request.name.is_empty();
        let extra = request.extra_segments > 0 && request.subresource != "proxy";
        if !fits || extra || empty_segment {
            return Err(Error::UnknownResource);
        }
        let subresource = match request.subresource.as_str() {
            "" => None,
            name => {
                let index = info.subresources.iter().position(|subresource| subresource.name == name);
                Some(index.ok_or(Error::UnknownResource)?)
            }
        };
        Ok(Route { info, subresource })
    }

    /// Returns the verb, if the path supports it.
    pub(super) fn verb(&self, route: &Route) -> Result<Verb> {
        if route.info.is_custom() {
            return self.custom_verb(route);
        }
        let request = self.request;
        if *self.method == Method::HEAD || (request.watch_prefix && *self.method != Method::GET) {
            return Err(Error::MethodNotAllowed);
        }
        let verb = request.verb;
        let everywhere = route.info.namespaced && !request.in_namespace;
        let fits = match (verb, request.named) {
            (Verb::List | Verb::Watch | Verb::DeleteCollection, _) => true,
            (Verb::Create, named) => !named || route.subresource.is_some(),
            (Verb::Get | Verb::Update | Verb::Patch | Verb::Delete, named) => named,
            _ => false,
        };
        if !fits {
            return Err(Error::MethodNotAllowed);
        }
        if everywhere && !matches!(verb, Verb::List | Verb::Watch) && route.info.has_verb("list") {
            return Err(Error::MethodNotAllowed);
        }
        let known = match route.subresource() {
            Some(subresource) => subresource.has_verb(verb.as_str()),
            None if verb == Verb::Watch && !route.info.has_verb("watch") && route.info.has_verb("list") => {
                return Err(Error::MethodNotSupported {
                    resource: route.info.group_resource.clone(),
                    action: "watch".to_owned(),
                });
            }
            None => route.info.has_verb(verb.as_str()),
        };
        if known { Ok(verb) } else { Err(Error::MethodNotAllowed) }
    }

    /// Returns the route of a custom resource. Its paths have no router: a wrong scope is 404 "page
    /// not found", and segments after the subresource are ignored.
    ///
    /// Source: `crdHandler` of apiextensions-apiserver.
    fn custom_route(&self, info: Arc<ResourceInfo>) -> Result<Route> {
        let request = self.request;
        let in_namespace = request.in_namespace && !request.namespace.is_empty();
        let fits = match info.namespaced {
            true => in_namespace || matches!(request.verb, Verb::List | Verb::Watch),
            false => !in_namespace,
        };
        if !fits {
            return Err(Error::PageNotFound);
        }
        let subresource = match request.subresource.as_str() {
            "" => None,
            name => {
                let index = info.subresources.iter().position(|subresource| subresource.name == name);
                Some(index.ok_or_else(|| Error::not_found(&info.group_resource, &request.name))?)
            }
        };
        Ok(Route { info, subresource })
    }

    /// Returns the verb on a custom resource, independent of the method.
    fn custom_verb(&self, route: &Route) -> Result<Verb> {
        let request = self.request;
        let verb = match request.verb {
            // A trailing slash leaves the object name empty: the request is for the collection.
            Verb::Get if request.name.is_empty() && self.query.flag("watch") == Some(true) => Verb::Watch,
            Verb::Get if request.name.is_empty() => Verb::List,
            Verb::Delete if request.name.is_empty() => Verb::DeleteCollection,
            verb => verb,
        };
        let is_supported = match route.subresource() {
            Some(subresource) => subresource.has_verb(verb.as_str()),
            None => route.info.has_verb(verb.as_str()),
        };
        if !is_supported {
            return Err(Error::MethodNotSupported {
                resource: route.info.group_resource.clone(),
                action: verb.as_str().to_owned(),
            });
        }
        if matches!(verb, Verb::Update | Verb::Patch) && request.name.is_empty() {
            return Err(Error::bad_request("name must be provided"));
        }
        Ok(verb)
    }
}
