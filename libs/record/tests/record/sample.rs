//! Runs, entries and records for tests.

use std::path::Path;
use std::time::Duration;

use coracle_record::{
    Author, ClockMode, ClockStep, Entry, Error, Fault, Fork, Limits, Options, Pass, PassOutcome, Record,
    Recorder, Request, Run, Statistics, Version,
};
use jiff::Timestamp;

/// Returns the time some seconds after the start of the sample run.
pub fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

pub fn run() -> Run {
    Run {
        version: "0.1.0".to_owned(),
        started: time(0),
        command: ["coracle", "run", "--", "go test ./..."].map(str::to_owned).to_vec(),
        clock: ClockMode::Manual,
        seed: Some(7),
    }
}

/// Builds a version with its revision as its time.
pub fn version(revision: u64, object: Option<&str>) -> Entry {
    Entry::Version(Box::new(Version {
        fork: "".into(),
        revision,
        time: time(revision.try_into().unwrap()),
        bucket: "pods".into(),
        key: "shop/web-0".into(),
        author: Some(Author {
            user: "ann".into(),
            user_agent: "kubectl/1.36".into(),
            verb: "patch".into(),
            subresource: "status".into(),
        }),
        object: object.map(|object| object.as_bytes().to_vec().into()),
    }))
}

pub fn request(seconds: i64, body: Option<&str>) -> Entry {
    Entry::Request(Box::new(Request {
        fork: "".into(),
        time: time(seconds),
        duration: Duration::from_micros(1_500),
        user: "ann".into(),
        user_agent: "kubectl/1.36".into(),
        is_own: body.is_none(),
        verb: "create".into(),
        group: "".into(),
        resource: "pods".into(),
        subresource: "".into(),
        namespace: "shop".into(),
        name: "".into(),
        path: "/api/v1/namespaces/shop/pods?fieldManager=kubectl".into(),
        code: 409,
        reason: "AlreadyExists".into(),
        message: "pods \"web-0\" already exists".into(),
        content_type: "application/json".into(),
        body: body.map(|body| body.as_bytes().to_vec().into()),
    }))
}

pub fn pass(seconds: i64, outcome: PassOutcome) -> Entry {
    Entry::Pass(Box::new(Pass {
        fork: "".into(),
        controller: "deployment".into(),
        key: "shop/web".into(),
        started: time(seconds),
        duration: Duration::from_millis(3),
        outcome,
    }))
}

pub fn clock_step(from: i64, to: i64) -> Entry {
    Entry::ClockStep(ClockStep { fork: "a".into(), from: time(from), to: time(to) })
}

/// Builds an entry of each kind that callers append.
pub fn entries() -> Vec<Entry> {
    let fault = Fault {
        time: time(4),
        rule: "conflict".into(),
        effect: "status 409".into(),
        user_agent: "operator".into(),
        verb: "update".into(),
        path: "/api/v1/namespaces/shop/pods/web-0".into(),
    };
    vec![
        version(1, Some(r#"{"kind":"Pod"}"#)),
        request(1, Some("{}")),
        request(2, None),
        version(2, Some("")),
        pass(3, PassOutcome::Done),
        pass(3, PassOutcome::Requeued { after: Duration::from_secs(5) }),
        pass(3, PassOutcome::Failed { error: "conflict".into() }),
        Entry::Fault(Box::new(fault)),
        clock_step(4, 64),
        Entry::Fork(Box::new(Fork { name: "a".into(), parent: "".into(), revision: 2, time: time(5) })),
        Entry::Base { revision: 1 },
        version(3, None),
    ]
}

/// Writes a record, with a block for each slice of entries.
pub fn write(path: &Path, options: &Options, blocks: &[Vec<Entry>]) -> Statistics {
    let recorder = Recorder::create(path, run(), options).unwrap();
    for block in blocks {
        for entry in block {
            recorder.append(entry.clone());
        }
        recorder.flush();
    }
    recorder.finish()
}

/// Opens a record and reads all of its entries.
pub fn read(path: &Path) -> Result<Vec<Entry>, Error> {
    Record::open(path, Limits::default())?.entries().collect()
}

/// Returns the options of a recorder that waits for `flush` with small blocks.
pub fn unhurried() -> Options {
    Options { interval: Duration::from_secs(3600), ..Options::default() }
}

/// Returns options without redaction.
pub fn plain() -> Options {
    Options { redact_secrets: false, ..Options::default() }
}
