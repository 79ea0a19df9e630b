//! Ingress.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::{content, ip, member};

use super::ingress_class::validate_reference;
use crate::core::service::{point_warnings, validate_point_address, validate_point_host};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const FORBIDDEN_PARTS: [&str; 5] = ["//", "/./", "/../", "%2f", "%2F"];
const FORBIDDEN_ENDS: [&str; 2] = ["/..", "/."];

/// The strategy of Ingress.
pub struct IngressStrategy;

/// The invalid values that an existing ingress may keep.
#[derive(Clone, Copy, Default)]
struct Grandfathered {
    secret_names: bool,
    /// Rules for a wildcard host are not validated further.
    wildcard_rules: bool,
}

impl Strategy for IngressStrategy {
    fn validate(&self, ingress: &Field<'_>, errors: &mut Errors) {
        validate(&ingress.get("spec"), Grandfathered::default(), errors);
        let (annotation, class) = (class_annotation(ingress), ingress.walk("spec.ingressClassName"));
        errors.push_if(annotation.exists() && class.exists() && annotation.str() != class.str(), || {
            annotation
                .with_path(ingress.path().child("annotations").child(CLASS_ANNOTATION))
                .invalid("must match `ingressClassName` when both are specified")
        });
    }

    fn validate_update(&self, ingress: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        let names = old.walk("spec.tls").items().map(|tls| tls.get("secretName"));
        let ill_named = names
            .filter(|name| !name.is_empty())
            .any(|name| !content::dns1123_subdomain(name.str()).is_empty());
        let mut wildcards = old.walk("spec.rules").items().filter(|r| r.get("host").str().contains('*'));
        let ill_ruled = wildcards.any(|rule| {
            let mut found = Errors::new();
            validate_paths(&rule.get("http"), &mut found);
            !found.is_empty()
        });
        let grandfathered = Grandfathered { secret_names: ill_named, wildcard_rules: ill_ruled };
        validate(&ingress.get("spec"), grandfathered, errors);
    }

    fn validate_status_update(&self, ingress: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        const POINTS: &str = "status.loadBalancer.ingress";
        let known: HashSet<&str> = old.walk(POINTS).items().map(|point| point.get("ip").str()).collect();
        for point in ingress.walk(POINTS).items() {
            validate_point_address(&point.get("ip"), &known, errors);
            validate_point_host(&point.get("hostname"), errors);
        }
    }

    fn warnings(&self, ingress: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let deprecated =
            class_annotation(ingress).exists() && !ingress.walk("spec.ingressClassName").exists();
        if deprecated && old.is_none() {
            return vec![format!(
                "annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"
            )];
        }
        Vec::new()
    }

    fn status_warnings(&self, ingress: &Field<'_>) -> Vec<String> {
        point_warnings(ingress)
    }
}

fn class_annotation<'a>(ingress: &Field<'a>) -> Field<'a> {
    ingress.walk("metadata.annotations").get(CLASS_ANNOTATION)
}

fn validate(spec: &Field<'_>, grandfathered: Grandfathered, errors: &mut Errors) {
    let (rules, backend) = (spec.get("rules"), spec.get("defaultBackend"));
    errors.push_if(rules.is_empty() && !backend.exists(), || {
        rules
            .with_path(spec.path().clone())
            .invalid_or_null("either `defaultBackend` or `rules` must be specified")
    });
    if backend.exists() {
        validate_backend(&backend, errors);
    }
    for rule in rules.items() {
        let host = rule.get("host");
        validate_host(&host, errors);
        if !(host.str().contains('*') && grandfathered.wildcard_rules) {
            validate_paths(&rule.get("http"), errors);
        }
    }
    for tls in spec.get("tls").items() {
        for host in tls.get("hosts").items() {
            errors.invalid_each(&host, domain_errors(host.str()));
        }
        if !grandfathered.secret_names {
            member::if_any(&tls.get("secretName"), content::dns1123_subdomain, errors);
        }
    }
    member::if_set(&spec.get("ingressClassName"), content::dns1123_subdomain, errors);
}

fn domain_errors(domain: &str) -> Vec<String> {
    if domain.contains('*') {
        content::wildcard_dns1123_subdomain(domain)
    } else {
        content::dns1123_subdomain(domain)
    }
}

fn validate_host(host: &Field<'_>, errors: &mut Errors) {
    if !host.is_empty() {
        errors.push_if(ip::parse(host.str()).is_some(), || {
            host.invalid("must be a DNS name, not an IP address")
        });
        errors.invalid_each(host, domain_errors(host.str()));
    }
}

fn validate_paths(http: &Field<'_>, errors: &mut Errors) {
    if !http.exists() {
        return;
    }
    let paths = http.get("paths");
    member::required(&paths, errors);
    for path in paths.items() {
        validate_path(&path, errors);
    }
}

fn validate_path(path: &Field<'_>, errors: &mut Errors) {
    let (kind, text) = (path.get("pathType"), path.get("path"));
    if !kind.exists() {
        errors.push(kind.required("pathType must be specified"));
        return;
    }
    let relative = !text.str().starts_with('/');
    match kind.str() {
        "Exact" | "Prefix" => {
            errors.push_if(relative, || text.invalid("must be an absolute path"));
            for part in FORBIDDEN_PARTS.iter().filter(|part| text.str().contains(**part)) {
                errors.push(text.invalid(format!("must not contain '{part}'")));
            }
            for end in FORBIDDEN_ENDS.iter().filter(|end| text.str().ends_with(**end)) {
                errors.push(text.invalid(format!("cannot end with '{end}'")));
            }
        }
        "ImplementationSpecific" => {
            errors.push_if(relative && !text.is_empty(), || text.invalid("must be an absolute path"));
        }
        _ => errors.push(kind.not_supported(&PATH_TYPES)),
    }
    validate_backend(&path.get("backend"), errors);
}

fn validate_backend(backend: &Field<'_>, errors: &mut Errors) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    match (resource.exists(), service.exists()) {
        (true, true) => {
            errors.push(backend.invalid_value("", "cannot set both resource and service backends"))
        }
        (true, false) => validate_reference(&resource, errors),
        (false, true) => validate_service(backend, &service, errors),
        (false, false) => errors.push(backend.invalid_value("", "resource or service backend is required")),
    }
}

fn validate_service(backend: &Field<'_>, service: &Field<'_>, errors: &mut Errors) {
    member::required_and(&service.get("name"), content::dns1123_label, errors);
    let (name, number) = (service.walk("port.name"), service.walk("port.number"));
    match (!name.is_empty(), number.int().unwrap_or(0) != 0) {
        (true, true) => errors.push(backend.invalid_value("", "cannot set both port name & port number")),
        (true, false) => errors.invalid_each(&name, content::port_name(name.str())),
        (false, true) => member::port_number(&number, errors),
        (false, false) => errors.push(backend.required("port name or number is required")),
    }
}
