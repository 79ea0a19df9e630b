use super::*;

fn policy(rules: &str) -> Policy {
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}");
    Policy::parse(text.as_bytes()).expect(rules)
}

fn pods(subresource: &'static str) -> ResourceTarget<'static> {
    ResourceTarget { resource: "pods", subresource, namespace: "ns", name: "p", ..ResourceTarget::default() }
}

#[test]
fn a_rule_matches_when_all_that_it_names_matches() {
    let alice = UserInfo::new("alice", &["devs", "admins"]);
    let get = |target| RequestAttributes { verb: "get", target };
    let pod = || get(Target::Resource(pods("")));
    let log = || get(Target::Resource(pods("log")));
    let path = |path| get(Target::Path(path));
    let deployment =
        || get(Target::Resource(ResourceTarget { group: "apps", resource: "deployments", ..pods("") }));
    for (rule, request, want) in [
        ("", pod(), true),
        ("users: [alice]", pod(), true),
        ("users: [bob]", pod(), false),
        ("userGroups: [admins]", pod(), true),
        ("userGroups: [ops]", pod(), false),
        ("verbs: [get, list]", pod(), true),
        ("verbs: [list]", pod(), false),
        ("namespaces: [ns]", pod(), true),
        ("namespaces: [other]", pod(), false),
        ("namespaces: [\"\"]", pod(), false),
        ("namespaces: [ns]", path("/healthz"), false),
        ("resources: [{group: \"\"}]", pod(), true),
        ("resources: [{group: apps}]", pod(), false),
        ("resources: [{group: apps}]", deployment(), true),
        ("resources: [{resources: [pods]}]", pod(), true),
        ("resources: [{resources: [pods]}]", log(), false),
        ("resources: [{resources: [pods/log]}]", log(), true),
        ("resources: [{resources: [pods/log]}]", pod(), false),
        ("resources: [{resources: [\"*\"]}]", log(), true),
        ("resources: [{resources: [\"pods/*\"]}]", log(), true),
        ("resources: [{resources: [\"pods/*\"]}]", pod(), true),
        ("resources: [{resources: [\"*/log\"]}]", log(), true),
        ("resources: [{resources: [\"*/log\"]}]", pod(), false),
        ("resources: [{resources: [pods], resourceNames: [p]}]", pod(), true),
        ("resources: [{resources: [pods], resourceNames: [q]}]", pod(), false),
        ("nonResourceURLs: [/healthz]", path("/healthz"), true),
        ("nonResourceURLs: [/healthz]", path("/healthz/etcd"), false),
        ("nonResourceURLs: [\"/healthz*\"]", path("/healthz/etcd"), true),
        ("nonResourceURLs: [\"*\"]", path("/metrics"), true),
        ("nonResourceURLs: [\"*\"]", pod(), false),
    ] {
        let rules = format!("- level: Metadata\n  {rule}\n");
        let got = policy(&rules).evaluate(Some(&alice), &request).is_some();
        assert_eq!(got, want, "{rule} {request:?}");
    }
    let of_alice = policy("- {level: Metadata, users: [alice]}\n");
    assert_eq!(of_alice.evaluate(None, &pod()), None, "nobody is no user of a rule");
}

#[test]
fn the_first_rule_that_matches_decides() {
    let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nomitManagedFields: true\nrules:
- {level: None, users: [quiet]}
- {level: Request, users: [alice], omitStages: [Panic], omitManagedFields: false}
- {level: RequestResponse, verbs: [get]}
- {level: Metadata}
";
    let policy = Policy::parse(text.as_bytes()).expect("a policy");
    for (user, verb, want) in [
        ("quiet", "get", None),
        ("alice", "get", Some((Level::Request, vec![Stage::Panic, Stage::RequestReceived], false))),
        ("bob", "get", Some((Level::RequestResponse, vec![Stage::RequestReceived], true))),
        ("bob", "list", Some((Level::Metadata, vec![Stage::RequestReceived], true))),
    ] {
        let request = RequestAttributes { verb, target: Target::Resource(pods("")) };
        let config = policy.evaluate(Some(&UserInfo::new(user, &[])), &request);
        let got = config.map(|c| (c.level, c.omit_stages.clone(), c.omit_managed_fields));
        assert_eq!(got, want, "{user} {verb}");
    }
}

#[test]
fn policies_that_are_wrong_are_refused() {
    let head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";
    let rule = |rule: &str| format!("{head}rules: [{{{rule}}}]");
    for (text, want) in [
        (
            "kind: Policy".to_owned(),
            "failed decoding: Object 'apiVersion' is missing in '{\"kind\":\"Policy\"}'",
        ),
        ("a: b".to_owned(), "failed decoding: Object 'Kind' is missing in '{\"a\":\"b\"}'"),
        (
            "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\n".to_owned(),
            "failed decoding: no kind \"Policy\" is registered for version \"audit.k8s.io/v1beta1\" in scheme \"k8s.io/apiserver/pkg/audit/scheme.go:30\"",
        ),
        (head.to_owned(), "loaded illegal policy with 0 rules"),
        (rule(""), "rules[0].level: Required value"),
        (
            rule("level: All"),
            "rules[0].level: Unsupported value: \"All\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"",
        ),
        (
            rule("level: None, omitStages: [x]"),
            "rules[0].omitStages[0]: Invalid value: \"x\": allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic",
        ),
        (
            rule("level: None, nonResourceURLs: [healthz]"),
            "rules[0].nonResourceURLs[0]: Invalid value: \"healthz\": non-resource URL rules must begin with a '/' character",
        ),
        (
            rule("level: None, nonResourceURLs: [\"/a*b\"]"),
            "rules[0].nonResourceURLs[0]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the final character of the rule",
        ),
        (
            rule("level: None, nonResourceURLs: [/a], namespaces: [ns]"),
            "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            rule("level: None, resources: [{resourceNames: [x]}]"),
            "rules[0].resources.resourceNames: Invalid value: [\"x\"]: using resourceNames requires at least one resource",
        ),
    ] {
        assert_eq!(Policy::parse(text.as_bytes()).err().as_deref(), Some(want), "{text}");
    }
    let unknown = rule("level: None, kinds: [x]");
    assert!(Policy::parse(unknown.as_bytes()).is_ok(), "unknown fields are only logged");
    let missing = Policy::read(Path::new("/does/not/exist")).expect_err("no file").to_string();
    assert!(missing.starts_with("failed to read file path \"/does/not/exist\": "), "{missing}");
}
