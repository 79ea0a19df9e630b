//! The timers of simulated nodes and their pods.

coracle_clock::timers! {
    /// The heartbeat of a node: its status and its Lease.
    pub NODE_HEARTBEAT = heartbeat("node-heartbeat");
    /// The next event in the life of a simulated pod: start, readiness, exit, restart, end of the
    /// grace period.
    pub POD_LIFECYCLE = semantic("pod-lifecycle");
    /// The next attempt to schedule a pod after its ResourceClaims could not be reserved, or the
    /// search for its devices took too long.
    pub SCHEDULING_BACKOFF = semantic("scheduling-backoff");
    /// The time by which the devices of a pod must be ready.
    pub DEVICE_BINDING_TIMEOUT = semantic("device-binding-timeout");
    /// The scheduling of the pods that a long cycle has left.
    pub SCHEDULING_CONTINUATION = pacing("scheduling-continuation");
}
