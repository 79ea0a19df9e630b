//! The built-in kinds that the generic API server names. Code that serves one kind or another is
//! attached to it by `coracle-builtin`; the generic server names only those that k8s.io/apiserver,
//! apiextensions-apiserver and kube-aggregator name themselves.
//!
//! Names are looked for in all literals of the code but those of tests. In a text, which has
//! blanks, only kinds of several words count: others may be words of the text.

mod sources;

use std::collections::HashSet;

use coracle_apimachinery::schema::schema;
use proc_macro2::{TokenStream, TokenTree};
use sources::{is_test, sources};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemFn, ItemImpl, ItemMod, LitByteStr, LitStr};

/// Names that files may have for one reason.
struct Allowed {
    reason: &'static str,
    /// By the beginning of the paths of the files.
    files: &'static [(&'static str, &'static [&'static str])],
}

const ALLOWED: &[Allowed] = &[
    Allowed {
        reason: "a namespace is a part of every request, and its deletion rejects others",
        files: &[
            (
                "src/admission/namespace_lifecycle.rs",
                &["authorization.k8s.io", "localsubjectaccessreviews", "namespaces"],
            ),
            ("src/admission/attributes.rs", &["namespaces"]),
            ("src/admission/generic/", &["namespaces"]),
            ("src/admission/policy/variables.rs", &["namespaces"]),
            ("src/audit/policy/", &["namespaces"]),
            ("src/discovery/openapi/paths/", &["namespaces"]),
            ("src/flow_control/flow_schema.rs", &["namespaces"]),
            ("src/registry/mod.rs", &["namespaces"]),
            ("src/serve/layers/record.rs", &["namespaces"]),
        ],
    },
    Allowed {
        reason: "webhooks and policies configure the server's own admission",
        files: &[
            (
                "src/admission/generic/",
                &[
                    "admissionregistration.k8s.io",
                    "mutatingadmissionpolicies",
                    "mutatingadmissionpolicybindings",
                    "mutatingwebhookconfigurations",
                    "validatingadmissionpolicies",
                    "validatingadmissionpolicybindings",
                    "validatingwebhookconfigurations",
                ],
            ),
            (
                "src/admission/policy/mutating.rs",
                &[
                    "MutatingAdmissionPolicy",
                    "admissionregistration.k8s.io",
                    "mutatingadmissionpolicies",
                    "mutatingadmissionpolicybindings",
                ],
            ),
            (
                "src/admission/policy/validating.rs",
                &[
                    "ValidatingAdmissionPolicy",
                    "admissionregistration.k8s.io",
                    "validatingadmissionpolicies",
                    "validatingadmissionpolicybindings",
                ],
            ),
            (
                "src/admission/webhook/",
                &[
                    "admissionregistration.k8s.io",
                    "mutatingwebhookconfigurations",
                    "validatingwebhookconfigurations",
                ],
            ),
            (
                "src/policy_status/",
                &["ValidatingAdmissionPolicy", "admissionregistration.k8s.io", "validatingadmissionpolicies"],
            ),
            ("src/serve/layers/large.rs", &["admissionregistration.k8s.io"]),
            ("src/timers.rs", &["ValidatingAdmissionPolicy"]),
        ],
    },
    Allowed {
        reason: "FlowSchemas and priority levels configure the server's own flow control",
        files: &[
            (
                "src/flow_control/mod.rs",
                &["flowcontrol.apiserver.k8s.io", "flowschemas", "prioritylevelconfigurations"],
            ),
            ("src/flow_schema_status.rs", &["FlowSchema", "PriorityLevelConfiguration"]),
            ("src/timers.rs", &["FlowSchema"]),
        ],
    },
    Allowed {
        reason: "definitions of resources, as in apiextensions-apiserver",
        files: &[
            (
                "src/apiextensions/",
                &["CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions"],
            ),
            ("src/serve/layers/large.rs", &["apiextensions.k8s.io"]),
            ("src/timers.rs", &["CustomResourceDefinition"]),
        ],
    },
    Allowed {
        reason: "other servers behind this one, as in kube-aggregator",
        files: &[
            ("src/aggregator/", &["APIService", "apiregistration.k8s.io", "apiservices"]),
            (
                "src/apiextensions/auto_registration.rs",
                &["APIService", "apiregistration.k8s.io", "apiservices"],
            ),
        ],
    },
    Allowed {
        reason: "names of users, groups and rights to impersonate them, as in k8s.io/apiserver",
        files: &[
            ("src/access/authenticate.rs", &["serviceaccounts"]),
            ("src/access/impersonate.rs", &["authentication.k8s.io", "nodes", "serviceaccounts"]),
            ("src/flow_control/flow_schema.rs", &["ServiceAccount"]),
        ],
    },
    Allowed {
        reason: "keys of audit annotations",
        files: &[("src/serve/layers/authorize.rs", &["authorization.k8s.io"])],
    },
    Allowed {
        reason: "kinds of the generic server that have the name of a built-in one: an audit event, a scale",
        files: &[("src/audit/event.rs", &["Event"]), ("src/registry/scale.rs", &["Scale"])],
    },
    Allowed {
        reason: "the texts for members of all objects, which are taken from a type that has them",
        files: &[("src/discovery/openapi/custom.rs", &["Pod"])],
    },
];

/// The names of built-in kinds, resources and groups.
struct Names {
    kinds_and_resources: HashSet<&'static str>,
    /// Names that do not occur as words in plain text, such as `DaemonSet`.
    distinct_kinds: HashSet<&'static str>,
    /// Groups with a dot in their name; others are plain words.
    groups: HashSet<&'static str>,
}

impl Names {
    fn new() -> Names {
        let resources = schema().resources();
        let subresources = resources.iter().flat_map(|resource| &resource.subresources);
        let kinds: HashSet<&str> =
            resources.iter().map(|resource| resource.kind).chain(subresources.map(|of| of.kind)).collect();
        let humps = |kind: &str| kind.chars().filter(char::is_ascii_uppercase).count();
        Names {
            distinct_kinds: kinds.iter().copied().filter(|kind| humps(kind) > 1).collect(),
            kinds_and_resources: kinds
                .into_iter()
                .chain(resources.iter().map(|resource| resource.plural))
                .collect(),
            groups: resources.iter().map(|resource| resource.group).filter(|g| g.contains('.')).collect(),
        }
    }

    /// Returns the names in a literal.
    fn in_literal(&self, literal: &str) -> Vec<String> {
        let words = |more: &'static str| {
            literal.split(move |c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c) && !more.contains(c))
        };
        let is_text = literal.contains(char::is_whitespace);
        let known = if is_text { &self.distinct_kinds } else { &self.kinds_and_resources };
        let groups = words(".").filter(|word| !is_text && self.groups.contains(word));
        words("").filter(|word| known.contains(word)).chain(groups).map(str::to_owned).collect()
    }
}

/// The literals of a file, by line.
#[derive(Default)]
struct Literals(Vec<(usize, String)>);

impl Literals {
    fn of(file: &syn::File) -> Literals {
        let mut literals = Literals::default();
        literals.visit_file(file);
        literals
    }

    /// Collects literals in the arguments of a macro or of an attribute.
    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Literal(literal) => match syn::Lit::new(literal) {
                    syn::Lit::Str(text) => self.visit_lit_str(&text),
                    syn::Lit::ByteStr(text) => self.visit_lit_byte_str(&text),
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Literals {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_item_impl(&mut self, implementation: &'ast ItemImpl) {
        if !is_test(&implementation.attrs) {
            visit::visit_item_impl(self, implementation);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        // Attributes with a value are comments and paths of files.
        if let syn::Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
        }
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(called.tokens.clone());
    }

    fn visit_lit_str(&mut self, literal: &'ast LitStr) {
        self.0.push((literal.span().start().line, literal.value()));
    }

    fn visit_lit_byte_str(&mut self, literal: &'ast LitByteStr) {
        let text = String::from_utf8_lossy(&literal.value()).into_owned();
        self.0.push((literal.span().start().line, text));
    }
}

/// Returns the names in a file: `(line, name)`.
fn named(file: &syn::File, names: &Names) -> Vec<(usize, String)> {
    let literals = Literals::of(file).0.into_iter();
    literals
        .flat_map(|(line, text)| names.in_literal(&text).into_iter().map(move |name| (line, name)))
        .collect()
}

#[test]
fn the_generic_server_names_only_kinds_of_its_own() {
    let names = Names::new();
    let mut found = HashSet::new();
    let mut wrong = Vec::new();
    let rows = || ALLOWED.iter().flat_map(|allowed| allowed.files);
    for source in sources(&["src"]) {
        for (line, name) in named(&source.file, &names) {
            let is_allowed = rows()
                .any(|(files, allowed)| source.path.starts_with(files) && allowed.contains(&name.as_str()));
            if !is_allowed {
                wrong.push(format!("{}:{line}: {name}", source.path));
            }
            found.insert((source.path.clone(), name));
        }
    }
    assert!(wrong.is_empty(), "kinds that coracle-builtin should know instead:\n{}", wrong.join("\n"));
    for Allowed { reason, files } in ALLOWED {
        for (file, name) in files.iter().flat_map(|(file, names)| names.iter().map(move |name| (file, name)))
        {
            let is_used = found.iter().any(|(path, found)| path.starts_with(file) && found == name);
            assert!(is_used, "{file} does not name {name} any more ({reason})");
        }
    }
}

#[test]
fn names_are_found() {
    let file = syn::parse_file(
        r#"
        /// Of "DaemonSet".
        #[error("no StatefulSet")]
        struct Error;
        const POD: &[u8] = b"pods";
        fn read(object: &Value) {
            cluster.get(&GroupResource::new("discovery.k8s.io", "endpointslices"), "a-nodes", "node_pods");
            let made = json!({"apiVersion": "storage.k8s.io/v1", "spec": [matches!(kind, "Node")]});
            let text = format!("the pods of a Service, a ReplicaSet and discovery.k8s.io");
            let path = format!("/apis/{group}/deployments/x.storage.k8s.io/secret");
        }
        #[cfg(test)]
        mod tests { const JOB: &str = "jobs"; }
        "#,
    )
    .expect("Rust");
    let found: Vec<String> =
        named(&file, &Names::new()).into_iter().map(|(line, name)| format!("{line} {name}")).collect();
    let want = [
        "3 StatefulSet",
        "5 pods",
        "7 discovery.k8s.io",
        "7 endpointslices",
        "8 storage.k8s.io",
        "8 Node",
        "9 ReplicaSet",
        "10 deployments",
    ];
    assert_eq!(found, want);
}
