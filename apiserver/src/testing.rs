//! Recorded facts about the API of a fresh Kubernetes v1.36.2 control plane, for tests that compare
//! ours with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::access::UserInfo;
use crate::access::authorize::{Authorizer, Decision, RequestAttributes, RuleResolver, UserRules};

/// Returns a document in `testdata/`: discovery, resource lists and metrics of the real
/// kube-apiserver, or the schemas of its OpenAPI documents without descriptions.
pub fn facts(name: &str) -> Value {
    let path = testdata().join(name);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("test data is JSON")
}

/// The JSON of the random tests of patches.
#[path = "../apimachinery/src/patch/arbitrary.rs"]
pub mod arbitrary;

pub fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

/// Returns an authorizer that allows only members of `system:masters`.
pub fn always_deny() -> Authorizer {
    struct NoRules;
    impl RuleResolver for NoRules {
        fn refresh(&self) {}

        fn authorize(&self, _: &UserInfo, _: &RequestAttributes<'_>, _: bool) -> Decision {
            Decision::default()
        }

        fn rules_for(&self, _: &UserInfo, _: &str, _: usize) -> UserRules {
            UserRules::default()
        }
    }
    Authorizer::new(Arc::new(NoRules))
}
