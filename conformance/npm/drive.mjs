// The second client library: drives `casemate acp` (its command line is ours) through one conversation with the
// scripted agent and prints what it saw as one line of JSON. conformance/suite/tests/npm_sdk.rs judges it.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, program, ...args] = process.argv.slice(2);
const require = createRequire(modules + "/");
const acp = await import(pathToFileURL(require.resolve("@agentclientprotocol/sdk")).href);

const agent = spawn(program, args, { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const seen = { text: "", asked: [] };
const { methods } = acp;

await acp
  .client({ name: "conformance" })
  .onNotification(methods.client.session.update, ({ params }) => {
    const { update } = params;
    if (update.sessionUpdate === "agent_message_chunk") seen.text += update.content.text;
  })
  .onRequest(methods.client.session.requestPermission, ({ params }) => {
    seen.asked.push("session/request_permission");
    const allow = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: allow.optionId } };
  })
  .onRequest(methods.client.fs.readTextFile, () => {
    seen.asked.push("fs/read_text_file");
    return { content: "the host's own file" };
  })
  .connectWith(stream, async (context) => {
    const hello = await context.request(methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: { fs: { readTextFile: true, writeTextFile: true }, terminal: true },
    });
    seen.protocol = hello.protocolVersion;
    const cwd = process.cwd();
    const { sessionId } = await context.request(methods.agent.session.new, { cwd, mcpServers: [] });
    const say = (text) =>
      context.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
    seen.stops = [];
    for (const text of [
      "!sh echo from $((6 * 7))",
      "!perm",
      '!ask fs/read_text_file {"sessionId": "x", "path": "/etc/hostname"}',
    ]) {
      seen.stops.push((await say(text)).stopReason);
    }
    const slow = say("!sleep 60");
    await new Promise((resolve) => setTimeout(resolve, 500));
    await context.notify(methods.agent.session.cancel, { sessionId });
    seen.stops.push((await slow).stopReason);
  });

agent.stdin.end();
seen.exit = await new Promise((resolve) => agent.on("exit", resolve));
console.log(JSON.stringify(seen));
