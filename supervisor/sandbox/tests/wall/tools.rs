//! What developers use still works.

use std::path::Path;
use std::process::Command;

use casemate_protocol::policy::{BUILT_IN, DEVELOPER, Policy};
use casemate_sandbox::{Wall, environment};

use super::cell::{Site, confined};

/// Runs a script in the worktree behind the default wall, with the environment that the policy gives.
fn run(script: &str) -> String {
    run_behind(DEVELOPER, script)
}

fn run_behind(policy: &str, script: &str) -> String {
    let site = Site::new();
    let policy = Policy::parse(policy).unwrap();
    let environment = environment(&policy, &site.places);
    let wall = Wall::build(&policy, &site.places).unwrap();
    let output = confined(&wall, || {
        Command::new("/bin/sh")
            .args(["-euc", script])
            .current_dir(&site.places.work)
            .env_clear()
            .envs(environment)
            .output()
            .unwrap()
    });
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{err}");
    out.into_owned()
}

/// Tools that not every machine has; says what was missing.
fn run_if_installed(tool: &str, script: &str) -> Option<String> {
    let known =
        ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|at| Path::new(at).join(tool).exists());
    if !known {
        println!("SKIP: {tool} is not installed under /usr");
        return None;
    }
    Some(run(script))
}

#[test]
fn git_commits() {
    for (_, policy) in BUILT_IN {
        commits(policy);
    }
}

fn commits(policy: &str) {
    let out = run_behind(
        policy,
        "git init -q -b main . && git config user.email a@b && git config user.name n && git add -A \
         && git commit -qm one && git branch x && git branch -D x >/dev/null && git gc -q && git log --oneline | wc -l",
    );
    assert_eq!(out.trim(), "1");
}

#[test]
fn a_c_program_is_compiled_and_run() {
    let script = "echo 'int main(void){return 0;}' > a.c && cc -o a a.c && ./a && echo ok";
    run_if_installed("cc", script).inspect(|out| assert_eq!(out, "ok\n"));
}

#[test]
fn python_runs_threads_and_children() {
    let script = "python3 -c 'import ssl, subprocess, threading, tempfile\n\
                  t = threading.Thread(target=print, args=(\"thread\",)); t.start(); t.join()\n\
                  print(subprocess.check_output([\"echo\", \"child\"]).decode().strip())\n\
                  print(len(tempfile.mkdtemp()) > 0)\n\
                  import asyncio, socket\n\
                  async def child(): return (await (await asyncio.create_subprocess_exec(\"true\")).wait())\n\
                  print(asyncio.run(child())); a, b = socket.socketpair(); a.send(b\"x\"); print(b.recv(1))\n\
                  import multiprocessing\n\
                  q, w = multiprocessing.Pipe()\n\
                  p = multiprocessing.get_context(\"fork\").Process(target=w.send, args=(7,)); p.start(); print(q.recv()); p.join()'";
    run_if_installed("python3", script)
        .inspect(|out| assert_eq!(out, "thread\nchild\nTrue\n0\nb'x'\n7\n"));
}

#[test]
fn node_runs_workers_and_children() {
    let script = "node -e '\n\
        const os = require(\"os\"); if (!os.networkInterfaces().lo) throw 1;\n\
        if (!os.cpus().length) throw 2;\n\
        console.log(require(\"child_process\").execSync(\"echo child\").toString().trim());\n\
        new (require(\"worker_threads\").Worker)(\"console.log(\\\"worker\\\")\", { eval: true });'";
    run_if_installed("node", script).inspect(|out| assert_eq!(out, "child\nworker\n"));
}

/// The channel between a forked process and its parent is a pair of stream sockets; so is a piped stdin.
#[test]
fn node_speaks_with_forked_processes() {
    let script = "echo 'process.on(\"message\", (m) => process.send(m + 1, () => process.disconnect()))' > child.js; \
        node -e '\n\
        const { fork, spawn } = require(\"child_process\");\n\
        const child = fork(\"./child.js\"); child.on(\"message\", (m) => console.log(\"fork\", m)); child.send(1);\n\
        child.on(\"exit\", () => { const cat = spawn(\"cat\", { stdio: \"pipe\" });\n\
            cat.stdout.on(\"data\", (d) => console.log(\"pipe\", String(d))); cat.stdin.end(\"x\"); });'";
    run_if_installed("node", script).inspect(|out| assert_eq!(out, "fork 2\npipe x\n"));
}

#[test]
fn npm_installs_a_package() {
    let script = "mkdir p && cd p && npm init -y >/dev/null && npm pack --silent >/dev/null && cd .. \
                  && npm init -y >/dev/null && npm install --silent --offline ./p/p-1.0.0.tgz && ls node_modules";
    run_if_installed("npm", script).inspect(|out| assert_eq!(out, "p\n"));
}
