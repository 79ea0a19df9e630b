//! The timers of what the API server does about built-in kinds.

coracle_clock::timers! {
    /// The renewal of the identity Lease of an API server.
    pub IDENTITY_LEASE = heartbeat("identity-lease");
    /// The check whether the server's own objects are there.
    pub SERVER_OBJECTS = periodic("server-objects");
    /// The next line of a log that a client follows.
    pub FOLLOWED_LOG = semantic("followed-log");
    /// The next output, or the end, of a command that a client executes.
    pub EXECUTED_COMMAND = semantic("executed-command");
}
