//! Endpoints of Services: upstream's end-to-end behaviors (`[sig-network] EndpointSlice`,
//! `[sig-network] EndpointSliceMirroring`).

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use coracle::ControlPlane;
use coracle_e2e::json_client::{JsonClient, items};
use coracle_e2e::workloads::{controller, pods, template, uid};
use coracle_e2e::{Cluster, cluster, skipped};
use hyper::Request;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const DEFAULT: &str = "default";

async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().with_service_account().start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn slices_of(service: &str) -> String {
    format!("{SLICES}?labelSelector=kubernetes.io%2Fservice-name%3D{service}")
}

fn pod(name: &str, container_port: u16) -> Value {
    let mut pod = template("web", json!({}));
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["labels"]["pod"] = json!(name);
    pod["spec"]["containers"][0]["ports"] =
        json!([{"name": "example-name", "containerPort": container_port}]);
    pod
}

/// Returns each endpoint: the pod, the port, and whether it is ready; ordered.
fn endpoints(list: &Value) -> Vec<(String, u64, bool)> {
    let slices = items(list).into_iter().flatten();
    let mut found: Vec<_> = slices
        .flat_map(|slice| {
            let port = slice["ports"][0]["port"].as_u64().unwrap_or(0);
            slice["endpoints"].as_array().into_iter().flatten().map(move |endpoint| {
                let pod = endpoint["targetRef"]["name"].as_str().unwrap_or_default().to_owned();
                (pod, port, endpoint["conditions"]["ready"] == true)
            })
        })
        .collect();
    found.sort();
    found
}

/// Covers upstream's "should create and delete Endpoints and EndpointSlices for a Service with a
/// selector specified", "should create Endpoints and EndpointSlices for Pods matching a Service".
#[tokio::test]
async fn slices_follow_the_pods_of_a_service() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "example-name"}]});
    let service = client.create(SERVICES, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    // Without pods there is an empty one, which the Service owns.
    let empty = client.until_items(&slices_of("web"), 1).await?.pop().context("no slice")?;
    assert_eq!(
        (controller(&empty), endpoints(&json!({"items": [empty]}))),
        (Some(uid(&service)), Vec::new())
    );
    client.until(&format!("{ENDPOINTS}/web"), |endpoints| endpoints["subsets"].is_null()).await?;

    // A named port has other numbers in other pods, and so other slices.
    for (name, port) in [("one", 3000), ("two", 3001)] {
        client.create(&pods(DEFAULT), pod(name, port)).await?;
    }
    let want = [("one".to_owned(), 3000, true), ("two".to_owned(), 3001, true)];
    client.until(&slices_of("web"), |list| endpoints(list) == want).await?;
    client
        .until(&format!("{ENDPOINTS}/web"), |endpoints| {
            endpoints["subsets"].as_array().is_some_and(|subsets| subsets.len() == 2)
        })
        .await?;
    client.until_at_rest(&["endpoints", "endpointslices", "services"], Duration::from_secs(2)).await?;
    let unready = json!({"metadata": {"annotations": {"sim.coracle.dev/never-ready": "true"}}});
    client.patch(&format!("{}/one", pods(DEFAULT)), unready).await?;
    let want = [("one".to_owned(), 3000, false), ("two".to_owned(), 3001, true)];
    client.until(&slices_of("web"), |list| endpoints(list) == want).await?;
    // A pod that is not selected any more, and one that is deleted.
    client.patch(&format!("{}/two", pods(DEFAULT)), json!({"metadata": {"labels": {"app": "x"}}})).await?;
    client.delete(&format!("{}/one", pods(DEFAULT))).await?;
    client.until(&slices_of("web"), |list| endpoints(list).is_empty()).await?;

    client.delete(&format!("{SERVICES}/web")).await?;
    client.until_deleted(&format!("{ENDPOINTS}/web")).await?;
    client.until_items(&slices_of("web"), 0).await.map(drop)
}

/// Covers upstream's "should mirror a custom Endpoints resource through create update and delete",
/// "should mirror a custom Endpoint with multiple subsets and same IP address".
#[tokio::test]
async fn endpoints_of_a_service_without_a_selector_are_mirrored() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let spec = json!({"ports": [{"name": "http", "port": 80}]});
    client.create(SERVICES, json!({"metadata": {"name": "custom"}, "spec": spec})).await?;
    let subset = |ip: &str, port: u16| json!({"addresses": [{"ip": ip}], "ports": [{"name": format!("p{port}"), "port": port}]});
    let custom = json!({"metadata": {"name": "custom"}, "subsets": [subset("10.1.2.3", 80)]});
    client.create(ENDPOINTS, custom).await?;
    // Of the only slice: the addresses, and the ports, ordered.
    let mirrored = |list: &Value| {
        let [slice] = items(list).map_or(&[][..], Vec::as_slice) else { return None };
        let endpoints = slice["endpoints"].as_array()?.iter();
        let addresses: Vec<_> = endpoints.map(|endpoint| endpoint["addresses"][0].clone()).collect();
        let mut ports: Vec<_> =
            slice["ports"].as_array()?.iter().filter_map(|port| port["port"].as_u64()).collect();
        ports.sort_unstable();
        Some((addresses, ports))
    };
    let managed = format!(
        "{}%2Cendpointslice.kubernetes.io%2Fmanaged-by%3Dendpointslicemirroring-controller.k8s.io",
        slices_of("custom")
    );
    for (subsets, address, ports) in [
        (json!([subset("10.1.2.3", 80)]), "10.1.2.3", vec![80]),
        (json!([subset("10.2.3.4", 80)]), "10.2.3.4", vec![80]),
        // One address, with a port in each of two subsets.
        (json!([subset("10.2.3.4", 80), subset("10.2.3.4", 9090)]), "10.2.3.4", vec![80, 9090]),
    ] {
        client.patch(&format!("{ENDPOINTS}/custom"), json!({"subsets": subsets})).await?;
        let want = (vec![json!(address)], ports);
        client.until(&managed, |list| mirrored(list).as_ref() == Some(&want)).await?;
    }
    client.delete(&format!("{ENDPOINTS}/custom")).await?;
    client.until_items(&managed, 0).await.map(drop)
}

/// Returns the address from which this host would reach others; None without a network.
fn host_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("203.0.113.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

/// Covers upstream's "API Server should have Endpoints and EndpointSlices pointing to API Server".
/// The address is the host's own, since Endpoints may not have a loopback address.
#[tokio::test]
async fn the_kubernetes_service_has_the_address_of_the_server() -> Result<()> {
    let Some(address) = host_address() else {
        skipped::report("this host has no network");
        return Ok(());
    };
    let control_plane = ControlPlane::builder().ephemeral().start().await?;
    let fork = control_plane.fork().await?;
    for control_plane in [&control_plane, &fork] {
        let url = control_plane.url();
        let (_, port) = url.rsplit_once(':').context("no port")?;
        let ports = json!([{"name": "https", "port": port.parse::<u16>()?, "protocol": "TCP"}]);
        let get = async |path: String| -> Result<Value> {
            let request = Request::get(path).body(Vec::new())?;
            Ok(control_plane.client().request(request).await?)
        };
        let endpoints = get(format!("{ENDPOINTS}/kubernetes")).await?;
        assert_eq!(endpoints["subsets"], json!([{"addresses": [{"ip": address}], "ports": ports}]));
        let slices = get(slices_of("kubernetes")).await?;
        let found: Vec<_> = items(&slices)
            .into_iter()
            .flatten()
            .map(|slice| (&slice["endpoints"], &slice["ports"]))
            .collect();
        assert_eq!(found, [(&json!([{"addresses": [address], "conditions": {"ready": true}}]), &ports)]);
    }
    Ok(())
}
