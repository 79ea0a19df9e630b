//! Admission that waits for others.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::*;
use crate::admission::{AdmissionAttributes, AsyncAdmissionPlugin};
use crate::cluster::Cluster;

/// Waits with objects that are named `slow` until the test lets them pass, as for a webhook that takes its time.
struct Slow {
    reached: Arc<Semaphore>,
    released: Arc<Semaphore>,
}

impl AsyncAdmissionPlugin for Slow {
    fn handles(&self, attributes: &AdmissionAttributes<'_>, _: &dyn Cluster) -> bool {
        attributes.name == "slow"
    }

    fn admit<'a>(
        &'a self,
        attributes: &'a mut AdmissionAttributes<'_>,
        _: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            self.reached.add_permits(1);
            self.released.acquire().await.expect("never closed").forget();
            attributes.object["metadata"]["annotations"]["admitted"] = "true".into();
            Ok(())
        })
    }
}

const DEADLINE: Duration = Duration::from_secs(30);

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": {}},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]},
    })
}

#[tokio::test]
async fn admission_that_waits_holds_up_nobody_else() {
    let (reached, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let mut server = Server::start().await;
    let plugin = Slow { reached: reached.clone(), released: released.clone() };
    server.registry.chain = AdmissionChain::default();
    server.registry.chain.add_async(plugin);
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"services": "9"}},
    });
    let mut quota = {
        server.create("v1", "resourcequotas", &quota).await.expect("a quota");
        parse(&server.stored("v1", "resourcequotas", "q").expect("stored")).expect("readable")
    };
    quota["status"] = json!({"hard": {"services": "9"}, "used": {"services": "0"}});
    server.put_raw("v1", "resourcequotas", "q", quota.to_string()).await;

    // Of the same kind, in the same namespace, with the same quota and the same stock of addresses.
    let object = service("slow");
    let slow = server.create("v1", "services", &object);
    let others = async {
        reached.acquire().await.expect("never closed").forget();
        for name in ["a", "b"] {
            server.create("v1", "services", &service(name)).await.expect("not held up");
        }
        assert!(server.stored("v1", "services", "slow").is_none(), "it is still waiting");
        released.add_permits(1);
    };
    let (created, ()) = timeout(DEADLINE, async { tokio::join!(slow, others) }).await.expect("in time");
    created.expect("created");

    // Of the same object: the update sees what was written meanwhile, and is admitted again.
    let patch = br#"{"metadata": {"annotations": {"patched": "slowly"}}}"#;
    let slow = server.patch("v1", "services", "slow", MERGE_PATCH, patch);
    let others = async {
        reached.acquire().await.expect("never closed").forget();
        let mut current = parse(&server.stored("v1", "services", "slow").expect("stored")).expect("readable");
        current["metadata"]["labels"] = json!({"written": "meanwhile"});
        server.put_raw("v1", "services", "slow", current.to_string()).await;
        released.add_permits(1);
        reached.acquire().await.expect("never closed").forget();
        released.add_permits(1);
    };
    let (patched, ()) = timeout(DEADLINE, async { tokio::join!(slow, others) }).await.expect("in time");
    patched.expect("patched");
    let stored = parse(&server.stored("v1", "services", "slow").expect("stored")).expect("readable");
    assert_eq!(stored["metadata"]["annotations"], json!({"admitted": "true", "patched": "slowly"}));
    assert_eq!(stored["metadata"]["labels"], json!({"written": "meanwhile"}));
}
