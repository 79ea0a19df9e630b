//! Generates `apiserver/apimachinery/src/schema/descriptions.json`, the descriptions of types and
//! fields for the OpenAPI documents, from the sources of the `k8s-openapi` crate, in the version
//! that the workspace is locked to.
//!
//! The crate's `schemars` feature would provide them too, but triples the size of the program and
//! doubles the time to compile that crate; its sources contain the same texts in generated, regular
//! code.
//!
//! `REGENERATE=1 cargo test -p coracle-apimachinery --test descriptions` writes the file anew.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The module of the crate for the version that we serve.
const VERSION: &str = "v1_36";

/// Type name, then JSON name of a field ("" for the type itself), then text.
type Descriptions = BTreeMap<String, BTreeMap<String, String>>;

/// Compares the file with the crate's sources. Skipped if they are not available.
#[test]
fn the_descriptions_are_fresh() -> Result<(), Box<dyn Error>> {
    let sources = match k8s_openapi() {
        Ok(sources) => sources,
        Err(error) => {
            eprintln!("skipped: {error}");
            return Ok(());
        }
    };
    let mut descriptions = Descriptions::new();
    collect(&sources.join("src").join(VERSION), &mut descriptions)?;
    assert!(descriptions.len() > 500, "{} types in {}", descriptions.len(), sources.display());
    let generated = serde_json::to_string_pretty(&descriptions)? + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/schema/descriptions.json");
    if env::var_os("REGENERATE").is_some() {
        fs::write(file, generated)?;
    } else {
        assert!(fs::read_to_string(file)? == generated, "run this test with REGENERATE=1");
    }
    Ok(())
}

/// Returns the source directory of the crate k8s-openapi: in cargo's registry, vendored, or
/// patched.
fn k8s_openapi() -> Result<PathBuf, Box<dyn Error>> {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version=1", "--offline", "--filter-platform", "host-tuple"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let package = packages.iter().find(|package| package["name"] == "k8s-openapi");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.ok_or("k8s-openapi is no dependency of the workspace")?;
    Ok(Path::new(manifest).parent().ok_or("a manifest without a folder")?.to_owned())
}

fn collect(dir: &Path, descriptions: &mut Descriptions) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            // Only stable versions are used.
            if !name.contains("alpha") && !name.contains("beta") {
                collect(&path, descriptions)?;
            }
        } else if let Some((name, fields)) = read(&fs::read_to_string(&path)?) {
            descriptions.insert(name, fields);
        }
    }
    Ok(())
}

/// Reads the schema out of a type's source: its name, and the descriptions, distinguished by their
/// indentation.
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

/// Returns the value of the string literal with which the code begins.
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
