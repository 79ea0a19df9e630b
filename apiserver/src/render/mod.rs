//! Other forms of an answer: Table, PartialObjectMetadata.
