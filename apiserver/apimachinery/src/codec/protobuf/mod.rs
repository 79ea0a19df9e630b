//! Protobuf: any kind, from the table alone.
//!
//! A body is the magic `k8s\0` and an envelope with the type meta and the object's message; kinds,
//! lists, options and reviews differ only in the table's rows. Tables have no protobuf encoding, as
//! in kube-apiserver.
//!
//! Start at [`encode`] and [`open`].

mod decode;
mod encode;
mod envelope;
mod wire;

pub use encode::{encode, encode_around, watch_frame, write_item, write_message};
pub use envelope::{Envelope, MAGIC, open};

#[cfg(test)]
mod tests;
