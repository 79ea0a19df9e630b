//! CertificateSigningRequest.

use crate::resources::strategy::Strategy;

/// The rules of CertificateSigningRequest.
pub struct Rules;

impl Strategy for Rules {}
