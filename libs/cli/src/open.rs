//! `coracle open`: the history in a record, served as a control plane that cannot be changed.

use std::path::{Path, PathBuf};

use anyhow::Result;
use coracle_control_plane::{ControlPlane, Kinds, Options};
use coracle_record::{Limits, Record};

use crate::cli::OpenFlags;
use crate::run::{self, Signals};
use crate::shell::quoted;
use crate::testing::log::printable;

/// Serves a record until SIGTERM or SIGINT.
///
/// # Errors
/// The file is not an intact record, has no entry up to the moment, or the port is in use.
pub async fn serve(flags: OpenFlags, kinds: Kinds) -> Result<()> {
    let mut signals = Signals::new()?;
    let (path, kubeconfig) = (flags.record.clone(), flags.kubeconfig.clone());
    let options: Options = flags.into();
    if let Some(file) = &kubeconfig {
        coracle_kubeconfig::check(file, &options.name)?;
    }
    let control_plane = ControlPlane::start(options, kinds).await?;
    let kubeconfig = match kubeconfig {
        None => control_plane.own_kubeconfig()?,
        Some(file) => {
            tokio::task::block_in_place(|| control_plane.write_kubeconfig(&file))?;
            file
        }
    };
    announce(&control_plane, &path, &kubeconfig)?;
    signals.next().await;
    run::end(control_plane).await
}

/// Prints the address, the moment, what the record lacks, and the line that sets KUBECONFIG.
fn announce(control_plane: &ControlPlane, path: &Path, kubeconfig: &Path) -> Result<()> {
    let record = Record::open(path, Limits::default())?;
    let run = &record.header().run;
    let kubeconfig: PathBuf = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    eprintln!(
        "coracle {} shows {} at revision {} ({}) on {}",
        env!("CARGO_PKG_VERSION"),
        path.display(),
        control_plane.began_at(),
        control_plane.testing().clock().now(),
        control_plane.url()
    );
    let (version, command) = (printable(&run.version), printable(&run.command.join(" ")));
    eprintln!("recorded by coracle {version} from {} on: {command}", run.started);
    if let Some(damage) = record.damage() {
        eprintln!("{damage}");
    }
    eprintln!("export KUBECONFIG={}", quoted(&kubeconfig.display().to_string()));
    run::print_page_link(control_plane);
    Ok(())
}
