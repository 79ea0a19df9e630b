//! Access: who is asking, and may they.
//!
//! [`authenticate`] turns credentials (client certificates, bearer tokens, none) into a [`UserInfo`]; [`impersonate`] may
//! swap it for another; [`authorize`] decides by [`rbac`] whether that user may do what the request says. [`reviews`]
//! answers clients that ask the same questions. [`certificates`] is our own small certificate authority, [`tls`] what the
//! listener does with it, [`kubeconfig`] what clients get of it.
//!
//! Nothing here reads the store: the registry feeds [`authorize::Authorizer`] with the RBAC objects it writes.

pub mod authenticate;
pub mod authorize;
pub mod certificates;
pub mod coverage;
mod ec_key;
pub mod file;
pub mod impersonate;
pub mod jwt;
pub mod kubeconfig;
pub mod rbac;
pub mod reviews;
pub mod rules;
pub mod service_account_token;
pub mod serving;
pub mod tls;
pub mod token_file;
pub mod validity;
pub mod websocket_token;

pub use authenticate::UserInfo;
