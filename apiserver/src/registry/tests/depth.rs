//! The depth limit of objects, and the handling of deeper stored ones.

use super::*;
use crate::audit::AuditContext;
use crate::codec::limits::{MAX_COLLECTIONS, MAX_DEPTH};

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }))
}

fn revision(name: &str, levels: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
        "metadata": {"name": name, "finalizers": ["example.com/keep"]}, "data": nested(levels),
    })
}

#[tokio::test]
async fn what_is_accepted_is_read_back_by_every_parser() {
    let server = Server::start().await;
    for (levels, fits) in [(1, true), (100, true), (MAX_DEPTH - 1, true), (MAX_DEPTH, false), (400, false)] {
        let name = format!("r{levels}");
        let created = server.create("apps/v1", "controllerrevisions", &revision(&name, levels)).await;
        let error = created.map(drop).map_err(|error| (error.code(), error.to_string()));
        if !fits {
            let (code, text) = error.expect_err("too deep");
            assert_eq!(code, 400);
            assert!(text.contains("exceeded max depth"), "{text}");
            continue;
        }
        error.expect("not too deep");
        let stored = server.stored("apps/v1", "controllerrevisions", &name).expect("stored");
        let in_a_watched_table = format!(
            r#"{{"type":"ADDED","object":{{"rows":[{{"object":{}}}]}}}}"#,
            std::str::from_utf8(&stored.bytes).expect("text").trim_end()
        );
        serde_json::from_str::<Value>(&in_a_watched_table).expect("what clients read with");
        assert_eq!(parse(&stored).expect("readable")["data"], nested(levels));
        // A client can write back an object that it has read.
        let mut again = parse(&stored).expect("readable");
        again["metadata"]["labels"] = json!({"a": "b"});
        server.update("apps/v1", "controllerrevisions", &again).await.expect("no deeper than before");
    }
}

#[tokio::test]
async fn patches_make_no_object_deeper_than_it_may_be() {
    let server = Server::start().await;
    server.create("apps/v1", "controllerrevisions", &revision("r", 60)).await.expect("created");
    let deepest = "/a".repeat(60);
    let grafts: Vec<Value> =
        (0..6).map(|_| json!({"op": "copy", "from": "/data", "path": format!("/data{deepest}/b")})).collect();
    let wide = json!({"metadata": {"annotations": {"k": "v"}}, "data": nested(MAX_DEPTH)}).to_string();
    for (media_type, patch, code) in [
        (JSON_PATCH, json!(grafts).to_string(), 422),
        (MERGE_PATCH, wide.clone(), 400),
        (STRATEGIC_PATCH, wide, 400),
    ] {
        let patched = server.patch("apps/v1", "controllerrevisions", "r", media_type, patch.as_bytes()).await;
        assert_eq!(
            patched.map(|outcome| outcome.code).map_err(|error| error.code()),
            Err(code),
            "{media_type}"
        );
    }
    let stored = server.stored("apps/v1", "controllerrevisions", "r").expect("stored");
    assert_eq!(parse(&stored).expect("readable")["data"], nested(60));
}

#[tokio::test]
async fn deeper_objects_that_are_stored_already_keep_their_finalizers() {
    let server = Server::start().await;
    let object = revision("old", 400).to_string();
    let stored = object.replacen("\"name\"", "\"resourceVersion\":\"\",\"name\"", 1);
    server.put_raw("apps/v1", "controllerrevisions", "old", stored).await;
    let target = server.target("apps/v1", "controllerrevisions", "old");
    let warnings = Warnings::default();
    let audit = AuditContext::default();
    let caller = caller(&server.user, &warnings, &audit);
    let options =
        crate::request::options::DeleteOptions::from_query(&crate::request::options::Query::parse(""));
    server.registry.delete(&target, &options.expect("no options"), caller).await.expect("marked");
    let stored = server.stored("apps/v1", "controllerrevisions", "old").expect("still there");
    assert!(stored.meta.terminating);
    assert_eq!(parse(&stored).expect("readable").finalizers(), ["example.com/keep"]);
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_and_no_empty_object() {
    let server = Server::start().await;
    let deep = format!(
        r#"{{"metadata":{{"name":"x","resourceVersion":""}},"data":{}1{}}}"#,
        "[".repeat(600),
        "]".repeat(600)
    );
    server.put_raw("v1", "configmaps", "x", deep).await;
    let error = |result: Result<Outcome>| result.map(|outcome| outcome.code).map_err(|error| error.code());
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    assert_eq!(error(server.update("v1", "configmaps", &config_map).await), Err(500));
    assert_eq!(error(server.patch("v1", "configmaps", "x", MERGE_PATCH, b"{}").await), Err(500));
    let cluster: &dyn crate::cluster::Cluster = &server.registry;
    let config_maps = GroupResource::new("", "configmaps");
    assert_eq!(cluster.get(&config_maps, "ns", "x").map_err(|error| error.code()), Err(500));
    assert_eq!(cluster.list(&config_maps, "ns").map_err(|error| error.code()), Err(500));
}

#[tokio::test]
async fn defaults_count_among_the_objects_of_a_document() {
    let server = Server::start().await;
    let pod = |containers: usize| {
        let containers = vec![json!({}); containers];
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": containers}})
    };
    // Each container gets its resources.
    for (containers, code) in [(MAX_COLLECTIONS / 2 - 100, 422), (MAX_COLLECTIONS / 2, 413)] {
        let created = server.create("v1", "pods", &pod(containers)).await;
        assert_eq!(created.map(drop).map_err(|error| error.code()), Err(code), "{containers}");
    }
}
