// The web socket: receives updates by name, sends commands with a number, reconnects when it breaks.

const AGAIN_MS = 1000;

export class Connection {
  constructor(handlers) {
    this.handlers = handlers;
    this.next = 1;
    this.waiting = new Map();
    this.tries = 0;
    this.open();
  }

  open() {
    const socket = new WebSocket(new URL("live", location.href.replace(/^http/, "ws")));
    socket.binaryType = "arraybuffer";
    socket.onopen = () => (this.tries = 0);
    socket.onclose = () => {
      this.handlers.gone(this.tries++);
      for (const done of this.waiting.values()) done({ ok: false, text: "the page's server has gone" });
      this.waiting.clear();
      setTimeout(() => this.open(), AGAIN_MS);
    };
    socket.onmessage = ({ data }) => this.take(data);
    this.socket = socket;
  }

  take(data) {
    if (data instanceof ArrayBuffer) {
      this.handlers.picture(data);
      return;
    }
    const update = JSON.parse(data);
    if (update.is === "reply") {
      this.waiting.get(update.id)?.(update);
      this.waiting.delete(update.id);
      this.handlers.reply(update);
    } else {
      this.handlers[update.is]?.(update);
    }
  }

  // Sends a command; returns a promise of its reply.
  send(command, values = {}) {
    if (this.socket.readyState !== WebSocket.OPEN) {
      const reply = { ok: false, text: "not connected to the page's server" };
      this.handlers.reply(reply);
      return Promise.resolve(reply);
    }
    const id = this.next++;
    this.socket.send(JSON.stringify({ do: command, id, ...values }));
    return new Promise((done) => this.waiting.set(id, done));
  }
}
