//! PersistentVolumeClaims in resource quotas: their number and storage, in all and by StorageClass.

use coracle_quantity::Quantity;

use super::counted;
use crate::list::ResourceList;

const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const CLAIMS: &str = "persistentvolumeclaims";
const COUNT_CLAIMS: &str = "count/persistentvolumeclaims";
const REQUESTS_STORAGE: &str = "requests.storage";

/// Returns `true` if a name in a quota limits claims.
pub fn matches(name: &str) -> bool {
    let part = name.split_once(OF_STORAGE_CLASS).map_or(name, |(_, part)| part);
    name == COUNT_CLAIMS || [CLAIMS, REQUESTS_STORAGE].contains(&part)
}

/// Returns the usage of a claim.
///
/// - `requested`: the storage it requests
/// - `allocated`: `status.allocatedResources`; the larger counts while a volume grows or an
///   expansion is reverted
/// - `storage_class`: its StorageClass; empty without one
pub fn usage(requested: Option<Quantity>, allocated: Option<Quantity>, storage_class: &str) -> ResourceList {
    let mut usage = counted([(CLAIMS, 1)]);
    if let Some(requested) = requested {
        let held = allocated.map_or(requested, |allocated| requested.max(allocated));
        // Whole bytes: validation refuses other quantities in the status of a quota.
        usage.insert(REQUESTS_STORAGE.to_owned(), held.rounded_up());
    }
    if !storage_class.is_empty() {
        let of_class = |(name, amount): (&String, &Quantity)| {
            (format!("{storage_class}{OF_STORAGE_CLASS}{name}"), *amount)
        };
        usage.extend(usage.iter().map(of_class).collect::<Vec<_>>());
    }
    usage.extend(counted([(COUNT_CLAIMS, 1)]));
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::shown;

    #[test]
    fn claims_take_storage_of_their_class() {
        let size = |text: &str| text.parse::<Quantity>().ok();
        for (requested, allocated, class, want) in [
            (None, None, "", "count/persistentvolumeclaims=1 persistentvolumeclaims=1"),
            (None, size("2Gi"), "", "count/persistentvolumeclaims=1 persistentvolumeclaims=1"),
            (
                size("1Gi"),
                None,
                "gold",
                "count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
                 gold.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 \
                 requests.storage=1Gi",
            ),
            (
                size("1Gi"),
                size("2Gi"),
                "",
                "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2Gi",
            ),
            (
                size("1500m"),
                size("1"),
                "",
                "count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=2",
            ),
        ] {
            let usage = usage(requested, allocated, class);
            assert!(usage.keys().all(|name| matches(name)));
            assert_eq!(shown(&usage), want);
        }
    }
}
