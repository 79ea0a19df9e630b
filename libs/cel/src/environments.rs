//! The environments of Kubernetes' expressions: the rules of custom resources, admission, and the
//! selectors of devices.
//!
//! Source: `k8s.io/dynamic-resource-allocation/cel`, `compile.go`;
//! `k8s.io/apiserver/pkg/admission/plugin/cel`, `compile.go` and `composition.go`;
//! `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel`, `compilation.go`.

use std::sync::Arc;

use crate::decl::{DeclField, DeclKind, DeclType};
use crate::env::Env;
use crate::program::Program;
use crate::types::Type;

/// The type of the variable `variables`.
const VARIABLES: &str = "kubernetes.variables";
/// The type of the variable `device`.
const DEVICE: &str = "kubernetes.DRADevice";
/// The greatest length of the name of a driver.
const DRIVER: u64 = 63;
/// The greatest length of an attribute that is text.
const VALUE: u64 = 64;
/// The number of attributes and capacities that a device may have.
const ATTRIBUTES: u64 = 32;

/// Creates the environment of a rule: `self`, and `oldSelf`, which may be an optional one.
pub fn rule(decl: &Arc<DeclType>, optional_old_self: bool) -> Env {
    Env::new().declared("self", decl, false).declared("oldSelf", decl, optional_old_self)
}

/// Creates the environment of admission expressions, with `params` for a policy with parameters.
pub fn admission(has_params: bool) -> Env {
    let opaque = |name: &str| Type::Opaque(format!("kubernetes.authorization.{name}").into());
    let object = |name: &str| Type::Object(Arc::from(name));
    let mut env = declare_namespace(declare_request(Env::new()))
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", object("kubernetes.AdmissionRequest"))
        .variable("namespaceObject", object("kubernetes.Namespace"))
        .variable("authorizer", opaque("Authorizer"))
        .variable("authorizer.requestResource", opaque("ResourceCheck"));
    if has_params {
        env = env.variable("params", Type::Dyn);
    }
    env
}

/// Removes the variables that [`admission`] declares to ask for decisions.
#[must_use]
pub fn without_authorizer(env: Env) -> Env {
    env.without_variable("authorizer").without_variable("authorizer.requestResource")
}

/// Adds composed variables, which [`add_variable`] declares.
#[must_use]
pub fn with_variables(env: Env) -> Env {
    env.object(VARIABLES, &[]).variable("variables", Type::Object(VARIABLES.into()))
}

/// Declares a composed variable.
pub fn add_variable(env: &mut Env, name: &str, ty: Type) {
    env.add_field(VARIABLES, name, ty);
}

/// Adds the types and the function of mutations: `Object` and all within it, `JSONPatch`,
/// `jsonpatch.escapeKey`.
#[must_use]
pub fn with_patch_types(env: Env) -> Env {
    let patch = [("op", Type::String), ("path", Type::String), ("from", Type::String), ("value", Type::Dyn)];
    env.open_object("Object").object("JSONPatch", &patch)
}

/// Creates the environment of device selectors.
pub fn device() -> Env {
    let domains = |value: Type| Type::map(Type::String, Type::map(Type::String, value));
    let decl = |kind, max_elements| Arc::new(DeclType { kind, max_elements, min_size: 1 });
    let map = |value| decl(DeclKind::Map(value), ATTRIBUTES);
    let of = |value: u64| map(map(decl(DeclKind::Dyn, value)));
    let field = |name: &str, ty: Arc<DeclType>| (Arc::from(name), DeclField { json_name: name.into(), ty });
    let fields = [
        field("driver", decl(DeclKind::String, DRIVER)),
        field("allowMultipleAllocations", decl(DeclKind::Bool, 1)),
        field("attributes", of(VALUE)),
        field("capacity", of(0)),
    ];
    let sizes = decl(DeclKind::Object { name: DEVICE.into(), fields: fields.into() }, 0);
    Env::new()
        .with_binds()
        .object(
            DEVICE,
            &[
                ("driver", Type::String),
                ("allowMultipleAllocations", Type::Bool),
                ("attributes", domains(Type::Any)),
                ("capacity", domains(Type::Opaque("kubernetes.Quantity".into()))),
            ],
        )
        .variable("device", Type::Object(DEVICE.into()))
        .sized("device", &sizes)
}

/// Compiles the selector of a device in the environment [`device`].
///
/// # Errors
/// The detail of the error that the object is refused with.
pub fn compile_selector(env: &Env, expression: &str) -> Result<Program, String> {
    let program = env.compile(expression).map_err(|error| error.to_string())?;
    match program.output_type() {
        Type::Bool | Type::Any => Ok(program),
        other => Err(format!("must evaluate to bool or the unknown type, not {}", other.full_name())),
    }
}

/// Declares the types of `request`.
fn declare_request(env: Env) -> Env {
    let object = |name: &str| Type::Object(Arc::from(name));
    let text = || Type::String;
    let texts = || Type::list(Type::String);
    env.object("kubernetes.GroupVersionKind", &[("group", text()), ("version", text()), ("kind", text())])
        .object(
            "kubernetes.GroupVersionResource",
            &[("group", text()), ("version", text()), ("resource", text())],
        )
        .object(
            "kubernetes.UserInfo",
            &[
                ("username", text()),
                ("uid", text()),
                ("groups", texts()),
                ("extra", Type::map(Type::String, texts())),
            ],
        )
        .object(
            "kubernetes.AdmissionRequest",
            &[
                ("kind", object("kubernetes.GroupVersionKind")),
                ("resource", object("kubernetes.GroupVersionResource")),
                ("subResource", text()),
                ("requestKind", object("kubernetes.GroupVersionKind")),
                ("requestResource", object("kubernetes.GroupVersionResource")),
                ("requestSubResource", text()),
                ("name", text()),
                ("namespace", text()),
                ("operation", text()),
                ("userInfo", object("kubernetes.UserInfo")),
                ("dryRun", Type::Bool),
                ("options", Type::Dyn),
            ],
        )
}

/// Declares the types of `namespaceObject`.
fn declare_namespace(env: Env) -> Env {
    let object = |name: &str| Type::Object(Arc::from(name));
    let text = || Type::String;
    let texts = || Type::list(Type::String);
    let map = || Type::map(Type::String, Type::String);
    env.object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map()),
            ("annotations", map()),
            ("UID", text()),
            ("creationTimestamp", Type::Timestamp),
            ("deletionGracePeriodSeconds", Type::Int),
            ("deletionTimestamp", Type::Timestamp),
            ("generation", Type::Int),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    )
    .object("kubernetes.NamespaceSpec", &[("finalizers", texts())])
    .object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", Type::Timestamp),
            ("message", text()),
            ("reason", text()),
        ],
    )
    .object(
        "kubernetes.NamespaceStatus",
        &[("conditions", Type::list(object("kubernetes.NamespaceCondition"))), ("phase", text())],
    )
    .object(
        "kubernetes.Namespace",
        &[
            ("metadata", object("kubernetes.NamespaceMetadata")),
            ("spec", object("kubernetes.NamespaceSpec")),
            ("status", object("kubernetes.NamespaceStatus")),
        ],
    )
}
