//! Access to a server.

/// The address of a server, and the identity of a user of it. Certificates and keys are in PEM.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The URL of the server.
    pub server: &'a str,
    /// The authorities that the server's certificate is verified with.
    pub ca_pem: &'a str,
    /// The user's certificate.
    pub certificate_pem: &'a str,
    /// The user's private key.
    pub key_pem: &'a str,
}
