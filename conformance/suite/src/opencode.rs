//! The real opencode (npm `opencode-ai`), set up to need nobody but the stub model.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::llm_stub::{LlmStub, MODEL};

/// The version that `conformance/run` installs.
pub const VERSION: &str = "1.18.33";

/// The program, if `conformance/run` (or a person) has installed it below `conformance/.cache/npm`.
///
/// It is the native program and not the npm launcher: that is a Node script which only starts this one.
#[must_use]
pub fn installed() -> Option<PathBuf> {
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/npm/node_modules");
    ["opencode-linux-x64", "opencode-linux-arm64", "opencode-linux-x64-baseline"]
        .iter()
        .map(|package| modules.join(package).join("bin/opencode"))
        .find_map(|program| program.canonicalize().ok())
}

/// Writes a HOME template with opencode's configuration for the stub.
///
/// # Errors
/// Where the files cannot be written.
pub fn home_template(directory: &Path, stub: &LlmStub) -> io::Result<()> {
    let config = directory.join(".config/opencode");
    std::fs::create_dir_all(&config)?;
    std::fs::write(config.join("opencode.json"), settings(stub).to_string())
}

/// opencode's configuration for the stub; it takes it from `OPENCODE_CONFIG_CONTENT` as well.
#[must_use]
pub fn settings(stub: &LlmStub) -> Value {
    let model = format!("stub/{MODEL}");
    json!({
        "$schema": "https://opencode.ai/config.json",
        "model": model,
        // Titles are asked of the small model; left out, opencode looks for one that is not there.
        "small_model": model,
        "autoupdate": false,
        "share": "disabled",
        "provider": {"stub": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Stub",
            "options": {"baseURL": stub.base_url(), "apiKey": "not-a-key"},
            "models": {MODEL: {"name": "Stub", "tool_call": true, "limit": {"context": 100_000, "output": 4096}}},
        }},
    })
}
