//! The direction of imports between the modules of the crates of the API server: from the top down, never in a circle.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The crates, by the directory of their sources, and their modules: each imports only those that stand before it. The
/// crates themselves cannot import each other in a circle; coracle-apiserver does not depend on coracle-resources.
const CRATES: [(&str, &[&str]); 4] = [
    (
        "apimachinery/src",
        &[
            // Types, what names and holds things.
            "names",
            "schema",
            "annotations",
            "features",
            "clock",
            "bootstrap",
            "user",
            "object_meta",
            "conditions",
            "field",
            "go_value",
            "error",
            "cluster",
            // Bytes, and what clients ask for.
            "codec",
            "validation",
            "qos",
            "pods",
            "selector",
            "request",
            "patch",
            // What a resource is.
            "render",
            "allocation",
            "strategy",
            "resource_info",
        ],
    ),
    (
        "resources/src",
        &[
            // What several kinds have.
            "printers",
            "claim_spec",
            "pod_spec",
            // Groups.
            "core",
            "discovery",
            "networking",
            "apps",
            "batch",
            "admissionregistration",
            "apiextensions",
            "apiregistration",
            "autoscaling",
            "certificates",
            "coordination",
            "dynamic_resource_allocation",
            "flowcontrol",
            "metrics",
            "node",
            "policy",
            "rbac",
            "scheduling",
            "storage",
            // The kinds of all of them.
            "built_in",
            "table",
        ],
    ),
    (
        "builtin/src",
        &["pod_spec", "quota", "rbac", "admission", "allocation", "pods", "reviews", "tokens", "start"],
    ),
    (
        "src",
        &[
            // Who asks, what the server measures of itself.
            "access",
            "bootstrap",
            "telemetry",
            "audit",
            "flow_control",
            "background",
            "fields",
            "webhook",
            "admission",
            // The verbs, and how they are served.
            "registry",
            "apiextensions",
            "policy_status",
            "flow_schema_status",
            "aggregator",
            "answer",
            "discovery",
            "serve",
        ],
    ),
];

/// Modules of tests that have no `tests` in their path.
const TESTS: [&str; 6] = ["testing", "tests", "answers", "corpus", "recorded", "metadata_tests"];

/// What a file of a module imports of the crate's other modules. Tests may import what they like.
fn imports(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String =
        code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for (at, start) in code.match_indices("crate::") {
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{') {
            // The first segments of a group: those at its own level.
            Some(group) => {
                let mut level = 0;
                let mut name = String::new();
                for c in group.chars() {
                    match c {
                        '{' => level += 1,
                        '}' if level == 0 => break,
                        '}' => level -= 1,
                        ',' if level == 0 => _ = found.insert(std::mem::take(&mut name)),
                        c if level == 0 && !c.is_whitespace() => name.push(c),
                        _ => {}
                    }
                }
                found.insert(name);
            }
            None => _ = found.insert(rest.to_owned()),
        }
    }
    let first_segment = |path: String| -> String {
        path.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect()
    };
    found.into_iter().map(first_segment).filter(|name| !name.is_empty()).collect()
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn modules_import_only_what_is_below_them() {
    let mut wrong = Vec::new();
    for (directory, order) in CRATES {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join(directory), order, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check(root: &Path, order: &[&str], wrong: &mut Vec<String>) {
    let mut files = Vec::new();
    rust_files(root, &mut files);
    let position = |name: &str| order.iter().position(|module| *module == name);
    let mut seen = BTreeSet::new();
    for file in &files {
        let relative = file.strip_prefix(root).expect("below the root").with_extension("");
        let segments: Vec<&str> = relative.iter().filter_map(|segment| segment.to_str()).collect();
        let is_test = segments.iter().any(|segment| TESTS.contains(segment));
        let [module, ..] = segments[..] else { continue };
        if is_test || module == "lib" {
            continue;
        }
        let Some(from) = position(module) else {
            wrong.push(format!("{module} has no place in the order"));
            continue;
        };
        seen.insert(from);
        let source = fs::read_to_string(file).expect("readable");
        for import in imports(&source) {
            if position(&import).is_some_and(|to| to > from) {
                wrong.push(format!("{} imports {import}, which stands above {module}", relative.display()));
            }
        }
    }
    if seen.len() != order.len() {
        wrong.push(format!("the order of {} names modules that do not exist", root.display()));
    }
}

#[test]
fn imports_are_found() {
    let source = "use crate::names::X;\nuse crate::{Error, field::{Y, Z}, codec};\n// crate::serve\n\
                  fn f() { crate::schema::schema() }\n#[cfg(test)]\nmod tests {\nuse crate::registry;\n}";
    let want: BTreeSet<String> =
        ["codec", "field", "names", "schema"].into_iter().map(str::to_owned).collect();
    assert_eq!(imports(source), want);
}
