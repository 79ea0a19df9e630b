//! `pods/binding`: the scheduler's word on which node a pod goes to. Said once, and the node need not exist.

use super::super::body::Body;
use super::super::deletion::rfc3339;
use super::super::write::same_uid;
use super::super::{Caller, Outcome, Registry, Target};
use crate::codec::body::Expected;
use crate::field::{Errors, Field};
use crate::object_meta::ObjectMeta;
use crate::request::options::WriteOptions;
use crate::resources::{self, core::binding::bind};
use crate::{Error, Result};

impl Registry {
    /// Binds the pod that the path names, or (on the old `/bindings` path) the one that the body names.
    pub async fn bind(
        &self,
        target: &Target,
        body: &Body,
        options: &WriteOptions,
        caller: Caller<'_>,
    ) -> Result<Outcome> {
        let expected = Expected { group: "", version: "v1", kind: "Binding" };
        let mut binding = body.decode(expected, options.field_validation, caller.warnings)?;
        self.admit_to_namespace(target, "binding", &mut binding, caller, options)?;
        let name = binding.name().to_owned();
        if !target.name.is_empty() && name != target.name {
            return Err(Error::bad_request("name in URL does not match name in Binding object"));
        }
        let target = Target { name, ..target.clone() };
        let mut errors = Errors::new();
        resources::behaviour("", "Binding").strategy.validate(&Field::root(&binding), &mut errors);
        if !errors.is_empty() {
            return Err(Error::Unclassified(errors.summary()));
        }
        if target.name.is_empty() {
            return Err(Error::bad_request("Name parameter required."));
        }
        let now = rfc3339(self.now());
        self.rewrite(&target, options.dry_run, |pod| {
            same_uid(&target, &binding, pod)?;
            let mut bound = pod.clone();
            bind(&mut bound, &binding, &now).map_err(|detail| {
                Error::conflict(&target.info.group_resource.sub("binding"), &target.name, detail)
            })?;
            Ok(bound)
        })
        .await?;
        Ok(Outcome::success(201))
    }
}
