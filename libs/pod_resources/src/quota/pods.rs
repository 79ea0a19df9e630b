//! Pods in resource quotas: requests and limits, by the names that quotas have for them.

use coracle_quantity::Quantity;

use crate::list::ResourceList;
use crate::names::{COMPUTE, DEVICE_CLASS, LIMITS, REQUESTS, is_extended, is_huge_pages, is_native};

/// The general name for the number of pods, in whatever state.
pub const COUNT_PODS: &str = "count/pods";
/// The name for the number of pods that have not ended.
pub const PODS: &str = "pods";

/// Returns `true` if a name in a quota limits pods.
pub fn matches(name: &str) -> bool {
    let request = name.strip_prefix(REQUESTS);
    let resource = request.or_else(|| name.strip_prefix(LIMITS)).unwrap_or(name);
    [COUNT_PODS, PODS].contains(&name)
        || COMPUTE.contains(&resource)
        || is_huge_pages(request.unwrap_or(name))
        || request.is_some_and(|requested| !is_native(name) || requested.starts_with(DEVICE_CLASS))
}

/// Returns the usage of a pod, or of one container, that has not ended, without [`COUNT_PODS`].
pub fn compute_usage(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = ResourceList::from([(PODS.to_owned(), Quantity::from_int(1))]);
    for (name, quantity) in requests {
        let has_plain_name = COMPUTE.contains(&name.as_str()) || is_huge_pages(name);
        if has_plain_name {
            usage.insert(name.clone(), *quantity);
        }
        if has_plain_name || is_extended(name) || name.starts_with(DEVICE_CLASS) {
            usage.insert(format!("{REQUESTS}{name}"), *quantity);
        }
    }
    for (name, quantity) in limits.iter().filter(|(name, _)| COMPUTE.contains(&name.as_str())) {
        usage.insert(format!("{LIMITS}{name}"), *quantity);
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_limit_pods() {
        for (name, want) in [
            ("pods", true),
            ("count/pods", true),
            ("cpu", true),
            ("limits.ephemeral-storage", true),
            ("requests.hugepages-2Mi", true),
            ("limits.hugepages-2Mi", false),
            ("requests.example.com/gpu", true),
            ("example.com/gpu", false),
            ("requests.deviceclass.resource.kubernetes.io/a", true),
            ("requests.storage", false),
            ("services", false),
        ] {
            assert_eq!(matches(name), want, "{name}");
        }
    }

    #[test]
    fn all_usage_has_names_that_limit_pods() {
        let list = |names: &[&str]| -> ResourceList {
            names.iter().map(|name| ((*name).to_owned(), Quantity::from_int(1))).collect()
        };
        let names =
            ["cpu", "example.com/gpu", "hugepages-2Mi", "deviceclass.resource.kubernetes.io/a", "storage"];
        let usage = compute_usage(&list(&names), &list(&names));
        assert!(usage.keys().all(|name| matches(name)));
        let want = "cpu hugepages-2Mi limits.cpu pods requests.cpu \
                    requests.deviceclass.resource.kubernetes.io/a requests.example.com/gpu requests.hugepages-2Mi";
        assert_eq!(usage.into_keys().collect::<Vec<_>>().join(" "), want);
    }
}
