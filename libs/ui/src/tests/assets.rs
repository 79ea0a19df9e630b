use crate::assets::{ASSETS, Asset};
use crate::{LOGIN_REFUSED, SECURITY_HEADERS, asset, etag};

/// The bytes of all scripts together.
const MAX_SCRIPTS: usize = 60 << 10;

fn scripts() -> impl Iterator<Item = &'static Asset> {
    ASSETS.iter().filter(|asset| asset.name.ends_with(".js"))
}

#[test]
fn the_scripts_are_small() {
    let size: usize = scripts().map(|script| script.content.len()).sum();
    assert!(size < MAX_SCRIPTS, "{size} bytes");
}

#[test]
fn all_files_of_the_page_are_served_and_found_by_what_refers_to_them() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/page");
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !["index.html", "refused.html"].contains(&name.as_str()))
        .collect();
    let mut served: Vec<&str> =
        ASSETS.iter().map(|asset| asset.name).filter(|name| !name.is_empty()).collect();
    names.sort();
    served.sort_unstable();
    assert_eq!(names, served);
    for script in scripts() {
        for imported in script.content.lines().filter_map(|line| line.split(" from './").nth(1)) {
            let name = imported.trim_end_matches("';");
            assert!(asset(name).is_some(), "{} imports {name}", script.name);
        }
        let is_loaded = asset("").unwrap().content.contains(&format!("\"{}\"", script.name));
        assert!(is_loaded, "{} is not loaded at once", script.name);
    }
}

#[test]
fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
    for page in [asset("").unwrap(), &LOGIN_REFUSED] {
        for forbidden in [" style=", " onclick=", " onload=", "<style", "javascript:", "http://", "https://"]
        {
            assert!(!page.content.contains(forbidden), "{:?} has {forbidden}", page.name);
        }
        let scripts = page.content.matches("<script").count();
        assert_eq!(scripts, page.content.matches("<script type=\"module\" src=\"").count());
    }
    for script in scripts() {
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            ".style.",
        ] {
            assert!(!script.content.contains(forbidden), "{} has {forbidden}", script.name);
        }
    }
    let policy = SECURITY_HEADERS.iter().find(|(name, _)| *name == "content-security-policy").unwrap().1;
    assert!(
        policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe") && !policy.contains('*')
    );
}

#[test]
fn an_etag_follows_the_content() {
    let (page, style) = (asset("").unwrap(), asset("style.css").unwrap());
    assert_ne!(etag(page), etag(style));
    assert_eq!(etag(page), etag(page));
    assert!(asset("nothing").is_none() && asset("../Cargo.toml").is_none());
}
