//! What the server tells of itself: discovery, OpenAPI, version, health, metrics.
