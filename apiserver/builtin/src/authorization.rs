//! Authorization: what the modes of `--authorization-mode` decide by.

use std::sync::Arc;

use coracle_apiserver::access::authorize::Authorizer;

use crate::rbac::RbacAuthorizer;

/// `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `RBAC`.
    Rbac,
    /// `AlwaysAllow`.
    AlwaysAllow,
}

impl Mode {
    /// Creates the authorizer for this mode.
    pub fn authorizer(self, rbac: &Arc<RbacAuthorizer>) -> Authorizer {
        match self {
            Mode::Rbac => Authorizer::new(rbac.clone()),
            Mode::AlwaysAllow => Authorizer::always_allow(),
        }
    }
}
