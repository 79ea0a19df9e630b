//! Strategies of the group storage, one file a kind.

pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;

pub use csi_driver::CsiDriverStrategy;
pub use csi_node::CsiNodeStrategy;
pub use csi_storage_capacity::CsiStorageCapacityStrategy;
pub use storage_class::StorageClassStrategy;
pub use volume_attachment::VolumeAttachmentStrategy;
pub use volume_attributes_class::VolumeAttributesClassStrategy;
