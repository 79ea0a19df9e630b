//! The timers of simulated nodes and their pods.

coracle_clock::timers! {
    /// The heartbeat of a node: its status and its Lease.
    pub NODE_HEARTBEAT = heartbeat("node-heartbeat");
    /// The next event in the life of a simulated pod: start, readiness, exit, restart, end of the
    /// grace period.
    pub POD_LIFECYCLE = semantic("pod-lifecycle");
}
