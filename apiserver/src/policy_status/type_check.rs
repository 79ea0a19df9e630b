//! Type checking: the expressions of a policy against the types that it matches.
//!
//! Source: `k8s.io/apiserver/pkg/admission/plugin/policy/validating`, `typechecking.go`.

use std::sync::Arc;

use coracle_apimachinery::validation::expressions::PolicyEnv;
use coracle_cel::{DeclType, Type};
use serde_json::{Value, json};

use super::object_type::object_type;
use crate::resource_info::ResourceTable;

/// The largest number of types that a policy is checked against.
const MAX_TYPES: usize = 10;
/// The largest total size of the warnings, in bytes: an object cannot contain more.
const MAX_WARNINGS: usize = 1 << 20;

/// Returns the warnings about the expressions of a policy's spec.
pub fn warnings(spec: &Value, resources: &ResourceTable) -> Vec<Value> {
    let types = types_to_check(spec, resources);
    let params = param_type(spec, resources).map(Arc::new);
    let (mut found, mut bytes) = (Vec::new(), 0);
    let list = |name: &str| spec[name].as_array().map_or(&[][..], Vec::as_slice);
    let envs: Vec<(String, PolicyEnv)> = types
        .into_iter()
        .map(|(name, ty)| {
            let mut env =
                PolicyEnv::new(spec["paramKind"].is_object()).with_variables().with_object(&Arc::new(ty));
            if let Some(params) = &params {
                env = env.with_params(params);
            }
            for variable in list("variables") {
                let expression = variable["expression"].as_str().unwrap_or_default();
                let ty =
                    env.compile(expression, &[]).map_or(Type::Dyn, |program| program.output_type().clone());
                env.add_variable(variable["name"].as_str().unwrap_or_default(), ty);
            }
            (name, env)
        })
        .collect();
    for (index, validation) in list("validations").iter().enumerate() {
        for member in ["expression", "messageExpression"] {
            let Some(expression) = validation[member].as_str().filter(|text| !text.is_empty()) else {
                continue;
            };
            let errors: Vec<String> = envs
                .iter()
                .filter_map(|(name, env)| {
                    let error = env.compile(expression, &[]).err()?;
                    Some(format!("{name}: {}\n", error.trim_start_matches("compilation failed: ")))
                })
                .collect();
            if !errors.is_empty() {
                bytes += errors.iter().map(String::len).sum::<usize>();
                if bytes > MAX_WARNINGS {
                    return found;
                }
                found.push(json!({
                    "fieldRef": format!("spec.validations[{index}].{member}"),
                    "warning": errors.join("\n"),
                }));
            }
        }
    }
    found
}

/// Returns the type of the parameters; None without them, or if their kind is not served.
fn param_type(spec: &Value, resources: &ResourceTable) -> Option<DeclType> {
    let text = |name: &str| spec["paramKind"][name].as_str();
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let info = resources.of_kind(api_version, kind)?;
    object_type(&info.type_ref)
}

/// Returns the types that the policy matches without wildcards, with their names.
fn types_to_check(spec: &Value, resources: &ResourceTable) -> Vec<(String, DeclType)> {
    let rules = spec.pointer("/matchConstraints/resourceRules").and_then(Value::as_array);
    let texts = |rule: &Value, name: &str| -> Vec<String> {
        let list = rule[name].as_array().into_iter().flatten();
        let mut texts: Vec<String> = list.filter_map(|text| text.as_str().map(str::to_owned)).collect();
        texts.sort_unstable();
        texts
    };
    let mut names = Vec::new();
    let mut types = Vec::new();
    for rule in rules.into_iter().flatten() {
        let (groups, versions) = (texts(rule, "apiGroups"), texts(rule, "apiVersions"));
        for group in &groups {
            for version in &versions {
                for resource in texts(rule, "resources") {
                    if types.len() >= MAX_TYPES
                        || [group, version, &resource].iter().any(|text| text.contains(['*', '/']))
                    {
                        continue;
                    }
                    let Some(info) = resources.find(group, version, &resource) else { continue };
                    let name = format!("{}/{}, Kind={}", info.group, info.version, info.kind);
                    if !names.contains(&name)
                        && let Some(ty) = object_type(&info.type_ref)
                    {
                        names.push(name.clone());
                        types.push((name, ty));
                    }
                }
            }
        }
    }
    types.sort_by(|(a, _), (b, _)| a.cmp(b));
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_the_type_of_their_kind() {
        let resources = coracle_resources::built_in();
        let undefined = "/v1, Kind=Namespace: ERROR: <input>:1:7: undefined field 'missing'\n | params.missing == 'a'\n | ......^\n";
        for (api_version, kind, expression, want) in [
            ("v1", "ConfigMap", "params.data['a'] == 'b'", None),
            ("v1", "ConfigMap", "params.missing == 'a'", Some(undefined)),
            // The type of a kind that is not served is not known.
            ("rules.example.com/v1", "Limit", "params.missing == 'a'", None),
        ] {
            let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]});
            let spec = json!({
                "paramKind": {"apiVersion": api_version, "kind": kind},
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression}],
            });
            let found = warnings(&spec, &resources);
            let warning = found.first().and_then(|warning| warning["warning"].as_str());
            assert_eq!(warning, want, "{kind} {expression}");
        }
    }
}
