//! The rules that are relaxed so that existing objects that break them stay updatable.

/// The relaxed rules of a pod's spec.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodValidationOptions {
    /// Whether the object is a Pod, not a template.
    pub is_pod: bool,
    /// Allows a pod deletion cost that is not an integer.
    pub allow_invalid_deletion_cost: bool,
    /// Allows invalid values in the selectors of pod affinities.
    pub allow_invalid_selector_values: bool,
    /// Allows invalid values in node affinities.
    pub allow_invalid_node_affinity_values: bool,
    /// Allows huge pages that are not a multiple of the page size.
    pub allow_indivisible_huge_pages: bool,
    /// Allows invalid selectors in topology spread constraints.
    pub allow_invalid_spread_selectors: bool,
    /// Allows label keys that were not merged into the selector.
    pub allow_unmerged_label_keys: bool,
    /// Allows the path of a projected token to contain `..`.
    pub allow_non_local_token_path: bool,
    /// Allows sysctls of namespaces that the pod shares with its host.
    pub allow_sysctls_of_host_namespaces: bool,
    /// Allows any SELinux change policy.
    pub any_selinux_change_policy: bool,
    /// Allows the operators `Lt` and `Gt`.
    pub allow_comparing_tolerations: bool,
    /// Allows user namespaces together with block devices.
    pub allow_user_namespaces_with_devices: bool,
    /// Allows resize policies that restart init containers.
    pub allow_restarting_init_on_resize: bool,
}

impl PodValidationOptions {
    /// Returns the options for a new template.
    pub fn for_template() -> PodValidationOptions {
        PodValidationOptions::default()
    }

    /// Returns the options for a new Pod.
    pub fn for_pod() -> PodValidationOptions {
        PodValidationOptions { is_pod: true, ..PodValidationOptions::default() }
    }
}
