//! The parts of an object that are written separately.

/// The part of an object that an endpoint writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but status.
    Main,
    /// The status, and what metadata the kind lets through.
    Status,
    /// The finalizers in a Namespace's spec.
    Finalize,
    /// The ephemeral containers of a Pod.
    EphemeralContainers,
    /// The resources of a Pod's containers.
    Resize,
    /// The conditions by which a CertificateSigningRequest is approved or denied.
    Approval,
}

impl Part {
    /// Returns the name of the subresource; "" for the object itself.
    pub fn name(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Finalize => "finalize",
            Part::EphemeralContainers => "ephemeralcontainers",
            Part::Resize => "resize",
            Part::Approval => "approval",
        }
    }
}
