//! The timers that every controller has.

coracle_clock::timers! {
    /// The retry of a key after one of its first five errors in a row.
    pub RETRY = pacing("retry");
    /// The retry of a key after further errors in a row.
    pub RETRY_BACKOFF = semantic("retry-backoff");
    /// The restart of a controller, or of a task that controllers rely on, after a panic.
    pub RESTART = upkeep("restart");
    /// The restart of a watch after an error.
    pub WATCH_RETRY = upkeep("watch-retry");
    /// The relist of a resource of which an object could not be read.
    pub RELIST = upkeep("relist");
    /// The retry of an Event that could not be sent to the server.
    pub EVENT_RETRY = pacing("event-retry");
    /// The refresh of discovery after a CustomResourceDefinition or an APIService changed.
    pub REDISCOVERY = pacing("rediscovery");
    /// The periodic refresh of discovery.
    pub DISCOVERY_REFRESH = upkeep("discovery-refresh");
    /// The next attempt to acquire or renew the Lease of the leader election.
    pub LEADER_ELECTION = upkeep("leader-election");
    /// The time by which a leader must have renewed its Lease.
    pub LEADER_ELECTION_DEADLINE = upkeep("leader-election-deadline");
    /// The end of the wait until the Lease of the leader election is released.
    pub LEADER_ELECTION_RELEASE = upkeep("leader-election-release");
}
