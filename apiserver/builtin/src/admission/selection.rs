//! Which plugins are enabled: the names and defaults of kube-apiserver v1.36, and the effect of `--enable-admission-plugins`
//! and `--disable-admission-plugins`.

use std::collections::BTreeSet;

/// Every plugin that kube-apiserver knows, in its order, and whether it is on by default.
const PLUGINS: [(&str, bool); 41] = [
    ("AlwaysAdmit", false),
    ("NamespaceAutoProvision", false),
    ("NamespaceLifecycle", true),
    ("NamespaceExists", false),
    ("LimitPodHardAntiAffinityTopology", false),
    ("LimitRanger", true),
    ("ServiceAccount", true),
    ("NodeRestriction", false),
    ("TaintNodesByCondition", true),
    ("AlwaysPullImages", false),
    ("ImagePolicyWebhook", false),
    ("PodSecurity", true),
    ("PodNodeSelector", false),
    ("Priority", true),
    ("DefaultTolerationSeconds", true),
    ("PodTolerationRestriction", false),
    ("EventRateLimit", false),
    ("ExtendedResourceToleration", false),
    ("DefaultStorageClass", true),
    ("StorageObjectInUseProtection", true),
    ("PodGroupProtection", true),
    ("OwnerReferencesPermissionEnforcement", false),
    ("PersistentVolumeClaimResize", true),
    ("RuntimeClass", true),
    ("CertificateApproval", true),
    ("CertificateSigning", true),
    ("ClusterTrustBundleAttest", true),
    ("CertificateSubjectRestriction", true),
    ("DefaultIngressClass", true),
    ("DenyServiceExternalIPs", false),
    ("PodTopologyLabels", true),
    ("PodGroupWorkloadExists", true),
    ("NodeDeclaredFeatureValidator", true),
    ("JobValidation", true),
    ("PodResizeValidator", true),
    ("MutatingAdmissionPolicy", true),
    ("MutatingAdmissionWebhook", true),
    ("ValidatingAdmissionPolicy", true),
    ("ValidatingAdmissionWebhook", true),
    ("ResourceQuota", true),
    ("AlwaysDeny", false),
];

/// Why a selection of plugins is rejected, with kube-apiserver's texts.
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
        let enabled = PLUGINS.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name).collect();
        PluginSelection { enabled, asked_for: BTreeSet::new() }
    }
}

impl PluginSelection {
    /// The default plugins, with `enable` added and `disable` removed.
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

    /// These plugins and no others, as `--admission-control` selects them.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn only<N: AsRef<str>>(names: &[N]) -> Result<PluginSelection, PluginError> {
        let enabled = known(names).map_err(PluginError::UnknownEnabled)?;
        Ok(PluginSelection { asked_for: enabled.clone(), enabled })
    }

    /// Whether a plugin is on, by kube-apiserver's name.
    pub fn is_enabled(&self, name: &str) -> bool {
        self.enabled.contains(name)
    }

    /// The plugins that the operator enabled explicitly and that are not in `implemented`.
    pub fn missing<'a>(&'a self, implemented: &'a [&str]) -> impl Iterator<Item = &'static str> + 'a {
        self.asked_for.iter().copied().filter(|name| !implemented.contains(name))
    }
}

/// The plugins of these names, or the first unknown name.
fn known<N: AsRef<str>>(names: &[N]) -> Result<BTreeSet<&'static str>, String> {
    let find = |name: &str| PLUGINS.iter().map(|(known, _)| *known).find(|known| *known == name);
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
        let selection = PluginSelection::new(&["AlwaysDeny", "Priority"], &[]).unwrap();
        assert_eq!(selection.missing(&["Priority", "LimitRanger"]).collect::<Vec<_>>(), ["AlwaysDeny"]);
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

    #[test]
    fn every_plugin_is_listed_once() {
        let names: BTreeSet<_> = PLUGINS.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), PLUGINS.len());
    }
}
