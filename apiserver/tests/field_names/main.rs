//! The names of fields in the sources of the API server's crates are those of the schema table.
//!
//! A misspelled name would read an absent member, so that the rule that asks for it would never
//! apply. Debug builds check names against the type of the very value, where it is read through a
//! `Field` (`apimachinery/src/field/declared.rs`). This test checks literals, executed or not,
//! against the types of the kind that the file is about, or against all types.

mod literals;
#[path = "../sources/mod.rs"]
mod sources;
mod types;

use std::collections::HashSet;

use literals::{Accessors, Literal};
use sources::{Source, sources};
use types::Scope;

const CRATES: [&str; 4] = ["apimachinery/src", "builtin/src", "resources/src", "src"];

/// Names of something else, by the beginning of the paths of their files.
const OTHER: &[(&str, &[&str])] = &[
    // Values and variables that are written as fields are.
    ("apimachinery/src/validation/metadata/mod.rs", &["foregroundDeletion"]),
    ("apimachinery/src/strategy/custom_resource.rs", &["foregroundDeletion"]),
    ("src/registry/", &["foregroundDeletion"]),
    ("src/admission/", &["namespaceObject"]),
    ("apimachinery/src/validation/rules/", &["oldSelf", "selfType"]),
    ("resources/src/apiextensions/rules.rs", &["oldSelf", "selfType"]),
    (
        "builtin/src/admission/",
        &[
            "hostNamespaces",
            "hostPathVolumes",
            "hostPorts",
            "hostProbesAndHostLifecycle",
            "restrictedVolumes",
            "windowsHostProcess",
        ],
    ),
    // Keys of maps.
    ("resources/src/core/secret.rs", &["tls.crt", "tls.key"]),
    ("resources/src/core/limit_range.rs", &["storage"]),
    ("resources/src/core/persistent_volume.rs", &["storage"]),
    ("resources/src/claim_spec.rs", &["storage"]),
    ("resources/src/", &["cpu", "memory"]),
    // Paths in errors that kube-apiserver spells otherwise.
    ("apimachinery/src/validation/metadata/mod.rs", &["uID"]),
    ("apimachinery/src/validation/volume_sources.rs", &["initiatorname", "persistentDisk", "targetportal"]),
    ("resources/src/pod_spec/", &["cephFS", "downwarAPI", "storageOS"]),
    ("resources/src/core/persistent_volume.rs", &["cephFS", "spec.persistentvolumesource", "storageOS"]),
    ("resources/src/core/node.rs", &["nodeSwapStatus.capacity"]),
    ("resources/src/storage/csi_driver.rs", &["attachedRequired"]),
    // The internal versions of kinds.
    (
        "resources/src/apiextensions/",
        &["validation", "validation.openAPIV3Schema", "version", "webhookClientConfig"],
    ),
    (
        "resources/src/autoscaling/convert.rs",
        &[
            "currentAverageUtilization",
            "currentAverageValue",
            "currentValue",
            "metricName",
            "metricSelector",
            "targetAverageUtilization",
            "targetAverageValue",
            "targetValue",
        ],
    ),
    // Documents other than objects of built-in kinds.
    ("apimachinery/src/patch/", &["op"]),
    ("resources/src/core/node.rs", &["preferAvoidPods", "podSignature.podController"]),
    ("src/admission/", &["binding", "configuration", "expressionIndex", "mutated", "op", "policy"]),
    ("src/registry/", &["rv", "v"]),
    ("src/telemetry/", &["samplingRatePerMillion"]),
    ("src/aggregator/", &["serverRelativeURL"]),
    (
        "src/discovery/version.rs",
        &[
            "buildDate",
            "emulationMajor",
            "emulationMinor",
            "gitCommit",
            "gitTreeState",
            "gitVersion",
            "goVersion",
            "minCompatibilityMajor",
            "minCompatibilityMinor",
        ],
    ),
    (
        "src/discovery/openapi/",
        &[
            "apiKey",
            "components",
            "components.schemas",
            "components.securitySchemes",
            "consumes",
            "content",
            "discriminator",
            "get",
            "getAPIVersions",
            "getCodeVersion",
            "getCoreAPIVersions",
            "getServiceAccountIssuerOpenIDConfiguration",
            "getServiceAccountIssuerOpenIDKeyset",
            "in",
            "info",
            "openapi",
            "operationId",
            "produces",
            "requestBody",
            "responses",
            "schemes",
            "securityDefinitions",
            "securitySchemes",
            "serverRelativeURL",
            "tags",
        ],
    ),
    (
        "src/audit/",
        &[
            "auditID",
            "authenticationMetadata",
            "impersonatedUser",
            "impersonationConstraint",
            "objectRef",
            "omitManagedFields",
            "omitStages",
            "requestObject",
            "requestReceivedTimestamp",
            "requestURI",
            "responseObject",
            "responseStatus",
            "sourceIPs",
            "stageTimestamp",
            "userAgent",
            "userGroups",
        ],
    ),
    // Claims of tokens, and their keys.
    (
        "builtin/src/tokens/",
        &[
            "aud",
            "exp",
            "iat",
            "iss",
            "jti",
            "warnafter",
            "nbf",
            "node",
            "node.uid",
            "pod",
            "serviceaccount",
            "serviceaccount.name",
            "serviceaccount.uid",
            "sub",
        ],
    ),
    ("src/access/", &["alg", "crv", "e", "keys", "kid", "kty", "n", "use", "x", "y"]),
    ("src/serve/openid.rs", &["issuer"]),
];

/// Returns, for each file, the functions that take names of members.
fn accessors(sources: &[Source]) -> Vec<Accessors> {
    let mut known = vec![Accessors::default(); sources.len()];
    loop {
        let agreed = Accessors::agreed(known.iter());
        let before: usize = known.iter().map(Accessors::len).sum();
        for (source, own) in sources.iter().zip(&mut known) {
            *own = literals::accessors(&source.file, &own.with_others(&agreed));
        }
        if known.iter().map(Accessors::len).sum::<usize>() == before {
            return known.iter().map(|own| own.with_others(&agreed)).collect();
        }
    }
}

/// Returns the structs in which the names of a file may be: those of its kind, else of its group,
/// else all.
fn scope(path: &str) -> Scope {
    const GROUPS: [(&str, &str); 20] = [
        ("admissionregistration", "admissionregistration.k8s.io"),
        ("apiextensions", "apiextensions.k8s.io"),
        ("apiregistration", "apiregistration.k8s.io"),
        ("apps", "apps"),
        ("autoscaling", "autoscaling"),
        ("batch", "batch"),
        ("certificates", "certificates.k8s.io"),
        ("claim_spec", ""),
        ("coordination", "coordination.k8s.io"),
        ("core", ""),
        ("discovery", "discovery.k8s.io"),
        ("dynamic_resource_allocation", "resource.k8s.io"),
        ("flowcontrol", "flowcontrol.apiserver.k8s.io"),
        ("networking", "networking.k8s.io"),
        ("node", "node.k8s.io"),
        ("pod_spec", ""),
        ("policy", "policy"),
        ("rbac", "rbac.authorization.k8s.io"),
        ("scheduling", "scheduling.k8s.io"),
        ("storage", "storage.k8s.io"),
    ];
    let Some(path) = path.strip_prefix("resources/src/") else { return Scope::all() };
    // Usage of pods and nodes, and the rules that make it readable.
    if path.starts_with("metrics/") {
        return Scope::all();
    }
    let steps: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let of_kind = steps[1..].iter().find_map(|step| Scope::of_kind(step));
    of_kind.unwrap_or_else(|| {
        let group = GROUPS.iter().find(|(name, _)| *name == steps[0]);
        group.map_or_else(Scope::all, |(_, group)| Scope::of_group(group))
    })
}

/// Checks that a name is written like a field name.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase() || c == '$')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '$')
}

fn is_other(file: &str, path: &str) -> bool {
    OTHER.iter().any(|(files, names)| file.starts_with(files) && names.contains(&path))
}

/// Returns the literals of a file that name no field: `line: path`.
fn unknown(file: &syn::File, scope: &Scope, accessors: &Accessors) -> Vec<(usize, String)> {
    let literals = literals::literals(file, accessors).into_iter();
    literals
        .filter(|literal| literal.path.iter().all(|name| is_name(name)) && !scope.has(&literal.path))
        .map(|Literal { line, path }| (line, path.join(".")))
        .collect()
}

#[test]
fn every_literal_names_a_field() {
    let sources = sources(&CRATES);
    let mut used = HashSet::new();
    let mut wrong = Vec::new();
    for (source, accessors) in sources.iter().zip(accessors(&sources)) {
        for (line, path) in unknown(&source.file, &scope(&source.path), &accessors) {
            if !is_other(&source.path, &path) {
                wrong.push(format!("{}:{line}: {path:?}", source.path));
            }
            used.insert((source.path.as_str(), path));
        }
    }
    assert!(wrong.is_empty(), "no fields of the types that the file is about:\n{}", wrong.join("\n"));
    for (files, name) in OTHER.iter().flat_map(|(files, names)| names.iter().map(move |name| (files, name))) {
        let is_used = used.iter().any(|(file, path)| file.starts_with(files) && path == name);
        assert!(is_used, "{name:?} of {files} is not needed");
    }
}

#[test]
fn misspelled_names_are_found() {
    let file = syn::parse_file(
        r#"
        fn read(spec: &Field, name: &str) { spec.get(name); }
        const LISTS: [(&str, &str); 1] = [("paus", "else")];
        fn validate(object: &Field) {
            object.get("spek");
            object["spec"]["templates"].clone();
            object.walk("spec.template.spec.container");
            object.pointer("/spec/template/spec/containers/0/imagePullPolicies");
            read(object, "replica");
            for list in ["minready", "replicas"] { object.get(list); }
            let _ = LISTS.map(|(name, _)| object[name].clone());
            let _ = "minReadySecond";
            let made = json!({"spec": {"selektor": object.get("statuses")}});
            object.get("spec").get("template").walk("metadata.labels").get("any");
        }
        #[cfg(test)]
        mod tests { fn test() { object.get("any"); } }
        "#,
    )
    .expect("Rust");
    let accessors = literals::accessors(&file, &Accessors::default());
    let deployment = Scope::of_kind("deployment").expect("a kind");
    let found: Vec<String> =
        unknown(&file, &deployment, &accessors).into_iter().map(|(_, path)| path).collect();
    let want = [
        "spek",
        "spec.templates",
        "spec.template.spec.container",
        "spec.template.spec.containers.imagePullPolicies",
        "replica",
        "minready",
        "paus",
        "minReadySecond",
        "selektor",
        "statuses",
    ];
    for want in want {
        assert!(found.iter().any(|path| path == want), "{want}: {found:?}");
    }
    assert!(!found.iter().any(|path| path == "any" || path == "else"), "{found:?}");
}
