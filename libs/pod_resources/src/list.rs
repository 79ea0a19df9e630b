//! Resource lists: quantities by the names of resources.

use std::collections::BTreeMap;

use coracle_quantity::Quantity;

/// Quantities by the names of resources (`cpu`, `memory`, `example.com/gpu`).
pub type ResourceList = BTreeMap<String, Quantity>;

/// Adds each quantity of `more` to the one of the same name in `list`.
pub fn add_resource_list(list: &mut ResourceList, more: &ResourceList) {
    for (name, quantity) in more {
        list.entry(name.clone()).and_modify(|sum| *sum = sum.plus(quantity)).or_insert(*quantity);
    }
}

/// Raises each quantity of `list` to the one of the same name in `least`. Of two equal quantities
/// the one in `list` stays, as it is written.
pub fn max_resource_list(list: &mut ResourceList, least: &ResourceList) {
    for (name, quantity) in least {
        if list.get(name).is_none_or(|known| quantity > known) {
            list.insert(name.clone(), *quantity);
        }
    }
}
