//! Lists: the pages of a list are the list, wherever a continue token begins.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coracle_apimachinery::request::options::{ListOptions, Query, VersionMatch, parse_revision};
use coracle_apiserver::registry::read::Filter;
use serde_json::Value;

use crate::parts;
use crate::server::server;

/// More pages than there are objects.
const MAX_PAGES: usize = 100;

/// Tests a query; or the JSON of a continue token, and a query. Either is refused with its own
/// error code, or the pages from there on together equal one page without a limit, in strict order.
pub fn list_options(data: &[u8]) -> bool {
    let (token, query) = match parts(data) {
        Some([token, query]) => (Some(URL_SAFE_NO_PAD.encode(token)), query),
        None => (None, data),
    };
    let query = String::from_utf8_lossy(query);
    let query = match token {
        Some(token) => format!("continue={token}&{query}"),
        None => query.into_owned(),
    };
    let query = Query::parse(&query);
    let Ok(mut options) = ListOptions::parse(&query, false) else { return false };
    let registry = server().registry();
    // A request for a future revision would wait.
    let token = URL_SAFE_NO_PAD.decode(&options.continue_token).unwrap_or_default();
    let token: Value = serde_json::from_slice(&token).unwrap_or_default();
    let asked = parse_revision(&options.resource_version).unwrap_or(0);
    if asked.max(token["rv"].as_u64().unwrap_or(0)) > registry.store.revision().0 {
        return false;
    }
    let info = registry.find("", "v1", "configmaps").expect("a built-in resource");
    let Ok(filter) = Filter::new(&info, query.first("namespace").unwrap_or_default(), &options) else {
        return false;
    };
    server().runtime.block_on(async {
        // A limit with a revision alone means exactly that revision.
        let version_match = match options.version_match {
            VersionMatch::Unset if asked > 0 && options.limit > 0 => VersionMatch::Exact,
            other => other,
        };
        let whole = ListOptions { limit: 0, version_match, ..options.clone() };
        let whole = match registry.list(&info, &filter, &whole).await {
            Ok(page) => page,
            Err(error) => {
                assert!(matches!(error.code(), 400 | 410 | 422 | 504), "{error} ({})", error.code());
                return false;
            }
        };
        assert!(whole.continue_token.is_none() && whole.remaining.is_none());
        assert!(whole.items.is_sorted_by(|a, b| a.key.name() < b.key.name()), "objects are in order");
        let mut found = Vec::new();
        for _ in 0..MAX_PAGES {
            let page = registry.list(&info, &filter, &options).await.expect("the list has another page");
            assert!(
                options.limit == 0 || options.resource_version == "0" || page.items.len() <= options.limit
            );
            found.extend(page.items);
            let Some(token) = page.continue_token else {
                let names = |items: &[std::sync::Arc<coracle_apiserver::registry::Stored>]| {
                    items.iter().map(|item| item.key.name().to_owned()).collect::<Vec<_>>()
                };
                assert_eq!(names(&found), names(&whole.items), "the pages are not the list");
                return true;
            };
            (options.continue_token, options.resource_version) = (token, String::new());
        }
        panic!("{MAX_PAGES} pages are not enough");
    })
}
