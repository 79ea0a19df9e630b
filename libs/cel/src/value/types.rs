//! The types of values.

use std::sync::Arc;

use super::Value;
use crate::types::Type;

impl Value<'_> {
    /// Returns the type of the value.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Type(_) => Type::Type(Arc::new(Type::Dyn)),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Quantity(_) => Type::Opaque("kubernetes.Quantity".into()),
            Value::Ip(_) => Type::Opaque("net.IP".into()),
            Value::Cidr(_) => Type::Opaque("net.CIDR".into()),
            Value::Url(_) => Type::Opaque("kubernetes.URL".into()),
            Value::Semver(_) => Type::Opaque("kubernetes.Semver".into()),
            Value::Format(_) => Type::Opaque("kubernetes.NamedFormat".into()),
            Value::Object(object) => Type::Object(object.name.clone()),
            Value::Host(host) => Type::Opaque(host.type_name().into()),
        }
    }

    /// Returns the name of upstream's type for the value, as some errors print it.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            Value::Null => "types.Null",
            Value::Bool(_) => "types.Bool",
            Value::Int(_) => "types.Int",
            Value::Uint(_) => "types.Uint",
            Value::Double(_) => "types.Double",
            Value::String(_) => "types.String",
            Value::Bytes(_) => "types.Bytes",
            Value::List(_) => "*types.baseList",
            Value::Map(_) => "*types.baseMap",
            Value::Duration(_) => "types.Duration",
            Value::Timestamp(_) => "types.Timestamp",
            Value::Type(_) => "*types.Type",
            Value::Optional(_) => "*types.Optional",
            Value::Quantity(_) => "cel.Quantity",
            Value::Ip(_) => "cel.IP",
            Value::Cidr(_) => "cel.CIDR",
            Value::Url(_) => "cel.URL",
            Value::Semver(_) => "cel.Semver",
            Value::Format(_) => "cel.Format",
            Value::Object(_) => "*dynamic.ObjectVal",
            Value::Host(_) => "library.authorizerVal",
        }
    }

    /// Returns `true` if the value's type belongs to Kubernetes' CEL libraries.
    pub(crate) fn is_of_library(&self) -> bool {
        matches!(
            self,
            Value::Quantity(_)
                | Value::Ip(_)
                | Value::Cidr(_)
                | Value::Url(_)
                | Value::Semver(_)
                | Value::Format(_)
                | Value::Host(_)
        )
    }

    /// Returns `true` if the value is a number of any type.
    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Value::Int(_) | Value::Uint(_) | Value::Double(_))
    }

    pub(crate) fn is_nan(&self) -> bool {
        matches!(self, Value::Double(value) if value.is_nan())
    }
}
