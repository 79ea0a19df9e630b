//! Scores and filters by Services, images and features.

use super::*;

fn chosen(
    nodes: &[Arc<Node>],
    there: &[(&str, Arc<Pod>)],
    pod: &Arc<Pod>,
    siblings: Option<Selector>,
) -> String {
    let mut nodes: Vec<NodeInfo> = nodes.iter().cloned().map(NodeInfo::new).collect();
    for (node, pod) in there {
        nodes.iter_mut().find(|info| info.name() == *node).unwrap().add_pod(pod.clone());
    }
    rendered(snapshot(nodes, vec![]).schedule(pod, Ok(Claims::default()), || siblings))
}

#[test]
fn pods_of_a_service_are_spread_by_default() {
    let zone = |name: &str, zone: Option<&str>| {
        let mut labels = json!({"kubernetes.io/hostname": name});
        if let Some(zone) = zone {
            labels["topology.kubernetes.io/zone"] = json!(zone);
        }
        node(name, json!({"labels": labels}))
    };
    let web = |name: &str| pod(name, json!({}));
    let siblings = || Some(Selector::from_iter([("app", "web")]));
    let one_here = || vec![("a1", web("web-2")), ("b1", pod("db-1", json!({})))];
    let zones = || [zone("a1", Some("a")), zone("a2", Some("a")), zone("b1", Some("b"))];
    let bare = || [zone("a1", None), zone("b1", None)];
    for (case, nodes, there, siblings, want) in [
        ("over zones", zones().to_vec(), one_here(), siblings(), "b1"),
        ("not without siblings", zones().to_vec(), one_here(), None, "a2"),
        ("over nodes without zones", bare().to_vec(), one_here(), siblings(), "b1"),
        ("over nodes, not without siblings", bare().to_vec(), one_here(), None, "a1"),
    ] {
        assert_eq!(chosen(&nodes, &there, &web("web-1"), siblings), want, "{case}");
    }
}

#[test]
fn nodes_with_the_images_of_a_pod_are_preferred() {
    let with_image = |name: &str, image: &str| {
        let mut node = (*node(name, json!({}))).clone();
        let images = json!([{"names": [image], "sizeBytes": 900_000_000}]);
        node.status.as_mut().unwrap().images = serde_json::from_value(images).unwrap();
        Arc::new(node)
    };
    let nodes = [with_image("a1", "other:1"), with_image("b1", "app:latest")];
    let pod = pod("web-1", json!({"containers": [{"name": "c", "image": "app"}]}));
    assert_eq!(chosen(&nodes, &[], &pod, None), "b1");
}

#[test]
fn nodes_have_to_declare_the_features_of_a_pod() {
    let rule = json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}});
    let pod = pod("web-1", json!({"containers": [{"name": "c", "restartPolicyRules": [rule]}]}));
    let plain = [node("a1", json!({})), node("b1", json!({}))];
    let got = chosen(&plain, &[], &pod, None);
    assert!(
        got.starts_with("0/2 nodes are available: 2 node(s) didn't match Pod's required features."),
        "{got}"
    );
    let mut declaring = (*plain[1]).clone();
    declaring.status.as_mut().unwrap().declared_features =
        Some(vec!["RestartAllContainersOnContainerExits".to_owned()]);
    assert_eq!(chosen(&[plain[0].clone(), Arc::new(declaring)], &[], &pod, None), "b1");
}
