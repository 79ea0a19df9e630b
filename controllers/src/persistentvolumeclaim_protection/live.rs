//! Live lists of the pods of a namespace, shared by concurrent reconciliations.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;

pub struct LivePods {
    reader: Client,
    namespaces: Mutex<HashMap<String, Arc<Lists>>>,
}

/// The lists of one namespace, one at a time.
#[derive(Default)]
struct Lists {
    begun: AtomicU64,
    last: tokio::sync::Mutex<(u64, Arc<Vec<Pod>>)>,
}

impl LivePods {
    pub fn new(reader: Client) -> LivePods {
        LivePods { reader, namespaces: Mutex::default() }
    }

    /// Returns the result of a list that began after this call; callers share it.
    pub async fn list(&self, namespace: &str) -> kube::Result<Arc<Vec<Pod>>> {
        let lists = {
            let mut namespaces = self.namespaces.lock();
            // Nobody waits for those that only this map knows.
            namespaces.retain(|name, lists| name == namespace || Arc::strong_count(lists) > 1);
            namespaces.entry(namespace.to_owned()).or_default().clone()
        };
        let arrived = lists.begun.load(Ordering::Acquire);
        let mut last = lists.last.lock().await;
        if last.0 <= arrived {
            let number = lists.begun.fetch_add(1, Ordering::AcqRel) + 1;
            let pods =
                Api::<Pod>::namespaced(self.reader.clone(), namespace).list(&ListParams::default()).await?;
            *last = (number, Arc::new(pods.items));
        }
        Ok(last.1.clone())
    }
}
