//! Classification of resources by their names.
//!
//! Source: the Kubernetes documentation, "Resource Management for Pods and Containers".

/// Resources that are limited by request and by limit, and that every node has.
pub const COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// The prefix of huge pages; their size follows.
pub const HUGE_PAGES: &str = "hugepages-";
/// The prefix of a resource for devices of a class (KEP-5004).
pub const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
/// The prefix under which a quota limits requests.
pub const REQUESTS: &str = "requests.";
/// The prefix under which a quota limits limits.
pub const LIMITS: &str = "limits.";

/// Returns `true` if a resource is in the `kubernetes.io` namespace, or has no prefix.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns `true` if a resource is huge pages of some size.
pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Returns `true` if a resource is a vendor's, such as `example.com/gpu`. It does not check whether
/// the name is well formed.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with(REQUESTS)
}

/// Returns `true` if a pod may request the resource for the pod as a whole (KEP-2837).
pub fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || is_huge_pages(name)
}
