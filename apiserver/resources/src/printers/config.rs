//! ConfigMaps, Secrets, Leases.

use coracle_apimachinery::render::columns::Text::Field as Described;
use coracle_apimachinery::render::columns::{AGE, Column, NAME, string};

/// The columns of ConfigMap.
pub const CONFIG_MAP: &[Column] = &[
    NAME,
    string("Data", Described("core.v1.ConfigMap.data"), |row| {
        (row.get("data").len() + row.get("binaryData").len()).into()
    }),
    AGE,
];

/// The columns of Secret.
pub const SECRET: &[Column] = &[
    NAME,
    string("Type", Described("core.v1.Secret.type"), |row| row.text("type")),
    string("Data", Described("core.v1.Secret.data"), |row| row.count("data")),
    AGE,
];

/// The columns of Lease.
pub const LEASE: &[Column] = &[
    NAME,
    string("Holder", Described("coordination.v1.LeaseSpec.holderIdentity"), |row| {
        row.text("spec.holderIdentity")
    }),
    AGE,
];
