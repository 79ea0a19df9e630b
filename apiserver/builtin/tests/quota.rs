//! Quotas of many writers at once, through a whole server.

use std::sync::Arc;

use coracle_apiserver_testing::TestServer;
use futures::future::join_all;
use http::Method;
use serde_json::json;

const NAMESPACE: &str = "/api/v1/namespaces/default";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_quota_is_exceeded() {
    const HARD: usize = 40;
    let server = Arc::new(TestServer::start().await);
    let hard = json!({"count/configmaps": HARD.to_string()});
    let mut quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    let (code, _) = server.send(Method::POST, &format!("{NAMESPACE}/resourcequotas"), &quota).await;
    assert_eq!(code, 201);
    quota["status"] = json!({"hard": hard, "used": {"count/configmaps": "0"}});
    let path = format!("{NAMESPACE}/resourcequotas/q");
    let (code, _) = server.send(Method::PUT, &format!("{path}/status"), &quota).await;
    assert_eq!(code, 200);
    let create = |i: usize| {
        let server = server.clone();
        tokio::spawn(async move {
            let config_map = json!({"metadata": {"name": format!("c{i}")}});
            server.send(Method::POST, &format!("{NAMESPACE}/configmaps"), &config_map).await.0
        })
    };
    let codes: Vec<u16> =
        join_all((0..192).map(create)).await.into_iter().map(|done| done.expect("no panic")).collect();
    assert!(codes.iter().all(|code| matches!(code, 201 | 403)), "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), HARD);
    let (_, list) = server.get(&format!("{NAMESPACE}/configmaps")).await;
    let own = list["items"].as_array().expect("a list").iter();
    let own = own.filter(|item| item["metadata"]["name"].as_str().is_some_and(|name| name.starts_with('c')));
    assert_eq!(own.count(), HARD);
    let (_, quota) = server.get(&path).await;
    assert_eq!(quota["status"]["used"]["count/configmaps"], HARD.to_string());
}
