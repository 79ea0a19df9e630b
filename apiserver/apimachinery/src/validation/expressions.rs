//! The expressions of admission: the variables that policies and match conditions see, and how their expressions are
//! compiled. The strategies of policies refuse what does not compile; the plugins evaluate what does.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel`, `compile.go` and `composition.go`.

use std::sync::Arc;

use coracle_cel::{Env, Program, Type};

use crate::field::{Errors, Field};

/// The type of the variable `variables`.
const VARIABLES: &str = "kubernetes.variables";

/// The environment of the expressions of one policy.
#[derive(Clone)]
pub struct PolicyEnv(Env);

impl PolicyEnv {
    /// The variables of every expression, and `params` for a policy with parameters.
    pub fn new(has_params: bool) -> PolicyEnv {
        let opaque = |name: &str| Type::Opaque(format!("kubernetes.authorization.{name}").into());
        let object = |name: &str| Type::Object(Arc::from(name));
        let mut env = declare_request(Env::new())
            .variable("object", Type::Dyn)
            .variable("oldObject", Type::Dyn)
            .variable("request", object("kubernetes.AdmissionRequest"))
            .variable("namespaceObject", object("kubernetes.Namespace"))
            .variable("authorizer", opaque("Authorizer"))
            .variable("authorizer.requestResource", opaque("ResourceCheck"));
        if has_params {
            env = env.variable("params", Type::Dyn);
        }
        PolicyEnv(env)
    }

    /// With composed variables, which are added by [`PolicyEnv::add_variable`].
    #[must_use]
    pub fn with_variables(self) -> PolicyEnv {
        PolicyEnv(self.0.object(VARIABLES, &[]).variable("variables", Type::Object(VARIABLES.into())))
    }

    /// With the types that mutations make: `Object` and all within it, and `JSONPatch`.
    #[must_use]
    pub fn with_patch_types(self) -> PolicyEnv {
        let patch =
            [("op", Type::String), ("path", Type::String), ("from", Type::String), ("value", Type::Dyn)];
        PolicyEnv(self.0.open_object("Object").object("JSONPatch", &patch))
    }

    /// Declares a composed variable.
    pub fn add_variable(&mut self, name: &str, ty: Type) {
        self.0.add_field(VARIABLES, name, ty);
    }

    /// Declares the type of `object` and `oldObject`, so that it is checked.
    #[must_use]
    pub fn with_object(self, object: &Arc<coracle_cel::DeclType>) -> PolicyEnv {
        PolicyEnv(self.0.declared("object", object, false).declared("oldObject", object, false))
    }

    /// Compiles an expression that has one of these types; any if there are none.
    ///
    /// # Errors
    /// The detail of the error that the object is refused with.
    pub fn compile(&self, expression: &str, types: &[Type]) -> Result<Program, String> {
        let program = self.0.compile(expression).map_err(|issues| format!("compilation failed: {issues}"))?;
        let found = program.output_type();
        match types {
            [] => Ok(program),
            types if types.contains(found) => Ok(program),
            [wanted] => Err(format!("must evaluate to {wanted} but got {found}")),
            types => {
                let names: Vec<String> = types.iter().map(Type::to_string).collect();
                Err(format!("must evaluate to one of [{}]", names.join(" ")))
            }
        }
    }

    /// Reports an expression that does not compile. Blank ones are left to others.
    pub fn check(&self, expression: &Field<'_>, types: &[Type], errors: &mut Errors) -> Option<Program> {
        let text = expression.str();
        if text.trim().is_empty() {
            return None;
        }
        match self.compile(text, types) {
            Ok(program) => Some(program),
            Err(detail) => {
                errors.push(expression.invalid(detail));
                None
            }
        }
    }
}

fn declare_request(env: Env) -> Env {
    let object = |name: &str| Type::Object(Arc::from(name));
    let text = || Type::String;
    let texts = || Type::list(Type::String);
    let map = || Type::map(Type::String, Type::String);
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
        .object(
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
        .object("kubernetes.NamespaceStatus", &[("phase", text())])
        .object(
            "kubernetes.Namespace",
            &[
                ("metadata", object("kubernetes.NamespaceMetadata")),
                ("spec", object("kubernetes.NamespaceSpec")),
                ("status", object("kubernetes.NamespaceStatus")),
            ],
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_see_the_variables_of_admission() {
        let mut env = PolicyEnv::new(false).with_variables().with_patch_types();
        env.add_variable("n", Type::Int);
        for (expression, want) in [
            ("object.metadata.name.startsWith('a') && request.operation == 'CREATE'", "bool"),
            ("variables.n + 1", "int"),
            ("namespaceObject.metadata.labels['a']", "string"),
            ("authorizer.group('').resource('pods').namespace('a').check('get').allowed()", "bool"),
            ("authorizer.requestResource.check('delete').allowed()", "bool"),
            ("Object{spec: Object.spec{replicas: 3}}", "Object"),
            ("[JSONPatch{op: 'add', path: '/a', value: {'b': 'c'}}]", "list(JSONPatch)"),
        ] {
            let program =
                env.compile(expression, &[]).unwrap_or_else(|error| panic!("{expression}: {error}"));
            assert_eq!(program.output_type().to_string(), want, "{expression}");
        }
        for (expression, want) in [
            ("1 + 1", "must evaluate to bool but got int"),
            (
                "params.x",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x\n | ^",
            ),
            (
                "variables.m",
                "compilation failed: ERROR: <input>:1:10: undefined field 'm'\n | variables.m\n | .........^",
            ),
        ] {
            assert_eq!(env.compile(expression, &[Type::Bool]).err().as_deref(), Some(want), "{expression}");
        }
    }
}
