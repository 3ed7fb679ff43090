// Opens a WebSocket, says something where there is something to say, and tells how it went: `chosen` where it was
// let in, and the code that it was closed with.
export function knock(url, protocols, message) {
  return new Promise((resolve) => {
    const socket = protocols ? new WebSocket(url, protocols) : new WebSocket(url);
    const went = {};
    socket.onopen = () => {
      went.chosen = socket.protocol;
      if (message) socket.send(JSON.stringify(message));
      else socket.close(1000);
    };
    socket.onclose = ({ code }) => resolve({ ...went, code });
  });
}
