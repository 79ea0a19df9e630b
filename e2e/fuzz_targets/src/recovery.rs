//! Recovery: what is damaged is refused, or nothing of it is lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use coracle_storage::backup::{Reader, verify};
use coracle_storage::log::{Durability, LogError, SledLog};
use coracle_storage::{Expect, Index, Indexed, Key, Options, Store, Unreadable};
use tempfile::TempDir;
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// Serves the value, and the revision after it.
struct Suffixed;

impl Index for Suffixed {
    type Meta = ();
    type Frame = ();
    type Author = ();

    fn index(&self, _: &Key, stored: &[u8]) -> Result<Indexed<()>, Unreadable> {
        Ok(Indexed { meta: (), stamp: stored.len() })
    }
}

/// Tests a backup as it is, and with correct checksums of its frames: both are read to their end or
/// refused, and a backup that verifies has as many objects as it says.
pub fn backup(data: &[u8]) -> bool {
    let sound = is_sound_backup(data);
    is_sound_backup(&with_checksums(data)) || sound
}

fn is_sound_backup(data: &[u8]) -> bool {
    let verified = verify(data).ok();
    let Ok(mut reader) = Reader::new(data) else {
        assert!(verified.is_none());
        return false;
    };
    let mut objects = 0;
    let ended = loop {
        match reader.next_object() {
            Ok(Some(_)) => objects += 1,
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    assert_eq!(verified.map(|summary| summary.objects), ended.then_some(objects));
    ended
}

/// Returns the same frames with correct checksums and a correct end.
fn with_checksums(data: &[u8]) -> Vec<u8> {
    const MAGIC: usize = b"coracle backup 1\n".len();
    let Some((magic, mut rest)) = data.split_at_checked(MAGIC) else { return data.to_vec() };
    let (mut file, mut objects) = (magic.to_vec(), 0_u64);
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let [kind, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        let Some((payload, after)) = after.split_at_checked(length) else { break };
        let mut frame = [&head[..], payload].concat();
        objects += u64::from(kind == b'O');
        if kind == b'E' {
            let whole = crc32fast::hash(&file);
            frame = [b"E\0\0\0\x0c", &objects.to_be_bytes()[..], &whole.to_be_bytes()].concat();
        }
        file.extend_from_slice(&frame);
        file.extend_from_slice(&crc32fast::hash(&frame).to_be_bytes());
        rest = after.get(4..).unwrap_or_default();
    }
    file.extend_from_slice(rest);
    file
}

/// The files of a store, and what it holds.
struct Template {
    directory: TempDir,
    files: Vec<PathBuf>,
    objects: Vec<(Key, Vec<u8>)>,
}

/// A store that was closed, and one whose process was killed once all was on disk.
static TEMPLATES: LazyLock<[Template; 2]> = LazyLock::new(|| [true, false].map(Template::new));

impl Template {
    fn new(is_closed: bool) -> Template {
        let origin = tempfile::tempdir().expect("a temporary directory");
        let store = open(origin.path()).expect("a new store");
        RUNTIME.block_on(async {
            for step in 0..40_u8 {
                let key = Key::new(["left", "right"][usize::from(step % 2)], format!("name-{}", step % 15));
                let value = vec![step; 100 * usize::from(step % 7)];
                store.put(key, Expect::Any, value).await.expect("a write");
            }
        });
        if is_closed {
            RUNTIME.block_on(store.close()).expect("a store that closes");
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        copy(origin.path(), directory.path());
        if !is_closed {
            RUNTIME.block_on(store.close()).expect("a store that closes");
        }
        let mut files = Vec::new();
        list(directory.path(), Path::new(""), &mut files);
        files.sort();
        let store = open(origin.path()).expect("the store that was closed");
        let objects = objects_of(&store);
        RUNTIME.block_on(store.close()).expect("a store that closes");
        Template { directory, files, objects }
    }
}

fn open(path: &Path) -> Result<Store<Suffixed>, LogError> {
    Store::open(Box::new(SledLog::open(path, Durability::Sync)?), Suffixed, Options::default())
}

fn objects_of(store: &Store<Suffixed>) -> Vec<(Key, Vec<u8>)> {
    let snapshot = store.snapshot();
    let objects = ["left", "right"].map(|bucket| snapshot.bucket(bucket));
    let objects = objects.iter().flat_map(|bucket| bucket.range(std::ops::Bound::<&str>::Unbounded));
    objects.map(|object| (object.key.clone(), object.bytes.to_vec())).collect()
}

fn copy(from: &Path, to: &Path) {
    let mut files = Vec::new();
    list(from, Path::new(""), &mut files);
    for file in files {
        let target = to.join(&file);
        fs::create_dir_all(target.parent().expect("a file has a directory")).expect("a directory");
        fs::copy(from.join(&file), target).expect("a copy");
    }
}

/// Lists the files below a directory, by their paths in it.
fn list(root: &Path, inner: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(inner)).expect("a directory") {
        let entry = entry.expect("an entry of a directory");
        let path = inner.join(entry.file_name());
        match entry.file_type().expect("the type of a file").is_dir() {
            true => list(root, &path, files),
            false => files.push(path),
        }
    }
}

/// Tests damage to the files of a store. The first byte chooses between a store that was closed and
/// one whose process was killed; then there are up to eight changes of six bytes: the file, the
/// kind of change, the position (of 65,536 parts of the file), the value and its length. The store
/// opens with every object, or does not open; a check reports or refuses and changes nothing.
pub fn store_recovery(data: &[u8]) -> bool {
    let Some((which, changes)) = data.split_first() else { return false };
    let template = &TEMPLATES[usize::from(which % 2)];
    let directory = tempfile::tempdir().expect("a temporary directory");
    copy(template.directory.path(), directory.path());
    for change in changes.chunks_exact(6).take(8) {
        let &[file, action, high, low, value, length] = change else { continue };
        let path = directory.path().join(&template.files[usize::from(file) % template.files.len()]);
        let mut bytes = fs::read(&path).expect("a file of the store");
        let at = (bytes.len() * usize::from(u16::from_be_bytes([high, low]))) >> 16;
        let end = bytes.len().min(at + usize::from(length).max(1));
        match action % 4 {
            0 => bytes[at..end].fill(value),
            1 => bytes[at..end].iter_mut().for_each(|byte| *byte ^= value),
            2 => bytes.truncate(at),
            _ => bytes.resize(bytes.len() + usize::from(length) * 16, value),
        }
        fs::write(&path, bytes).expect("a damaged file");
    }
    let copied = tempfile::tempdir().expect("a temporary directory");
    let checked = SledLog::check(directory.path(), &Suffixed, &copied.path().join("copy"));
    match open(directory.path()) {
        Ok(store) => {
            let found = objects_of(&store);
            drop(RUNTIME.block_on(store.close()));
            let report = checked.map(|report| report.findings);
            assert_eq!(found.len(), template.objects.len(), "objects are lost; the check says {report:?}");
            assert!(found == template.objects, "objects are others; the check says {report:?}");
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}
