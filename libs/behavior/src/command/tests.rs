use serde_json::{Value, json};

use super::files::File;
use super::*;

const MOMENT: Duration = Duration::from_secs(1);

fn start() -> Timestamp {
    "2026-01-05T00:00:00Z".parse().unwrap()
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let mut environment = Environment::default();
    variables.iter().for_each(|(name, value)| environment.set(name, Some((*value).to_owned())));
    environment.set("SECRET", None);
    environment
}

/// Returns the files of a container with these fields.
fn files(fields: Value) -> Files {
    let mut container = json!({"name": "c"});
    container.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Files::of(&serde_json::from_value(container).unwrap())
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).collect()
}

/// Formats the end in milliseconds with the code, and the output with its times: `0 "hi\n",
/// 2000:3`, with a `?` if something was unclear.
fn shown(command: &[&str], variables: &[(&str, &str)], unclear: Unclear) -> String {
    let run = follow(&words(command), &environment(variables), files(json!({})), unclear, start());
    let lines = run.output.iter().map(|line| format!("{} {:?}, ", line.at.as_millis(), line.text));
    let end = match run.end {
        Some(End { after, code }) => format!("{}:{code}", after.as_millis()),
        None => "never".to_owned(),
    };
    format!("{}{end}{}", lines.collect::<String>(), if run.unsimulated.is_none() { "" } else { "?" })
}

#[test]
fn commands_that_say_what_they_do() {
    for (command, want) in [
        (&["sleep", "5"][..], "5000:0"),
        (&["/bin/sleep", "1m", "1.5"], "61500:0"),
        (&["sleep", "infinity"], "never"),
        (&["sleep", "99999999999999999999999999d"], "never"),
        (&["sleep", "soon"], "never?"),
        (&["sleep"], "never?"),
        (&["sleep", "1e-2"], "never?"),
        (&["true"], "0:0"),
        (&["false"], "0:1"),
        (&["exit", "7"], "0:7"),
        (&["exit", "257"], "0:1"),
        (&["exit", "-1"], "never?"),
        (&["echo", "hi", "there"], "0 \"hi there\\n\", 0:0"),
        (&["echo", "-n", "hi"], "0 \"hi\", 0:0"),
        (&["echo", "-e", "a\\tb\\\\"], "0 \"a\\tb\\\\\\n\", 0:0"),
        (&["echo", "-x"], "0 \"-x\\n\", 0:0"),
        (&["echo", "-e", "\\033[1mx\\x41\\e"], "0 \"\\u{1b}[1mxA\\u{1b}\\n\", 0:0"),
        (&["echo", "-e", "\\c"], "never?"),
        (&["echo", "a\\nb"], "never?"),
        (&["printf", "--", "\\101\\n"], "0 \"A\\n\", 0:0"),
        (&["printf", "%d", "010"], "never?"),
        (&["printf", "%x", "1"], "never?"),
        (&["printf", "50%"], "never?"),
        (&["printf", "%s=%d\\n", "a", "1", "b", "2"], "0 \"a=1\\n\", 0 \"b=2\\n\", 0:0"),
        (&["printf", "100%%"], "0 \"100%\", 0:0"),
        (&["date"], "0 \"Mon Jan  5 00:00:00 UTC 2026\\n\", 0:0"),
        (&["tail", "-f", "/dev/null"], "never"),
        (&["tail", "-n", "1", "-F", "x"], "never"),
        (&["tail", "--follow=name", "x"], "never"),
        (&["/pause"], "never"),
        (&["busybox", "sleep", "2"], "2000:0"),
    ] {
        assert_eq!(shown(command, &[], Unclear::RunsOn), want, "{command:?}");
    }
}

#[test]
fn scripts() {
    for (script, want) in [
        ("", "0:0"),
        ("exit 3", "0:3"),
        ("false; exit", "0:1"),
        ("echo a; sleep 2; echo b", "0 \"a\\n\", 2000 \"b\\n\", 2000:0"),
        ("echo a\nsleep 2\n\n# echo c\necho b # d", "0 \"a\\n\", 2000 \"b\\n\", 2000:0"),
        ("echo -n a; sleep 1; echo b", "1000 \"ab\\n\", 1000:0"),
        ("true && echo a || echo b", "0 \"a\\n\", 0:0"),
        ("false && echo a || echo b", "0 \"b\\n\", 0:0"),
        ("false && echo a", "0:1"),
        ("set -e; false; echo a", "0:1"),
        ("set -e; false || true; echo a", "0 \"a\\n\", 0:0"),
        ("set -eo pipefail; set -o errexit; false; echo a", "0:1"),
        ("set -x; echo a b", "0 \"+ echo a b\\n\", 0 \"a b\\n\", 0:0"),
        ("set -x; echo 'a b'", "1000:0?"),
        ("set; exit 1", "1000:0?"),
        ("exit $SECRET; echo a", "1000:0?"),
        ("A=1; A+=2; exit 1", "1000:0?"),
        ("export IFS=,; exit 1", "1000:0?"),
        ("command exit 3; echo a", "1000:0?"),
        ("sleep 10 && true & exit 3", "1000:0?"),
        ("echo a; true && x & exit 3", "0 \"a\\n\", 1000:0?"),
        ("sleep 10 & exit 3", "0:3"),
        ("true &&\nexit 2", "1000:0?"),
        ("true &&", "1000:0?"),
        ("until false; do exit; done", "0:1"),
        ("A=true; while $A; do A=false; sh -c 'exit 3'; done", "0:3"),
        ("while true; do done", "1000:0?"),
        ("set -e & wait; false; echo a", "0 \"a\\n\", 0:0"),
        ("exit 0\r\n", "1000:0?"),
        ("echo a > /nosuch/file; echo b", "1000:0?"),
        ("true < /nosuch", "1000:0?"),
        ("echo a &>f", "1000:0?"),
        ("echo a > '/dev/stdout'", "0 \"a\\n\", 0:0"),
        ("E=; echo a \"\"$E b", "0 \"a  b\\n\", 0:0"),
        ("TZ=Asia/Tokyo; date", "1000:0?"),
        ("set -u; echo $1; exit 2", "1000:2?"),
        ("set -- a b; echo $1", "1000:0?"),
        ("set -e; set +e; false; echo a", "0 \"a\\n\", 0:0"),
        ("echo \"a  b\" 'c  $X' d\\ e", "0 \"a  b c  $X d e\\n\", 0:0"),
        ("echo $X ${X}y \"$X\"", "0 \"1 2 1 2y 1  2\\n\", 0:0"),
        ("echo $NONE; exit 1", "1000:1?"),
        ("A=b; E=$A$A; echo $E", "0 \"bb\\n\", 0:0"),
        ("A=$X; B=1 C=$A; echo \"$C\"", "0 \"1  2\\n\", 0:0"),
        ("A=b; sh -c 'echo $A; exit 1'", "1000:1?"),
        ("A=b sh -c 'echo $A'", "0 \"b\\n\", 0:0"),
        ("A=1; unset A; exit 1", "1000:0?"),
        (". /env.sh; exit 1", "1000:0?"),
        ("IFS=,; exit 1", "1000:0?"),
        ("export A=b && sh -c 'echo $A $0 $1' x y", "0 \"b x y\\n\", 0:0"),
        ("false; echo $?", "0 \"1\\n\", 0:0"),
        ("exec sleep 3; echo a", "3000:0"),
        (
            "echo a >&2; echo b > /dev/null; echo c 2>/dev/null; echo d >> /dev/stdout",
            "0 \"a\\n\", 0 \"c\\n\", 0 \"d\\n\", 0:0",
        ),
        ("> /tmp/ready; echo a", "0 \"a\\n\", 0:0"),
        ("echo a > /tmp/f; sleep 1; echo b >> /tmp/f; cat /tmp/f", "1000 \"a\\n\", 1000 \"b\\n\", 1000:0"),
        (": >> /tmp/f; cat /tmp/f", "0:0"),
        ("echo a > f; echo b > ./f; cat f", "0 \"b\\n\", 0:0"),
        ("cat /tmp/f || exit 3", "0 \"cat: can't open '/tmp/f': No such file or directory\\n\", 0:3"),
        ("cat /tmp/f 2>/dev/null || exit 3", "0:3"),
        ("cat /tmp/f > /dev/null 2>&1 || exit 3", "0:3"),
        ("cat /tmp/f 2>&1 > /dev/null", "0 \"cat: can't open '/tmp/f': No such file or directory\\n\", 0:1"),
        (
            "cat /tmp/f 2> /tmp/g; cat /tmp/g",
            "0 \"cat: can't open '/tmp/f': No such file or directory\\n\", 0:0",
        ),
        ("echo a > /tmp/f 2> /tmp/g; echo b", "1000:0?"),
        ("echo a > /tmp/f > /dev/null; cat /tmp/f", "1000:0?"),
        ("echo a > /tmp/f >&2; cat /tmp/f", "1000:0?"),
        (
            "touch /tmp/f; cat /tmp/f && rm /tmp/f && rm /tmp/f 2>&1",
            "0 \"rm: can't remove '/tmp/f': No such file or directory\\n\", 0:1",
        ),
        ("touch /tmp/f; rm -rf /tmp/f /tmp/g; cat /tmp/f 2>/dev/null", "0:1"),
        ("touch /nosuch/f; exit 1", "1000:1?"),
        ("touch -d yesterday /tmp/f; cat /tmp/f", "2000:0?"),
        ("cat /etc/hostname; exit 1", "1000:1?"),
        ("cat; exit 1", "1000:1?"),
        ("rm f; exit 1", "1000:1?"),
        ("rm -f f && cat f 2>/dev/null", "0:1"),
        ("touch /tmp/f; ./work; cat /tmp/f", "2000:0?"),
        ("./work; echo a > /tmp/f; cat /tmp/f", "1000 \"a\\n\", 1000:0?"),
        ("sleep 2 && touch /tmp/f", "2000:0"),
        ("A=1; export B=2; env; printenv B", "0 \"B=2\\n\", 0 \"X=1  2\\n\", 0 \"2\\n\", 0:0"),
        ("printenv HOME || exit 3; exit 1", "1000:0?"),
        ("printenv SECRET; exit 1", "1000:1?"),
        ("env A=b ./work; exit 1", "1000:1?"),
        ("hostname; exit 1", "1000:1?"),
        ("touch /tmp/f & cat /tmp/f & wait", "1000:0?"),
        ("[ -f /tmp/f ] || test ! -e /tmp/f && exit 3", "0:3"),
        ("touch /tmp/f; [ -f /tmp/f ] && [ ! -s /tmp/f ] && exit 3", "0:3"),
        ("[ -f /etc/f ]; exit 3", "1000:3?"),
        ("[ -d /tmp ]; exit 3", "1000:3?"),
        ("[ 1 -lt 2 ] && [ a != b ] && [ -n a ] && [ -z '' ] && test 3 -ge 3 && exit 3", "0:3"),
        ("[ 1 -eq x ]; exit 3", "1000:3?"),
        ("[ a = a; exit 3", "1000:3?"),
        ("echo [a]; exit 3", "1000:0?"),
        ("exec > /tmp/log; echo a", "1000:0?"),
        (
            "for i in 1 2 3; do echo $i; sleep 1; done; exit 3",
            "0 \"1\\n\", 1000 \"2\\n\", 2000 \"3\\n\", 3000:3",
        ),
        ("for i in a 'b c'\ndo\n  echo $i\ndone", "0 \"a\\n\", 0 \"b c\\n\", 0:0"),
        ("A='1 2'; for i in $A; do echo -n $i; done; echo $i", "0 \"122\\n\", 0:0"),
        ("for i in; do false; done", "0:0"),
        ("for i in 1 2; do exit 4; done", "0:4"),
        ("for i in 1 2; do x; exit 3; done", "1000:3?"),
        ("for i in 1 2; do sleep 1; done & exit 3", "0:3"),
        ("for i; do exit 3; done", "1000:0?"),
        ("for i in $(seq 3); do exit 3; done", "1000:0?"),
        ("for PATH in a; do exit 3; done", "1000:0?"),
        ("for i in 1 2; do done", "1000:0?"),
        ("while true; do exit 3; done", "0:3"),
        ("while true; do break; done; exit 3", "1000:0?"),
        ("while true; do nslookup db && break; sleep 2; done", "1000:0?"),
        ("while true; do if x; then exit 1; fi; done", "1000:0?"),
        ("while false; do echo a; done; echo b", "0 \"b\\n\", 0:0"),
        ("while ./poll; do sleep 1; done", "1000:0?"),
        ("while true; do sleep 1; done & sleep 5; exit 1", "5000:1"),
        ("true || while true; do sleep 1; done; echo a", "0 \"a\\n\", 0:0"),
        ("echo a; while :\ndo sleep 1; done", "0 \"a\\n\", never"),
        ("until false; do sleep 1; done", "never"),
        ("until ! true; do sleep 1; done", "1000:0?"),
        ("while true; do sleep 1; done | cat", "1000:0?"),
        ("trap 'exit 0' TERM INT; sleep infinity & wait", "never"),
        ("trap 'exit 3' EXIT; true", "1000:0?"),
        ("sh -c 'sleep 1; echo late' & echo a", "0 \"a\\n\", 0:0"),
        ("(sleep 5) & wait", "1000:0?"),
        ("sleep 3 & echo a; wait; echo b", "0 \"a\\n\", 3000 \"b\\n\", 3000:0"),
        ("sleep 3 & sleep 1", "1000:0"),
        ("echo start; ./work; echo done", "0 \"start\\n\", 1000 \"done\\n\", 1000:0?"),
        ("./work && exit 1", "1000:0?"),
        ("./work || exit 1; echo a", "1000:0?"),
        ("if [ -e x ]; then exit 1; fi", "1000:0?"),
        ("[ $X = 1 ] && exit 1", "1000:0?"),
        ("echo a; echo b | wc; exit 4", "0 \"a\\n\", 1000:0?"),
        ("echo $(date)", "1000:0?"),
        ("echo `date`", "1000:0?"),
        ("echo \"`date`\"", "1000:0?"),
        ("echo *", "1000:0?"),
        ("echo $SECRET; exit 2", "1000:2?"),
        ("$SECRET; exit 2", "1000:0?"),
        ("echo 'a", "1000:0?"),
        ("echo \"a", "1000:0?"),
        ("echo ${X:-1}", "1000:0?"),
        ("cat <<EOF\nexit 1\nEOF", "1000:0?"),
        ("f() { exit 1; }", "1000:0?"),
        (";; x", "1000:0?"),
        ("&& x", "1000:0?"),
        ("echo a\\\nb \\\n c", "0 \"ab c\\n\", 0:0"),
        ("echo $", "0 \"$\\n\", 0:0"),
    ] {
        let shown = shown(&["/bin/sh", "-c", script], &[("X", "1  2")], Unclear::Takes(MOMENT));
        assert_eq!(shown, want, "{script}");
    }
    for command in [
        &["bash", "-ec", "false; echo a"][..],
        &["sh", "-e", "-u", "-c", "false; echo a"],
        &["bash", "-euo", "pipefail", "-c", "false; echo a"],
        &["sh", "-ec", "--", "false; echo a"],
    ] {
        assert_eq!(shown(command, &[], Unclear::RunsOn), "0:1", "{command:?}");
    }
}

#[test]
fn the_first_unclear_command_is_named() {
    let long = format!("work {}", "x".repeat(100));
    for (command, want) in [
        (&["nginx", "-g", "daemon off;"][..], Some((0, "nginx -g daemon off;"))),
        (&[], Some((0, ""))),
        (
            &["sh", "-c", "echo a; sleep 2; date | tee /tmp/x; curl y"],
            Some((2000, "date | tee /tmp/x; curl y")),
        ),
        (&["sh", "-c", "echo a\n./work --fast && echo b\ncurl y"], Some((0, "./work --fast"))),
        (
            &["sh", "-c", "sleep 1; if [ -e x ]; then exit 1; fi\necho"],
            Some((1000, "if [ -e x ]; then exit 1; fi")),
        ),
        (&["sh", "-c", "while curl y; do sleep 1; done"], Some((0, "curl y"))),
        (&["sh", "-c", "while true; do sleep 1; curl y; done"], Some((1000, "curl y"))),
        (&["sh", "-c", "sh -c 'exec ./work'"], Some((0, "exec ./work"))),
        (&["sh", "-c", "sleep 3 && true & exit"], Some((0, "sleep 3"))),
        (&["sh", "-c", "true &&"], Some((0, "true"))),
        (&["sh", "-c", &long], Some((0, &*format!("{}...", &long[..60])))),
        (&["sh", "-c", "echo a"], None),
    ] {
        let run = follow(&words(command), &environment(&[]), files(json!({})), Unclear::RunsOn, start());
        let named = run.unsimulated.as_ref();
        let named = named.map(|one| (one.at.as_millis(), one.command.as_str()));
        assert_eq!(named, want, "{command:?}");
    }
}

#[test]
fn unclear_commands_run_on_where_they_are_to() {
    for command in
        [&["nginx"][..], &[], &["sh"], &["sh", "script.sh"], &["sh", "-c", "echo a && ./serve && exit 1"]]
    {
        let shown = shown(command, &[], Unclear::RunsOn);
        assert!(shown.ends_with("never?"), "{command:?}: {shown}");
    }
    assert_eq!(shown(&["/opt/bin/sleep", "1"], &[], Unclear::Takes(MOMENT)), "1000:0?");
}

#[test]
fn work_is_bounded() {
    let unclear = Unclear::Takes(MOMENT);
    let script = |script: &str| shown(&["sh", "-c", script], &[("X", &"x".repeat(60_000))], unclear);
    assert!(script("echo $X").len() > 60_000, "one is written");
    let many_empty = vec![""; 100_000];
    let printed: Vec<&str> = ["printf", "xxxxxxxxxxxxxxxxxxxxxxxx%s"].into_iter().chain(many_empty).collect();
    assert_eq!(shown(&printed, &[], unclear), "1000:0?", "the output is bounded");
    let blanks = [("X", &*" ".repeat(60_000))];
    let scanned = shown(&["sh", "-c", &format!(": {}", "$X ".repeat(20_000))], &blanks, unclear);
    assert_eq!(scanned, "1000:0?", "the work is bounded, whatever comes of it");
    let names: Vec<String> = (0..5000).map(|i| format!("VARIABLE_{i}")).collect();
    let variables: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let copied = shown(&["sh", "-c", &"true& ".repeat(5000)], &variables, unclear);
    assert_eq!(copied, "1000:0?", "an environment is paid for by all that is in it");
    let looped = follow(
        &words(&["sh", "-c", "while true; do echo a; sleep 1; done"]),
        &environment(&[]),
        files(json!({})),
        unclear,
        start(),
    );
    assert_eq!((looped.output.len(), looped.end), (MAX_ITERATIONS, None), "the log of a loop ends");
    let fast = script("while true; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa$X; done");
    assert!(fast.ends_with("never"), "a loop that is too long to be followed is endless");
    let values = [("X", &*"a ".repeat(60_000))];
    let counted = shown(&["sh", "-c", "for i in $X; do echo $i; done; exit 3"], &values, unclear);
    assert!(counted.ends_with("1000:0?"), "the values of a loop are paid for");
    assert_eq!(script("echo $X$X"), "1000:0?", "an expansion is bounded");
    assert!(script(&"echo $X;".repeat(1000)).len() < 2 * MAX_BYTES, "all of them together are");
    assert!(script(&"A=$X;".repeat(1000)).ends_with("1000:0?"));
    assert!(script(&"sh -c true;".repeat(5000)).ends_with("1000:0?"), "copies of the environment");
    assert!(script(&"A=b true;".repeat(5000)).ends_with("1000:0?"));
    assert_eq!(script(&format!("exit 1 {}", " ".repeat(MAX_SCRIPT_LENGTH))), "1000:0?", "a long script");
    let nested: Vec<&str> = std::iter::repeat_n("busybox", 100_000).chain(["true"]).collect();
    assert_eq!(shown(&nested, &[], unclear), "1000:0?", "commands within commands");
    let mounts: Vec<Value> =
        (0..9000).map(|i| json!({"name": "v", "mountPath": format!("/tmp/v{i}")})).collect();
    assert!(!files(json!({"volumeMounts": mounts})).are_known(), "volumes beside the files");
    let mounts: Vec<Value> = (0..9000).map(|i| json!({"name": "v", "mountPath": format!("/v{i}")})).collect();
    assert!(files(json!({"volumeMounts": mounts})).are_known(), "volumes elsewhere do not matter");
    let grows = "while true; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx >> /tmp/f; done";
    assert_eq!(script(grows), "never", "files are paid for by what they contain");
    let many = "a=\"b\";".repeat(MAX_SCRIPT_LENGTH / 6);
    assert_eq!(script(&many), "1000:0?", "commands");
}

#[test]
fn files_follow_from_what_is_written() {
    let state = |fields: Value, script: &str, path: &str, at: u64| {
        let script = words(&["sh", "-c", script]);
        let run = follow(&script, &environment(&[]), files(fields), Unclear::RunsOn, start());
        run.files.get(path, Duration::from_secs(at))
    };
    let content = |text: &str| File::Content(text.to_owned());
    let plain = || json!({});
    let mounted = |path: &str| json!({"volumeMounts": [{"name": "v", "mountPath": path}]});
    let script = "touch /tmp/f; sleep 5; echo a > /tmp/f; sleep 5; rm /tmp/f; sleep 5; ./serve";
    for (at, want) in [(0, content("")), (5, content("a\n")), (10, File::Absent), (15, File::Unknown)] {
        assert_eq!(state(plain(), script, "/tmp/f", at), want, "{at}");
    }
    for (fields, script, path, want) in [
        (plain(), "true", "/tmp/f", File::Absent),
        (plain(), "true", "f", File::Unknown),
        (plain(), "touch f", "./f", File::Unknown),
        (plain(), "> f", "./f", content("")),
        (json!({"workingDir": "/tmp/"}), "> f", "/tmp/f", content("")),
        (mounted("/tmp"), "> /tmp/f", "/tmp/f", File::Unknown),
        (mounted("/tmp/f"), "> /tmp/f", "/tmp/f", File::Unknown),
        (mounted("/tmp/g/"), "> /tmp/f", "/tmp/f", content("")),
        (mounted("/data"), "> f", "f", File::Unknown),
        (mounted("/var/run/secrets/kubernetes.io/serviceaccount"), "> f", "f", content("")),
        (json!({"securityContext": {"readOnlyRootFilesystem": true}}), "> /tmp/f", "/tmp/f", File::Unknown),
        (json!({"lifecycle": {"postStart": {}}}), "> /tmp/f", "/tmp/f", File::Unknown),
        (plain(), "echo a > /dev/termination-log", "/dev/termination-log", content("a\n")),
        (json!({"terminationMessagePath": "/m"}), "echo -n a > /m", "/m", content("a")),
        (plain(), "touch /tmp/../f", "/tmp/../f", File::Unknown),
        (plain(), "(sleep 1; touch /tmp/f)", "/tmp/f", File::Unknown),
    ] {
        assert_eq!(state(fields.clone(), script, path, 0), want, "{fields} {script}");
    }
    let in_background = "sh -c 'sleep 3; touch /tmp/f; sleep 9' & sleep 2; touch /tmp/g; sleep 2; cat /tmp/f";
    assert_eq!(state(plain(), in_background, "/tmp/f", 2), File::Absent);
    assert_eq!(state(plain(), in_background, "/tmp/f", 3), File::Unknown);
    for (script, at, want) in [
        ("sh -c 'sleep 2; rm -f /tmp/f' & touch /tmp/f; sleep 5", 1, content("")),
        ("sh -c 'sleep 2; rm -f /tmp/f' & touch /tmp/f; sleep 5", 3, File::Unknown),
        ("sh -c 'sleep 2; echo b >> /tmp/f' & echo a > /tmp/f; sleep 5", 3, File::Unknown),
        ("sh -c 'sleep 2; touch /tmp/f' & echo a > /tmp/f; sleep 5", 3, File::Unknown),
        ("sh -c 'sleep 2; touch /tmp/f' & sleep 3; echo a > /tmp/f; sleep 5", 4, content("a\n")),
    ] {
        assert_eq!(state(plain(), script, "/tmp/f", at), want, "{script} {at}");
    }
    for (path, want) in [
        ("/tmp/./f", File::Unknown),
        ("/tmp/", File::Unknown),
        ("/tmp/.", File::Unknown),
        ("//tmp/f", File::Unknown),
    ] {
        assert_eq!(state(plain(), "touch /tmp/f", path, 0), want, "{path}");
    }
    let endless = "while true; do touch /tmp/f; sleep 1; rm /tmp/f; sleep 1; done";
    assert_eq!(state(plain(), endless, "/tmp/f", 4), content(""));
    assert_eq!(state(plain(), endless, "/tmp/f", 5), File::Absent);
    assert_eq!(state(plain(), endless, "/tmp/f", 63), File::Absent);
    assert_eq!(state(plain(), endless, "/tmp/f", 64), File::Unknown, "there is a bound");
    let same = "while true; do touch /tmp/f; sleep 1; done";
    assert_eq!(state(plain(), same, "/tmp/f", 900), content(""), "nothing changes");
    assert_eq!(state(plain(), same, "/tmp/f", 1001), File::Unknown, "it is followed no longer");
}
