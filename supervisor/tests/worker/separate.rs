//! What each session of a worker of many has to itself, as it looks from inside each: limits, environment, credentials.

use std::fs;

use casemate_protocol::sharing::SessionConfig;
use casemate_protocol::token::Audience;

use crate::exec_client::{Exec, exited, sh};
use crate::harness::{Who, lives};
use crate::many::Many;

/// A session with limits, a variable and a HOME of its own.
fn with(many: &Many, name: &str, open_files: u64, file_size: &str) -> SessionConfig {
    let mut config = many.session();
    let limits = format!("soft = {open_files}\nhard = {open_files}");
    let known = "soft = 1024\nhard = 65536";
    assert!(config.policy.contains(known));
    config.policy = config.policy.replacen(known, &limits, 1).replacen(
        "[bounds]",
        &format!(
            "[[rlimit]]\nresource = \"fsize\"\nsoft = {file_size}\nhard = {file_size}\nreason = \"{name}'s own\"\n\n[bounds]"
        ),
        1,
    );
    let home = many.root().join(format!("template-{name}"));
    fs::create_dir(&home).unwrap();
    fs::write(home.join(".netrc"), format!("password canary-in-{name}")).unwrap();
    many.hand_over(&home);
    config.home_template = Some(home);
    config.agent.env.insert("API_KEY".into(), format!("canary-of-{name}"));
    config.agent.env.insert(format!("ONLY_{name}"), "1".into());
    config
}

#[test]
fn limits_environment_and_credentials_are_each_sessions_own() {
    for who in [Who::Own, Who::User] {
        let many = Many::new(who);
        let (worker, address) = many.serve();
        let (config_a, config_b) = (with(&many, "A", 77, "4096"), with(&many, "B", 99, "8192"));
        let mut a = many.hosted_as(address, config_a);
        let mut b = many.hosted_as(address, config_b);
        let look = "ulimit -Sn; ulimit -Hn; grep 'Max file size' /proc/self/limits | tr -s ' '; env; cat ~/.netrc; echo";
        for (mine, name, other, files, size) in
            [(&mut a, "A", "B", "77", "4096"), (&mut b, "B", "A", "99", "8192")]
        {
            let token = many.token(&mine.config, Audience::Exec);
            let (end, by_command, _) = Exec::with(address, &token, &sh(look)).outcome();
            assert_eq!(end, exited(0));
            // The agent's own children, and a command beside it.
            for said in [mine.shell(look), by_command] {
                let lines: Vec<&str> = said.lines().collect();
                assert_eq!(lines[..2], [files, files], "{who:?} {name}: {said}");
                assert_eq!(lines[2].trim(), format!("Max file size {size} {size} bytes"));
                for own in [format!("API_KEY=canary-of-{name}"), format!("ONLY_{name}=1")] {
                    assert!(lines.contains(&own.as_str()), "{name}: {said}");
                }
                assert!(said.contains(&format!("password canary-in-{name}")), "{name}: {said}");
                let others =
                    [format!("-of-{other}"), format!("-in-{other}"), format!("ONLY_{other}")];
                assert!(others.iter().all(|theirs| !said.contains(theirs)), "{name}: {said}");
            }
            // It holds: SIGXFSZ (25) ends what writes more, and no descriptor is to be had beyond.
            let (end, out, _) = Exec::with(
                address,
                &token,
                &sh("head -c 100000 /dev/zero > big; echo $?; stat -c %s big; \
                     perl -e 'my @f; while (open(my $f, \"<\", \"/dev/null\")) { push @f, $f } print $!+0, \" \", scalar @f, \"\\n\"'; \
                     ulimit -n 4096 2>/dev/null && echo raised; true"),
            )
            .outcome();
            assert_eq!(end, exited(0));
            let lines: Vec<&str> = out.lines().collect();
            assert_eq!(lines[..2], ["153", size], "{name}: {out}");
            let (errno, held) = lines[2].split_once(' ').unwrap();
            let held: u64 = held.parse().unwrap();
            assert_eq!(errno, "24", "{name}: {out}");
            assert!(held < files.parse().unwrap() && held > 40, "{name}: {out}");
            assert_eq!(lines.len(), 3, "{name}: {out}");
        }
        // What A knows the place of it still may not look into: B's environment and credentials.
        let victim = many.list(address).into_iter().find_map(|summary| {
            let is_b = summary.session == b.config.session;
            match summary.agent {
                casemate_protocol::worker::AgentState::Running { pid } if is_b => Some(pid),
                _ => None,
            }
        });
        let victim = victim.unwrap();
        let netrc = b.place().join("home/.netrc");
        let template = b.config.home_template.as_ref().unwrap().join(".netrc");
        let spy = format!(
            "perl -e 'for my $p (@ARGV) {{ print open(my $f, \"<\", $p) ? \"opened\" : $!+0, \"\\n\" }}' \
             /proc/{victim}/environ {} {} {}",
            netrc.display(),
            template.display(),
            many.config.volume.join("state/floors").join(b.config.session.as_str()).display(),
        );
        let said = a.shell(&spy);
        assert!(said.starts_with("13\n13\n13\n13\n"), "{who:?}: {said}");
        assert!(lives(victim));
        worker.stop();
    }
}
