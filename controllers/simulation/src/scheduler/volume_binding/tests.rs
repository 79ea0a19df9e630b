use super::*;
use serde_json::{Value, json};

#[test]
fn claims_hold_pods_back() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "p", "uid": "u"},
        "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    }))
    .unwrap();
    let mut ephemeral = pod.clone();
    ephemeral.spec.as_mut().unwrap().volumes =
        serde_json::from_value(json!([{"name": "v", "ephemeral": {}}])).unwrap();
    let claim = |name: &str, more: Value| {
        let mut claim = json!({"metadata": {"namespace": "n", "name": name}});
        for part in ["metadata", "spec", "status"] {
            for (key, value) in more[part].as_object().into_iter().flatten() {
                claim[part][key] = value.clone();
            }
        }
        serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap()
    };
    let bound = json!({
        "metadata": {"annotations": {BIND_COMPLETED: "yes"}},
        "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
    });
    let mut other = bound.clone();
    other["spec"]["volumeName"] = json!("other");
    let mut without_phase = bound.clone();
    without_phase["status"]["phase"] = json!("Pending");
    let nearly = json!({"metadata": {"annotations": {SELECTED_NODE: "a"}}, "spec": {"volumeName": "pv"}});
    for (case, pod, claim, want) in [
        ("missing", &pod, None, r#"persistentvolumeclaim "c" not found"#),
        ("bound", &pod, Some(claim("c", bound.clone())), "1 volumes, 0 waiting"),
        ("bound, without a phase", &pod, Some(claim("c", without_phase)), "1 volumes, 0 waiting"),
        (
            "bound to a volume that is deleted",
            &pod,
            Some(claim("c", other)),
            r#"persistentvolume "other" not found"#,
        ),
        (
            "about to be bound",
            &pod,
            Some(claim("c", nearly)),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            "immediate",
            &pod,
            Some(claim("c", json!({"spec": {"storageClassName": "now"}}))),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            "waits for the pod",
            &pod,
            Some(claim("c", json!({"spec": {"storageClassName": "later"}}))),
            "0 volumes, 1 waiting",
        ),
        (
            "names a volume already",
            &pod,
            Some(claim("c", json!({"spec": {"storageClassName": "later", "volumeName": "pv"}}))),
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            "terminating",
            &pod,
            Some(claim("c", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))),
            r#"persistentvolumeclaim "c" is being deleted"#,
        ),
        (
            "lost",
            &pod,
            Some(claim("c", json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Lost"}}))),
            r#"persistentvolumeclaim "c" bound to non-existent persistentvolume "pv""#,
        ),
        (
            "ephemeral, not made",
            &ephemeral,
            None,
            r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v""#,
        ),
        (
            "ephemeral, another's",
            &ephemeral,
            Some(claim("p-v", bound)),
            "PVC n/p-v was not created for pod n/p (pod is not owner)",
        ),
    ] {
        let class = |name: &str, mode: &str| {
            let class = json!({"metadata": {"name": name}, "provisioner": "x", "volumeBindingMode": mode});
            serde_json::from_value::<StorageClass>(class).unwrap()
        };
        let volume = serde_json::from_value(json!({"metadata": {"name": "pv"}})).unwrap();
        let storage = Storage {
            claims: Arc::new(Cache::with(claim)),
            volumes: Arc::new(Cache::with([volume])),
            classes: Arc::new(Cache::with([
                class("now", "Immediate"),
                class("later", "WaitForFirstConsumer"),
            ])),
            drivers: Arc::new(Cache::with([])),
            capacities: Arc::new(Cache::with([])),
            csi_nodes: Arc::new(Cache::with([])),
            attachments: Arc::new(Cache::with([])),
        };
        let got = match storage.of(pod) {
            Ok(claims) => {
                format!("{} volumes, {} waiting", claims.volumes.len(), claims.waiting.len())
            }
            Err(reason) => reason,
        };
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn pods_keep_their_node_while_their_claims_are_bound() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "p"},
        "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    }))
    .unwrap();
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "a", "labels": {"zone": "a"}}})).unwrap();
    let claim = |annotations: Value, volume: &str, phase: &str| -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "c", "uid": "u", "annotations": annotations},
            "spec": {"volumeName": volume}, "status": {"phase": phase},
        }))
        .unwrap()
    };
    let volume = |zone: &str, uid: Option<&str>| -> PersistentVolume {
        let requirement = json!({"key": "zone", "operator": "In", "values": [zone]});
        let reference = uid.map(|uid| json!({"namespace": "n", "name": "c", "uid": uid}));
        serde_json::from_value(json!({
            "metadata": {"name": "pv"},
            "spec": {
                "claimRef": reference,
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}},
            },
        }))
        .unwrap()
    };
    let on = |node: &str| json!({SELECTED_NODE: node});
    let completed = || json!({SELECTED_NODE: "a", BIND_COMPLETED: "yes"});
    let ours = || Some(volume("a", Some("u")));
    for (case, claim, volume, want) in [
        ("gone", None, ours(), (false, false)),
        ("is to be provisioned", Some(claim(on("a"), "", "Pending")), None, (true, false)),
        ("cannot be provisioned", Some(claim(json!({}), "", "Pending")), None, (false, false)),
        ("is provisioned elsewhere", Some(claim(on("b"), "", "Pending")), None, (false, false)),
        ("has a volume that refers to it", Some(claim(json!({}), "", "Pending")), ours(), (true, false)),
        ("refers to its volume", Some(claim(json!({}), "pv", "Pending")), ours(), (true, false)),
        (
            "its volume is another's",
            Some(claim(json!({}), "pv", "Pending")),
            Some(volume("a", None)),
            (false, false),
        ),
        ("provisioned", Some(claim(on("a"), "pv", "Pending")), None, (true, false)),
        (
            "provisioned out of reach",
            Some(claim(on("a"), "pv", "Pending")),
            Some(volume("b", Some("u"))),
            (false, false),
        ),
        ("bound, without a phase", Some(claim(completed(), "pv", "Pending")), ours(), (true, false)),
        ("bound", Some(claim(completed(), "pv", "Bound")), ours(), (true, true)),
    ] {
        let storage = Storage {
            claims: Arc::new(Cache::with(claim)),
            volumes: Arc::new(Cache::with(volume)),
            classes: Arc::new(Cache::with([])),
            drivers: Arc::new(Cache::with([])),
            capacities: Arc::new(Cache::with([])),
            csi_nodes: Arc::new(Cache::with([])),
            attachments: Arc::new(Cache::with([])),
        };
        let got = (storage.may_bind_on(&pod, &node), storage.are_claims_bound(&pod));
        assert_eq!(got, want, "{case}");
    }
}

#[test]
fn claims_are_served_on_nodes() {
    let node = |name: &str| -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {"zone": name}}})).unwrap()
    };
    let claim = |name: &str, size: &str, selected: &str| -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": name, "uid": name, "annotations": {SELECTED_NODE: selected}},
            "spec": {"storageClassName": "later", "resources": {"requests": {"storage": size}}},
        }))
        .unwrap()
    };
    let volume = |name: &str, size: &str, zone: &str| -> PersistentVolume {
        let requirement = json!({"key": "zone", "operator": "In", "values": [zone]});
        serde_json::from_value(json!({
            "metadata": {"name": name}, "status": {"phase": "Available"},
            "spec": {
                "storageClassName": "later", "capacity": {"storage": size},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}},
            },
        }))
        .unwrap()
    };
    let by_hand = json!({"metadata": {"name": "later"}, "provisioner": NO_PROVISIONER});
    let made = json!({"metadata": {"name": "later"}, "provisioner": "x"});
    let only_b = json!({
        "metadata": {"name": "later"}, "provisioner": "x",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}],
    });
    let here = volume("here", "1Gi", "a");
    let large = volume("large", "5Gi", "a");
    let there = volume("there", "1Gi", "b");
    let one = || vec![claim("c", "1Gi", "")];
    let two = || vec![claim("c", "1Gi", ""), claim("d", "1Gi", "")];
    for (case, class, claims, free, want) in [
        ("a free one", &by_hand, one(), vec![&there, &large, &here], Some(vec!["here"])),
        ("elsewhere", &by_hand, one(), vec![&there], None),
        ("elsewhere, but made", &made, one(), vec![&there], Some(vec![""])),
        ("made elsewhere only", &only_b, one(), vec![], None),
        ("one each", &by_hand, two(), vec![&here, &large], Some(vec!["here", "large"])),
        ("one for two", &by_hand, two(), vec![&here], None),
        ("one for two, one made", &made, two(), vec![&here], Some(vec!["here", ""])),
        ("assigned here", &made, vec![claim("c", "1Gi", "a")], vec![&here], Some(vec![""])),
        ("assigned there", &made, vec![claim("c", "1Gi", "b")], vec![&here], None),
    ] {
        let class = Arc::new(serde_json::from_value::<StorageClass>(class.clone()).unwrap());
        let waiting = claims.into_iter().map(|claim| Waiting {
            claim: Arc::new(claim),
            class: class.clone(),
            capacities: None,
        });
        let claims = Claims {
            waiting: waiting.collect(),
            free: free.into_iter().cloned().map(Arc::new).collect(),
            ..Claims::default()
        };
        let served = claims.bindings_on(&node("a"));
        let names = served.map(|served| {
            let name = |binding: &VolumeBinding| binding.volume.as_ref().map(|volume| volume.name_any());
            served.iter().map(|binding| name(binding).unwrap_or_default()).collect::<Vec<_>>()
        });
        let want = want.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(names, want.ok_or(NO_VOLUME), "{case}");
    }
}

#[test]
fn drivers_that_announce_their_storage_need_enough_of_it() {
    let class: StorageClass =
        serde_json::from_value(json!({"metadata": {"name": "later"}, "provisioner": "x"})).unwrap();
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"namespace": "n", "name": "c"},
        "spec": {"storageClassName": "later", "resources": {"requests": {"storage": "2Gi"}}},
    }))
    .unwrap();
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "a", "labels": {"zone": "z"}}})).unwrap();
    let capacity = |nodes: Value, capacity: &str, largest: Value| {
        json!({"metadata": {"name": "s"}, "storageClassName": "later", "nodeTopology": nodes,
            "capacity": capacity, "maximumVolumeSize": largest})
    };
    let here = || json!({"matchLabels": {"zone": "z"}});
    let there = json!({"matchLabels": {"zone": "y"}});
    for (case, capacities, want) in [
        ("nothing announced", None, true),
        ("none", Some(vec![]), false),
        ("enough", Some(vec![capacity(here(), "2Gi", Value::Null)]), true),
        ("for all nodes", Some(vec![capacity(json!({}), "2Gi", Value::Null)]), true),
        ("too little", Some(vec![capacity(here(), "1Gi", Value::Null)]), false),
        ("too little for one volume", Some(vec![capacity(here(), "9Gi", json!("1Gi"))]), false),
        ("elsewhere", Some(vec![capacity(there, "2Gi", Value::Null)]), false),
        ("for no node", Some(vec![capacity(Value::Null, "2Gi", Value::Null)]), false),
    ] {
        let capacities = capacities
            .map(|all| all.into_iter().map(|one| Arc::new(serde_json::from_value(one).unwrap())).collect());
        let waiting = Waiting { claim: Arc::new(claim.clone()), class: Arc::new(class.clone()), capacities };
        let claims = Claims { waiting: vec![waiting], ..Claims::default() };
        let got = claims.bindings_on(&node).map(|bindings| bindings.len());
        assert_eq!(got, if want { Ok(1) } else { Err(NO_STORAGE) }, "{case}");
    }
}
