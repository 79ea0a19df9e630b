//! Loops that reach desired state, written on the Kubernetes API only.
