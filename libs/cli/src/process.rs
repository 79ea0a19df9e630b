//! The process of a command: its runtime, its log, and errors of one line.

use std::env::VarError;
use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;

use crate::USAGE_ERROR;
use crate::cli::{Log, LogFormat};
use crate::kept_log::KeptLog;

/// The environment variable with the filter of the log.
const FILTER: &str = "CORACLE_LOG";

/// The threads of the runtime beyond one for each processor. While each processor has a task that
/// takes long, these look for requests, and the kernel has all threads share the processors.
const MORE_THREADS: usize = 2;
/// The number of tasks that a busy thread polls before it looks for requests that have arrived, and
/// for tasks that no thread has yet. By tokio's default of 61 a request waits for many more.
const POLLS: u32 = 7;

/// Runs to the end, with the log on standard error; an error is reported as one line.
pub fn block_on(log: Log, work: impl Future<Output = Result<ExitCode>>) -> ExitCode {
    match start_log(log, None) {
        Ok(()) => finish(work).unwrap_or_else(|line| report_failure(&line, 1)),
        Err(line) => report_failure(&line, USAGE_ERROR),
    }
}

/// Runs to the end, with the log in memory, unless it is asked for; an error is reported as one
/// line.
pub fn block_on_quietly<F: Future<Output = Result<ExitCode>>>(
    log: Log,
    work: impl FnOnce(KeptLog) -> F,
) -> ExitCode {
    let kept = KeptLog::default();
    let is_asked_for = log.verbose > 0 || std::env::var_os(FILTER).is_some();
    match start_log(log, (!is_asked_for).then(|| kept.clone())) {
        Ok(()) => finish(work(kept)).unwrap_or_else(|line| report_failure(&line, 1)),
        Err(line) => report_failure(&line, USAGE_ERROR),
    }
}

/// Runs to the end, with the log on standard error.
///
/// # Errors
/// One line for the operator.
pub fn run_to_end(log: Log, work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode, String> {
    start_log(log, None)?;
    finish(work)
}

fn finish(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode, String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(processors + MORE_THREADS)
        .event_interval(POLLS)
        .global_queue_interval(POLLS)
        .enable_all();
    let runtime = runtime.build().map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(work);
    // A blocked thread must not keep a stopped server from ending.
    runtime.shutdown_timeout(std::time::Duration::from_millis(100));
    outcome.map_err(|error| error_line(&error))
}

/// Prints a failure as one line.
pub fn report_failure(line: &str, code: u8) -> ExitCode {
    eprintln!("coracle: {line}");
    ExitCode::from(code)
}

/// Formats an error and its causes on one line: the first line of each, unless the text contains it
/// already.
pub fn error_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        let cause = cause.lines().next().unwrap_or_default();
        if line.is_empty() {
            line = cause.to_owned();
        } else if !line.contains(cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Builds the error of a request to a server: its address, and the two deepest causes, since those
/// above them name layers of the client.
pub fn unreachable(url: &str, error: kube::Error) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    let mut line = format!("cannot reach {url}");
    for cause in &causes[causes.len().saturating_sub(2)..] {
        if !line.contains(cause.as_str()) {
            line = format!("{line}: {cause}");
        }
    }
    anyhow::Error::msg(line)
}

/// Formats clap's message, with similar values, and without the usage after it.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    let message = message.join(" ").trim_start_matches("error: ").to_owned();
    match text.lines().find_map(|line| line.trim().strip_prefix("tip: ")) {
        Some(similar) => format!("{message}; {similar}"),
        None if error.kind() == ErrorKind::InvalidSubcommand => format!("{message}; see coracle --help"),
        None => message,
    }
}

/// Starts the log of the process, on standard error or in memory.
///
/// # Errors
/// One line: the filter of the environment is invalid.
fn start_log(Log { log_format, verbose }: Log, kept: Option<KeptLog>) -> Result<(), String> {
    use tracing_subscriber::EnvFilter;
    use tracing_subscriber::fmt::writer::BoxMakeWriter;
    let level = match verbose {
        // Failed requests of kube's client are returned as errors; its own log would repeat them.
        0 => "warn,kube_client=off",
        1 => "info,kube_client=off",
        2 => "debug",
        _ => "trace",
    };
    let filter = match std::env::var(FILTER) {
        Ok(filter) => EnvFilter::try_new(filter).map_err(|error| format!("{FILTER}: {error}"))?,
        Err(VarError::NotPresent) => EnvFilter::new(level),
        Err(error @ VarError::NotUnicode(_)) => return Err(format!("{FILTER}: {error}")),
    };
    let colors = kept.is_none() && std::io::stderr().is_terminal();
    let writer = kept.map_or_else(|| BoxMakeWriter::new(std::io::stderr), BoxMakeWriter::new);
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colors);
    match log_format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
    Ok(())
}
