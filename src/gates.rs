//! Feature gates: Kubernetes' names and their defaults in 1.36.
//!
//! `gates.txt` holds one gate a line: its name, its default, and `locked` where it cannot be changed. The gates of the designs
//! that Coracle grew from are there though Kubernetes has retired them: turning them off is part of their test plans.

const GATES: &str = include_str!("gates.txt");

/// Whether Kubernetes knows a gate of that name.
pub fn is_known(name: &str) -> bool {
    name == "AllAlpha" || name == "AllBeta" || default(name).is_some()
}

/// What a gate is if nobody says otherwise.
pub fn default(name: &str) -> Option<bool> {
    GATES
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(n, _)| *n == name)
        .map(|(_, rest)| rest.starts_with("true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates() {
        assert_eq!(default("StatefulSetStartOrdinal"), Some(true));
        assert_eq!(default("NoSuchGate"), None);
        assert!(is_known("AllBeta") && !is_known("nosuchgate"));
    }
}
