//! Requests of a claim, and the alternatives of a request, by one view.

use k8s_openapi::api::resource::v1::{
    CapacityRequirements, Device, DeviceRequest, DeviceSelector, DeviceSubRequest, DeviceTaint,
    DeviceToleration, ExactDeviceRequest,
};

/// A request for devices of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    /// A request without alternatives.
    Exact(&'a DeviceRequest, &'a ExactDeviceRequest),
    /// An alternative of a request.
    Alternative(&'a DeviceRequest, &'a DeviceSubRequest),
}

impl<'a> Request<'a> {
    /// Returns the alternatives of a request, the best first: a single one if it is exact. Empty:
    /// its type is unknown.
    pub fn alternatives(request: &'a DeviceRequest) -> Vec<Request<'a>> {
        match &request.exactly {
            Some(exactly) => vec![Request::Exact(request, exactly)],
            None => {
                let all = request.first_available.iter().flatten();
                all.map(|alternative| Request::Alternative(request, alternative)).collect()
            }
        }
    }

    /// Returns the name of the request, and that of the alternative.
    pub fn names(self) -> (&'a str, Option<&'a str>) {
        match self {
            Request::Exact(request, _) => (&request.name, None),
            Request::Alternative(request, alternative) => (&request.name, Some(&alternative.name)),
        }
    }

    /// Returns the name by which results refer to the request.
    pub fn reference(self) -> String {
        match self.names() {
            (request, None) => request.to_owned(),
            (request, Some(alternative)) => format!("{request}/{alternative}"),
        }
    }

    /// Returns the name of the alternative, or of the request without alternatives.
    pub fn short_name(self) -> &'a str {
        let (request, alternative) = self.names();
        alternative.unwrap_or(request)
    }

    pub fn class(self) -> &'a str {
        match self {
            Request::Exact(_, exactly) => &exactly.device_class_name,
            Request::Alternative(_, alternative) => &alternative.device_class_name,
        }
    }

    pub fn selectors(self) -> &'a [DeviceSelector] {
        let selectors = match self {
            Request::Exact(_, exactly) => &exactly.selectors,
            Request::Alternative(_, alternative) => &alternative.selectors,
        };
        selectors.as_deref().unwrap_or_default()
    }

    /// Returns the allocation mode; the API server has set the default.
    pub fn mode(self) -> &'a str {
        let mode = match self {
            Request::Exact(_, exactly) => &exactly.allocation_mode,
            Request::Alternative(_, alternative) => &alternative.allocation_mode,
        };
        mode.as_deref().filter(|mode| !mode.is_empty()).unwrap_or("ExactCount")
    }

    /// Returns the number of devices of an exact count.
    pub fn count(self) -> usize {
        let count = match self {
            Request::Exact(_, exactly) => exactly.count,
            Request::Alternative(_, alternative) => alternative.count,
        };
        usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX)
    }

    /// Returns `true` if devices that others use will do, for an administrator.
    pub fn has_admin_access(self) -> bool {
        matches!(self, Request::Exact(_, exactly) if exactly.admin_access == Some(true))
    }

    pub fn tolerations(self) -> Option<&'a Vec<DeviceToleration>> {
        match self {
            Request::Exact(_, exactly) => exactly.tolerations.as_ref(),
            Request::Alternative(_, alternative) => alternative.tolerations.as_ref(),
        }
    }

    pub fn capacity(self) -> Option<&'a CapacityRequirements> {
        match self {
            Request::Exact(_, exactly) => exactly.capacity.as_ref(),
            Request::Alternative(_, alternative) => alternative.capacity.as_ref(),
        }
    }

    /// Returns the number of comparisons of taints of a device with tolerations.
    pub fn comparisons(self, device: &Device) -> u64 {
        let taints = device.taints.as_ref().map_or(0, Vec::len) as u64;
        taints.saturating_mul(1 + self.tolerations().map_or(0, Vec::len) as u64)
    }

    /// Returns `true` if the request tolerates the taints of a device.
    pub fn tolerates(self, device: &Device) -> bool {
        let repels = |taint: &&DeviceTaint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        device.taints.iter().flatten().filter(repels).all(|taint| {
            self.tolerations().into_iter().flatten().any(|toleration| tolerates(toleration, taint))
        })
    }
}

fn tolerates(toleration: &DeviceToleration, taint: &DeviceTaint) -> bool {
    let fits = |wanted: &Option<String>, given: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == given)
    };
    let has_value = match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => {
            toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
        operator => operator == "Exists",
    };
    has_value && fits(&toleration.effect, &taint.effect) && fits(&toleration.key, &taint.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn taints_are_tolerated_by_key_value_and_effect() {
        let taint = |effect: &str| json!({"key": "k", "value": "v", "effect": effect});
        for (case, toleration, taint, want) in [
            ("none", Value::Null, taint("NoSchedule"), false),
            ("no effect on scheduling", Value::Null, taint("None"), true),
            ("everything", json!({"operator": "Exists"}), taint("NoExecute"), true),
            ("its key", json!({"operator": "Exists", "key": "k"}), taint("NoSchedule"), true),
            ("another key", json!({"operator": "Exists", "key": "l"}), taint("NoSchedule"), false),
            ("its value", json!({"key": "k", "value": "v"}), taint("NoSchedule"), true),
            (
                "another value",
                json!({"key": "k", "operator": "Equal", "value": "w"}),
                taint("NoSchedule"),
                false,
            ),
            (
                "another effect",
                json!({"operator": "Exists", "effect": "NoExecute"}),
                taint("NoSchedule"),
                false,
            ),
        ] {
            let tolerated = u64::from(!toleration.is_null());
            let tolerations = if toleration.is_null() { json!([]) } else { json!([toleration]) };
            let request: DeviceRequest = serde_json::from_value(json!({
                "name": "r", "exactly": {"deviceClassName": "c", "tolerations": tolerations},
            }))
            .unwrap();
            let device: Device = serde_json::from_value(json!({"name": "d", "taints": [taint]})).unwrap();
            let request = Request::alternatives(&request)[0];
            assert_eq!(request.tolerates(&device), want, "{case}");
            assert_eq!(request.comparisons(&device), 1 + tolerated, "{case}");
        }
    }
}
