//! Access: authentication, impersonation and authorization.
//!
//! [`authenticate`] turns credentials (client certificates, bearer tokens, none) into a
//! [`UserInfo`]; [`impersonate`] may replace it by another one; [`authorize`] decides whether that
//! user may perform the request. [`certificates`] has those of the cluster's certificate authority
//! (`authority.rs`), [`tls`] is the listener's use of them.
//!
//! Nothing here knows rules: whoever makes an [`authorize::Authorizer`] attaches a
//! [`authorize::RuleResolver`].

pub mod authenticate;
mod authority;
pub mod authorize;
pub mod certificate_signer;
pub mod certificates;
mod client_leaf;
mod der;
mod ec_key;
pub mod front_proxy;
pub mod impersonate;
pub mod jwt;
pub mod serving;
pub mod tls;
pub mod token_file;
pub mod validity;
pub mod websocket_token;

pub use authenticate::UserInfo;
