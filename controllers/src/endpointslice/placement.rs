//! The distribution of endpoints over slices, such that as few slices as possible are written.
//!
//! Source: `k8s.io/endpointslice` (`reconcileByPortMapping`).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::service_endpoints::endpoint_set::{EndpointSet, identity, is_same};

/// The maximum number of endpoints of a slice.
pub const MAX_ENDPOINTS: usize = 100;

/// The changes of the slices with one set of ports.
#[derive(Default)]
pub struct Placement {
    pub create: Vec<EndpointSlice>,
    pub update: Vec<EndpointSlice>,
    pub delete: Vec<Arc<EndpointSlice>>,
    pub unchanged: Vec<Arc<EndpointSlice>>,
    pub added: usize,
    pub removed: usize,
}

/// Places the desired endpoints in slices.
///
/// - `existing`: the slices of the same ports
/// - `new`: a slice without endpoints
/// - `labels`: the labels as they should be, if those of a slice differ
pub fn place(
    mut desired: EndpointSet,
    existing: Vec<Arc<EndpointSlice>>,
    new: impl Fn() -> EndpointSlice,
    labels: impl Fn(&EndpointSlice) -> Option<BTreeMap<String, String>>,
) -> Placement {
    let mut placement = Placement::default();
    for slice in existing {
        let old = endpoints(&slice);
        let (mut kept, mut changed) = (Vec::with_capacity(old.len()), false);
        for endpoint in old {
            if let Some(wanted) = desired.remove(&identity(endpoint)) {
                changed |= !is_same(&wanted, endpoint);
                kept.push(wanted);
            }
        }
        let removed = old.len() - kept.len();
        placement.removed += removed;
        let labels = labels(&slice);
        if removed > 0 && kept.is_empty() {
            placement.delete.push(slice);
        } else if removed > 0 || changed || labels.is_some() {
            let mut slice = Arc::unwrap_or_clone(slice);
            if removed > 0 || changed {
                slice.endpoints = Some(kept);
            }
            if let Some(labels) = labels {
                slice.metadata.labels = Some(labels);
            }
            placement.update.push(slice);
        } else {
            placement.unchanged.push(slice);
        }
    }
    placement.added = desired.len();
    // Fills the slices that are written anyway, the fullest first.
    placement.update.sort_by_key(|slice| Reverse(endpoints(slice).len()));
    placement.update.iter_mut().for_each(|slice| fill(slice, &mut desired));
    while !desired.is_empty() {
        match slice_with_room(&placement.unchanged, desired.len()) {
            Some(index) => {
                let mut slice = Arc::unwrap_or_clone(placement.unchanged.remove(index));
                fill(&mut slice, &mut desired);
                placement.update.push(slice);
            }
            None => {
                let mut slice = new();
                fill(&mut slice, &mut desired);
                placement.create.push(slice);
            }
        }
    }
    placement
}

fn endpoints(slice: &EndpointSlice) -> &[Endpoint] {
    slice.endpoints.as_deref().unwrap_or_default()
}

fn fill(slice: &mut EndpointSlice, from: &mut EndpointSet) {
    let endpoints = slice.endpoints.get_or_insert_default();
    while endpoints.len() < MAX_ENDPOINTS
        && let Some((_, endpoint)) = from.pop_first()
    {
        endpoints.push(endpoint);
    }
}

/// Returns the fullest slice to which `count` endpoints can still be added.
fn slice_with_room(slices: &[Arc<EndpointSlice>], count: usize) -> Option<usize> {
    if count >= MAX_ENDPOINTS {
        return None;
    }
    let fits = slices.iter().enumerate().filter(|(_, slice)| endpoints(slice).len() + count <= MAX_ENDPOINTS);
    fits.max_by_key(|(index, slice)| (endpoints(slice).len(), Reverse(*index))).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::discovery::v1::EndpointConditions;

    fn endpoint(number: usize, ready: bool) -> Endpoint {
        let conditions = EndpointConditions { ready: Some(ready), ..EndpointConditions::default() };
        let addresses = vec![format!("10.0.{}.{}", number / 256, number % 256)];
        Endpoint { addresses, conditions: Some(conditions), ..Endpoint::default() }
    }

    fn slice(name: &str, numbers: impl IntoIterator<Item = usize>) -> Arc<EndpointSlice> {
        let mut slice = EndpointSlice::default();
        slice.metadata.name = Some(name.to_owned());
        slice.endpoints = Some(numbers.into_iter().map(|number| endpoint(number, true)).collect());
        Arc::new(slice)
    }

    fn desired(numbers: impl IntoIterator<Item = usize>) -> EndpointSet {
        numbers.into_iter().map(|n| endpoint(n, true)).map(|e| (identity(&e), e)).collect()
    }

    /// Formats a plan: `+` created, `~` updated, `-` deleted, each with its number of endpoints.
    fn placed(wanted: EndpointSet, existing: Vec<Arc<EndpointSlice>>) -> String {
        let placement = place(wanted, existing, EndpointSlice::default, |_| None);
        let count = |slice: &EndpointSlice| slice.endpoints.as_ref().map_or(0, Vec::len);
        let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_default();
        let mut text: Vec<String> = Vec::new();
        text.extend(placement.create.iter().map(|s| format!("+{}", count(s))));
        text.extend(placement.update.iter().map(|s| format!("~{}{}", name(s), count(s))));
        text.extend(placement.delete.iter().map(|s| format!("-{}", name(s))));
        text.join(" ")
    }

    #[test]
    fn few_slices_are_written() {
        for (case, wanted, existing, want) in [
            ("none yet", desired(0..3), vec![], "+3"),
            ("full ones first", desired(0..250), vec![], "+100 +100 +50"),
            ("nothing to do", desired(0..3), vec![slice("a", 0..3)], ""),
            ("one more", desired(0..4), vec![slice("a", 0..3)], "~a4"),
            ("one less", desired(1..3), vec![slice("a", 0..3)], "~a2"),
            ("none of a slice", desired(3..5), vec![slice("a", 0..3), slice("b", 3..5)], "-a"),
            ("holes stay", desired(0..50), vec![slice("a", 0..40), slice("b", 40..60)], "~b10"),
            (
                "the fullest that takes all",
                desired(0..95),
                vec![slice("a", 0..30), slice("b", 30..90)],
                "~b65",
            ),
            ("one that takes all", desired(0..150), vec![slice("a", 0..90), slice("b", 90..130)], "~b60"),
            (
                "rather a new one than two",
                desired(0..200),
                vec![slice("a", 0..90), slice("b", 90..180)],
                "+20",
            ),
            (
                "what is written anyway, the fullest first",
                desired((1..50).chain(51..101).chain(200..260)),
                vec![slice("a", 0..50), slice("b", 50..102)],
                "~b100 ~a59",
            ),
        ] {
            assert_eq!(placed(wanted, existing), want, "{case}");
        }
    }

    #[test]
    fn a_changed_endpoint_stays_where_it_is() {
        let mut wanted = desired(0..2);
        let changed = endpoint(1, false);
        wanted.insert(identity(&changed), changed);
        assert_eq!(placed(wanted, vec![slice("a", 0..2), slice("b", [])]), "~a2");
    }
}
