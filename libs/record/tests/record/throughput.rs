//! The cost of recording, to choose the level of zstd and to know what a server spends on it.
//!
//! Run with optimization, with nothing else at work:
//! `cargo test --release -p coracle-record throughput -- --ignored --nocapture --test-threads 1`

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use coracle_record::{Author, Entry, Limits, Options, Record, Recorder, Version};

use crate::sample::{run, time};

/// The number of pods that change in turn.
const PODS: u64 = 500;

/// Builds a pod of 2 KB as a kubelet updates it: with managed fields, conditions and unique values.
fn pod(index: u64, revision: u64) -> String {
    let digest = |part: u64| {
        let hash = |salt: u64| crc32fast::hash(&[index, part, salt].map(u64::to_be_bytes).concat());
        format!(
            "{:08x}-{:04x}-4{:03x}-9{:03x}-{:08x}abcd",
            hash(1),
            hash(2) >> 16,
            hash(3) >> 20,
            hash(4) >> 20,
            hash(5)
        )
    };
    let (uid, owner, image) = (digest(0), digest(index / 10 + 1000), digest(7));
    let at = time(revision.try_into().unwrap());
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"creationTimestamp":"2027-01-15T08:00:00Z","generateName":"web-{set}-","labels":{{"app":"web","pod-template-hash":"{set}"}},"managedFields":[{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:generateName":{{}},"f:labels":{{".":{{}},"f:app":{{}},"f:pod-template-hash":{{}}}},"f:ownerReferences":{{".":{{}},"k:{{\"uid\":\"{owner}\"}}":{{}}}}}},"f:spec":{{"f:containers":{{"k:{{\"name\":\"web\"}}":{{".":{{}},"f:image":{{}},"f:name":{{}}}}}}}}}},"manager":"kube-controller-manager","operation":"Update","time":"2027-01-15T08:00:00Z"}},{{"apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{{"f:status":{{"f:conditions":{{"k:{{\"type\":\"Ready\"}}":{{"f:status":{{}}}}}},"f:containerStatuses":{{}},"f:phase":{{}},"f:podIP":{{}}}}}},"manager":"kubelet","operation":"Update","subresource":"status","time":"{at}"}}],"name":"web-{set}-{index:05x}","namespace":"shop","ownerReferences":[{{"apiVersion":"apps/v1","blockOwnerDeletion":true,"controller":true,"kind":"ReplicaSet","name":"web-{set}","uid":"{owner}"}}],"uid":"{uid}"}},"spec":{{"containers":[{{"image":"registry.example/web@{image}","name":"web","resources":{{}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}}],"dnsPolicy":"ClusterFirst","nodeName":"node-{node}","restartPolicy":"Always","schedulerName":"default-scheduler","serviceAccountName":"default","terminationGracePeriodSeconds":30}},"status":{{"conditions":[{{"lastTransitionTime":"{at}","status":"True","type":"Ready"}}],"containerStatuses":[{{"image":"registry.example/web","imageID":"{image}","name":"web","ready":true,"restartCount":{restarts},"started":true}}],"phase":"Running","podIP":"10.0.{node}.{address}","startTime":"2027-01-15T08:00:01Z"}}}}"#,
        set = index / 10,
        node = index % 20,
        address = index % 250,
        restarts = revision / PODS,
    )
}

fn entries(count: u64) -> Vec<Entry> {
    let author: Author = Author {
        user: "system:node".into(),
        user_agent: "kubelet/v1.36".into(),
        verb: "patch".into(),
        subresource: "status".into(),
    };
    let bucket: Arc<str> = "pods".into();
    let keys: Vec<Arc<str>> = (0..PODS).map(|index| format!("shop/web-{index:05x}").into()).collect();
    (0..count)
        .map(|revision| {
            let index = revision * 7 % PODS;
            Entry::Version(Box::new(Version {
                fork: "".into(),
                revision,
                time: time(0) + Duration::from_micros(50 * revision),
                bucket: bucket.clone(),
                key: keys[usize::try_from(index).unwrap()].clone(),
                author: Some(author.clone()),
                object: Some(Bytes::from(pod(index, revision))),
            }))
        })
        .collect()
}

/// Returns the processor time of the named thread of this process, in seconds.
fn thread_seconds(name: &str) -> f64 {
    let mut ticks = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap_or_default();
        if let Some((comm, rest)) = stat.split_once(") ")
            && comm.ends_with(name)
        {
            let fields: Vec<u64> = rest.split(' ').map(|field| field.parse().unwrap_or(0)).collect();
            ticks = fields[11] + fields[12];
        }
    }
    ticks as f64 / 100.0
}

#[test]
#[ignore = "a measurement"]
fn throughput_of_levels() {
    let directory = tempfile::tempdir().unwrap();
    let entries = entries(100_000);
    let payload: usize = entries
        .iter()
        .map(|e| if let Entry::Version(v) = e { v.object.as_ref().unwrap().len() } else { 0 })
        .sum();
    println!("{} objects of {} bytes", entries.len(), payload / entries.len());
    for level in [-5, -1, 1, 2, 3, 6] {
        let path = directory.path().join(format!("{level}"));
        let patience = Duration::from_secs(60);
        let options = Options { level, patience, queue_bytes: 1 << 30, ..Options::default() };
        let recorder = Recorder::create(&path, run(), &options).unwrap();
        let batch = entries.clone();
        let begun = Instant::now();
        for entry in batch {
            recorder.append(entry);
        }
        let appended = begun.elapsed();
        recorder.flush();
        let seconds = thread_seconds("recorder");
        let statistics = recorder.finish();
        let begun = Instant::now();
        let record = Record::open(&path, Limits::default()).unwrap();
        let opened = begun.elapsed();
        let read = record.entries().map(Result::unwrap).count();
        assert_eq!((read as u64, statistics.dropped), (statistics.entries, 0));
        let rate = |per: f64| entries.len() as f64 / per;
        println!(
            "level {level}: {:.0} entries/s and {:.0} MB/s of the thread ({:.0} % of a core at 20,000/s), {:.0} ns an append, ratio {:.1}, {:.0} bytes an entry, open {opened:?}, read {:.0} entries/s",
            rate(seconds),
            statistics.raw_bytes as f64 / seconds / 1e6,
            20_000.0 / rate(seconds) * 100.0,
            appended.as_nanos() as f64 / entries.len() as f64,
            statistics.raw_bytes as f64 / statistics.file_bytes as f64,
            statistics.file_bytes as f64 / entries.len() as f64,
            rate((begun.elapsed() - opened).as_secs_f64()),
        );
    }
}

/// Measures the ratio if the interval, not the size, ends blocks.
#[test]
#[ignore = "a measurement"]
fn ratio_of_small_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let entries = entries(20_000);
    for in_a_block in [1, 5, 20, 100, 1000] {
        let path = directory.path().join(format!("{in_a_block}"));
        let recorder = Recorder::create(&path, run(), &Options::default()).unwrap();
        for chunk in entries.chunks(in_a_block) {
            chunk.iter().cloned().for_each(|entry| recorder.append(entry));
            recorder.flush();
        }
        let statistics = recorder.finish();
        let ratio = statistics.raw_bytes as f64 / statistics.file_bytes as f64;
        println!("{in_a_block} entries between two flushes: ratio {ratio:.1}");
    }
}
