//! RBAC: roles and bindings decide what users may do, and who may write them.
//!
//! | file | owns |
//! | --- | --- |
//! | `rules.rs` | what one rule allows |
//! | `index.rs` | roles and bindings by their subjects |
//! | `informer.rs` | the index of what is stored |
//! | `authorizer.rs` | the decisions about requests |
//! | `coverage/` | which rights some rules grant that others do not |
//! | `reconcile.rs` | what is restored of default roles and bindings |
//! | `escalation.rs` | the check against escalation of rights |
//!
//! Start at [`RbacAuthorizer`].

mod authorizer;
mod coverage;
pub(crate) mod escalation;
mod index;
mod informer;
mod reconcile;
pub(crate) mod rules;
#[cfg(test)]
pub(crate) mod testing;

pub use authorizer::RbacAuthorizer;
pub use index::GROUP;
pub use informer::RbacSnapshot;
pub(crate) use reconcile::reconcile;
