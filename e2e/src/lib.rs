//! Tests of the whole: recordings, clients, restarts, benches.
