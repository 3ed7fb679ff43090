//! What is kept beside a command, tried from where the command could change it: its report, and the policy of its next run.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use casemate_protocol::policy::DEVELOPER;
use nix::unistd::geteuid;

use crate::site::{Site, said};

/// The built-in policy, and what a rule more lets be written or read.
fn with(rule: &str, path: &Path) -> String {
    let rule =
        format!("[[path]]\npath = \"{}\"\naccess = [\"{rule}\"]\nreason = \"r\"\n", path.display());
    format!("{DEVELOPER}\n{rule}")
}

/// A site with a directory that a rule of its policy lets be written, one that none does, and a file that one does.
fn site() -> (Site, String) {
    let site = Site::with(&["shared/deep", "kept", "mounted"], &["secret", "kept/file"]);
    let policy = site.path("policy.toml");
    let file = with("write", &site.path("kept/file"));
    let shared = with("write", &site.path("shared"));
    fs::write(&policy, format!("{file}{}", shared.strip_prefix(DEVELOPER).unwrap())).unwrap();
    for (target, link) in [
        ("shared/deep", "link"),
        ("work", "kept/work"),
        ("kept", "shared/out"),
        ("work/policy.toml", "kept/policy.toml"),
    ] {
        symlink(site.path(target), site.path(link)).unwrap();
    }
    (site, policy.display().to_string())
}

/// Mounts one directory of the site at another and goes on; `None` where nobody may.
pub(crate) fn mounting(site: &Site, source: &str, point: &str) -> Option<Vec<String>> {
    let own: &[&str] = if geteuid().is_root() {
        &["unshare", "--mount"]
    } else {
        &["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
    };
    let (source, point) = (site.text(source), site.text(point));
    let script = "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"";
    let mount = ["sh", "-c", script, "sh", &source, &point];
    let before: Vec<String> = own.iter().chain(&mount).map(|word| (*word).to_owned()).collect();
    let works = Command::new(&before[0]).args(&before[1..]).arg("true").status();
    if works.is_ok_and(|status| status.success()) {
        return Some(before);
    }
    println!("SKIP: unshare(1) gives no mounts of one's own here");
    None
}

#[test]
fn a_report_is_never_where_the_command_may_write() {
    let (site, policy) = site();
    // Replacing what is there is what a command would do to a report.
    let forge = |before: &[&str], report: &str| {
        let attack = format!("echo forged > {0}.new && mv {0}.new {0}", site.text(report));
        let options = ["--policy", &policy, "--report", &site.text(report)];
        said(site.command(before, &options, &["sh", "-c", &attack]).output().unwrap())
    };
    for report in [
        "shared/report",
        "shared/deep/report",
        "link/report",
        "kept/work/report",
        // The directory that it leads to is out of reach, and which one it is, the command chooses.
        "shared/out/report",
        "work/../kept/report",
        "kept/file",
    ] {
        let (code, _, err) = forge(&[], report);
        assert_eq!(code, 64, "{report}: {err}");
        assert!(err.contains("the command may write") && err.contains("outside"), "{err}");
        let made = fs::read_to_string(site.path(report));
        assert!(!made.is_ok_and(|text| text.contains("forged")), "{report}");
    }
    // What may be written is mounted where the report lies, and the report's directory below what may be written.
    for (source, point, report) in
        [("shared/deep", "mounted", "mounted/report"), ("kept", "shared/deep", "kept/report")]
    {
        let Some(before) = mounting(&site, source, point) else { return };
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        let (code, _, err) = forge(&before, report);
        assert_eq!(code, 64, "{source} at {point}: {err}");
    }
    // Where the command may write what this process has for its stdout.
    for report in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let stdout = fs::File::create(site.path("shared/stdout")).unwrap();
        let options = ["--policy", &policy, "--report", report];
        let output = site.command(&[], &options, &["true"]).stdout(stdout).output();
        let (code, _, err) = said(output.unwrap());
        assert_eq!(code, 64, "{report}: {err}");
    }
    // Beside all that it is the command's in no way.
    let (code, _, err) = forge(&[], "kept/report");
    assert_ne!(code, 64, "{err}");
    assert!(fs::read_to_string(site.path("kept/report")).unwrap().contains("\"revision\""));
}

/// By a rule of its own a command would open to the next run whatever it likes.
#[test]
fn no_command_writes_the_policy_of_its_next_run() {
    let (site, granting) = site();
    let rule = with("read", &site.path("secret"));
    let rule = rule.strip_prefix(DEVELOPER).unwrap();
    fs::write(site.path("rule"), rule).unwrap();
    let rewrite = |before: &[&str], policy: &str| {
        let file = site.text(policy);
        let attack = format!(
            "printf '%s' '{}' > {file}; cat {}",
            fs::read_to_string(&granting).unwrap().replace('\'', "'\\''") + rule,
            site.text("secret")
        );
        let attack = ["sh", "-c", &attack];
        let first = said(site.command(before, &["--policy", &file], &attack).output().unwrap());
        (first, said(site.command(before, &["--policy", &file], &attack).output().unwrap()))
    };
    // A person has put it there, whose owner the command's user is.
    let put = |policy: &str| {
        fs::copy(&granting, site.path(policy)).unwrap();
        if geteuid().is_root() {
            let done = Command::new("chown").arg("1000:1000").arg(site.path(policy)).status();
            assert!(done.unwrap().success());
        }
    };
    for (file, policy) in [
        ("work/policy.toml", "work/policy.toml"),
        ("home/policy.toml", "home/policy.toml"),
        ("shared/policy.toml", "shared/policy.toml"),
        ("shared/deep/policy.toml", "link/policy.toml"),
        ("work/policy.toml", "kept/policy.toml"),
        ("kept/policy", "shared/out/policy"),
        ("kept/file", "kept/file"),
    ] {
        put(file);
        let ((code, _, err), (_, out, _)) = rewrite(&[], policy);
        assert_eq!(code, 64, "{policy}: {err}");
        assert!(err.contains("--policy") && err.contains("outside"), "{policy}: {err}");
        assert!(!out.contains("sentinel"), "{policy}: {out}");
    }
    put("kept/policy");
    for (source, point, file, policy) in [
        ("shared/deep", "mounted", "shared/deep/policy", "mounted/policy"),
        ("kept", "shared/deep", "kept/policy", "kept/policy"),
    ] {
        let Some(before) = mounting(&site, source, point) else { return };
        let before: Vec<&str> = before.iter().map(String::as_str).collect();
        put(file);
        let ((code, _, err), (_, out, _)) = rewrite(&before, policy);
        assert_eq!((code, out.contains("sentinel")), (64, false), "{source} at {point}: {err}");
    }
    // Beside all that, and from a descriptor of whoever starts it, it is as good as ever.
    let ((code, out, err), (again, ..)) = rewrite(&[], "kept/policy");
    assert!(code != 64 && again != 64 && !out.contains("sentinel"), "{err}");
    assert_eq!(fs::read(site.path("kept/policy")).unwrap(), fs::read(&granting).unwrap());
    // So it is by a link that no command can turn, as a volume of a Pod has them.
    symlink(site.path("kept/policy"), site.path("alias.toml")).unwrap();
    let ((code, ..), (again, ..)) = rewrite(&[], "alias.toml");
    assert!(code != 64 && again != 64);
    put("work/policy.toml");
    for stdin in ["/dev/fd/0", "/dev/stdin", "/proc/self/fd/0"] {
        for (file, expected) in [(&granting, 0), (&site.text("work/policy.toml"), 64)] {
            let mut command = site.command(&[], &["--policy", stdin], &["true"]);
            let output = command.stdin(fs::File::open(file).unwrap()).output().unwrap();
            let (code, _, err) = said(output);
            assert_eq!(code, expected, "{stdin} of {file}: {err}");
        }
        let mut command = site.command(&[], &["--policy", stdin], &["true"]);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&fs::read(&granting).unwrap()).unwrap();
        let (code, _, err) = said(child.wait_with_output().unwrap());
        assert_eq!(code, 0, "{stdin}: {err}");
    }
}
