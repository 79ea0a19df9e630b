//! Coracle: a Kubernetes control plane in one small binary.
