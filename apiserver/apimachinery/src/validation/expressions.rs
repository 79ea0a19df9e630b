//! The expressions of admission: the variables that policies and match conditions see, and how
//! their expressions are compiled. The strategies of policies refuse what does not compile; the
//! plugins evaluate what does.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/cel`, `compile.go` and `composition.go`.

use std::sync::Arc;

use coracle_cel::{Env, Program, Type, environments};

use crate::field::{Errors, Field};

/// The environment of the expressions of one policy.
#[derive(Clone)]
pub struct PolicyEnv(Env);

impl PolicyEnv {
    /// Creates the environment: the variables of every expression, and `params` for a policy with
    /// parameters.
    pub fn new(has_params: bool) -> PolicyEnv {
        PolicyEnv(environments::admission(has_params))
    }

    /// Returns the environment with composed variables, which are added by
    /// [`PolicyEnv::add_variable`].
    #[must_use]
    pub fn with_variables(self) -> PolicyEnv {
        PolicyEnv(environments::with_variables(self.0))
    }

    /// Returns the environment with the types that mutations create: `Object` and the types inside
    /// of it, and `JSONPatch`.
    #[must_use]
    pub fn with_patch_types(self) -> PolicyEnv {
        PolicyEnv(environments::with_patch_types(self.0))
    }

    /// Returns the environment for texts about a decision, which cannot ask for others.
    #[must_use]
    pub fn without_authorizer(&self) -> PolicyEnv {
        PolicyEnv(environments::without_authorizer(self.0.clone()))
    }

    /// Declares a composed variable.
    pub fn add_variable(&mut self, name: &str, ty: Type) {
        environments::add_variable(&mut self.0, name, ty);
    }

    /// Declares the type of `object` and `oldObject`, so that it is checked.
    #[must_use]
    pub fn with_object(self, object: &Arc<coracle_cel::DeclType>) -> PolicyEnv {
        PolicyEnv(self.0.declared("object", object, false).declared("oldObject", object, false))
    }

    /// Declares the type of `params`, so that it is checked.
    #[must_use]
    pub fn with_params(self, params: &Arc<coracle_cel::DeclType>) -> PolicyEnv {
        PolicyEnv(self.0.declared("params", params, false))
    }

    /// Compiles an expression that has one of these types; any if there are none.
    ///
    /// # Errors
    /// The detail of the error that the object is refused with.
    pub fn compile(&self, expression: &str, types: &[Type]) -> Result<Program, String> {
        let program = self.0.compile(expression).map_err(|error| error.to_string())?;
        let found = program.output_type();
        match types {
            [] => Ok(program),
            types if types.contains(found) => Ok(program),
            [wanted] => Err(format!("must evaluate to {} but got {}", wanted.full_name(), found.full_name())),
            types => {
                let names: Vec<String> = types.iter().map(Type::full_name).collect();
                Err(format!("must evaluate to one of [{}] but got {}", names.join(" "), found.full_name()))
            }
        }
    }

    /// Reports an expression that does not compile. Skips blank ones, which other rules report.
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
        let error = env.without_authorizer().compile("authorizer.path('/').check('get').reason()", &[]);
        let want = "compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer'";
        assert!(error.unwrap_err().starts_with(want));
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
