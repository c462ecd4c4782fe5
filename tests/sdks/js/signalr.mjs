// @microsoft/signalr as a caller of /hub: a job a line on stdin, what came of it a line on stdout.
// node signalr.mjs URL TRANSPORT [TOKEN], TRANSPORT being 1 (WebSockets), 2 (server-sent events) or 4 (long polling).
import { createInterface } from 'node:readline';
import signalR from '@microsoft/signalr';

const [, , url, transport, token] = process.argv;
const options = { transport: Number(transport) };
if (token !== undefined) options.accessTokenFactory = () => token;
const connection = new signalR.HubConnectionBuilder()
  .withUrl(`${url}/hub`, options)
  .withAutomaticReconnect([0, 50, 100, 200, 400])
  .configureLogging(signalR.LogLevel.None)
  .build();
const reconnected = new Promise((resolve) => connection.onreconnected(resolve));
const closed = new Promise((resolve) => connection.onclose(resolve));

// The items of a stream, and how it ended; `enough(item)` true: it is disposed of there.
function items(request, enough = () => false) {
  const found = { items: [], completed: false, error: null, disposed: false };
  return new Promise((resolve) => {
    const subscription = connection.stream('Chat', request).subscribe({
      next(item) {
        found.items.push(item);
        if (!found.disposed && enough(item)) {
          found.disposed = true;
          subscription.dispose();
          resolve(found);
        }
      },
      complete() { found.completed = true; resolve(found); },
      error(error) { found.error = error.message; resolve(found); },
    });
  });
}

const jobs = {
  stream: ({ request }) => items(request),
  many: ({ requests }) => Promise.all(requests.map((request) => items(request))),
  cancel: ({ request }) => items(request, (item) => item.type === 'delta'),
  async invoke({ target, arguments: given }) {
    try {
      return { result: await connection.invoke(target, ...given) };
    } catch (error) {
      return { error: error.message };
    }
  },
  async wrong_kind() {
    return new Promise((resolve) => connection.stream('ChatOnce', {}).subscribe({
      next() {}, complete() { resolve({}); }, error(error) { resolve({ error: error.message }); },
    }));
  },
  async reconnected() {
    await reconnected;
    return { state: connection.state };
  },
  async closed() {
    await closed;
    return { state: connection.state };
  },
};

try {
  await connection.start();
} catch (error) {
  process.stdout.write(JSON.stringify({ error: error.message }) + '\n');
  process.exit(0);
}
process.stdout.write(JSON.stringify({ state: connection.state }) + '\n');
for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  process.stdout.write(JSON.stringify(await jobs[job.do](job)) + '\n');
}
await connection.stop();
