//! The order of ports, which follows from hashes of how Go prints them.
//!
//! Source: kube-controller-manager's `hashutil.DeepHashObject` with FNV-1a in 128 bits.

use k8s_openapi::api::core::v1;
use k8s_openapi::api::discovery::v1::EndpointPort;

/// Returns the hash of a port of Endpoints.
pub fn of_endpoints(port: &v1::EndpointPort) -> u128 {
    fnv_1a(&format!(
        "(v1.EndpointPort){{Name:(string){} Port:(int32){} Protocol:(v1.Protocol){} AppProtocol:(*string){}}}",
        port.name.as_deref().unwrap_or_default(),
        port.port,
        port.protocol.as_deref().unwrap_or_default(),
        port.app_protocol.as_deref().unwrap_or("<nil>"),
    ))
}

/// Returns the hash of a port of an EndpointSlice.
pub fn of_slice(port: &EndpointPort) -> u128 {
    fnv_1a(&format!(
        "(v1.EndpointPort){{Name:(*string){} Protocol:(*v1.Protocol){} Port:(*int32){} AppProtocol:(*string){}}}",
        port.name.as_deref().unwrap_or("<nil>"),
        port.protocol.as_deref().unwrap_or("<nil>"),
        port.port.map_or_else(|| "<nil>".to_owned(), |port| port.to_string()),
        port.app_protocol.as_deref().unwrap_or("<nil>"),
    ))
}

fn fnv_1a(text: &str) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_slices_have_the_order_of_a_real_controller_manager() {
        let port = |name: &str, number| EndpointPort {
            name: Some(name.to_owned()),
            port: Some(number),
            protocol: Some("TCP".to_owned()),
            app_protocol: None,
        };
        let mut ports = [port("http", 80), port("https", 443), port("metrics", 9090), port("grpc", 9000)];
        ports.sort_by_key(of_slice);
        let names: Vec<&str> = ports.iter().filter_map(|port| port.name.as_deref()).collect();
        assert_eq!(names, ["https", "grpc", "http", "metrics"]);
    }
}
