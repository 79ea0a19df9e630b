//! Impersonation by the rights of roles.

use coracle_apiserver::access::UserInfo;
use coracle_apiserver::access::authorize::{RequestAttributes, ResourceTarget, Target};
use coracle_apiserver::access::impersonate::{Impersonated, Impersonator};
use coracle_apiserver_testing::TestServer;
use http::{HeaderMap, HeaderName, Method};
use serde_json::{Value, json};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let name = |n: &str| HeaderName::from_bytes(n.as_bytes()).expect(n);
    pairs.iter().map(|(n, v)| (name(n), v.parse().expect("a value"))).collect()
}

/// Binds the user `alice` to a role that has no rules yet.
async fn bind(server: &TestServer) {
    let role = json!({"metadata": {"name": "r"}});
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    for (path, object) in [(ROLES, role), (BINDINGS, binding)] {
        let (code, response) = server.send(Method::POST, path, &object).await;
        assert_eq!(code, 201, "{response}");
    }
}

async fn set_rules(server: &TestServer, rules: Value) {
    let role = json!({"metadata": {"name": "r"}, "rules": rules});
    let (code, response) = server.send(Method::PUT, &format!("{ROLES}/r"), &role).await;
    assert_eq!(code, 200, "{response}");
    // As each request does at its start.
    server.authorizer.refresh();
}

fn try_as(server: &TestServer, caller: &UserInfo, requested: &[(&str, &str)]) -> String {
    let target = ResourceTarget { resource: "pods", namespace: "ns", ..ResourceTarget::default() };
    let request = RequestAttributes { verb: "list", target: Target::Resource(target) };
    let got = Impersonator::default().impersonate(&headers(requested), caller, &request, &server.authorizer);
    match got {
        Ok(None) => "nobody".to_owned(),
        Ok(Some(Impersonated { user, .. })) => {
            format!("{} [{}] {:?}", user.name, user.groups.join(","), user.extra)
        }
        Err(error) => format!("{} {error}", error.code()),
    }
}

#[tokio::test]
async fn other_users_need_impersonation_rules() {
    let server = TestServer::start().await;
    bind(&server).await;
    let alice = UserInfo::new("alice", &[]);
    let bob = &[("Impersonate-User", "bob")][..];
    let users = json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]});
    for (case, requested, rules, want) in [
        (
            "none",
            bob,
            json!([]),
            r#"403 pods is forbidden: User "alice" cannot impersonate-on:user-info:list resource "pods" in API group "" in the namespace "ns""#,
        ),
        (
            "a service account",
            &[("Impersonate-User", "system:serviceaccount:a:b")],
            json!([]),
            r#"403 pods is forbidden: User "alice" cannot impersonate-on:serviceaccount:list resource "pods" in API group "" in the namespace "ns""#,
        ),
        ("the old verb", bob, json!([users]), "bob [system:authenticated] {}"),
        (
            "constrained",
            bob,
            json!([{"verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["pods"]},
                   {"verbs": ["impersonate:user-info"], "apiGroups": ["authentication.k8s.io"], "resources": ["users"]}]),
            "bob [system:authenticated] {}",
        ),
        (
            "constrained, half of it",
            bob,
            json!([{"verbs": ["impersonate-on:user-info:list"], "apiGroups": [""], "resources": ["pods"]}]),
            r#"403 users.authentication.k8s.io "bob" is forbidden: User "alice" cannot impersonate:user-info resource "users" in API group "authentication.k8s.io" at the cluster scope"#,
        ),
    ] {
        set_rules(&server, rules).await;
        assert_eq!(try_as(&server, &alice, requested), want, "{case}");
    }
}

#[tokio::test]
async fn the_last_successful_mode_explains_the_next_denial() {
    let server = TestServer::start().await;
    bind(&server).await;
    let bob = json!({"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]});
    set_rules(&server, json!([bob])).await;
    let alice = UserInfo::new("alice", &[]);
    let impersonator = Impersonator::default();
    let request = RequestAttributes { verb: "get", target: Target::Path("/version") };
    let become_ = |name| {
        impersonator.impersonate(
            &headers(&[("Impersonate-User", name)]),
            &alice,
            &request,
            &server.authorizer,
        )
    };
    assert!(become_("bob").is_ok());
    assert_eq!(
        become_("eve").expect_err("no right").to_string(),
        r#"users "eve" is forbidden: User "alice" cannot impersonate resource "users" in API group "" at the cluster scope"#
    );
}
