//! ResourceClaims in resource quotas: the devices that they may get, by DeviceClass (KEP-4840).

use coracle_quantity::Quantity;

use super::counted;
use crate::list::{ResourceList, add_resource_list, max_resource_list};
use crate::names::{DEVICE_CLASS, REQUESTS};

const COUNT_CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// The maximum number of devices of one claim.
const ALLOCATION_RESULTS_MAX_SIZE: i64 = 32;

/// A request for devices, or one of its alternatives.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRequest<'a> {
    /// The name of the DeviceClass.
    pub device_class: &'a str,
    /// `ExactCount` or `All`.
    pub allocation_mode: &'a str,
    /// The number, if that is exact.
    pub count: i64,
}

/// Returns `true` if a name in a quota limits claims of devices.
pub fn matches(name: &str) -> bool {
    name == COUNT_CLAIMS || name.ends_with(OF_DEVICE_CLASS)
}

/// Returns the usage of a claim: of the alternatives of a request the one with the highest usage
/// counts.
pub fn usage<'a, A>(requests: impl IntoIterator<Item = A>) -> ResourceList
where
    A: IntoIterator<Item = DeviceRequest<'a>>,
{
    let mut usage = counted([(COUNT_CLAIMS, 1)]);
    for alternatives in requests {
        let mut most = ResourceList::new();
        for request in alternatives {
            max_resource_list(&mut most, &devices(request));
        }
        add_resource_list(&mut usage, &most);
    }
    usage
}

/// Returns the devices of a request, under both names that quotas have for them.
fn devices(request: DeviceRequest<'_>) -> ResourceList {
    let number = match request.allocation_mode {
        "ExactCount" => request.count,
        "All" => ALLOCATION_RESULTS_MAX_SIZE,
        _ => 0,
    };
    let class = request.device_class;
    let names = [format!("{class}{OF_DEVICE_CLASS}"), format!("{REQUESTS}{DEVICE_CLASS}{class}")];
    names.map(|name| (name, Quantity::from_int(number))).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::shown;

    #[test]
    fn claims_take_devices() {
        let request =
            |device_class, allocation_mode, count| DeviceRequest { device_class, allocation_mode, count };
        let exact = |class, count| request(class, "ExactCount", count);
        for (requests, want) in [
            (vec![], ""),
            (
                vec![vec![exact("a", 2)], vec![request("b", "All", 0)], vec![exact("a", 1)]],
                "a.deviceclass.resource.k8s.io/devices=3 b.deviceclass.resource.k8s.io/devices=32 \
                 requests.deviceclass.resource.kubernetes.io/a=3 requests.deviceclass.resource.kubernetes.io/b=32",
            ),
            (
                vec![vec![exact("a", 1), exact("a", 4), exact("b", 2)]],
                "a.deviceclass.resource.k8s.io/devices=4 b.deviceclass.resource.k8s.io/devices=2 \
                 requests.deviceclass.resource.kubernetes.io/a=4 requests.deviceclass.resource.kubernetes.io/b=2",
            ),
        ] {
            let mut usage = usage(requests);
            assert_eq!(usage.remove(COUNT_CLAIMS), Some(Quantity::from_int(1)));
            assert_eq!(shown(&usage), want);
        }
    }
}
