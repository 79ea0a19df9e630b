//! One-time links to the page, and the cookies that they are exchanged for.
//!
//! A cookie makes its requests those of [`UI_USER`], for GETs of the page alone. The cookie cannot
//! be read by scripts, is sent with requests of the page itself only, and is worth nothing for any
//! other path.

use std::collections::VecDeque;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coracle_clock::Clock;
use http::request::Parts;
use http::{HeaderMap, Method, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};

use crate::{Error, PREFIX};

/// The user of the requests with a cookie.
pub const UI_USER: &str = "coracle:ui";
/// The path that exchanges a link for a cookie.
pub const LOGIN_PATH: &str = "/ui/login";

/// The bytes of a token.
const TOKEN_BYTES: usize = 32;
/// The time in which a link can be used.
const LINK_LIFETIME: Duration = Duration::from_secs(3600);
/// The time in which a cookie can be used.
const COOKIE_LIFETIME: Duration = Duration::from_secs(2 * 3600);
/// The links that can be used at a time; the oldest one expires first.
pub(crate) const MAX_LINKS: usize = 16;
/// The cookies that can be used at a time; the oldest one expires first.
pub(crate) const MAX_COOKIES: usize = 64;
/// The cookies of a request that are compared.
const MAX_COMPARED: usize = 100;

/// The links and cookies of a server.
pub struct Sessions {
    clock: Clock,
    /// The name of the cookie. Cookies are shared among the ports of a host, so each server has a
    /// name of its own.
    cookie: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: Tokens,
    cookies: Tokens,
}

#[derive(Default)]
struct Tokens(VecDeque<Token>);

struct Token {
    text: String,
    expires: Timestamp,
}

impl Tokens {
    fn add(&mut self, text: String, expires: Timestamp, most: usize) {
        while self.0.len() >= most {
            self.0.pop_front();
        }
        self.0.push_back(Token { text, expires });
    }

    /// Returns the index of a token that has not expired. Each is compared in constant time.
    fn find(&self, text: &str, now: Timestamp) -> Option<usize> {
        let mut found = None;
        for (index, token) in self.0.iter().enumerate() {
            if is_equal(&token.text, text) && now < token.expires {
                found = Some(index);
            }
        }
        found
    }
}

impl Sessions {
    /// Creates the sessions of a server.
    ///
    /// - `clock`: the time by which links and cookies expire
    /// - `port`: the port of the server, by which its cookie is named
    pub fn new(clock: Clock, port: u16) -> Sessions {
        Sessions { clock, cookie: format!("__Host-coracle-ui-{port}"), state: Mutex::default() }
    }

    /// Creates a token that can be exchanged for a cookie once, within an hour.
    ///
    /// # Errors
    /// [`Error::Random`].
    pub fn issue_link(&self) -> Result<String, Error> {
        let token = random()?;
        let expires = self.clock.now() + LINK_LIFETIME;
        self.state.lock().links.add(token.clone(), expires, MAX_LINKS);
        Ok(token)
    }

    /// Exchanges the token of a link for the value of `Set-Cookie`; None if the token is unknown,
    /// used or expired.
    ///
    /// # Errors
    /// [`Error::Random`]; the link can be used again.
    pub fn log_in(&self, token: &str) -> Result<Option<String>, Error> {
        let (cookie, now) = (random()?, self.clock.now());
        let mut state = self.state.lock();
        let Some(index) = state.links.find(token, now) else { return Ok(None) };
        state.links.0.remove(index);
        state.cookies.add(cookie.clone(), now + COOKIE_LIFETIME, MAX_COOKIES);
        let age = COOKIE_LIFETIME.as_secs();
        let name = &self.cookie;
        Ok(Some(format!("{name}={cookie}; Path=/; Max-Age={age}; Secure; HttpOnly; SameSite=Strict")))
    }

    /// Returns `true` if a request without other credentials may be served as one of [`UI_USER`].
    /// That is a GET of the page with a valid cookie, or the exchange of a valid link, which this
    /// check does not use up.
    pub fn admits(&self, parts: &Parts) -> bool {
        let path = parts.uri.path();
        let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
        let has_link = || path == LOGIN_PATH && self.has_link(parts.uri.query().unwrap_or_default());
        is_read && is_of_page(path) && (self.has_cookie(&parts.headers) || has_link())
    }

    /// Returns `true` if a query has the token of a valid link.
    fn has_link(&self, query: &str) -> bool {
        let now = self.clock.now();
        let token = query.split('&').find_map(|option| option.strip_prefix("token="));
        token.is_some_and(|token| self.state.lock().links.find(token, now).is_some())
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let now = self.clock.now();
        let state = self.state.lock();
        let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let cookies = lines.flat_map(|line| line.split(';')).take(MAX_COMPARED);
        let mut values = cookies.filter_map(|cookie| cookie.trim().split_once('='));
        values.any(|(name, value)| name == self.cookie && state.cookies.find(value, now).is_some())
    }
}

/// Returns `true` if a path is below the page, and has no parts that could be read as another path.
fn is_of_page(path: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'/' | b'.' | b'-' | b'_');
    (path == PREFIX.trim_end_matches('/') || path.starts_with(PREFIX))
        && path.bytes().all(is_plain)
        && !path.contains("..")
        && !path.contains("//")
}

fn is_equal(one: &str, other: &str) -> bool {
    let difference = one.bytes().zip(other.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(difference) == 0 && one.len() == other.len()
}

fn random() -> Result<String, Error> {
    let mut bytes = [0; TOKEN_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Random)?;
    Ok(BASE64_URL_SAFE_NO_PAD.encode(bytes))
}
