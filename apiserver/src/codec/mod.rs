//! JSON, YAML and protobuf, read and written by the schema table.
