//! The listener and the tower stack.
