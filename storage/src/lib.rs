//! An ordered, revisioned object store with watch. Knows bytes, keys and revisions; no Kubernetes, no HTTP.
