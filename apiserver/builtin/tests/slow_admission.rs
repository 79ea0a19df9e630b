//! Admission that waits for others, through a whole server.
#![expect(clippy::disallowed_methods, reason = "a test waits and measures")]

use std::sync::Arc;
use std::time::Duration;

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apiserver::admission::{AdmissionAttributes, AsyncAdmissionPlugin};
use coracle_apiserver::registry::Target;
use coracle_apiserver_testing::{MERGE_PATCH, TestServer};
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::timeout;

const NAMESPACE: &str = "/api/v1/namespaces/default";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const DEADLINE: Duration = Duration::from_secs(30);

/// Waits with objects that are named `slow` until the test lets them pass, as for a webhook that
/// takes its time.
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

fn service(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {}},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]},
    })
}

#[tokio::test]
async fn admission_that_waits_holds_up_nobody_else() {
    let (reached, released) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let plugin = Slow { reached: reached.clone(), released: released.clone() };
    let server = TestServer::with(Vec::new(), |chain| chain.add_async(plugin)).await;
    let mut quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"services": "9"}}});
    let (code, _) = server.send(Method::POST, &format!("{NAMESPACE}/resourcequotas"), &quota).await;
    assert_eq!(code, 201);
    quota["status"] = json!({"hard": {"services": "9"}, "used": {"services": "0"}});
    let (code, _) = server.send(Method::PUT, &format!("{NAMESPACE}/resourcequotas/q/status"), &quota).await;
    assert_eq!(code, 200);

    // Of the same kind, in the same namespace, with the same quota and the same stock of addresses.
    let (object, path) = (service("slow"), format!("{SERVICES}/slow"));
    let slow = server.send(Method::POST, SERVICES, &object);
    let others = async {
        reached.acquire().await.expect("never closed").forget();
        for name in ["a", "b"] {
            let (code, _) = server.send(Method::POST, SERVICES, &service(name)).await;
            assert_eq!(code, 201, "not held up");
        }
        assert_eq!(server.get(&path).await.0, 404, "it is still waiting");
        released.add_permits(1);
    };
    let ((code, _), ()) = timeout(DEADLINE, async { tokio::join!(slow, others) }).await.expect("in time");
    assert_eq!(code, 201);

    // Of the same object: the update sees what was written meanwhile, and is admitted again.
    let patch = json!({"metadata": {"annotations": {"patched": "slowly"}}});
    let slow = server.patch(&path, MERGE_PATCH, &patch);
    let others = async {
        reached.acquire().await.expect("never closed").forget();
        let registry = server.api.registry();
        let info = registry.find("", "v1", "services").expect("Services");
        let target = Target { info, namespace: "default".to_owned(), name: "slow".to_owned() };
        let written = registry.rewrite(&target, false, |current| {
            let mut changed = current.clone();
            changed["metadata"]["labels"] = json!({"written": "meanwhile"});
            Ok(changed)
        });
        written.await.expect("written without admission");
        released.add_permits(1);
        reached.acquire().await.expect("never closed").forget();
        released.add_permits(1);
    };
    let ((code, _), ()) = timeout(DEADLINE, async { tokio::join!(slow, others) }).await.expect("in time");
    assert_eq!(code, 200);
    let (_, stored) = server.get(&path).await;
    assert_eq!(stored["metadata"]["annotations"], json!({"admitted": "true", "patched": "slowly"}));
    assert_eq!(stored["metadata"]["labels"], json!({"written": "meanwhile"}));
}
