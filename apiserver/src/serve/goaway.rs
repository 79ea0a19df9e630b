//! GOAWAY: a client of HTTP/2 sends all its requests over one connection, so behind a load balancer
//! it stays with one server. A server that ends a connection now and then makes its clients spread
//! over all servers.
//!
//! Requests that are under way when a connection gets its GOAWAY, watches too, go on until they end
//! by themselves.
//!
//! Source: kube-apiserver's `filters/goaway.go`.

/// The probability that a request over HTTP/2 makes its connection get a GOAWAY: upstream's
/// `--goaway-chance`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GoawayChance(f64);

impl GoawayChance {
    /// The highest chance: once in 50 requests.
    pub const MAX: f64 = 0.02;

    /// Creates a chance from 0 (never) to [`GoawayChance::MAX`]; None for other values.
    pub fn new(chance: f64) -> Option<GoawayChance> {
        (0.0..=GoawayChance::MAX).contains(&chance).then_some(GoawayChance(chance))
    }

    /// Decides for one request.
    ///
    /// - `random`: makes a number from 0 to below 1; not called if the chance is zero.
    pub(super) fn decide(self, random: impl FnOnce() -> f64) -> bool {
        self.0 > 0.0 && random() < self.0
    }
}

/// Returns a random number from 0 to below 1.
pub(super) fn random() -> f64 {
    // Of a version 4 UUID the first 48 bits are random.
    let (bits, _) = uuid::Uuid::new_v4().as_u64_pair();
    (bits >> 16) as f64 / (1_u64 << 48) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_from_zero_to_a_fiftieth() {
        for (chance, is_valid) in
            [(0.0, true), (0.001, true), (0.02, true), (0.020_001, false), (-0.001, false), (f64::NAN, false)]
        {
            assert_eq!(GoawayChance::new(chance).is_some(), is_valid, "{chance}");
        }
    }

    #[test]
    fn a_request_is_chosen_by_a_random_number_below_the_chance() {
        let chance = GoawayChance::new(0.01).expect("a chance");
        assert!(chance.decide(|| 0.0) && chance.decide(|| 0.009_9));
        assert!(!chance.decide(|| 0.01) && !chance.decide(|| 0.999));
        assert!(!GoawayChance::default().decide(|| panic!("no number is needed")));
    }

    #[test]
    fn random_numbers_spread_from_zero_to_one() {
        let numbers: Vec<f64> = (0..1000).map(|_| random()).collect();
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
        let below_half = numbers.iter().filter(|number| **number < 0.5).count();
        // Ten standard deviations around the mean.
        assert!((342..=658).contains(&below_half), "{below_half}");
    }
}
