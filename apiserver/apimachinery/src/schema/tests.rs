use super::*;
use std::process::Command;

fn struct_of(group: &str, version: &str, kind: &str) -> &'static Struct {
    schema().get(schema().kind(group, version, kind).expect(kind))
}

#[test]
fn the_table_reads() {
    assert!(schema().structs().count() > 600);
    assert_eq!(schema().resources().len(), 70);
    let names: Vec<&str> = struct_of("", "v1", "Pod").members().iter().map(|field| field.name).collect();
    assert_eq!(names, ["kind", "apiVersion", "metadata", "spec", "status"]);
}

#[test]
fn every_name_leads_to_one_struct_and_every_member_has_one_name() {
    for (id, item) in schema().structs() {
        assert_eq!(schema().named(&item.openapi_name()), Some(id));
        for (index, member) in item.members().iter().enumerate() {
            let first = item.members().iter().position(|other| other.name == member.name);
            assert_eq!(first, Some(index), "{}.{}", item.name, member.name);
        }
    }
}

#[test]
fn kinds_of_options_are_known_everywhere() {
    let meta = schema().named("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    assert!(meta.is_some());
    assert_eq!(schema().kind("apps", "v1", "DeleteOptions"), meta);
    assert_eq!(schema().kind("apps", "v1", "Status"), None);
    assert_eq!(schema().kind("apps", "v1", "Table"), None);
}

#[test]
fn fields_tell_what_is_declared() {
    let container = schema().get(schema().named("io.k8s.api.core.v1.Container").expect("Container"));
    let ports = container.field("ports").expect("ports");
    assert_eq!(ports.list, List::Map(vec!["containerPort".into(), "protocol".into()]));
    assert_eq!((ports.merges(), ports.merge_key), (true, Some("containerPort")));
    assert_eq!(ports.number, Some(6));
    let name = container.field("name").expect("name");
    assert!(name.required && name.keep && !name.pointer);
    let policy = container.field("restartPolicy").expect("restartPolicy");
    assert!(policy.pointer && policy.ty == Type::String);
    let pull = container.field("imagePullPolicy").expect("imagePullPolicy");
    assert_eq!(schema().enumeration(pull), ["Always", "IfNotPresent", "Never"]);
    let volume = schema().get(schema().named("io.k8s.api.core.v1.Volume").expect("Volume"));
    assert!(volume.fields[1].inline && volume.fields[1].number == Some(2));
    assert!(volume.field("hostPath").is_some());
    let port = schema().get(schema().named("io.k8s.api.core.v1.ContainerPort").expect("ContainerPort"));
    assert_eq!(port.field("protocol").expect("protocol").default, Some("\"TCP\""));
}

#[test]
fn paths_lead_to_types() {
    let pod = schema().kind("", "v1", "Pod").expect("Pod");
    for (path, want) in [
        ("metadata.labels", Some(Type::Map(Box::new(Type::String)))),
        ("metadata.labels[a.b/c]", Some(Type::String)),
        ("spec.containers[0].resources.requests[cpu]", Some(Type::Quantity)),
        ("spec.volumes[1].hostPath.path", Some(Type::String)),
        ("spec.nope", None),
        ("spec.nodeName[0]", None),
    ] {
        assert_eq!(schema().type_at(pod, path), want, "{path}");
    }
}

#[test]
fn go_types_are_spelled_as_messages_do() {
    for (owner, member, depth, want) in [
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "labels", 0, "map[string]string"),
        ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "uid", 0, "types.UID"),
        ("io.k8s.api.core.v1.PodSpec", "containers", 0, "[]v1.Container"),
        ("io.k8s.api.core.v1.PodSpec", "containers", 1, "v1.Container"),
        ("io.k8s.api.core.v1.PodSpec", "overhead", 0, "v1.ResourceList"),
        ("io.k8s.api.core.v1.PodSpec", "overhead", 1, "resource.Quantity"),
        ("io.k8s.api.core.v1.Secret", "data", 1, "[]uint8"),
        ("io.k8s.api.storage.v1.StorageClass", "allowedTopologies", 1, "v1.TopologySelectorTerm"),
        ("io.k8s.api.apps.v1.DeploymentSpec", "replicas", 0, "int32"),
        ("io.k8s.api.authorization.v1.SubjectAccessReviewSpec", "extra", 2, "string"),
    ] {
        let field = schema().get(schema().named(owner).expect(owner)).field(member).expect(member);
        assert_eq!(schema().go_type(field, depth), want, "{owner}.{member}");
    }
}

#[test]
fn resources_tell_what_is_served() {
    let find = |plural: &str, version: &str| {
        let mut all = schema().resources().iter();
        all.find(|resource| resource.plural == plural && resource.version == version).expect("served")
    };
    let pods = find("pods", "v1");
    assert!(pods.namespaced && pods.verbs.len() == 8 && pods.short_names == ["po"]);
    let eviction = pods.subresources.iter().find(|sub| sub.name == "eviction").expect("eviction");
    assert_eq!((eviction.group, eviction.version, eviction.kind), ("policy", "v1", "Eviction"));
    assert_eq!(find("horizontalpodautoscalers", "v1").storage_version, ("autoscaling", "v2"));
    assert_eq!(find("configmaps", "v1").storage_version_hash, "qFsyl6wFWjQ=");
    let preferred = schema().groups().iter().find(|group| group.name == "autoscaling").expect("autoscaling");
    assert_eq!(preferred.versions, ["v2", "v1"]);
}

/// Checks that the table is the one of the published modules. Skipped without Go or without access
/// to the modules.
#[test]
fn the_table_is_fresh() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../schema");
    let run = Command::new("go").args(["run", "."]).current_dir(program).env("GOFLAGS", "-mod=mod").output();
    match run {
        Ok(output) if output.status.success() => {
            assert!(output.stdout == include_bytes!("facts.txt"), "run apiserver/schema anew");
        }
        Ok(output) => eprintln!("skipped: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => eprintln!("skipped: no go: {error}"),
    }
}

/// Checks that reading takes a small part of the start-up budget of the whole program, 40 ms.
#[test]
fn reading_is_quick() {
    let started = std::time::Instant::now();
    let read = facts::read(include_str!("facts.txt"));
    let took = started.elapsed();
    assert!(read.structs.len() > 600);
    assert!(took < std::time::Duration::from_millis(100), "{took:?} without optimisation");
    eprintln!("read in {took:?}");
}
