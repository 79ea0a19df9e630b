//! serviceaccount-controller: every active namespace has a ServiceAccount `default`.
//!
//! A namespace is looked at when it changes and when its account changes; then:
//! 1. a namespace that is not active is left alone;
//! 2. the account is created; if it is there already, all is well.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};

pub const NAME: &str = "serviceaccount-controller";

const ACCOUNT: &str = "default";
const RETRY: Duration = Duration::from_secs(1);

/// The account could not be created; trying again cures what passes.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the account: {0}")]
pub struct Error(#[from] kube::Error);

/// Runs until the future is dropped.
pub async fn run(client: Client) {
    let everything = watcher::Config::default();
    let accounts = watcher::Config::default().fields(&format!("metadata.name={ACCOUNT}"));
    Controller::new(Api::<Namespace>::all(client.clone()), everything)
        .watches(Api::<ServiceAccount>::all(client.clone()), accounts, |account| {
            account.namespace().map(|namespace| ObjectRef::<Namespace>::new(&namespace))
        })
        .run(reconcile, |_, error, _| retry(error), Arc::new(client))
        .for_each(|outcome| async {
            if let Err(error) = outcome {
                tracing::debug!(controller = NAME, %error, "a pass failed");
            }
        })
        .await;
}

fn retry(error: &Error) -> Action {
    tracing::info!(controller = NAME, %error, "will try again");
    Action::requeue(RETRY)
}

async fn reconcile(namespace: Arc<Namespace>, client: Arc<Client>) -> Result<Action, Error> {
    let Some(account) = wanted(&namespace) else { return Ok(Action::await_change()) };
    let accounts = Api::<ServiceAccount>::namespaced(client.as_ref().clone(), &namespace.name_any());
    match accounts.create(&Default::default(), &account).await {
        Ok(_) => Ok(Action::await_change()),
        // It is there, or the namespace is gone or going: nothing to do about either.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404 | 409) => Ok(Action::await_change()),
        Err(error) => Err(error.into()),
    }
}

/// The account that a namespace should have.
fn wanted(namespace: &Namespace) -> Option<ServiceAccount> {
    let phase = namespace.status.as_ref().and_then(|s| s.phase.as_deref());
    if namespace.meta().deletion_timestamp.is_some() || phase == Some("Terminating") {
        return None;
    }
    let mut account = ServiceAccount::default();
    account.metadata.name = Some(ACCOUNT.to_owned());
    Some(account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::NamespaceStatus;

    #[test]
    fn active_namespaces_have_an_account() {
        for (case, phase, want) in
            [("new", None, true), ("active", Some("Active"), true), ("going", Some("Terminating"), false)]
        {
            let status = phase
                .map(|phase: &str| NamespaceStatus { phase: Some(phase.to_owned()), ..Default::default() });
            let namespace = Namespace { status, ..Default::default() };
            assert_eq!(wanted(&namespace).is_some(), want, "{case}");
        }
    }
}
