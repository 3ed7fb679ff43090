// The second client library: drives `casemate acp` (its command line is ours) through one conversation with the
// scripted agent and prints what it saw as one line of JSON. conformance/suite/tests/npm_sdk.rs judges it.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { converse } from "./conversation.mjs";

const [modules, program, ...args] = process.argv.slice(2);
const require = createRequire(modules + "/");
const acp = await import(pathToFileURL(require.resolve("@agentclientprotocol/sdk")).href);

const agent = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const seen = await converse(acp, stream, process.cwd());

agent.stdin.end();
seen.exit = await new Promise((resolve) => agent.on("exit", resolve));
console.log(JSON.stringify(seen));
