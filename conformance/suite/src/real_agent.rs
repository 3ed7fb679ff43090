//! The real agents that `conformance/run` installs from npm, each set up to need nobody but the stub model.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::llm_stub::{LlmStub, MODEL};
use crate::opencode;
use crate::place::Place;

/// Which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RealAgent {
    /// opencode: native, speaks ACP itself.
    Opencode,
    /// claude-agent-acp: Node over the native Claude Code.
    Claude,
    /// codex-acp of the 0.x line: one native program.
    Codex,
    /// codex-acp of the 2.x line: Node over the native `codex app-server`.
    CodexServer,
    /// gemini-cli: Node, speaks ACP itself.
    Gemini,
}

// === impl RealAgent ===

impl RealAgent {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Opencode, Self::Claude, Self::Codex, Self::CodexServer, Self::Gemini];

    /// Its npm package.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::Opencode => "opencode-ai",
            Self::Claude => "@agentclientprotocol/claude-agent-acp",
            Self::Codex => "@zed-industries/codex-acp",
            Self::CodexServer => "@agentclientprotocol/codex-acp",
            Self::Gemini => "@google/gemini-cli",
        }
    }

    /// The program and its first arguments, if `conformance/run` (or a person) has installed it.
    #[must_use]
    pub fn command(self) -> Option<Vec<PathBuf>> {
        let native = |package: &str, path: &str| {
            ["linux-x64", "linux-arm64"].iter().find_map(|machine| {
                modules().join(format!("{package}-{machine}")).join(path).canonicalize().ok()
            })
        };
        let script = |path: &str| {
            // These need a Node that Debian does not have yet.
            let node = native("node", "bin/node")?;
            let script = modules().join(self.package()).join(path).canonicalize().ok()?;
            Some(vec![node, script])
        };
        match self {
            Self::Opencode => Some(vec![opencode::installed()?]),
            Self::Codex => Some(vec![native(self.package(), "bin/codex-acp")?]),
            Self::Claude | Self::CodexServer => script("dist/index.js"),
            Self::Gemini => script("bundle/gemini.js"),
        }
    }

    /// The arguments that make it speak ACP on stdio.
    #[must_use]
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            // Left to itself it takes 4096, which the session may not listen on.
            Self::Opencode => &["acp", "--port", "{port}"],
            Self::Claude | Self::Codex | Self::CodexServer => &[],
            Self::Gemini => &["--acp", "--model", MODEL],
        }
    }

    /// The mode that makes it work by itself, set after each new session and each load; nothing where it does so anyway.
    #[must_use]
    pub fn mode(self) -> Option<&'static str> {
        match self {
            // Where Gemini asks, its host allows.
            Self::Opencode | Self::Codex | Self::Gemini => None,
            // Its default asks a model whether an action is safe.
            Self::Claude => Some("acceptEdits"),
            // Every other mode starts its inner sandbox, which a session refuses.
            Self::CodexServer => Some("agent-full-access"),
        }
    }

    /// What it needs in its environment. The keys are none: the stub takes any.
    #[must_use]
    pub fn variables(self, stub: &LlmStub) -> Vec<(&'static str, String)> {
        match self {
            Self::Opencode => Vec::new(),
            Self::Claude => vec![
                ("ANTHROPIC_BASE_URL", stub.origin()),
                ("ANTHROPIC_API_KEY", "not-a-key".into()),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".into()),
                ("DISABLE_TELEMETRY", "1".into()),
            ],
            Self::Gemini => vec![
                ("GEMINI_API_KEY", "not-a-key".into()),
                ("GOOGLE_GEMINI_BASE_URL", stub.origin()),
            ],
            Self::Codex | Self::CodexServer => {
                vec![("STUB_KEY", "not-a-key".into()), ("OPENAI_API_KEY", "not-a-key".into())]
            }
        }
    }

    /// Writes its configuration for the stub into a HOME template.
    ///
    /// # Errors
    /// Where the files cannot be written.
    pub fn home_template(self, directory: &Path, stub: &LlmStub) -> io::Result<()> {
        std::fs::create_dir_all(directory)?;
        match self {
            Self::Opencode => opencode::home_template(directory, stub),
            Self::Claude => Ok(()),
            Self::Gemini => {
                std::fs::create_dir_all(directory.join(".gemini"))?;
                let settings = json!({
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "general": {"disableAutoUpdate": true, "enableAutoUpdate": false},
                    "privacy": {"usageStatisticsEnabled": false}, "telemetry": {"enabled": false},
                });
                std::fs::write(directory.join(".gemini/settings.json"), settings.to_string())
            }
            Self::Codex | Self::CodexServer => {
                std::fs::create_dir_all(directory.join(".codex"))?;
                // Its own inner sandbox needs namespaces, which a session refuses: the session is the sandbox.
                let settings = format!(
                    "model = \"{MODEL}\"\nmodel_provider = \"stub\"\napproval_policy = \"never\"\n\
                     sandbox_mode = \"danger-full-access\"\n\n[model_providers.stub]\nname = \"Stub\"\n\
                     base_url = \"{}\"\nwire_api = \"responses\"\nenv_key = \"STUB_KEY\"\n",
                    stub.base_url()
                );
                std::fs::write(directory.join(".codex/config.toml"), settings)
            }
        }
    }

    /// `casemate acp` with this agent behind the walls of a place; nothing where it is not installed.
    #[must_use]
    pub fn bridge(self, place: &Place, stub: &LlmStub) -> Option<std::process::Command> {
        self.bridge_with(place, stub, &[])
    }

    /// The same with these options as well.
    #[must_use]
    pub fn bridge_with(
        self,
        place: &Place,
        stub: &LlmStub,
        options: &[&str],
    ) -> Option<std::process::Command> {
        let program = self.command()?;
        let template = place.path().join("template");
        let mut command = place.casemate(&["acp"]);
        command.args(options);
        command.arg("--repo").arg(place.repository()).arg("--home-template").arg(template);
        command.args(["--connect", &stub.port().to_string()]);
        for (name, value) in self.variables(stub) {
            command.arg("--env").arg(format!("{name}={value}"));
        }
        for path in self.programs(&program) {
            command.arg("--program").arg(path);
        }
        command.arg("--").args(program).args(self.arguments());
        Some(command)
    }

    /// What of the disk it has to read and run.
    fn programs(self, command: &[PathBuf]) -> Vec<PathBuf> {
        match self {
            Self::Opencode | Self::Codex => {
                command.iter().filter_map(|path| path.parent().map(Path::to_owned)).collect()
            }
            // Node's packages find each other from where they lie.
            Self::Claude | Self::CodexServer | Self::Gemini => {
                modules().canonicalize().into_iter().collect()
            }
        }
    }
}

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/npm/node_modules")
}
