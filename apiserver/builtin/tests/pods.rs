//! Subresources of pods, through a whole server.

use coracle_apiserver_testing::TestServer;
use http::Method;
use serde_json::json;

#[tokio::test]
async fn an_eviction_of_version_v1beta1_is_accepted() {
    let server = TestServer::start().await;
    let account = json!({"metadata": {"name": "default"}});
    server.send(Method::POST, "/api/v1/namespaces/default/serviceaccounts", &account).await;
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "node", "containers": [{"name": "c", "image": "i:1"}]},
    });
    let (code, _) = server.send(Method::POST, "/api/v1/namespaces/default/pods", &pod).await;
    assert_eq!(code, 201);
    for (version, want) in [
        ("policy/v1beta1", None),
        ("policy/v1", None),
        (
            "policy/v1alpha1",
            Some(
                "Eviction in version \"v1alpha1\" cannot be handled as a Eviction: no kind \"Eviction\" is registered for version \"policy/v1alpha1\" in scheme \"pkg/runtime/scheme.go:111\"",
            ),
        ),
    ] {
        let eviction = json!({"apiVersion": version, "kind": "Eviction", "metadata": {"name": "p"}});
        let path = "/api/v1/namespaces/default/pods/p/eviction?dryRun=All";
        let (code, answer) = server.send(Method::POST, path, &eviction).await;
        match want {
            None => assert_eq!(code, 201, "{version}: {answer}"),
            Some(want) => assert_eq!(answer["message"], want, "{version}"),
        }
    }
}
