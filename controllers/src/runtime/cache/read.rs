//! Objects of a watch, read in two steps: first as text, then as what they are.
//!
//! The frames of a watch are read by another reader than the responses to requests, and the compiler makes each type's code once for
//! each reader: for hundreds of types that is megabytes, and all of it is resident. So only the one for requests is used.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

#[derive(Clone, Debug)]
pub struct Read<K>(pub K);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Read<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Read<K>, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?;
        serde_json::from_str(text.get()).map(Read).map_err(Error::custom)
    }
}

impl<K: Resource> Resource for Read<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::WatchEvent;

    #[test]
    fn frames_are_read() {
        let frame = r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"data":{"k":"v"}}}"#;
        let WatchEvent::Added(Read(map)) =
            serde_json::from_str::<WatchEvent<Read<ConfigMap>>>(frame).unwrap()
        else {
            panic!("not added");
        };
        assert_eq!((map.metadata.name.as_deref(), map.data.unwrap()["k"].as_str()), (Some("a"), "v"));
        let wrong = r#"{"type":"ADDED","object":{"metadata":1}}"#;
        assert!(serde_json::from_str::<WatchEvent<Read<ConfigMap>>>(wrong).is_err());
    }
}
