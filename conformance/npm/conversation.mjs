// One whole conversation with the scripted agent over a stream of the official TypeScript library, in Node and in a
// browser alike. What was seen is given back; the tests judge it.
export async function converse(acp, stream, cwd) {
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
  return seen;
}
