//! Directories and files that only their owner may read.

pub(super) use coracle_private_fs::{create_directory, file_options, restrict};
