//! root-ca-certificate-publisher-controller: every namespace has a ConfigMap `kube-root-ca.crt`, by
//! which pods know the API server.
//!
//! A namespace is reconciled when it changes and when its ConfigMap does; then:
//! 1. without the ConfigMap, it is created;
//! 2. one with other content is replaced.
//!
//! Only the metadata of ConfigMaps is watched: keeping all of them for the sake of one a namespace
//! would be a waste. Each reconciliation reads its ConfigMap from the server.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, ListScope, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict,
    is_namespace_terminating,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::PartialObjectMeta;
use prometheus::CounterVec;

use crate::settings::{Context, Settings};

const NAME: &str = "kube-root-ca.crt";
const PUBLISHED: ListScope =
    ListScope { namespace: None, field_selector: Some("metadata.name=kube-root-ca.crt") };
const KEY: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
                    the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
                    Kubernetes clusters.";

pub struct RootCaCertificatePublisher {
    certificates: String,
    namespaces: Arc<Cache<Namespace>>,
    published: Arc<Cache<PartialObjectMeta<ConfigMap>>>,
    syncs: CounterVec,
}

impl Initialize<Settings> for RootCaCertificatePublisher {
    fn is_possible(settings: &Settings) -> bool {
        settings.root_ca.is_some()
    }

    fn new(context: &Context) -> RootCaCertificatePublisher {
        let help = "Number of namespace syncs happened in root ca cert publisher.";
        RootCaCertificatePublisher {
            certificates: context.settings.root_ca.clone().unwrap_or_default(),
            namespaces: context.cache(),
            published: context.cache_within(PUBLISHED),
            syncs: context.metrics.counter("root_ca_cert_publisher_sync_total", help, &["code"]),
        }
    }
}

impl Controller for RootCaCertificatePublisher {
    const NAME: &'static str = "root-ca-certificate-publisher-controller";
    const QUEUE_NAME: &'static str = "root_ca_cert_publisher";
    /// The name of a namespace.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        sources
            .on(&self.namespaces, |change, queue| {
                let terminating = |n: &Arc<Namespace>| n.metadata.deletion_timestamp.is_some();
                if change.new.as_ref().is_some_and(|namespace| !terminating(namespace)) {
                    change.name().into_iter().for_each(|name| queue.add(name.name));
                }
            })
            .on(&self.published, |change, queue| {
                // ConfigMaps that existed before are enqueued with their namespaces.
                if change.old.is_some() {
                    change.name().filter(|n| n.name == NAME).into_iter().for_each(|n| queue.add(n.namespace));
                }
            });
    }

    async fn reconcile(&self, namespace: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let outcome = self.publish(namespace, ctx).await;
        let code = match &outcome {
            Ok(()) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(_) => 500,
        };
        self.syncs.with_label_values(&[&code.to_string()]).inc();
        outcome?;
        Ok(Action::AwaitChange)
    }
}

impl RootCaCertificatePublisher {
    async fn publish(&self, namespace: &str, ctx: &ReconcileContext) -> kube::Result<()> {
        let api = ctx.api_of_metadata(&self.published);
        let current = api.get(&NamespacedName::new(namespace, NAME)).await?;
        let Some(wanted) = wanted(namespace, current.as_ref(), &self.certificates) else { return Ok(()) };
        let written = match current {
            Some(_) => api.replace(&wanted).await,
            None => api.create(&wanted).await,
        };
        // Another client wrote: the watch will report it.
        match ignore_conflict(written) {
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            written => written.map(|_| ()),
        }
    }
}

/// Returns the ConfigMap to write; None if it is up to date.
fn wanted(namespace: &str, current: Option<&ConfigMap>, certificates: &str) -> Option<ConfigMap> {
    let data = BTreeMap::from([(KEY.to_owned(), certificates.to_owned())]);
    let described = |current: &ConfigMap| {
        current
            .metadata
            .annotations
            .iter()
            .flatten()
            .any(|(key, text)| key == DESCRIPTION && !text.is_empty())
    };
    if current.is_some_and(|current| current.data.as_ref() == Some(&data) && described(current)) {
        return None;
    }
    let mut wanted = current.cloned().unwrap_or_default();
    wanted.metadata.namespace = Some(namespace.to_owned());
    wanted.metadata.name = Some(NAME.to_owned());
    wanted.metadata.annotations.get_or_insert_default().insert(DESCRIPTION.to_owned(), TEXT.to_owned());
    wanted.data = Some(data);
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_written_anew() {
        let fresh = wanted("n", None, "ca").unwrap();
        let changed = |change: fn(&mut ConfigMap)| {
            let mut changed = fresh.clone();
            change(&mut changed);
            changed
        };
        for (case, current, want) in [
            ("as it was written", changed(|_| {}), false),
            (
                "with a label",
                changed(|c| c.metadata.labels = Some(BTreeMap::from([("a".into(), "b".into())]))),
                false,
            ),
            (
                "described otherwise",
                changed(|c| {
                    c.metadata.annotations.as_mut().unwrap().insert(DESCRIPTION.into(), "my".into());
                }),
                false,
            ),
            ("not described", changed(|c| c.metadata.annotations = None), true),
            (
                "other data",
                changed(|c| {
                    c.data.as_mut().unwrap().insert(KEY.into(), "other".into());
                }),
                true,
            ),
            ("more data", changed(|c| c.data.as_mut().unwrap().extend([("x".into(), "y".into())])), true),
        ] {
            let written = wanted("n", Some(&current), "ca");
            assert_eq!(written.is_some(), want, "{case}");
            if let Some(written) = written {
                assert_eq!(
                    (written.data, written.metadata.annotations),
                    (fresh.data.clone(), fresh.metadata.annotations.clone())
                );
            }
        }
    }
}
