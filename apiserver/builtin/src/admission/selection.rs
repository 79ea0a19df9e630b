//! The effect of `--enable-admission-plugins` and `--disable-admission-plugins`.

use std::collections::BTreeSet;

use super::PLUGINS;

/// The reason why a selection of plugins is rejected, with kube-apiserver's texts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// `--enable-admission-plugins` has an unknown name.
    #[error("enable-admission-plugins plugin {0:?} is unknown")]
    UnknownEnabled(String),
    /// `--disable-admission-plugins` has an unknown name.
    #[error("disable-admission-plugins plugin {0:?} is unknown")]
    UnknownDisabled(String),
    /// Both flags have the same names.
    #[error("[{0}] in enable-admission-plugins and disable-admission-plugins overlapped")]
    Overlap(String),
}

/// The enabled plugins; by default those of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginSelection {
    enabled: BTreeSet<&'static str>,
    /// The plugins that the operator enabled explicitly.
    asked_for: BTreeSet<&'static str>,
}

impl Default for PluginSelection {
    fn default() -> PluginSelection {
        let enabled = PLUGINS.iter().filter(|plugin| plugin.is_default).map(|plugin| plugin.name).collect();
        PluginSelection { enabled, asked_for: BTreeSet::new() }
    }
}

impl PluginSelection {
    /// Selects the default plugins, with `enable` added and `disable` removed.
    ///
    /// # Errors
    /// A name is unknown, or in both lists.
    pub fn new<N: AsRef<str>>(enable: &[N], disable: &[N]) -> Result<PluginSelection, PluginError> {
        let enable = known(enable).map_err(PluginError::UnknownEnabled)?;
        let disable = known(disable).map_err(PluginError::UnknownDisabled)?;
        let both: Vec<&str> = enable.intersection(&disable).copied().collect();
        if !both.is_empty() {
            return Err(PluginError::Overlap(both.join(" ")));
        }
        let mut selection = PluginSelection::default();
        selection.enabled.retain(|name| !disable.contains(name));
        selection.enabled.extend(enable.iter().copied());
        selection.asked_for = enable;
        Ok(selection)
    }

    /// Selects exactly these plugins, as `--admission-control` does.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn only<N: AsRef<str>>(names: &[N]) -> Result<PluginSelection, PluginError> {
        let enabled = known(names).map_err(PluginError::UnknownEnabled)?;
        Ok(PluginSelection { asked_for: enabled.clone(), enabled })
    }

    /// Returns `true` if the plugin with kube-apiserver's name `name` is enabled.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.enabled.contains(name)
    }

    /// Iterates over the plugins that the operator enabled explicitly.
    pub(super) fn asked_for(&self) -> impl Iterator<Item = &'static str> {
        self.asked_for.iter().copied()
    }
}

/// Returns the plugins with these names, or the first unknown name.
fn known<N: AsRef<str>>(names: &[N]) -> Result<BTreeSet<&'static str>, String> {
    let find = |name: &str| PLUGINS.iter().map(|plugin| plugin.name).find(|known| *known == name);
    let names = names.iter().map(AsRef::as_ref).filter(|name| !name.is_empty());
    names.map(|name| find(name).ok_or_else(|| name.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_selected_as_kube_apiserver_selects_them() {
        for (enable, disable, on, off) in [
            (&[][..], &[][..], &["ServiceAccount", "ResourceQuota"][..], &["AlwaysDeny"][..]),
            (&[], &["ServiceAccount"], &["LimitRanger"], &["ServiceAccount"]),
            (
                &["NodeRestriction"],
                &["PodSecurity", "Priority"],
                &["NodeRestriction"],
                &["PodSecurity", "Priority"],
            ),
            (&["ServiceAccount", ""], &["AlwaysDeny"], &["ServiceAccount"], &["AlwaysDeny"]),
        ] {
            let selection = PluginSelection::new(enable, disable).unwrap();
            assert!(on.iter().all(|name| selection.is_enabled(name)), "{enable:?} {disable:?}");
            assert!(!off.iter().any(|name| selection.is_enabled(name)), "{enable:?} {disable:?}");
        }
        let selection = PluginSelection::only(&["LimitRanger"]).unwrap();
        assert!(selection.is_enabled("LimitRanger") && !selection.is_enabled("ServiceAccount"));
    }

    #[test]
    fn unknown_and_contradictory_selections_are_rejected() {
        for (enable, disable, want) in [
            (&["Nope"][..], &[][..], "enable-admission-plugins plugin \"Nope\" is unknown"),
            (&[], &["serviceaccount"], "disable-admission-plugins plugin \"serviceaccount\" is unknown"),
            (
                &["Priority", "LimitRanger", "AlwaysDeny"],
                &["LimitRanger", "Priority"],
                "[LimitRanger Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
            ),
        ] {
            let refused = PluginSelection::new(enable, disable).err().map(|error| error.to_string());
            assert_eq!(refused.as_deref(), Some(want));
        }
    }
}
