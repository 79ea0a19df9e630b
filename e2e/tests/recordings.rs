//! The recorded conversations, one test for each area: each response must equal that of a real
//! control plane, unless `recordings/gaps.md` lists the step with a reason. `recordings/floors.txt`
//! has the minimum number of equal steps. The binary `replay` prints every difference.

use anyhow::Result;
use coracle_e2e::cluster;
use coracle_e2e::http::Endpoint;
use coracle_e2e::recordings::player::{Server, play};
use coracle_e2e::recordings::score::{Gaps, Score, floor};
use coracle_e2e::recordings::{self, Recording};
use tokio::sync::Mutex;

/// The number of recordings that are played at the same time.
const JOBS: usize = 8;

/// One area at a time: in some recordings a client has to observe a state that a controller is
/// about to change, which fails if two servers share the processors.
static TURN: Mutex<()> = Mutex::const_new(());

async fn area(name: &str) -> Result<()> {
    let _turn = TURN.lock().await;
    let chosen = Recording::read_area(&recordings::directory().join(name))?;
    let gaps = Gaps::read()?;
    let cluster = recordings::server(cluster()).start().await?;
    let endpoint = Endpoint::with_token(&cluster.config().await?, recordings::ADMIN_TOKEN)?;
    let server = Server::new(endpoint);
    let played = play(&server, &chosen, JOBS, |recording, steps| gaps.end(recording, steps)).await?;
    let score = Score::of(&played, &gaps);
    let floor = floor(name)?;
    println!(
        "{name}: {} of {} steps equal, {} left out; the floor is {floor}",
        score.equal, score.compared, score.left_out
    );
    for (recording, verdict) in &score.unexpected {
        println!("{recording} step {}: {}", verdict.step, verdict.title);
        verdict.differences.iter().for_each(|difference| println!("  {difference}"));
    }
    for (recording, verdict) in &score.fixed {
        println!("{recording} step {}: {} is equal, and listed as a gap", verdict.step, verdict.title);
    }
    assert!(score.unexpected.is_empty() && score.fixed.is_empty(), "{name}: gaps.md is not true");
    assert!(score.equal >= floor, "{name}: {} steps are equal, and {floor} were before", score.equal);
    Ok(())
}

macro_rules! areas {
    ($($area:ident)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $area() -> Result<()> {
            area(stringify!($area)).await
        })*

        /// Checks that each directory of recordings has its test.
        #[test]
        fn every_area_is_played() -> Result<()> {
            let played = [$(stringify!($area)),*];
            for folder in recordings::areas()? {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                assert!(played.contains(&name.as_ref()), "{name} is not played");
            }
            Ok(())
        }
    };
}

areas! { api extend gc patch statefulset volumes workload }
