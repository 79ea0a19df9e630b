//! Collects the descriptions of types and fields for the OpenAPI documents, from the sources of the `k8s-openapi` crate.
//!
//! Its `schemars` feature would give them too, but triples the size of the program and doubles the time to compile that
//! crate; its sources hold the same texts in generated, regular code. The crate is found wherever cargo keeps it (registry,
//! vendored, patched), in the version that the workspace is locked to. Where it is not at hand, the documents go without.

use std::collections::BTreeMap;
use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the documents are made from, and by.
const SOURCES: &[&str] = &["src/discovery/openapi", "src/schema"];

/// The module of the crate for the version that we serve.
const VERSION: &str = "v1_36";

/// Type name, then JSON name of a field ("" for the type itself), then text.
type Descriptions = BTreeMap<String, BTreeMap<String, String>>;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../Cargo.lock");
    let mut sources = DefaultHasher::new();
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        fingerprint(Path::new(source), &mut sources)?;
    }
    let mut descriptions = Descriptions::new();
    match k8s_openapi() {
        Ok(crate_dir) => collect(&crate_dir.join("src").join(VERSION), &mut descriptions)?,
        Err(error) => println!("cargo::warning=OpenAPI documents go without descriptions: {error}"),
    }
    let path = Path::new(&env::var("OUT_DIR")?).join("descriptions.json.deflate");
    let mut deflate =
        flate2::write::DeflateEncoder::new(fs::File::create(path)?, flate2::Compression::best());
    deflate.write_all(&serde_json::to_vec(&descriptions)?)?;
    deflate.finish()?;
    descriptions.hash(&mut sources);
    println!("cargo::rustc-env=OPENAPI_SOURCES={:016x}", sources.finish());
    Ok(())
}

/// Hashes files and folders: clients keep documents for as long as their hash stays, across new versions of the server.
fn fingerprint(path: &Path, hasher: &mut DefaultHasher) -> Result<(), Box<dyn Error>> {
    if !path.is_dir() {
        hasher.write(&fs::read(path)?);
        return Ok(());
    }
    let mut entries =
        fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    entries.sort();
    entries.iter().try_for_each(|entry| fingerprint(entry, hasher))
}

/// Where cargo keeps the sources of the crate.
fn k8s_openapi() -> Result<PathBuf, Box<dyn Error>> {
    // Everything is at hand already in most builds; asking the network first would only make them depend on it.
    let metadata = metadata(&["--offline"]).or_else(|_| metadata(&[]))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let package = packages.iter().find(|package| package["name"] == "k8s-openapi");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.ok_or("k8s-openapi is no dependency of the workspace")?;
    Ok(Path::new(manifest).parent().ok_or("a manifest without a folder")?.to_owned())
}

fn metadata(more: &[&str]) -> Result<serde_json::Value, Box<dyn Error>> {
    let output = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--filter-platform", &env::var("TARGET")?])
        .args(more)
        .current_dir(env::var("CARGO_MANIFEST_DIR")?)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr)
            .lines()
            .last()
            .unwrap_or("cargo metadata failed")
            .into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn collect(dir: &Path, descriptions: &mut Descriptions) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            // Only stable versions are served.
            if !name.contains("alpha") && !name.contains("beta") {
                collect(&path, descriptions)?;
            }
        } else if let Some((name, fields)) = read(&fs::read_to_string(&path)?) {
            descriptions.insert(name, fields);
        }
    }
    Ok(())
}

/// Reads the schema out of a type's source: its name, and the descriptions, told apart by their indentation.
fn read(source: &str) -> Option<(String, BTreeMap<String, String>)> {
    let (_, schema) = source.split_once("fn schema_name()")?;
    let name = literal(&schema[schema.find('"')?..])?;
    let mut fields = BTreeMap::new();
    let mut field = String::new();
    for line in schema.lines() {
        let code = line.trim_start();
        let depth = line.len() - code.len();
        if depth == 16 && code.starts_with('"') {
            field = literal(code)?;
        }
        let text = code
            .strip_prefix("\"description\": ")
            .or_else(|| code.split_once(".insert(\"description\".into(), ").map(|(_, rest)| rest));
        if let Some(text) = text.and_then(literal) {
            let of_type = depth == 12;
            fields.entry(if of_type { String::new() } else { field.clone() }).or_insert(text);
        }
    }
    Some((name, fields))
}

/// The value of the string literal that the code begins with.
fn literal(code: &str) -> Option<String> {
    let mut chars = code.strip_prefix('"')?.chars();
    let mut text = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => match chars.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'r' => text.push('\r'),
                'u' => {
                    let code: String = chars.by_ref().skip(1).take_while(|c| *c != '}').collect();
                    text.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
                }
                escaped => text.push(escaped),
            },
            plain => text.push(plain),
        }
    }
}
