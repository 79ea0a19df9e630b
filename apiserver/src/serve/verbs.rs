//! The verbs on resources: which one a request means, and the call of the registry that carries it
//! out.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use serde_json::Value;

use super::api::Shared;
use super::call::Call;
use super::event_stream::EventStream;
use super::extensions::{ActionRequest, ConnectRequest, Connected};
use super::layers::labels;
use super::route::Route;
use super::websocket::ByteStream;
use super::{Body, proxy, respond, upgrade};
use crate::patch::{APPLY, Configuration, Patch};
use crate::registry::read::Filter;
use crate::registry::{Caller, Outcome, Payload, RequestBody, Target, apply_creates};
use crate::representation::Form;
use crate::representation::watch::Frames;
use crate::request::Verb;
use crate::request::negotiate::{Accept, Format, Offered, media_type};
use crate::request::options::{DeleteOptions, ListOptions, WriteKind, WriteOptions};
use crate::resource_info::{Connection, Endpoint, Part, ResourceInfo, Subresource};
use crate::schema::{TypeRef, schema};
use crate::validation::content;
use crate::{Error, Result};

impl Call<'_> {
    pub async fn answer(self) -> Result<Response<Body>> {
        let route = self.route()?;
        if let Some(connection) = route.connection() {
            let response = Box::pin(self.connect(&route, connection)).await?;
            return Ok(response.map(|body| body.release_when_sent(self.lasting)));
        }
        let verb = self.verb(&route)?;
        self.context.set_handled();
        if self.is_linearizable(verb) {
            self.shared.registry.linearize().await?;
        }
        let info = route.info.clone();
        if let Some(deprecation) = &info.behavior.deprecation {
            self.warnings.extend([deprecation.to_string()]);
            self.audit.add_annotation("k8s.io/deprecated", "true");
            if let Some(labels) = labels(self.context, &self.shared.registry.resources) {
                self.shared.metrics.requested_deprecated(&labels, removed_release(deprecation));
            }
        }
        let is_list = matches!(verb, Verb::List | Verb::Watch);
        let offered = Offered { tables: route.has_tables(verb), protobuf: !info.is_custom() };
        let accept = Accept::negotiate(self.headers, self.query, is_list, offered)?;
        let form = || Form::new(accept, self.query, self.shared.registry.now());
        let outcome = match verb {
            Verb::Watch => {
                let form = Form::new(accept.of_stream()?, self.query, self.shared.registry.now())?;
                return Box::pin(self.watch(&info, form)).await;
            }
            Verb::Get => {
                if self.query.flag("export") == Some(true) {
                    let detail = "the export parameter, deprecated since v1.14, is no longer supported";
                    return Err(Error::bad_request(detail));
                }
                let version = self.query.first("resourceVersion").unwrap_or("");
                let target = self.target(&info)?;
                let payload = match (route.subresource(), info.behavior.computed) {
                    (_, Some(computed)) => self.shared.registry.get_computed(computed, &target)?,
                    (Some(scale), _) if scale.endpoint == Endpoint::Scale => {
                        self.shared.registry.get_scale(&target, scale, version).await?
                    }
                    _ => Payload::Stored(
                        self.shared.registry.get(&info, &target.namespace, &target.name, version).await?,
                    ),
                };
                Outcome { code: 200, payload }
            }
            Verb::List => {
                let options = ListOptions::parse(self.query, false)?;
                let filter = Filter::new(&info, &self.request.namespace, &options)?;
                let registry = &self.shared.registry;
                let payload = match info.behavior.computed {
                    Some(computed) => registry.list_computed(computed, &info, &filter)?,
                    None => Payload::List(registry.list(&info, &filter, &options).await?),
                };
                Outcome { code: 200, payload }
            }
            // Boxed, so that reads do not move about the room that writes take.
            Verb::Create => Box::pin(self.create(&route)).await?,
            Verb::Update => Box::pin(self.update(&route)).await?,
            Verb::Patch => Box::pin(self.patch(&route)).await?,
            Verb::Delete => {
                let options = self.delete_options()?;
                let target = self.target(&info)?;
                Box::pin(self.shared.registry.delete(&target, &options, self.caller())).await?
            }
            Verb::DeleteCollection => {
                let list = ListOptions::parse(self.query, false)?;
                let filter = Filter::new(&info, &self.request.namespace, &list)?;
                let options = self.delete_options()?;
                let target = Target { name: String::new(), ..self.target(&info)? };
                let registry = &self.shared.registry;
                let deletions = registry.delete_collection(&target, &filter, &list, &options, self.caller());
                let page = Box::pin(deletions).await?;
                Outcome { code: 200, payload: Payload::List(page) }
            }
            Verb::Proxy | Verb::None => return Err(Error::MethodNotAllowed),
        };
        // An invalid form is reported only now, after the request has been executed.
        let form = form()?;
        let content = form.payload(&info, outcome.payload).await?;
        Ok(respond::object(outcome.code, &form, content))
    }

    /// Returns `true` if the request must see everything that was written before it. A write must,
    /// because it builds on the current state; a read may name a revision that suffices, and 0
    /// means any.
    fn is_linearizable(&self, verb: Verb) -> bool {
        match verb {
            Verb::Get | Verb::List | Verb::Watch => {
                let names = |option| self.query.first(option).is_some_and(|value| !value.is_empty());
                !names("resourceVersion") && !names("continue")
            }
            _ => true,
        }
    }

    fn target(&self, info: &Arc<ResourceInfo>) -> Result<Target> {
        let name = if self.request.named { self.request.name.clone() } else { String::new() };
        let errors = content::path_segment(&name);
        if !errors.is_empty() {
            let (name, errors) = (crate::field::quote(&name), errors.join(";"));
            return Err(Error::bad_request(format!("Name parameter invalid: {name}: {errors}")));
        }
        Ok(Target { info: info.clone(), namespace: self.request.namespace.clone(), name })
    }

    /// Connects the client to whatever an object stands for.
    async fn connect(
        &self,
        route: &Route,
        (subresource, connection): (&Subresource, Connection),
    ) -> Result<Response<Body>> {
        let connect = self.shared.extensions.connect.as_ref().filter(|_| takes(connection, self.method));
        let connect = connect.ok_or(Error::MethodNotAllowed)?;
        self.context.set_handled();
        let target = self.target(&route.info)?;
        let Shared { registry, authorizer, closing, .. } = &**self.shared;
        let path = path_after_subresource(self.parts.uri.path(), self.request.in_namespace);
        let request = ConnectRequest {
            registry,
            authorizer,
            verb: self.request.verb,
            target: &target,
            subresource,
            connection,
            query: self.query,
            headers: self.headers,
            path,
            caller: self.caller(),
        };
        let (text, follows) = match connect(request).await? {
            Connected::Nothing => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::NO_CONTENT;
                return Ok(response);
            }
            Connected::Refused { code, headers, text } => {
                let mut response = respond::plain(code, "text/plain; charset=utf-8", text.into());
                response.headers_mut().extend(headers);
                return Ok(response);
            }
            Connected::Streams { headers, serve } => {
                // Over HTTP/2 and in process there is no connection to leave.
                let upgrade = self.parts.extensions.get::<OnUpgrade>().cloned();
                let upgrade = upgrade.ok_or_else(|| Error::bad_request("Upgrade request required"))?;
                return Ok(upgrade::switch(upgrade, headers, serve, closing.clone()));
            }
            Connected::Proxy(upstream) => {
                let body = self.body.clone()?;
                return Box::pin(proxy::request_upstream(
                    registry, &upstream, self.parts, path, body, closing,
                ))
                .await;
            }
            Connected::Text { text, follows } => (text, follows),
        };
        let mut response = respond::plain(200, "text/plain", text.into());
        response.extensions_mut().insert(ByteStream);
        if let Some(follows) = follows {
            let begun = std::mem::replace(response.body_mut(), Body::empty());
            let begun = begun.whole().cloned().filter(|text| !text.is_empty());
            let appended =
                stream::unfold((follows, closing.clone()), |(mut follows, mut closing)| async move {
                    let text = tokio::select! {
                        text = follows.next() => text?,
                        _ = closing.wait_for(|closing| *closing) => return None,
                    };
                    Some((Bytes::from(text), (follows, closing)))
                });
            *response.body_mut() = Body::stream(stream::iter(begun).chain(appended));
        }
        Ok(response)
    }

    fn caller(&self) -> Caller<'_> {
        let agent = self.headers.get(header::USER_AGENT).and_then(|v| v.to_str().ok()).unwrap_or("");
        Caller {
            user: self.user,
            user_agent: agent,
            verb: self.request.verb,
            subresource: &self.request.subresource,
            warnings: self.warnings,
            audit: self.audit,
        }
    }

    async fn create(&self, route: &Route) -> Result<Outcome> {
        let options = WriteOptions::parse(self.query, WriteKind::Create)?;
        let body = self.object()?;
        let mut target = self.target(&route.info)?;
        let resource = &route.info.group_resource;
        let subresource = route.subresource();
        if subresource.is_none() {
            // A created object has its own name.
            target.name.clear();
        }
        let name = subresource.map_or("", |subresource| &subresource.name);
        if let Some(action) = self.shared.extensions.action(&resource.group, &resource.resource, name) {
            return action(ActionRequest {
                registry: &self.shared.registry,
                authorizer: &self.shared.authorizer,
                authenticator: &self.shared.authenticator,
                signing_key: &self.shared.signing_key,
                target,
                subresource,
                body: &body,
                options: &options,
                caller: self.caller(),
            })
            .await;
        }
        match subresource {
            Some(_) => Err(Error::MethodNotAllowed),
            None => self.shared.registry.create(&target, &body, &options, self.caller()).await,
        }
    }

    async fn update(&self, route: &Route) -> Result<Outcome> {
        let options = WriteOptions::parse(self.query, WriteKind::Update)?;
        let body = self.object()?;
        let target = self.target(&route.info)?;
        let registry = &self.shared.registry;
        match route.subresource() {
            Some(scale) if scale.endpoint == Endpoint::Scale => {
                registry.update_scale(&target, scale, &body, &options, self.caller()).await
            }
            sub => {
                let part = Part::of(sub).ok_or(Error::MethodNotAllowed)?;
                registry.update(&target, part, &body, &options, self.caller()).await
            }
        }
    }

    async fn patch(&self, route: &Route) -> Result<Outcome> {
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        if content_type.map(media_type) == Some(APPLY) {
            return self.apply(route).await;
        }
        let patch_type = Patch::type_of(self.headers, &route.info.type_ref)?;
        let options = WriteOptions::parse(self.query, WriteKind::Patch)?;
        let target = self.target(&route.info)?;
        let registry = &self.shared.registry;
        if let Ok(bytes) = &self.body {
            self.audit.log_request_patch(bytes, false);
        }
        // A missing object is 404 before the patch is parsed.
        registry.get(&target.info, &target.namespace, &target.name, "").await?;
        let bytes = self.body.clone()?;
        let patch = Patch::parse(patch_type, &bytes)?;
        match route.subresource() {
            Some(scale) if scale.endpoint == Endpoint::Scale => {
                registry.patch_scale(&target, scale, &patch, &options, self.caller()).await
            }
            sub => {
                let part = Part::of(sub).ok_or(Error::MethodNotAllowed)?;
                registry.patch(&target, part, &patch, &options, self.caller()).await
            }
        }
    }

    async fn apply(&self, route: &Route) -> Result<Outcome> {
        let options = WriteOptions::parse(self.query, WriteKind::Apply)?;
        let target = self.target(&route.info)?;
        let registry = &self.shared.registry;
        if let Ok(bytes) = &self.body {
            self.audit.log_request_patch(bytes, true);
        }
        let creates = Part::of(route.subresource()).is_some_and(|part| apply_creates(&route.info, part));
        if !creates {
            registry.get(&target.info, &target.namespace, &target.name, "").await?;
        }
        let configuration = Configuration::parse(&self.body.clone()?)?;
        match route.subresource() {
            Some(scale) if scale.endpoint == Endpoint::Scale => {
                registry.apply_scale(&target, scale, &configuration, &options, self.caller()).await
            }
            sub => {
                let part = Part::of(sub).ok_or(Error::MethodNotAllowed)?;
                registry.apply(&target, part, &configuration, &options, self.caller()).await
            }
        }
    }

    /// Reads the options from the body if there is one; then the query does not count.
    fn delete_options(&self) -> Result<DeleteOptions> {
        let bytes = self.body.clone()?;
        if bytes.is_empty() {
            return DeleteOptions::from_query(self.query);
        }
        let format = Format::of_body(self.headers)?;
        let body = RequestBody { bytes, format };
        let options = body.decode_options("DeleteOptions")?;
        self.log_delete_options(&options);
        DeleteOptions::from_value(&options)
    }

    /// Records the body of a DELETE in the audit event.
    fn log_delete_options(&self, options: &Value) {
        if let Some(id) = schema().named("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")
            && self.audit.is_enabled()
        {
            let mut options = options.clone();
            for (member, default) in [("kind", "DeleteOptions"), ("apiVersion", "v1")] {
                if options[member].as_str().is_none_or(str::is_empty) {
                    options[member] = default.into();
                }
            }
            self.audit.log_request_object(&options, &TypeRef::Struct(id));
        }
    }

    fn object(&self) -> Result<RequestBody> {
        Ok(RequestBody { bytes: self.body.clone()?, format: Format::of_body(self.headers)? })
    }

    async fn watch(self, info: &Arc<ResourceInfo>, form: Form) -> Result<Response<Body>> {
        let options = ListOptions::parse(self.query, true)?;
        let mut filter = Filter::new(info, &self.request.namespace, &options)?;
        if self.request.named {
            if !filter.fields.is_empty() && filter.fields.required_name() != Some(&*self.request.name) {
                let detail = "fieldSelector metadata.name doesn't match requested name";
                return Err(Error::bad_request(detail));
            }
            filter.fields.require_name(&self.request.name);
        }
        let mut watch = self.shared.registry.watch(info, filter, &options).await?;
        let held = watch.held_bytes();
        let clients = &self.shared.clients;
        let agent = self.caller().user_agent;
        let name = format!("a watch of {} by {agent:?}", info.plural);
        watch.name(name.clone(), !self.is_own);
        let client = |remote| clients.of_request(&self.user.name, agent, remote);
        let traffic = &self.shared.extensions.traffic;
        let remote =
            self.remote.map(|remote| (client(remote).join(watch.position().clone()), traffic.clone()));
        let activity = self.shared.registry.clock().activity();
        let work = if self.is_own { activity.begin() } else { activity.begin_request() };
        let beginning = traffic.begin_watch(name, work);
        let counters = self.shared.metrics.watch(&info.group, &info.version, &info.plural);
        let stream = EventStream::new(
            info,
            watch,
            Frames::new(form, self.shared.registry.clock().clone()),
            counters,
            remote,
            beginning,
            self.lasting,
        );
        let chunks = stream.chunks(self.shared.closing.clone());
        let media_type = match form.accept.format {
            Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Format::Json | Format::Yaml => "application/json",
        };
        let mut response = respond::plain(200, media_type, Bytes::new());
        *response.body_mut() = Body::stream(chunks).with_initial_memory(held);
        Ok(response)
    }
}

/// Returns the path after the subresource of a built-in resource of the core group: `/a/b` for
/// `/api/v1/namespaces/NS/pods/NAME/proxy/a/b`.
fn path_after_subresource(path: &str, in_namespace: bool) -> &str {
    let before = if in_namespace { 7 } else { 5 };
    path.match_indices('/').nth(before).map_or("", |(index, _)| &path[index..])
}

/// Returns `true` if a connection can be requested with a method.
fn takes(connection: Connection, method: &Method) -> bool {
    match connection {
        Connection::Log => method == Method::GET,
        Connection::Exec | Connection::Attach | Connection::PortForward => {
            method == Method::GET || method == Method::POST
        }
        Connection::Proxy => true,
    }
}

/// Returns the release without a deprecated API by its deprecation, such as `1.32`; empty if none
/// is planned.
fn removed_release(deprecation: &str) -> &str {
    let rest = deprecation.split_once("unavailable in v").map_or("", |(_, rest)| rest);
    rest.split(['+', ';']).next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deprecation_may_name_the_release_without_the_api() {
        for (deprecation, want) in [
            ("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice", ""),
            ("x/v1beta1 X is deprecated in v1.29+, unavailable in v1.32+; use x/v1 X", "1.32"),
            ("x/v1beta1 X is deprecated in v1.29+, unavailable in v1.32+", "1.32"),
        ] {
            assert_eq!(removed_release(deprecation), want, "{deprecation}");
        }
    }

    #[test]
    fn paths_after_subresources() {
        for (path, in_namespace, want) in [
            ("/api/v1/namespaces/n/pods/p/proxy", true, ""),
            ("/api/v1/namespaces/n/pods/p/proxy/", true, "/"),
            ("/api/v1/namespaces/n/pods/http:p:80/proxy/a//b/", true, "/a//b/"),
            ("/api/v1/nodes/n/proxy/%2e%2e/x", false, "/%2e%2e/x"),
        ] {
            assert_eq!(path_after_subresource(path, in_namespace), want, "{path}");
        }
    }
}
