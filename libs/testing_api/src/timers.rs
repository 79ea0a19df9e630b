//! The timers of clients.

coracle_clock::timers! {
    /// A timer that a client set by `POST /coracle/v1alpha1/clock/timers`, at which an advance of
    /// the clock stops.
    pub CLIENT_TIMER = semantic("client-timer");
    /// The record of the time of a manual clock that runs by itself.
    pub(crate) CLOCK_RECORD = upkeep("clock-record");
}
