use std::time::Duration;

use coracle_clock::{Clock, MockClock};
use http::Request;
use http::request::Parts;
use jiff::Timestamp;

use crate::Sessions;
use crate::sessions::{MAX_COOKIES, MAX_LINKS};

fn sessions() -> (Sessions, MockClock) {
    let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
    (Sessions::new(clock, 6443), mock)
}

fn request(method: &str, path: &str, cookie: &str) -> Parts {
    Request::builder().method(method).uri(path).header("cookie", cookie).body(()).unwrap().into_parts().0
}

/// Returns the cookie of a new session, as a browser sends it.
fn logged_in(sessions: &Sessions) -> String {
    let link = sessions.issue_link().unwrap();
    let cookie = sessions.log_in(&link).unwrap().unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

#[test]
fn a_link_is_exchanged_for_a_cookie_once() {
    let (sessions, _) = sessions();
    let link = sessions.issue_link().unwrap();
    let cookie = sessions.log_in(&link).unwrap().unwrap();
    for attribute in ["; Secure", "; HttpOnly", "; SameSite=Strict", "; Path=/;", "; Max-Age=7200"] {
        assert!(cookie.contains(attribute), "{attribute}");
    }
    assert!(
        cookie.starts_with("__Host-coracle-ui-6443=")
            && !cookie.contains("Domain")
            && !cookie.contains(&link)
    );
    assert_eq!(sessions.log_in(&link).unwrap(), None, "it was used");
}

#[test]
fn tokens_have_256_bits_and_differ() {
    let (sessions, _) = sessions();
    let links: std::collections::BTreeSet<String> = (0..10).map(|_| sessions.issue_link().unwrap()).collect();
    assert_eq!(links.len(), 10);
    assert!(links.iter().all(|link| link.len() == 43), "32 bytes in base64");
}

#[test]
fn wrong_and_expired_links_are_refused() {
    let (sessions, clock) = sessions();
    let link = sessions.issue_link().unwrap();
    let longer = format!("{link}A");
    for wrong in ["", "x", &link[1..], &longer, &"A".repeat(43)] {
        assert_eq!(sessions.log_in(wrong).unwrap(), None, "{wrong}");
    }
    clock.advance(Duration::from_secs(3599));
    assert!(sessions.log_in(&link).unwrap().is_some());
    let late = sessions.issue_link().unwrap();
    clock.advance(Duration::from_secs(3600));
    assert_eq!(sessions.log_in(&late).unwrap(), None);
}

#[test]
fn a_cookie_is_for_gets_of_the_page_and_nothing_else() {
    let (sessions, _) = sessions();
    let cookie = logged_in(&sessions);
    for (method, path, want) in [
        ("GET", "/ui", true),
        ("GET", "/ui/", true),
        ("HEAD", "/ui/app.js", true),
        ("GET", "/ui/data/picture?at=5", true),
        ("POST", "/ui/data/picture", false),
        ("DELETE", "/ui/", false),
        ("GET", "/uix", false),
        ("GET", "/api/v1/secrets", false),
        ("GET", "/", false),
        ("GET", "/coracle/v1alpha1/clock", false),
        ("GET", "/ui/../api/v1/secrets", false),
        ("GET", "/ui/%2e%2e/api/v1/secrets", false),
        ("GET", "/ui//api/v1/secrets", false),
        ("GET", "//ui/", false),
    ] {
        assert_eq!(sessions.admits(&request(method, path, &cookie)), want, "{method} {path}");
    }
}

#[test]
fn wrong_foreign_and_expired_cookies_are_refused() {
    let (sessions, clock) = sessions();
    let cookie = logged_in(&sessions);
    let (name, value) = cookie.split_once('=').unwrap();
    let (short, long) = (&value[1..], format!("{value}A"));
    let many = format!("{}{cookie}", "a=b; ".repeat(200));
    for (text, want) in [
        (cookie.clone(), true),
        (format!("other=1; {cookie}"), true),
        (format!("{name}=wrong; {cookie}"), true),
        (String::new(), false),
        (format!("{name}="), false),
        (format!("{name}={short}"), false),
        (format!("{name}={long}"), false),
        (format!("coracle-ui-6443={value}"), false),
        (format!("__Host-coracle-ui-6444={value}"), false),
        (many, false),
    ] {
        assert_eq!(sessions.admits(&request("GET", "/ui/", &text)), want, "{text}");
    }
    let (other, _) = self::sessions();
    assert!(!other.admits(&request("GET", "/ui/", &cookie)), "another server");
    clock.advance(Duration::from_secs(2 * 3600 - 1));
    assert!(sessions.admits(&request("GET", "/ui/", &cookie)));
    clock.advance(Duration::from_secs(1));
    assert!(!sessions.admits(&request("GET", "/ui/", &cookie)), "after 2 hours");
}

#[test]
fn the_exchange_of_a_link_needs_no_cookie_but_a_token_that_can_be_used() {
    let (sessions, clock) = sessions();
    let link = sessions.issue_link().unwrap();
    let cookie = logged_in(&sessions);
    for (method, path, want) in [
        ("GET", format!("/ui/login?token={link}"), true),
        ("HEAD", format!("/ui/login?token={link}"), true),
        ("GET", format!("/ui/login?a=b&token={link}"), true),
        ("POST", format!("/ui/login?token={link}"), false),
        ("GET", "/ui/login".to_owned(), false),
        ("GET", "/ui/login?token=".to_owned(), false),
        ("GET", "/ui/login?token=x".to_owned(), false),
        ("GET", format!("/ui/login?token={link}A"), false),
        ("GET", format!("/ui/login?token=x&token={link}"), false),
        ("GET", format!("/ui/login?xtoken={link}"), false),
        // A link is for its exchange alone.
        ("GET", format!("/ui/?token={link}"), false),
        ("GET", format!("/ui/data/picture?token={link}"), false),
        ("GET", format!("/ui/login/x?token={link}"), false),
    ] {
        assert_eq!(sessions.admits(&request(method, &path, "")), want, "{method} {path}");
    }
    assert!(sessions.admits(&request("GET", "/ui/login?token=x", &cookie)), "by the cookie");
    assert!(sessions.log_in(&link).unwrap().is_some(), "looking has not used it up");
    let path = format!("/ui/login?token={link}");
    assert!(!sessions.admits(&request("GET", &path, "")), "it was used");
    let path = format!("/ui/login?token={}", sessions.issue_link().unwrap());
    clock.advance(Duration::from_secs(3600));
    assert!(!sessions.admits(&request("GET", &path, "")), "it has expired");
}

#[test]
fn the_oldest_links_and_cookies_make_place_for_new_ones() {
    let (sessions, _) = sessions();
    let links: Vec<String> = (0..=MAX_LINKS).map(|_| sessions.issue_link().unwrap()).collect();
    assert_eq!(sessions.log_in(&links[0]).unwrap(), None);
    assert!(sessions.log_in(&links[1]).unwrap().is_some());
    let first = logged_in(&sessions);
    assert!(sessions.admits(&request("GET", "/ui/", &first)));
    (0..MAX_COOKIES).for_each(|_| drop(logged_in(&sessions)));
    assert!(!sessions.admits(&request("GET", "/ui/", &first)));
}
