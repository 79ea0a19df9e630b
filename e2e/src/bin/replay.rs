//! Replays recordings, and prints the differences.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use coracle_e2e::cluster;
use coracle_e2e::http::{self, Endpoint};
use coracle_e2e::recordings::player::{Played, Server, play};
use coracle_e2e::recordings::{self, Recording};

/// Replays recordings against a new Coracle for each area, or against any API server.
#[derive(Parser)]
struct Arguments {
    /// Areas, or paths of recordings [default: all areas].
    recordings: Vec<PathBuf>,
    /// Send the requests to the server of this kubeconfig.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The bearer token of the requests.
    #[arg(long, default_value = recordings::ADMIN_TOKEN)]
    token: String,
    /// The number of recordings to play at the same time.
    #[arg(short, long, default_value_t = 8)]
    jobs: usize,
    /// Print only the scores.
    #[arg(short, long)]
    quiet: bool,
    /// Play only recordings with this text in their name.
    #[arg(long, default_value = "")]
    only: String,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let areas = match arguments.recordings.is_empty() {
        true => recordings::areas()?,
        false => arguments.recordings.clone(),
    };
    let (mut equal, mut compared) = (0, 0);
    for area in areas {
        let area = if area.exists() { area } else { recordings::directory().join(area) };
        let mut chosen = match area.is_dir() {
            true => Recording::read_area(&area)?,
            false => vec![Recording::read(&area)?],
        };
        chosen.retain(|recording| recording.name().contains(&arguments.only));
        let played = replay(&arguments, &chosen).await?;
        if !arguments.quiet {
            played.iter().for_each(print);
        }
        let (e, c) = (
            played.iter().map(Played::equal).sum::<usize>(),
            played.iter().map(Played::compared).sum::<usize>(),
        );
        println!("{}: {e}/{c}", area.file_name().unwrap_or_default().display());
        (equal, compared) = (equal + e, compared + c);
    }
    println!("{equal} passed, {} failed", compared - equal);
    Ok(if equal == compared { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn replay(arguments: &Arguments, chosen: &[Recording]) -> Result<Vec<Played>> {
    let own;
    let config = match &arguments.kubeconfig {
        Some(file) => http::config(file).await?,
        None => {
            own = recordings::server(cluster()).start().await?;
            own.config().await?
        }
    };
    let server = Server::new(Endpoint::with_token(&config, &arguments.token)?);
    play(&server, chosen, arguments.jobs, |_, steps| steps.len()).await
}

fn print(played: &Played) {
    let (equal, compared) = (played.equal(), played.compared());
    let word = if equal == compared { "ok  " } else { "DIFF" };
    println!("{word} {equal}/{compared} {}", Path::new(&played.name).display());
    for verdict in played.verdicts.iter().filter(|v| !v.differences.is_empty()) {
        println!("  step {}: {}", verdict.step, verdict.title);
        verdict.differences.iter().for_each(|difference| println!("    {difference}"));
    }
}
