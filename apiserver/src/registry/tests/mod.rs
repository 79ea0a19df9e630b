//! The verbs over a store in memory, called as requests call them.

mod contention;
mod depth;
mod mutating_admission;
mod verbs;

use std::sync::Arc;

use coracle_clock::Clock;
use coracle_storage::log::EphemeralLog;
use coracle_storage::{Expect, Key, Options, Store};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};

use super::*;
use crate::admission::OperationOptions;
use crate::audit::AuditContext;
use crate::object_meta::ObjectMeta;
use crate::patch::Patch;
use crate::request::Format;
use crate::request::options::WriteOptions;
use crate::resource_info::{Part, SharedResourceTable};

/// A registry with the namespace `ns`, and a user who may do everything.
struct Server {
    registry: Registry,
    user: UserInfo,
}

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// Returns the caller of a test's requests.
fn caller<'a>(user: &'a UserInfo, warnings: &'a Warnings, audit: &'a AuditContext) -> Caller<'a> {
    Caller { user, user_agent: "test", verb: Verb::Update, subresource: "", warnings, audit }
}

impl Server {
    async fn start() -> Server {
        let authorizer = Arc::new(Authorizer::always_allow());
        let store = Store::open(
            Box::new(EphemeralLog::new()),
            ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
            Options::default(),
        )
        .expect("a store");
        let resources = SharedResourceTable::new(coracle_resources::built_in());
        let registry = Registry::new(Config::new(store, resources, Clock::system(), authorizer));
        let user = UserInfo::new("admin", &["system:masters"]);
        let server = Server { registry, user };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
        server.create("v1", "namespaces", &namespace).await.expect("a namespace");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        server.create("v1", "serviceaccounts", &account).await.expect("an account");
        server
    }

    fn target(&self, api_version: &str, plural: &str, name: &str) -> Target {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let info = self.registry.find(group, version, plural).expect(plural);
        let namespace = if info.namespaced { "ns".to_owned() } else { String::new() };
        Target { info, namespace, name: name.to_owned() }
    }

    fn options() -> WriteOptions {
        WriteOptions::default()
    }

    async fn create(&self, api_version: &str, plural: &str, object: &Value) -> Result<Outcome> {
        self.send(api_version, plural, None, Format::Json, object.to_string().into()).await
    }

    async fn update(&self, api_version: &str, plural: &str, object: &Value) -> Result<Outcome> {
        let name = object.name().to_owned();
        self.send(api_version, plural, Some(&name), Format::Json, object.to_string().into()).await
    }

    /// Sends a POST, or a PUT with a name.
    async fn send(
        &self,
        api_version: &str,
        plural: &str,
        name: Option<&str>,
        format: Format,
        bytes: Vec<u8>,
    ) -> Result<Outcome> {
        let target = self.target(api_version, plural, name.unwrap_or(""));
        let warnings = Warnings::default();
        let audit = AuditContext::default();
        let caller = caller(&self.user, &warnings, &audit);
        let body = RequestBody { bytes: bytes.into(), format };
        match name {
            None => self.registry.create(&target, &body, &Server::options(), caller).await,
            Some(_) => self.registry.update(&target, Part::Main, &body, &Server::options(), caller).await,
        }
    }

    async fn patch(
        &self,
        api_version: &str,
        plural: &str,
        name: &str,
        media_type: &'static str,
        patch: &[u8],
    ) -> Result<Outcome> {
        let target = self.target(api_version, plural, name);
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(media_type))]);
        let patch = Patch::parse(Patch::type_of(&headers, &target.info.type_ref)?, patch)?;
        let warnings = Warnings::default();
        let audit = AuditContext::default();
        let caller = caller(&self.user, &warnings, &audit);
        self.registry.patch(&target, Part::Main, &patch, &Server::options(), caller).await
    }

    fn stored(&self, api_version: &str, plural: &str, name: &str) -> Option<Arc<Stored>> {
        let target = self.target(api_version, plural, name);
        self.registry.current(&target.info, &target.namespace, name)
    }

    /// Stores bytes as no verb would.
    async fn put_raw(&self, api_version: &str, plural: &str, name: &str, bytes: String) {
        let target = self.target(api_version, plural, name);
        let key =
            Key::new(target.info.storage.bucket.clone(), target.info.storage_name(&target.namespace, name));
        self.registry.store.put(key, Expect::Any, bytes).await.expect("stored");
    }
}
