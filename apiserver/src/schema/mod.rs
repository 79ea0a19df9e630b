//! The table of facts about every built-in type, and its readers.
