//! serviceaccount-controller: keeps a ServiceAccount `default` in every active namespace.
//!
//! A namespace is reconciled when it changes and when its account changes; then:
//! 1. a namespace that is not active is left alone;
//! 2. so is one that has its account;
//! 3. otherwise the account is created.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict,
    is_namespace_terminating,
};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};

use crate::settings::{Context, Settings};

const ACCOUNT: &str = "default";

pub struct ServiceAccountController {
    namespaces: Arc<Cache<Namespace>>,
    accounts: Arc<Cache<ServiceAccount>>,
}

impl Initialize<Settings> for ServiceAccountController {
    fn new(context: &Context) -> ServiceAccountController {
        ServiceAccountController { namespaces: context.cache(), accounts: context.cache() }
    }
}

impl Controller for ServiceAccountController {
    const NAME: &'static str = "serviceaccount-controller";
    const QUEUE_NAME: &'static str = "serviceaccount";
    /// The name of a namespace.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        sources
            .on(&self.namespaces, |change, queue| {
                change.name().into_iter().for_each(|name| queue.add(name.name));
            })
            .on(&self.accounts, |change, queue| {
                let gone = change.new.is_none();
                change
                    .name()
                    .filter(|name| gone && name.name == ACCOUNT)
                    .into_iter()
                    .for_each(|name| queue.add(name.namespace));
            });
    }

    async fn reconcile(&self, namespace: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let account = NamespacedName::new(namespace, ACCOUNT);
        let is_active =
            self.namespaces.get(&NamespacedName::new("", namespace)).is_some_and(|n| is_active(&n));
        if !is_active || self.accounts.get(&account).is_some() {
            return Ok(Action::AwaitChange);
        }
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(ACCOUNT.to_owned());
        account.metadata.namespace = Some(namespace.clone());
        match ignore_conflict(ctx.api(&self.accounts).create(&account).await) {
            Ok(_) => {}
            Err(error) if is_namespace_terminating(&error) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Action::AwaitChange)
    }
}

/// Returns `true` if objects can be created in a namespace.
fn is_active(namespace: &Namespace) -> bool {
    let phase = namespace.status.as_ref().and_then(|s| s.phase.as_deref());
    namespace.metadata.deletion_timestamp.is_none() && phase != Some("Terminating")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::NamespaceStatus;

    #[test]
    fn active_namespaces_have_an_account() {
        for (case, phase, want) in [
            ("new", None, true),
            ("active", Some("Active"), true),
            ("terminating", Some("Terminating"), false),
        ] {
            let status = phase
                .map(|phase: &str| NamespaceStatus { phase: Some(phase.to_owned()), ..Default::default() });
            let namespace = Namespace { status, ..Default::default() };
            assert_eq!(is_active(&namespace), want, "{case}");
        }
    }
}
