//! The command line of `coracle`: its subcommands and flags, and the programs of envtest.
#![expect(clippy::disallowed_methods, reason = "deadlines of the command line")]
#![warn(missing_docs)]

mod backup;
mod cli;
mod controller_manager;
mod envtest;
mod range;
mod run;

use std::fmt::Display;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use clap::error::ErrorKind;

use coracle_control_plane::maintenance::{self, CheckReport, Restored};
use coracle_control_plane::{Kinds, Options};
use coracle_storage::backup::Summary;

use cli::{Cli, Command, Controllers, Log, LogFormat, Serve};

/// The exit code for errors in the command line.
const USAGE_ERROR: u8 = 2;

/// Runs the command that the arguments of the process describe, to its end.
///
/// - `kinds`: those of the control planes that it starts.
pub fn main(kinds: Kinds) -> ExitCode {
    // For the files that libraries create, such as sled's; commands of `run` get the umask of the caller.
    let umask = coracle_private_fs::set_private_umask();
    let mut arguments = std::env::args_os();
    if let Some(program) = arguments.next().and_then(|called_by| envtest::Program::of(&called_by)) {
        return program.run(arguments, kinds);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // A closed standard output is no failure.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => return report_failure(&one_line(&error), USAGE_ERROR),
    };
    match cli.command {
        Command::Serve(serve) => with_control_plane(&serve, async |options| {
            let kubeconfig = serve.kubeconfig(&options);
            run::serve(options, kinds, kubeconfig).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Run { serve, command } => {
            let serve = serve.for_run();
            with_control_plane(&serve, async |options| {
                let kubeconfig = serve.kubeconfig(&options);
                run::run(options, kinds, kubeconfig, &command, umask).await
            })
        }
        Command::Controllers(flags) => controllers(&flags),
        Command::Kubeconfig { data_dir } => {
            let file = data_dir.join("kubeconfig");
            match std::fs::read_to_string(&file) {
                Ok(text) => {
                    print!("{text}");
                    ExitCode::SUCCESS
                }
                Err(error) => report_failure(&format!("{}: {error}", file.display()), 1),
            }
        }
        Command::Check { data_dir } => check(&data_dir, kinds),
        Command::Backup { file, kubeconfig, log } => block_on(log, async {
            let summary = backup::download(kubeconfig.as_deref(), &file).await?;
            let Summary { revision, objects } = summary;
            println!("{objects} objects at revision {revision} are saved in {}", file.display());
            Ok(ExitCode::SUCCESS)
        }),
        Command::Restore { file, data_dir, bump_revision, etcd } => match etcd.options() {
            Ok(None) => {
                restored(maintenance::restore(&file, &data_dir, bump_revision, kinds), &data_dir.display())
            }
            Ok(Some(etcd)) => {
                restored(maintenance::restore_to_etcd(&file, &etcd, kinds), &etcd.servers.join(","))
            }
            Err(line) => report_failure(&line, USAGE_ERROR),
        },
        Command::EnvtestAssets { directory } => envtest_assets(directory.as_deref()),
        Command::Version => {
            println!("coracle {} (Kubernetes v1.36)", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

fn with_control_plane(serve: &Serve, work: impl AsyncFnOnce(Options) -> Result<ExitCode>) -> ExitCode {
    match serve.options() {
        Ok(options) => block_on(serve.log, work(options)),
        Err(line) => report_failure(&line, USAGE_ERROR),
    }
}

fn controllers(flags: &Controllers) -> ExitCode {
    match coracle_control_plane::controllers::check_selection(&flags.options.controllers) {
        Ok(()) => {
            block_on(flags.log, async { controller_manager::run(flags).await.map(|()| ExitCode::SUCCESS) })
        }
        Err(line) => report_failure(&line, USAGE_ERROR),
    }
}

fn check(data_dir: &Path, kinds: Kinds) -> ExitCode {
    let report = match maintenance::check(data_dir, kinds) {
        Ok(report) => report,
        Err(error) => return report_failure(&error_line(&error.into()), 1),
    };
    for finding in &report.findings {
        println!("{}", finding.replace('\n', " "));
    }
    if report.more_findings > 0 {
        println!("and {} more", report.more_findings);
    }
    if !report.is_sound() {
        return report_failure(&format!("the store in {} is damaged", data_dir.display()), 1);
    }
    let CheckReport { entries, objects, newest, compact_revision, .. } = report;
    let left = if report.is_closed { "" } else { "; its server did not stop by itself" };
    println!("sound: {objects} objects in {entries} entries, revisions {compact_revision} to {newest}{left}");
    ExitCode::SUCCESS
}

fn restored(result: Result<Restored, coracle_control_plane::Error>, place: &dyn Display) -> ExitCode {
    match result {
        Ok(Restored { objects, backup, store }) => {
            println!("{objects} objects of revision {backup} are restored in {place}, at revision {store}");
            ExitCode::SUCCESS
        }
        Err(error) => report_failure(&error_line(&error.into()), 1),
    }
}

fn envtest_assets(directory: Option<&Path>) -> ExitCode {
    let made = envtest::assets::Environment::of_process()
        .and_then(|environment| envtest::assets::make(directory, &environment));
    match made {
        Ok(directory) => {
            println!("{}", directory.display());
            ExitCode::SUCCESS
        }
        Err(error) => report_failure(&error.to_string(), 1),
    }
}

/// Runs to the end, with the log on standard error; an error is reported as one line.
fn block_on(log: Log, work: impl Future<Output = Result<ExitCode>>) -> ExitCode {
    run_to_end(log, work).unwrap_or_else(|line| report_failure(&line, 1))
}

/// Runs to the end, with the log on standard error.
///
/// # Errors
/// One line for the operator.
fn run_to_end(log: Log, work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode, String> {
    start_log(log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let outcome = runtime.block_on(work);
    // A blocked thread must not keep a stopped server from ending.
    runtime.shutdown_timeout(std::time::Duration::from_millis(100));
    outcome.map_err(|error| error_line(&error))
}

/// Prints a failure as one line.
fn report_failure(line: &str, code: u8) -> ExitCode {
    eprintln!("coracle: {line}");
    ExitCode::from(code)
}

/// An error and its causes on one line: the first line of each, unless the text contains it already.
fn error_line(error: &anyhow::Error) -> String {
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

/// clap's message without the usage after it.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let message: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
    message.join(" ").trim_start_matches("error: ").to_owned()
}

fn start_log(Log { log_format, verbose }: Log) {
    use tracing_subscriber::EnvFilter;
    let level = match verbose {
        // Failed requests of kube's client are returned as errors; its own log would repeat them.
        0 => "warn,kube_client=off",
        1 => "info,kube_client=off",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("CORACLE_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal();
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    match log_format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
}
