//! Tables of allocations: slices and claims, and the devices that the claims get.

mod choices;
mod pools;
mod results;
mod sharing;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::*;

/// A cluster in which devices are allocated on the node `a`, with the classes `gpu` and `fast`.
struct Cluster {
    slices: Vec<Value>,
    classes: DeviceClasses,
    allocated: AllocatedState,
    steps: u64,
}

impl Cluster {
    fn new(slices: Vec<Value>) -> Cluster {
        let class = |name: &str, expression: &str, config: Value| {
            let class: DeviceClass = serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": expression}}], "config": config},
            }))
            .unwrap();
            (name.to_owned(), Arc::new(class))
        };
        let opaque = json!([{"opaque": {"driver": "gpu.example", "parameters": {"of": "class"}}}]);
        let classes = [
            class("gpu", r#"device.driver == "gpu.example""#, opaque),
            class("fast", r#"device.attributes["gpu.example"].speed > 5"#, Value::Null),
        ];
        Cluster { slices, classes: classes.into(), allocated: AllocatedState::default(), steps: 100_000 }
    }

    /// Marks devices of the pool `a` as allocated to other claims.
    fn with_allocated(mut self, results: Value) -> Cluster {
        self.allocated.add(&serde_json::from_value(json!({"devices": {"results": results}})).unwrap());
        self
    }

    fn allocate(&self, claims: &[Value]) -> Result<Option<Vec<AllocationResult>>, AllocationError> {
        let inventory = Inventory::new(
            self.slices
                .iter()
                .map(|slice| Arc::new(serde_json::from_value::<ResourceSlice>(slice.clone()).unwrap())),
        );
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "a", "labels": {"zone": "z"}}})).unwrap();
        let claims: Vec<ResourceClaim> =
            claims.iter().map(|claim| serde_json::from_value(claim.clone()).unwrap()).collect();
        let claims: Vec<&ResourceClaim> = claims.iter().collect();
        let selectors = SelectorCache::default();
        let allocator = Allocator {
            inventory: &inventory,
            classes: &self.classes,
            allocated: &self.allocated,
            selectors: &selectors,
        };
        let mut ids = 0;
        let mut share_id = |_: &ResourceClaim, _: &str| {
            ids += 1;
            format!("share-{ids}")
        };
        allocator.allocate(&node, &claims, &Budget::new(self.steps), &mut share_id)
    }

    /// Allocates, and returns `request=device` of each result, with a semicolon between claims; or
    /// why there is none.
    fn devices(&self, claims: &[Value]) -> String {
        match self.allocate(claims) {
            Err(error) => error.to_string(),
            Ok(None) => "none".to_owned(),
            Ok(Some(results)) => results.iter().map(shown).collect::<Vec<_>>().join("; "),
        }
    }
}

fn shown(result: &AllocationResult) -> String {
    let results = result.devices.iter().flat_map(|devices| devices.results.iter().flatten());
    results.map(|result| format!("{}={}", result.request, result.device)).collect::<Vec<_>>().join(" ")
}

/// A slice of the pool `a` of `gpu.example`, which is on the node `a`.
fn slice(devices: Value) -> Value {
    named_slice("slice", "a", json!({"nodeName": "a", "devices": devices}))
}

fn named_slice(name: &str, pool: &str, more: Value) -> Value {
    let mut spec = json!({
        "driver": "gpu.example",
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Devices of these names, with the attributes of the second part.
fn devices(all: &[(&str, Value)]) -> Value {
    let device = |(name, attributes): &(&str, Value)| json!({"name": name, "attributes": attributes});
    all.iter().map(device).collect()
}

fn plain(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

fn claim(requests: Value) -> Value {
    json!({"metadata": {"namespace": "n", "name": "c"}, "spec": {"devices": {"requests": requests}}})
}

/// A request for devices of the class `gpu`.
fn exactly(name: &str, more: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    for (key, value) in more.as_object().into_iter().flatten() {
        exactly[key] = value.clone();
    }
    json!({"name": name, "exactly": exactly})
}

fn count(name: &str, count: usize) -> Value {
    exactly(name, json!({"count": count}))
}

fn all(name: &str) -> Value {
    exactly(name, json!({"allocationMode": "All", "count": null}))
}

fn selecting(name: &str, expression: &str) -> Value {
    exactly(name, json!({"selectors": [{"cel": {"expression": expression}}]}))
}

/// An alternative of a prioritized list.
fn alternative(name: &str, count: usize, expression: &str) -> Value {
    let selectors = json!([{"cel": {"expression": expression}}]);
    json!({"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selectors})
}
