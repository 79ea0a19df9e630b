use crate::corpus;

#[test]
fn the_group_matches_the_real_server() {
    corpus::check(include_str!("corpus.json"));
}
