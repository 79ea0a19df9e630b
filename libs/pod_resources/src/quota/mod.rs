//! The usage of an object in quotas, by their resource names.
//!
//! A kind whose objects are only counted has no module here.
//!
//! Source: the Kubernetes documentation, "Resource Quotas".

use coracle_quantity::Quantity;

use crate::list::ResourceList;

pub mod persistent_volume_claims;
pub mod pods;
pub mod resource_claims;
pub mod services;

fn counted(names: impl IntoIterator<Item = (&'static str, usize)>) -> ResourceList {
    let number = |count| Quantity::from_int(i64::try_from(count).unwrap_or(i64::MAX));
    names.into_iter().map(|(name, count)| (name.to_owned(), number(count))).collect()
}

#[cfg(test)]
fn shown(usage: &ResourceList) -> String {
    usage.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
}
