use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{RenameFlags, renameat_with};

use super::*;

fn root() -> (tempfile::TempDir, Root) {
    let data = tempfile::tempdir().unwrap();
    let root = Root::new(data.path(), ["volumes", "own"]);
    std::fs::create_dir_all(root.path()).unwrap();
    (data, root)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[test]
fn names_are_single_components() {
    for (text, want) in [
        ("a", true),
        ("..a", true),
        ("a b", true),
        ("", false),
        (".", false),
        ("..", false),
        ("/", false),
        ("/a", false),
        ("a/", false),
        ("a/.", false),
        ("./a", false),
        ("a//b", false),
        ("a/b", false),
        ("a\0b", false),
    ] {
        assert_eq!(Name::new(text).is_some(), want, "{text:?}");
    }
}

#[test]
fn a_root_that_does_not_exist_holds_nothing() {
    let root = Root::new(Path::new("/does-not-exist-at-all"), ["own"]);
    assert_eq!(root.entries().unwrap(), []);
    root.remove(&name("a")).unwrap();
    root.empty(&name("a")).unwrap();
    assert_eq!(root.read(&name("a"), 10).unwrap(), None);
}

#[test]
fn a_root_with_a_link_in_it_is_not_used() {
    let data = tempfile::tempdir().unwrap();
    let elsewhere = data.path().join("elsewhere");
    std::fs::create_dir_all(elsewhere.join("own/a")).unwrap();
    symlink(&elsewhere, data.path().join("volumes")).unwrap();
    let root = Root::new(data.path(), ["volumes", "own"]);
    root.remove(&name("a")).unwrap_err();
    root.empty(&name("a")).unwrap_err();
    root.make_directory(&name("b")).unwrap_err();
    root.write(&name("b"), b"x").unwrap_err();
    root.link(&[], &name("b"), Path::new("/")).unwrap_err();
    assert!(elsewhere.join("own/a").is_dir() && !elsewhere.join("own/b").exists());
}

#[test]
fn a_tree_of_any_depth_and_width_is_removed() {
    const DEPTH: usize = 20_000;
    let (_data, root) = root();
    let mut folder = make(&root.create().unwrap(), &name("deep")).unwrap();
    for level in 0..DEPTH {
        if level % 1000 == 0 {
            for file in ["file", ".removing-3"] {
                let flags = OFlags::CREATE | OFlags::WRONLY;
                rustix::fs::openat(&folder, file, flags, FILE_MODE).unwrap();
            }
            make(&folder, &name(".removing-7")).unwrap();
        }
        folder = make(&folder, &name("d")).unwrap();
    }
    drop(folder);
    for wide in 0..2000 {
        std::fs::create_dir_all(root.path().join(format!("wide/{wide}/x"))).unwrap();
    }
    root.remove(&name("deep")).unwrap();
    root.empty(&name("wide")).unwrap();
    assert_eq!(root.entries().unwrap(), [name("wide")]);
    assert_eq!(std::fs::read_dir(root.path().join("wide")).unwrap().count(), 0);
}

#[test]
fn links_in_a_tree_are_removed_and_not_followed() {
    let (data, root) = root();
    let outside = data.path().join("outside");
    std::fs::create_dir_all(outside.join("deep")).unwrap();
    std::fs::write(outside.join("deep/file"), "x").unwrap();
    let inside = root.path().join("a/b/c");
    std::fs::create_dir_all(&inside).unwrap();
    for (number, target) in
        [&outside, &outside.join("deep"), Path::new(".."), Path::new("/")].iter().enumerate()
    {
        symlink(target, inside.join(number.to_string())).unwrap();
        symlink(target, root.path().join("a").join(number.to_string())).unwrap();
    }
    root.remove(&name("a")).unwrap();
    assert!(!root.path().join("a").exists() && outside.join("deep/file").exists());
}

#[test]
fn a_link_in_the_place_of_a_directory_is_refused() {
    let (data, root) = root();
    let outside = data.path().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("file"), "x").unwrap();
    symlink(&outside, root.path().join("a")).unwrap();
    root.remove(&name("a")).unwrap_err();
    root.empty(&name("a")).unwrap_err();
    root.make_directory(&name("a")).unwrap_err();
    root.link(&[&name("a")], &name("b"), Path::new("/")).unwrap_err();
    assert_eq!(root.read(&name("a"), 10).unwrap(), None);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn what_is_swapped_for_a_link_while_it_is_removed_leads_nowhere() {
    const ROUNDS: usize = 60;
    let (data, root) = root();
    let outside = data.path().join("outside");
    std::fs::create_dir_all(outside.join("deep")).unwrap();
    for file in 0..20 {
        std::fs::write(outside.join(format!("deep/{file}")), "x").unwrap();
    }
    let count = || std::fs::read_dir(outside.join("deep")).unwrap().count();
    for round in 0..ROUNDS {
        let tree = root.path().join("a");
        for directory in 0..20 {
            std::fs::create_dir_all(tree.join(format!("b/{directory}/deep"))).unwrap();
            std::fs::write(tree.join(format!("b/{directory}/deep/file")), "x").unwrap();
        }
        symlink(&outside, data.path().join("link")).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let swapping = {
            let (is_over, link) = (is_over.clone(), data.path().join("link"));
            let at = if round % 2 == 0 { tree.clone() } else { tree.join("b") };
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // It may be gone.
                    let _ = renameat_with(CWD, &at, CWD, &link, RenameFlags::EXCHANGE);
                }
            })
        };
        // It may find the link.
        let _ = root.remove(&name("a"));
        is_over.store(true, Ordering::Relaxed);
        swapping.join().unwrap();
        assert_eq!(count(), 20, "round {round}");
        for left in [tree, data.path().join("link")] {
            let is_link = left.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
            let _ = if is_link { std::fs::remove_file(&left) } else { std::fs::remove_dir_all(&left) };
        }
    }
}

#[test]
fn links_are_made_replaced_and_kept() {
    let (_data, root) = root();
    let make = |target: &str| root.link(&[&name("u"), &name("volumes")], &name("v"), Path::new(target));
    for target in ["/a", "/a", "/b"] {
        make(target).unwrap();
        let link = std::fs::read_link(root.path().join("u/volumes/v")).unwrap();
        assert_eq!(link, Path::new(target));
    }
    std::fs::create_dir(root.path().join("u/volumes/w")).unwrap();
    root.link(&[&name("u"), &name("volumes")], &name("w"), Path::new("/a")).unwrap_err();
}

#[test]
fn files_are_bounded() {
    let (_data, root) = root();
    root.write(&name("f"), b"12345").unwrap();
    root.write(&name("f"), b"1234").unwrap();
    assert_eq!(root.read(&name("f"), 4).unwrap().as_deref(), Some(&b"1234"[..]));
    root.read(&name("f"), 3).unwrap_err();
    root.make_directory(&name("d")).unwrap();
    assert_eq!(root.read(&name("d"), 4).unwrap(), None);
}

/// Copies that nothing cancels.
static WANTED: AtomicBool = AtomicBool::new(true);

#[test]
fn a_directory_is_copied_once_with_its_links() {
    let (_theirs, origin) = root();
    let (_ours, root) = root();
    let (volume, limits) = (origin.path().join("v"), CopyLimits::default());
    assert!(!root.copy_from(&origin, &name("v"), limits, &WANTED).unwrap(), "there is none");
    std::fs::create_dir_all(volume.join("a/b")).unwrap();
    std::fs::write(volume.join("a/b/file"), "theirs").unwrap();
    std::fs::set_permissions(volume.join("a/b/file"), std::fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a/b/file", volume.join("link")).unwrap();
    rustix::fs::mknodat(CWD, volume.join("pipe"), FileType::Fifo, FILE_MODE, 0).unwrap();
    assert!(root.copy_from(&origin, &name("v"), limits, &WANTED).unwrap());
    let copy = root.path().join("v");
    assert_eq!(std::fs::read_to_string(copy.join("link")).unwrap(), "theirs");
    assert_eq!(std::fs::read_link(copy.join("link")).unwrap(), Path::new("a/b/file"));
    assert!(!copy.join("pipe").exists());
    let mode = std::fs::metadata(copy.join("a/b/file")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "the rights of the owner");
    // What changes afterwards stays on its side.
    std::fs::write(copy.join("a/b/file"), "ours").unwrap();
    std::fs::write(volume.join("late"), "theirs").unwrap();
    assert!(root.copy_from(&origin, &name("v"), limits, &WANTED).unwrap());
    assert!(!copy.join("late").exists());
    assert_eq!(std::fs::read_to_string(volume.join("a/b/file")).unwrap(), "theirs");
    assert_eq!(root.entries().unwrap(), [name("v")], "no drafts are left");
    // A link in the place of the directory leads nowhere.
    symlink(volume, origin.path().join("l")).unwrap();
    root.copy_from(&origin, &name("l"), limits, &WANTED).unwrap_err();
}

#[test]
fn a_copy_has_limits() {
    let (_theirs, origin) = root();
    let (_ours, root) = root();
    let volume = origin.path().join("v");
    std::fs::create_dir_all(volume.join("a/b")).unwrap();
    std::fs::write(volume.join("a/file"), "12345678").unwrap();
    std::fs::write(volume.join("other"), "12345678").unwrap();
    let enough = CopyLimits { entries: 4, bytes: 16, depth: 3 };
    for (limits, want) in [
        (CopyLimits { entries: 3, ..enough }, "entries"),
        (CopyLimits { bytes: 15, ..enough }, "bytes"),
        (CopyLimits { depth: 2, ..enough }, "directories within one another"),
    ] {
        let error = root.copy_from(&origin, &name("v"), limits, &WANTED).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
        assert_eq!(root.entries().unwrap(), [], "{want}: nothing is left");
    }
    let cancelled = root.copy_from(&origin, &name("v"), enough, &AtomicBool::new(false));
    assert_eq!(cancelled.unwrap_err().raw_os_error(), Some(Errno::CANCELED.raw_os_error()));
    assert_eq!(root.entries().unwrap(), []);
    assert!(root.copy_from(&origin, &name("v"), enough, &WANTED).unwrap());
}
