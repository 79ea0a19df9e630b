//! The parts of a Markdown document that can be wrong: its links, its anchors, and the paths that
//! it names.

use regex::Regex;

/// A text in a document, with the number of its line.
pub struct Mention {
    /// The line, counted from 1.
    pub line: usize,
    /// The text.
    pub text: String,
}

/// The patterns, compiled once.
pub struct Markdown {
    link: Regex,
    code: Regex,
    path: Regex,
    command: Regex,
}

impl Markdown {
    pub fn new() -> Markdown {
        let pattern = |text| Regex::new(text).expect("a pattern");
        Markdown {
            link: pattern(r#"\]\(([^)\s]+)\)|\bsrc="([^"]+)""#),
            code: pattern("`([^`]+)`"),
            path: pattern(r"^(?:[A-Za-z0-9_.-]+/)*[A-Za-z0-9_.-]+/?$"),
            command: pattern(
                r"(?:^|[\s(])(?:[^\s=]*/)?coracle ([a-z][a-z-]*(?: --?[a-z][a-z-]*(?:[ =][^-\s#)]\S*)?)*)",
            ),
        }
    }

    /// Returns the targets of links and images, outside of code. Addresses of other sites are left
    /// out.
    pub fn links(&self, document: &str) -> Vec<Mention> {
        let mut links = Vec::new();
        for (line, text) in prose(document) {
            let text = self.code.replace_all(text, "");
            for found in self.link.captures_iter(&text) {
                let target = found.get(1).or(found.get(2)).map_or("", |target| target.as_str());
                if !target.contains("://") && !target.starts_with("mailto:") {
                    links.push(Mention { line, text: target.to_owned() });
                }
            }
        }
        links
    }

    /// Returns the anchors of the headings, as GitHub makes them.
    pub fn anchors(&self, document: &str) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for (_, text) in prose(document).filter(|(_, text)| text.starts_with('#')) {
            let heading = text.trim_start_matches('#').trim().to_lowercase();
            let slug: String = heading
                .chars()
                .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect();
            let count = |anchor: &String| *anchor == slug || is_numbered(anchor, &slug);
            let earlier = anchors.iter().filter(|anchor| count(anchor)).count();
            anchors.push(if earlier == 0 { slug } else { format!("{slug}-{earlier}") });
        }
        anchors
    }

    /// Returns the words in code that have the form of a path.
    pub fn paths(&self, document: &str) -> Vec<Mention> {
        let words = self.code(document).into_iter().flat_map(|(line, code)| {
            let words =
                code.split_whitespace().map(|word| word.trim_matches([',', ';', ':', '(', ')', '"', '\'']));
            words.map(move |text| Mention { line, text: text.to_owned() })
        });
        let is_path = |text: &str| self.path.is_match(text) && (text.contains('/') || text.ends_with(".rs"));
        words.filter(|word| is_path(&word.text)).collect()
    }

    /// Returns the commands of `coracle` in code: the subcommand, and its flags up to the command
    /// that it runs.
    pub fn commands(&self, document: &str) -> Vec<Mention> {
        let lines = self.code(document).into_iter();
        let found = lines.flat_map(|(line, code)| {
            let found = self.command.captures_iter(code).map(|found| found.extract::<1>().1[0]);
            found.map(move |text| Mention { line, text: text.trim().to_owned() })
        });
        found.collect()
    }

    /// Returns the lines of blocks of code, without the output in those of a console, and inline
    /// code.
    fn code<'a>(&self, document: &'a str) -> Vec<(usize, &'a str)> {
        let mut found = Vec::new();
        let mut language = None;
        for (index, text) in document.lines().enumerate() {
            if let Some(name) = text.trim_start().strip_prefix("```") {
                language = if language.is_none() { Some(name) } else { None };
            } else if language.is_some() || text.starts_with("    ") {
                let is_output = language == Some("console") && !text.starts_with(['$', '>']);
                found.extend((!is_output).then_some((index + 1, text)));
            } else {
                let inline = self.code.captures_iter(text).map(|found| found.extract::<1>().1[0]);
                found.extend(inline.map(|code| (index + 1, code)));
            }
        }
        found
    }
}

/// Returns `true` if an anchor is that of a later heading with the same text.
fn is_numbered(anchor: &str, slug: &str) -> bool {
    let number = anchor.strip_prefix(slug).and_then(|rest| rest.strip_prefix('-'));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

/// Iterates over the lines outside of fenced blocks, with their numbers.
fn prose(document: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    document.lines().enumerate().filter_map(move |(index, text)| {
        let is_fence = text.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fence && !is_fenced).then_some((index + 1, text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(mentions: &[Mention]) -> Vec<(usize, &str)> {
        mentions.iter().map(|mention| (mention.line, mention.text.as_str())).collect()
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let document =
            "[a](b.md#c) `[d](e)`\n```\n[f](g)\n```\n![h](i.svg) [j](https://k.example)\n<img src=\"l.png\">";
        assert_eq!(texts(&Markdown::new().links(document)), [(1, "b.md#c"), (5, "i.svg"), (6, "l.png")]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let document =
            "# One `two`, three\n## Settle: no sleep\n```\n# no heading\n```\n## A_b\n## A_b\n## A_b";
        let want = ["one-two-three", "settle-no-sleep", "a_b", "a_b-1", "a_b-2"];
        assert_eq!(Markdown::new().anchors(document), want);
    }

    #[test]
    fn paths_are_found_in_code_alone() {
        let document = "and/or `src/lib.rs` `main.rs` `a b` `x::y`\n    e2e/clients/run NAME\n```\npackaging/build, all\n```\n\
                        `packaging/build all` `https://a.example/b` `A/B=c`";
        let want = [
            (1, "src/lib.rs"),
            (1, "main.rs"),
            (2, "e2e/clients/run"),
            (4, "packaging/build"),
            (6, "packaging/build"),
        ];
        assert_eq!(texts(&Markdown::new().paths(document)), want);
    }

    #[test]
    fn commands_are_found_with_their_flags() {
        let document = "    export A=$(coracle fork --clock manual a)  # coracle\n`coracle run --nodes=2 -v -- go test --short`, \
                        `pip install coracle` coracle serve\n```\nkubectl coracle why pod/a -n b\n```\n```console\n$ coracle up\ncoracle is up\n```";
        let want = [(1, "fork --clock manual"), (2, "run --nodes=2 -v"), (4, "why"), (7, "up")];
        assert_eq!(texts(&Markdown::new().commands(document)), want);
    }
}
