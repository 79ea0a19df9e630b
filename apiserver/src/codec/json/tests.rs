//! The tests of this format.
