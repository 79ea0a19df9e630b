//! Commands that start a shell which reads its input.

use crate::images::image_name;

/// The programs that are shells, if they have no arguments that name a script.
const SHELLS: [&str; 4] = ["sh", "ash", "bash", "dash"];
/// The arguments that change nothing.
const IDLE_ARGUMENTS: [&str; 4] = ["-i", "-l", "-il", "-"];
/// The longest script that is looked at, in bytes.
const MAX_SCRIPT_LENGTH: usize = 1 << 10;

/// The images that start a shell without arguments, of any registry and version.
const SHELL_IMAGES: [&str; 10] = [
    "alpine",
    "amazonlinux",
    "archlinux",
    "bash",
    "busybox",
    "centos",
    "debian",
    "fedora",
    "rockylinux",
    "ubuntu",
];

/// Returns `true` if an image starts a shell without arguments.
pub fn starts_shell(image: &str) -> bool {
    SHELL_IMAGES.contains(&image_name(image))
}

/// Returns `true` if a command starts a shell that reads its input. That is the shell itself, or a
/// script that looks for one, as k9s runs it: `sh -c "command -v bash >/dev/null && exec bash ||
/// exec sh"`.
pub fn is_interactive_shell(command: &[String]) -> bool {
    let Some((_, arguments)) = command.split_first().filter(|(program, _)| is_shell(program)) else {
        return false;
    };
    match arguments {
        [option, script] if option == "-c" => script.len() <= MAX_SCRIPT_LENGTH && ends_in_shell(script),
        arguments => arguments.iter().all(|argument| IDLE_ARGUMENTS.contains(&argument.as_str())),
    }
}

fn is_shell(program: &str) -> bool {
    SHELLS.contains(&program.rsplit('/').next().unwrap_or_default())
}

/// Returns `true` if the last command of a script is a shell.
fn ends_in_shell(script: &str) -> bool {
    let script = script.trim_end_matches([')', ';', ' ', '\n']);
    let last = script.rsplit(['|', '&', ';', '(', '\n']).next().unwrap_or_default();
    let mut words = last.split_whitespace().skip_while(|word| *word == "exec");
    words.next().is_some_and(is_shell) && words.all(|word| IDLE_ARGUMENTS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_shells() {
        for (image, want) in [
            ("busybox", true),
            ("registry:5000/library/alpine:3.20", true),
            ("ubuntu@sha256:0123", true),
            ("nginx", false),
            ("busybox/app", false),
            ("", false),
        ] {
            assert_eq!(starts_shell(image), want, "{image}");
        }
    }

    #[test]
    fn shells_are_those_without_a_script_and_scripts_that_end_in_one() {
        for (command, want) in [
            (&["sh"][..], true),
            (&["/bin/bash", "-i"], true),
            (&["sh", "-c", "ls"], false),
            (&["sh", "script"], false),
            (&["zsh"], false),
            (&[], false),
            (&["sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"], true),
            (&["sh", "-c", "clear; (bash || ash || sh)"], true),
            (&["sh", "-c", "TERM=xterm; export TERM; exec /bin/bash -l"], true),
            (&["sh", "-c", "echo sh"], false),
            (&["sh", "-c", "sh -c ls"], false),
            (&["sh", "-c", ""], false),
        ] {
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(is_interactive_shell(&command), want, "{command:?}");
        }
    }
}
