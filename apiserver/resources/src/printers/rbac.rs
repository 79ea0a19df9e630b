//! Role bindings.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::render::columns::Text::Literal;
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, string};
use serde_json::Value;

/// The columns of RoleBinding.
pub const ROLE_BINDING: &[Column] = &[
    NAME,
    string(
        "Role",
        Literal(
            "RoleRef can reference a Role in the current namespace or a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
        ),
        role,
    ),
    AGE,
    string("Users", Literal("Users in the roleBinding"), users).wide(),
    string("Groups", Literal("Groups in the roleBinding"), groups).wide(),
    string("ServiceAccounts", Literal("ServiceAccounts in the roleBinding"), service_accounts).wide(),
];

/// The columns of ClusterRoleBinding.
pub const CLUSTER_ROLE_BINDING: &[Column] = &[
    NAME,
    string(
        "Role",
        Literal(
            "RoleRef can only reference a ClusterRole in the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error.",
        ),
        role,
    ),
    AGE,
    string("Users", Literal("Users in the clusterRoleBinding"), users).wide(),
    string("Groups", Literal("Groups in the clusterRoleBinding"), groups).wide(),
    string("ServiceAccounts", Literal("ServiceAccounts in the clusterRoleBinding"), service_accounts).wide(),
];

fn role(row: &Row<'_>) -> Value {
    let role = row.get("roleRef");
    format!("{}/{}", role.get("kind").str(), role.get("name").str()).into()
}

fn users(row: &Row<'_>) -> Value {
    subjects(row, "User", |subject| subject.get("name").str().to_owned())
}

fn groups(row: &Row<'_>) -> Value {
    subjects(row, "Group", |subject| subject.get("name").str().to_owned())
}

fn service_accounts(row: &Row<'_>) -> Value {
    let name =
        |subject: Field<'_>| format!("{}/{}", subject.get("namespace").str(), subject.get("name").str());
    subjects(row, "ServiceAccount", name)
}

fn subjects(row: &Row<'_>, kind: &str, name: impl Fn(Field<'_>) -> String) -> Value {
    let subjects = row.get("subjects").items().filter(|subject| subject.get("kind").str() == kind);
    subjects.map(name).collect::<Vec<_>>().join(", ").into()
}
