//! The scripts and styles of the page, which are in the binary.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A file of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The name below `/ui/`; empty for the page itself.
    pub name: &'static str,
    /// The value of `Content-Type`.
    pub content_type: &'static str,
    /// The content.
    pub content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! script {
    ($name:literal) => {
        Asset { name: $name, content_type: SCRIPT, content: include_str!(concat!("../page/", $name)) }
    };
}

/// The files of the page.
pub(crate) const ASSETS: [Asset; 12] = [
    Asset { name: "", content_type: HTML, content: include_str!("../page/index.html") },
    Asset {
        name: "style.css",
        content_type: "text/css; charset=utf-8",
        content: include_str!("../page/style.css"),
    },
    Asset { name: "icon.svg", content_type: "image/svg+xml", content: include_str!("../page/icon.svg") },
    script!("app.js"),
    script!("canvas.js"),
    script!("data.js"),
    script!("dom.js"),
    script!("forest.js"),
    script!("list.js"),
    script!("panel.js"),
    script!("timeline.js"),
    script!("yaml.js"),
];

/// The page that refuses a link.
pub const LOGIN_REFUSED: Asset =
    Asset { name: "login", content_type: HTML, content: include_str!("../page/refused.html") };

/// The headers of every response below `/ui/`.
///
/// The policy allows no inline script or style, no other origin, no form and no frame.
pub const SECURITY_HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("vary", "cookie, authorization"),
];

/// Returns the file with a name below `/ui/`. The name of the page itself is empty.
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// Returns the `ETag` of a file.
pub fn etag(asset: &Asset) -> String {
    let mut hasher = DefaultHasher::new();
    asset.content.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
