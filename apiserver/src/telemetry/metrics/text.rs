//! The text format of metrics, with numbers as Go prints them: Prometheus compares the bounds of
//! buckets as texts, so `le="1e+06"` and `le="1000000"` are different series.
//!
//! Source: `expfmt.MetricFamilyToText` of `github.com/prometheus/common`.

use std::fmt::{self, Write};

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

/// Writes families of counters, gauges and histograms.
pub(super) fn write_families(text: &mut String, families: &[MetricFamily]) -> fmt::Result {
    for family in families {
        write_family(text, family)?;
    }
    Ok(())
}

fn write_family(text: &mut String, family: &MetricFamily) -> fmt::Result {
    let name = family.name();
    let kind = match family.get_field_type() {
        MetricType::COUNTER => "counter",
        MetricType::GAUGE => "gauge",
        MetricType::HISTOGRAM => "histogram",
        // No module registers one.
        MetricType::SUMMARY | MetricType::UNTYPED => return Ok(()),
    };
    text.write_fmt(format_args!("# HELP {name} "))?;
    escape(text, family.help(), false)?;
    text.write_fmt(format_args!("\n# TYPE {name} {kind}\n"))?;
    for metric in family.get_metric() {
        match kind {
            "counter" => sample(text, name, "", metric, None, metric.get_counter().get_value())?,
            "gauge" => sample(text, name, "", metric, None, metric.get_gauge().get_value())?,
            _ => write_histogram(text, name, metric)?,
        }
    }
    Ok(())
}

fn write_histogram(text: &mut String, name: &str, metric: &Metric) -> fmt::Result {
    let histogram = metric.get_histogram();
    let count = histogram.get_sample_count() as f64;
    for bucket in histogram.get_bucket() {
        let bound = Some(bucket.upper_bound()).filter(|bound| bound.is_finite());
        if let Some(bound) = bound {
            sample(text, name, "_bucket", metric, Some(bound), bucket.cumulative_count() as f64)?;
        }
    }
    sample(text, name, "_bucket", metric, Some(f64::INFINITY), count)?;
    sample(text, name, "_sum", metric, None, histogram.get_sample_sum())?;
    sample(text, name, "_count", metric, None, count)
}

/// Writes one line.
///
/// - `bound`: the upper bound of a bucket
fn sample(
    text: &mut String,
    name: &str,
    suffix: &str,
    metric: &Metric,
    bound: Option<f64>,
    value: f64,
) -> fmt::Result {
    text.write_str(name)?;
    text.write_str(suffix)?;
    let labels: &[LabelPair] = metric.get_label();
    let mut separator = '{';
    for label in labels {
        text.write_fmt(format_args!("{separator}{}=\"", label.name()))?;
        escape(text, label.value(), true)?;
        text.write_char('"')?;
        separator = ',';
    }
    if let Some(bound) = bound {
        text.write_fmt(format_args!("{separator}le=\""))?;
        number(text, bound)?;
        text.write_char('"')?;
        separator = ',';
    }
    if separator == ',' {
        text.write_char('}')?;
    }
    text.write_char(' ')?;
    number(text, value)?;
    text.write_char('\n')
}

/// Writes a number as `strconv.FormatFloat(value, 'g', -1, 64)` formats it.
fn number(text: &mut String, value: f64) -> fmt::Result {
    if value.is_nan() {
        return text.write_str("NaN");
    }
    if value.is_infinite() {
        return text.write_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    }
    if value == 0.0 || (1e-4..1e6).contains(&value.abs()) {
        return text.write_fmt(format_args!("{value}"));
    }
    let shortest = format!("{value:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    text.write_fmt(format_args!("{digits}e{sign}{exponent:0>2}"))
}

/// Writes a text with backslashes before backslashes, ends of lines and, in labels, quotes.
fn escape(text: &mut String, value: &str, is_label: bool) -> fmt::Result {
    for character in value.chars() {
        match character {
            '\\' => text.write_str("\\\\")?,
            '\n' => text.write_str("\\n")?,
            '"' if is_label => text.write_str("\\\"")?,
            other => text.write_char(other)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus::{Gauge, Histogram, HistogramOpts, IntCounterVec, Opts, Registry};

    use super::*;

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        for (value, want) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.005, "0.005"),
            (1.25, "1.25"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (1_048_576.0, "1.048576e+06"),
            (-2_500_000.0, "-2.5e+06"),
            (1e9, "1e+09"),
            (1.25e100, "1.25e+100"),
            (1e-4, "0.0001"),
            (5e-7, "5e-07"),
            (6.399_999_999_999_999e-7, "6.399999999999999e-07"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            let mut text = String::new();
            number(&mut text, value).expect("a text");
            assert_eq!(text, want);
        }
    }

    #[test]
    fn families_are_printed_with_escaped_labels_and_every_bucket() {
        let registry = Registry::new();
        let counter = IntCounterVec::new(Opts::new("a_total", "Back\\slash."), &["b", "a"]).expect("a name");
        counter.with_label_values(&["x\"y\\z\n", "1"]).inc();
        let gauge = Gauge::new("b_bytes", "Bytes.").expect("a name");
        gauge.set(3e9);
        let options = HistogramOpts::new("c_seconds", "Time.").buckets(vec![5e-7, 1.0]);
        let histogram = Histogram::with_opts(options).expect("a name");
        histogram.observe(0.5);
        histogram.observe(2.0);
        registry.register(Box::new(counter)).expect("new");
        registry.register(Box::new(gauge)).expect("new");
        registry.register(Box::new(histogram)).expect("new");
        let mut text = String::new();
        write_families(&mut text, &registry.gather()).expect("a text");
        let want = r##"# HELP a_total Back\\slash.
# TYPE a_total counter
a_total{a="1",b="x\"y\\z\n"} 1
# HELP b_bytes Bytes.
# TYPE b_bytes gauge
b_bytes 3e+09
# HELP c_seconds Time.
# TYPE c_seconds histogram
c_seconds_bucket{le="5e-07"} 0
c_seconds_bucket{le="1"} 1
c_seconds_bucket{le="+Inf"} 2
c_seconds_sum 2.5
c_seconds_count 2
"##;
        assert_eq!(text, want);
    }
}
