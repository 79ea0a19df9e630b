//! The command line of `coracle`: its subcommands and flags, and the programs of envtest.
#![expect(clippy::disallowed_methods, reason = "deadlines of the command line")]
#![warn(missing_docs)]

mod background;
mod backup;
mod cli;
mod controller_manager;
mod envtest;
mod kept_log;
mod kubeconfig_client;
mod open;
mod output;
mod port_holder;
mod problems;
mod process;
mod range;
mod ready;
mod replay;
mod run;
mod shell;
mod testing;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use clap::error::ErrorKind;
use coracle_control_plane::maintenance::{self, CheckReport, Restored};
use coracle_control_plane::{Kinds, Options};
use coracle_storage::backup::Summary;

use background::Background;
use cli::{Cli, Command, Controllers, Log, Serve, Up};
use output::say;
use process::{block_on, block_on_quietly, error_line, one_line, report_failure};
use testing::{clock, diff, fork, settle, ui, why};

/// The exit code for errors in the command line.
const USAGE_ERROR: u8 = 2;

/// The exit code for errors of a comparison, where 1 is a difference.
const COMPARISON_ERROR: u8 = 2;

/// Runs the command that the arguments of the process describe, to its end.
///
/// - `kinds`: those of the control planes that it starts.
pub fn main(kinds: Kinds) -> ExitCode {
    let code = run(kinds);
    if output::failed() { ExitCode::FAILURE } else { code }
}

fn run(kinds: Kinds) -> ExitCode {
    // For the files that libraries create, such as sled's; commands of `run` get the umask of the
    // caller.
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
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            return ExitCode::from(USAGE_ERROR);
        }
        Err(error) => return report_failure(&one_line(&error), USAGE_ERROR),
    };
    match cli.command {
        Command::Serve { serve, background } => with_control_plane(&serve, async |options| {
            let in_data = || options.data_dir.as_ref().map(|directory| directory.join("kubeconfig"));
            let kubeconfig = serve.kubeconfig().or_else(in_data);
            let delay = serve.shutdown_delay();
            let background = background
                .map(|directory| Background::begin(directory, &options, delay, kubeconfig.clone()))
                .transpose()?;
            run::serve(options, delay, kinds, kubeconfig, background).await.map(|()| ExitCode::SUCCESS)
        }),
        Command::Up(Up(serve)) => with_control_plane(&serve, async |options| {
            // After the program and the subcommand come the flags, which the process in the
            // background gets too.
            background::up(&options.name, &serve, std::env::args_os().skip(2)).await
        }),
        Command::Down(flags) => block_on(Log::default(), background::down(&flags)),
        Command::Status(flags) => block_on(Log::default(), background::status(&flags)),
        Command::Run { serve, command } => {
            let serve = serve.for_run();
            match serve.options() {
                Ok(options) => block_on_quietly(serve.log, async |log| {
                    run::run(options, kinds, serve.kubeconfig(), (&command, umask), log).await
                }),
                Err(line) => report_failure(&line, USAGE_ERROR),
            }
        }
        Command::Controllers(flags) => controllers(&flags),
        Command::Kubeconfig { data_dir } => {
            let file = data_dir.join("kubeconfig");
            match std::fs::read_to_string(&file) {
                Ok(text) => {
                    output::write(&text);
                    ExitCode::SUCCESS
                }
                Err(error) => report_failure(&format!("{}: {error}", file.display()), 1),
            }
        }
        Command::Ready { target } => target.run(async |kubeconfig| {
            say!("{} is ready", ready::check(kubeconfig).await?);
            Ok(())
        }),
        Command::Check { data_dir } => check(&data_dir, kinds),
        Command::Clock { action, limit, target } => target.run(async |kubeconfig| match action {
            None => clock::print(kubeconfig, limit).await,
            Some(action) => clock::move_on(kubeconfig, &action.into()).await,
        }),
        Command::Settle { settle, target } => {
            target.run(async |kubeconfig| settle::settle(kubeconfig, &settle.into()).await)
        }
        Command::Fork { fork: flags, target } => target.run(async |kubeconfig| match flags.delete.clone() {
            Some(name) => fork::delete(kubeconfig, &name).await,
            None => fork::create(kubeconfig, &flags.into()).await,
        }),
        Command::Forks { target } => target.run(fork::list),
        Command::Diff { diff: flags, target } => target.run_for_code(async |kubeconfig| {
            let is_same = diff::print(kubeconfig, &flags).await;
            if flags.exit_code { Ok(compared(is_same)) } else { is_same.map(|_| ExitCode::SUCCESS) }
        }),
        Command::Why { object, target } => {
            target.run(async |kubeconfig| why::explain(kubeconfig, &object).await)
        }
        Command::Tree { object, target } => {
            target.run(async |kubeconfig| why::tree(kubeconfig, &object).await)
        }
        Command::Ui { no_browser, target } => {
            target.run(async |kubeconfig| ui::serve(kubeconfig, !no_browser).await)
        }
        Command::Log { flags, target } => {
            target.run(async |kubeconfig| testing::log::print(kubeconfig, &flags).await)
        }
        Command::Open(flags) => {
            block_on(flags.log, async { open::serve(flags, kinds).await.map(|()| ExitCode::SUCCESS) })
        }
        Command::Replay { replay: flags, target } => {
            target.run_for_code(async |kubeconfig| Ok(compared(replay::replay(kubeconfig, &flags).await)))
        }
        Command::Problems { problems: flags, target } => {
            target.run(async |kubeconfig| problems::print(kubeconfig, &flags).await)
        }
        Command::Backup { file, target } => target.run(async |kubeconfig| {
            let Summary { revision, objects } = backup::download(kubeconfig, &file).await?;
            say!("{objects} objects at revision {revision} are saved in {}", file.display());
            Ok(())
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
            say!("coracle {} (Kubernetes v1.36)", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
    }
}

/// Returns the exit code of a comparison, as those of `diff`: 1 if something differs, and another
/// one after an error.
fn compared(is_same: Result<bool>) -> ExitCode {
    match is_same {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => report_failure(&error_line(&error), COMPARISON_ERROR),
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
        Err(unknown) => report_failure(&unknown.to_string(), USAGE_ERROR),
    }
}

fn check(data_dir: &Path, kinds: Kinds) -> ExitCode {
    let report = match maintenance::check(data_dir, kinds) {
        Ok(report) => report,
        Err(error) => return report_failure(&error_line(&error.into()), 1),
    };
    for finding in &report.findings {
        say!("{}", finding.replace('\n', " "));
    }
    if report.more_findings > 0 {
        say!("and {} more", report.more_findings);
    }
    if !report.is_sound() {
        return report_failure(&format!("the store in {} is damaged", data_dir.display()), 1);
    }
    let CheckReport { entries, objects, newest, compact_revision, .. } = report;
    let left = if report.is_closed { "" } else { "; its server did not stop by itself" };
    say!("sound: {objects} objects in {entries} entries, revisions {compact_revision} to {newest}{left}");
    ExitCode::SUCCESS
}

fn restored(result: Result<Restored, coracle_control_plane::Error>, place: &dyn Display) -> ExitCode {
    match result {
        Ok(Restored { objects, backup, store }) => {
            say!("{objects} objects of revision {backup} are restored in {place}, at revision {store}");
            ExitCode::SUCCESS
        }
        Err(error) => report_failure(&error_line(&error.into()), 1),
    }
}

fn envtest_assets(directory: Option<&Path>) -> ExitCode {
    let made = envtest::assets::AssetLocations::of_process()
        .and_then(|locations| envtest::assets::make(directory, &locations));
    match made {
        Ok(directory) => {
            say!("{}", directory.display());
            ExitCode::SUCCESS
        }
        Err(error) => report_failure(&error.to_string(), 1),
    }
}
