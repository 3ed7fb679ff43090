//! The stub model server alone, to try an agent against by hand: prints its base URL and serves until stdin ends.

use casemate_suite::llm_stub::LlmStub;

fn main() -> std::io::Result<()> {
    let stub = LlmStub::start()?;
    println!("{}", stub.base_url());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    for (number, seen) in stub.seen().iter().enumerate() {
        println!("{number}: tools {}, user texts {:?}", seen.tools.len(), seen.user);
    }
    Ok(())
}
