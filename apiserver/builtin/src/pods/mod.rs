//! Subresources of pods, services and nodes that are not part of the object itself: each acts on
//! the object, or leads to whatever it stands for.

mod behavior;
mod binding;
mod command;
mod connect;
mod delete_options;
mod eviction;
mod log;
mod main_process;
mod port_forward;
mod proxy;
mod shell;

use coracle_apiserver::serve::{Action, ActionDeclaration};

pub use behavior::behavior_of;
pub use connect::connect;

/// The POSTs of bindings and evictions.
pub static ACTIONS: [ActionDeclaration; 3] = [
    action("pods", "binding", binding::bind_pod),
    action("bindings", "", binding::bind_named_pod),
    action("pods", "eviction", eviction::evict),
];

const fn action(resource: &'static str, subresource: &'static str, action: Action) -> ActionDeclaration {
    ActionDeclaration { group: "", resource, subresource, action }
}
