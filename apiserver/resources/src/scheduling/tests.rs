use coracle_apimachinery::strategy::Strategy;

use super::priority_class;
use crate::corpus;

#[test]
fn the_group_matches_the_real_server() {
    corpus::check(include_str!("corpus.json"));
}

#[test]
fn system_classes_cannot_be_deleted() {
    for (name, stays) in [("system-node-critical", true), ("system-cluster-critical", true), ("mine", false)]
    {
        assert_eq!(priority_class::PriorityClassStrategy.validate_delete(name).is_some(), stays, "{name}");
    }
}
