//! CronJob.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{fill, member, object_at};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::{numbers, printed};
use serde_json::{Value, json};

use super::job_spec;
use crate::apps::workload;

/// The name of a Job is that of its CronJob and the scheduled minute, eleven characters more.
const MAX_NAME: usize = 63 - 11;

/// The strategy of CronJob.
pub struct CronJobStrategy;

impl Strategy for CronJobStrategy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object_at(object, "spec") else { return };
        fill(
            spec,
            [
                ("concurrencyPolicy", json!("Allow")),
                ("suspend", json!(false)),
                ("successfulJobsHistoryLimit", json!(3)),
                ("failedJobsHistoryLimit", json!(1)),
            ],
        );
        if let Some(jobs) = object_at(member(spec, "jobTemplate"), "spec") {
            job_spec::default_parts(jobs);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, context: &Context<'_>) {
        workload::prepare_template(object, None, "/spec/jobTemplate/spec/template", context.features);
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, context: &Context<'_>) {
        workload::prepare_template(object, Some(old), "/spec/jobTemplate/spec/template", context.features);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), None, errors);
        let name = object.walk("metadata.name");
        errors.push_if(name.len() > MAX_NAME, || {
            name.invalid(format!("must be no more than {MAX_NAME} characters"))
        });
    }

    fn validate_update(&self, object: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_spec(&object.get("spec"), Some(&old.get("spec")), errors);
    }

    fn warnings(&self, object: &Field<'_>, old: Option<&Field<'_>>) -> Vec<String> {
        let mut warnings = Vec::new();
        if old.is_none() {
            warnings.extend(workload::name_warning(object));
        }
        if old.is_none_or(|old| workload::generation_changed(object, old)) {
            warnings.extend(job_spec::warnings(&object.walk("spec.jobTemplate.spec")));
        }
        if old.is_some() && object.walk("spec.schedule").str().contains("TZ") {
            warnings.push(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                    .to_owned(),
            );
        }
        warnings
    }
}

fn validate_spec(spec: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let zone = spec.get("timeZone");
    let schedule = spec.get("schedule");
    let had_zone_in_schedule = old.is_some_and(|old| old.get("schedule").str().contains("TZ"));
    if schedule.is_empty() {
        errors.push(schedule.required(""));
    } else {
        validate_schedule(&schedule, had_zone_in_schedule, zone.exists(), errors);
    }
    numbers::not_negative(&spec.get("startingDeadlineSeconds"), errors);
    if old.is_none_or(|old| old.get("timeZone").value() != zone.value()) {
        validate_zone(&zone, errors);
    }
    let concurrency = spec.get("concurrencyPolicy");
    match concurrency.str() {
        "Allow" | "Forbid" | "Replace" => {}
        "" => errors.push(concurrency.required("")),
        _ => errors.push(concurrency.not_supported(&["Allow", "Forbid", "Replace"])),
    }
    validate_job_template(&spec.get("jobTemplate"), old.map(|old| old.get("jobTemplate")).as_ref(), errors);
    numbers::not_negative(&spec.get("successfulJobsHistoryLimit"), errors);
    numbers::not_negative(&spec.get("failedJobsHistoryLimit"), errors);
}

fn validate_schedule(schedule: &Field<'_>, zone_allowed: bool, has_zone_field: bool, errors: &mut Errors) {
    if let Err(error) = coracle_cron::Schedule::parse(schedule.str()) {
        errors.push(schedule.invalid(error));
    }
    if schedule.str().contains("TZ") {
        if !zone_allowed {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(schedule.invalid(detail));
        } else if has_zone_field {
            let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.push(schedule.invalid(detail));
        }
    }
}

fn validate_zone(zone: &Field<'_>, errors: &mut Errors) {
    if !zone.exists() {
        return;
    }
    let name = zone.str();
    if name.is_empty() {
        return errors.push(zone.invalid("timeZone must be nil or non-empty string"));
    }
    let good_character = |b: u8| b.is_ascii_alphanumeric() || b".-_+".contains(&b);
    let good_part = |part: &str| {
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(good_character)
    };
    if !name.split('/').all(good_part) {
        return errors.push(zone.invalid(format!("unknown time zone {name}")));
    }
    errors.push_if(name.eq_ignore_ascii_case("Local"), || {
        zone.invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
    });
    if let Err(error) = coracle_cron::check_zone(name) {
        errors.push(zone.invalid(error));
    }
}

fn validate_job_template(template: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let spec = template.get("spec");
    job_spec::validate(&spec, old.map(|old| old.walk("spec.template")).as_ref(), errors);
    let selector = spec.get("selector");
    errors.push_if(selector.exists(), || {
        printed::invalid(&selector, "meta.LabelSelector", "`selector` will be auto-generated")
    });
    let manual = spec.get("manualSelector");
    errors.push_if(manual.bool(), || manual.not_supported(&["nil", "false"]));
}
