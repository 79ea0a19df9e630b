//! Reinvocation: the mutating pass is repeated once if a webhook or policy changed the object,
//! since earlier plugins have not seen the change.
//!
//! Source: `k8s.io/apiserver/pkg/admission/reinvocation.go`,
//! `plugin/webhook/mutating/reinvocationcontext.go`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// The reinvocation state of one request: whether the mutating pass is repeated, and the state of
/// each plugin.
#[derive(Debug, Default)]
pub struct ReinvocationContext {
    is_reinvoke: bool,
    should_reinvoke: bool,
    plugins: BTreeMap<&'static str, PluginReinvocation>,
}

/// The state of one plugin: its webhooks or policies with `reinvocationPolicy: IfNeeded`, by a
/// unique name.
#[derive(Debug, Default)]
pub struct PluginReinvocation {
    last_output: Option<Value>,
    invoked: BTreeSet<String>,
    to_reinvoke: BTreeSet<String>,
}

impl ReinvocationContext {
    /// Returns whether this is the second pass.
    pub fn is_reinvoke(&self) -> bool {
        self.is_reinvoke
    }

    /// Requires a second pass.
    pub fn require(&mut self) {
        self.should_reinvoke = true;
    }

    /// Starts the second pass if one is required and has not been made. Returns whether it does.
    pub fn begin_reinvoke(&mut self) -> bool {
        let begins = self.should_reinvoke && !self.is_reinvoke;
        self.is_reinvoke |= begins;
        begins
    }

    /// Returns the state of a plugin.
    pub fn of_plugin(&mut self, plugin: &'static str) -> &mut PluginReinvocation {
        self.plugins.entry(plugin).or_default()
    }
}

impl PluginReinvocation {
    /// Begins the second pass of the plugin: if other plugins changed the object since its first
    /// pass, everything invoked before is invoked again.
    pub fn resume(&mut self, object: &Value) {
        if self.last_output.as_ref().is_some_and(|last| last != object) {
            self.require_all();
        }
    }

    /// Ends a pass of the plugin and records the object it returns.
    pub fn finish(&mut self, object: &Value) {
        self.last_output = Some(object.clone());
    }

    /// Marks everything invoked so far to be invoked again, because the object has changed.
    pub fn require_all(&mut self) {
        self.to_reinvoke.append(&mut self.invoked);
    }

    /// Records a webhook or policy that was invoked and may be invoked again.
    pub fn add_invoked(&mut self, name: &str) {
        self.invoked.insert(name.to_owned());
    }

    /// Returns `true` if the webhook or policy must be invoked in the second pass.
    pub fn should_reinvoke(&self, name: &str) -> bool {
        self.to_reinvoke.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_invoked_before_a_change_is_invoked_again() {
        let mut context = ReinvocationContext::default();
        assert!(!context.begin_reinvoke());
        let plugin = context.of_plugin("P");
        plugin.add_invoked("first");
        plugin.require_all();
        plugin.add_invoked("second");
        plugin.finish(&json!(1));
        context.require();
        assert!(context.begin_reinvoke() && context.is_reinvoke() && !context.begin_reinvoke());
        let plugin = context.of_plugin("P");
        plugin.resume(&json!(1));
        assert!(plugin.should_reinvoke("first") && !plugin.should_reinvoke("second"));
        plugin.resume(&json!(2));
        assert!(plugin.should_reinvoke("second"), "another plugin changed the object");
    }
}
