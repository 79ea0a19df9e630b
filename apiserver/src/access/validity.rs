//! Validity: the period in which a certificate is valid.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use x509_parser::prelude::X509Certificate;

/// A certificate of ours with less than this left is renewed: at start, and the serving certificate
/// also while the server runs.
pub const RENEWAL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The period in which a certificate is valid, both ends included, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub not_before: i64,
    /// The last second.
    pub not_after: i64,
}

impl Validity {
    /// Reads the validity of a certificate.
    pub fn of(certificate: &X509Certificate<'_>) -> Validity {
        let validity = certificate.validity();
        Validity { not_before: validity.not_before.timestamp(), not_after: validity.not_after.timestamp() }
    }

    /// Returns `true` if the certificate is valid at a time.
    pub fn includes(self, now: i64) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }

    /// Returns `true` if a certificate that this server issued must be renewed, because it expires
    /// soon, or because the clock was set back to before its validity.
    pub fn is_due(self, now: i64) -> bool {
        now < self.not_before || self.not_after.saturating_sub(now) <= RENEWAL.as_secs() as i64
    }

    /// Returns the time within the validity that is nearest to `now`.
    pub fn nearest(self, now: i64) -> i64 {
        now.min(self.not_after).max(self.not_before)
    }
}

/// Converts a time to seconds since 1970; negative before.
pub fn unix_seconds(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_included_and_renewal_comes_early() {
        let month = RENEWAL.as_secs() as i64;
        let validity = Validity { not_before: 1000, not_after: 1000 + 3 * month };
        for (now, includes, is_due) in [
            (999, false, true),
            (1000, true, false),
            (1000 + 2 * month - 1, true, false),
            (1000 + 2 * month, true, true),
            (1000 + 3 * month, true, true),
            (1001 + 3 * month, false, true),
            (i64::MIN, false, true),
            (i64::MAX, false, true),
        ] {
            assert_eq!((validity.includes(now), validity.is_due(now)), (includes, is_due), "{now}");
        }
    }
}
