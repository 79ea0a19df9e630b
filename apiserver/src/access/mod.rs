//! Access: authentication, impersonation and authorization.
//!
//! [`authenticate`] turns credentials (client certificates, bearer tokens, none) into a [`UserInfo`]; [`impersonate`]
//! may replace it by another one; [`authorize`] decides with [`rbac`] whether that user may perform the request.
//! [`certificates`] has those of the cluster's certificate authority (`authority.rs`),
//! [`tls`] is the listener's use of them, [`kubeconfig`] the administrator's.
//!
//! Nothing here reads the store: the registry reports the RBAC objects it writes to [`authorize::Authorizer`].

pub mod authenticate;
mod authority;
pub mod authorize;
pub mod certificate_signer;
pub mod certificates;
pub mod coverage;
mod der;
mod ec_key;
pub mod file;
pub mod front_proxy;
pub mod impersonate;
pub mod jwt;
pub mod kubeconfig;
pub mod rbac;
pub mod rules;
pub mod serving;
pub mod tls;
pub mod token_file;
pub mod validity;
pub mod websocket_token;

pub use authenticate::UserInfo;
