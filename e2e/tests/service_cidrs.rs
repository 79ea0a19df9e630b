//! ServiceCIDRs: further ranges of cluster IPs (KEP-1880).

use anyhow::{Result, ensure};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::Connection;
use coracle_e2e::wait::until;
use serde_json::{Value, json};

const CIDRS: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";
const SERVICES: &str = "/api/v1/namespaces/default/services";

async fn call(connection: &mut Connection, method: &str, path: &str, body: Value) -> Result<(u16, Value)> {
    let body = (!body.is_null()).then(|| Bytes::from(body.to_string()));
    let headers = [("Content-Type", Some("application/json"))];
    let response = connection.call(method, path, &headers, body).await?;
    Ok((response.status, serde_json::from_slice(&response.body)?))
}

/// Returns the condition Ready of the further range.
async fn ready(connection: &mut Connection) -> Result<Value> {
    let (_, range) = call(connection, "GET", &format!("{CIDRS}/more"), Value::Null).await?;
    Ok(range["status"]["conditions"][0].clone())
}

fn service(name: &str, address: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"clusterIP": address, "ports": [{"port": 80}]},
    })
}

#[tokio::test]
async fn services_get_addresses_of_further_ranges() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    let refused = call(&mut connection, "POST", SERVICES, service("early", Some("192.168.77.5"))).await?;
    ensure!(refused.0 == 422, "{refused:?}");
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "more"},
        "spec": {"cidrs": ["192.168.77.0/28"]},
    });
    ensure!(call(&mut connection, "POST", CIDRS, range).await?.0 == 201);
    until("it is ready", async || ready(&mut connection).await, |ready| ready["status"] == "True").await?;
    let (code, named) =
        call(&mut connection, "POST", SERVICES, service("named", Some("192.168.77.5"))).await?;
    ensure!(code == 201, "{named}");
    let (code, address) =
        call(&mut connection, "GET", &format!("{ADDRESSES}/192.168.77.5"), Value::Null).await?;
    ensure!(code == 200 && address["spec"]["parentRef"]["name"] == "named", "{address}");
    // A range whose addresses are in use stays, but gives no others.
    call(&mut connection, "DELETE", &format!("{CIDRS}/more"), Value::Null).await?;
    let is_terminating = |ready: &Value| ready["reason"] == "Terminating";
    until("it is terminating", async || ready(&mut connection).await, is_terminating).await?;
    let refused = call(&mut connection, "POST", SERVICES, service("late", Some("192.168.77.6"))).await?;
    ensure!(refused.0 == 422, "{refused:?}");
    ensure!(call(&mut connection, "DELETE", &format!("{SERVICES}/named"), Value::Null).await?.0 == 200);
    let code = async || Ok(call(&mut connection, "GET", &format!("{CIDRS}/more"), Value::Null).await?.0);
    until("the range is deleted", code, |code| *code == 404).await?;
    Ok(())
}
