//! PriorityLevel: the seats of one PriorityLevelConfiguration.

use std::collections::HashMap;
use std::sync::Arc;

use http::HeaderValue;
use serde_json::Value;

use super::queue_set::{QueueLimits, QueueSet};

/// The shares of a configuration without `nominalConcurrencyShares`: the API's default.
const DEFAULT_SHARES: u64 = 30;

/// A priority level: exempt, or with seats and queues.
pub struct PriorityLevel {
    /// The name of its PriorityLevelConfiguration.
    pub name: String,
    /// Its uid, as a header's value.
    pub uid: HeaderValue,
    /// None for an exempt level.
    pub queue_set: Option<Arc<QueueSet>>,
}

/// Parses all priority levels. The seats of the server are divided among the limited ones in
/// proportion to their shares, rounded up. A level that is in `known` already keeps its queues,
/// executing and waiting requests.
pub fn read_all(
    configurations: &[Value],
    server_seats: usize,
    known: &HashMap<String, Arc<PriorityLevel>>,
) -> HashMap<String, Arc<PriorityLevel>> {
    let is_limited = |configuration: &&Value| configuration["spec"]["type"] != "Exempt";
    let all_shares: u64 = configurations.iter().filter(is_limited).map(shares).sum();
    let server_seats = u64::try_from(server_seats).unwrap_or(u64::MAX);
    let read = |configuration: &Value| {
        let name = configuration["metadata"]["name"].as_str()?;
        let uid = HeaderValue::from_str(configuration["metadata"]["uid"].as_str()?).ok()?;
        let queue_set = is_limited(&configuration).then(|| {
            let seats = server_seats.saturating_mul(shares(configuration)).div_ceil(all_shares.max(1));
            let limits = limits(configuration, usize::try_from(seats).unwrap_or(usize::MAX));
            let queue_set = known.get(name).and_then(|level| level.queue_set.clone()).unwrap_or_default();
            queue_set.set_limits(limits);
            queue_set
        });
        Some((name.to_owned(), Arc::new(PriorityLevel { name: name.to_owned(), uid, queue_set })))
    };
    configurations.iter().filter_map(read).collect()
}

/// Defaults of `limitResponse.queuing` (`SetDefaults_QueuingConfiguration`).
const DEFAULT_QUEUES: u64 = 64;
const DEFAULT_QUEUE_LENGTH_LIMIT: u64 = 50;
const DEFAULT_HAND_SIZE: u64 = 8;

fn shares(configuration: &Value) -> u64 {
    configuration["spec"]["limited"]["nominalConcurrencyShares"].as_u64().unwrap_or(DEFAULT_SHARES)
}

fn limits(configuration: &Value, seats: usize) -> QueueLimits {
    let response = &configuration["spec"]["limited"]["limitResponse"];
    let queuing = &response["queuing"];
    let number = |name: &str, default: u64| {
        usize::try_from(queuing[name].as_u64().unwrap_or(default)).unwrap_or(usize::MAX)
    };
    if response["type"] != "Queue" {
        return QueueLimits { seats, waiting_per_flow: 0, waiting: 0 };
    }
    let (queues, length, hand_size) = (
        number("queues", DEFAULT_QUEUES),
        number("queueLengthLimit", DEFAULT_QUEUE_LENGTH_LIMIT),
        number("handSize", DEFAULT_HAND_SIZE),
    );
    QueueLimits {
        seats,
        // The capacity of the queues that shuffle sharding assigns to one flow.
        waiting_per_flow: hand_size.saturating_mul(length),
        waiting: queues.saturating_mul(length),
    }
}
