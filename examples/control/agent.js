// An agent asks sonde serve which functions a program calls, for the time of ten events.
//
//     sonde serve --socket /tmp/sonde.sock &
//     node agent.js /tmp/sonde.sock PID 'libc:getenv(name: str)'
const net = require("net");
const readline = require("readline");

const [path, pid, expr] = process.argv.slice(2);
const socket = net.connect(path);
const waiting = new Map();
let last = 0;
let seen = 0;
let probe;

function call(method, params) {
  return new Promise((resolve, reject) => {
    waiting.set(++last, { resolve, reject });
    socket.write(JSON.stringify({ jsonrpc: "2.0", id: last, method, params }) + "\n");
  });
}

async function finish() {
  console.log(JSON.stringify(await call("ledger", { id: probe.id })));
  await call("remove", { id: probe.id });
  socket.end();
}

readline.createInterface({ input: socket }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method === "event") {
    if (++seen <= 10) console.log(JSON.stringify(message.params));
    if (seen === 10) finish();
    return;
  }
  if (message.method === "dropped") {
    console.error(`${message.params.count} events were dropped`);
    return;
  }
  const promise = waiting.get(message.id);
  waiting.delete(message.id);
  if (!promise) return;
  if (message.error) promise.reject(new Error(message.error.message));
  else promise.resolve(message.result);
});

(async () => {
  probe = await call("add", { expr, pids: [Number(pid)] });
  await call("stream", { id: probe.id });
})().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
