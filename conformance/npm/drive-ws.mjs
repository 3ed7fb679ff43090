// The same library at a worker's plain door, over the WebSocket of the npm package `ws`: it asks for no subprotocol and
// offers an extension. Our arguments: the modules' folder and the door's address; the token is on stdin, for it is a
// secret. conformance/suite/tests/plain_door.rs judges it.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { converse } from "./conversation.mjs";

const [modules, address] = process.argv.slice(2);
const token = readFileSync(0, "utf8");
const require = createRequire(modules + "/");
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const acp = await load("@agentclientprotocol/sdk");
const { createWebSocketStream } = await load("@agentclientprotocol/sdk/experimental/ws-client");
const { WebSocket } = require("ws");

let answered;
class Watched extends WebSocket {
  constructor(...args) {
    super(...args);
    this.on("upgrade", ({ headers }) => (answered = headers));
  }
}
const headers = { authorization: `Bearer ${token}` };
const stream = createWebSocketStream(`ws://${address}/acp`, { WebSocket: Watched, headers });
const seen = await converse(acp, stream, process.cwd());
seen.connection = answered["acp-connection-id"];
seen.subprotocol = answered["sec-websocket-protocol"] ?? null;
seen.extensions = answered["sec-websocket-extensions"] ?? null;
seen.cookies = answered["set-cookie"] ?? null;
console.log(JSON.stringify(seen));
