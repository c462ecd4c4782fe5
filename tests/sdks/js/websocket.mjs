// Node's ws package as a caller of /v1/ws: one stream to its end, beside one that is cancelled.
import WebSocket from 'ws';

const socket = new WebSocket(process.argv[2]);
const messages = [{ role: 'user', content: 'What is a headrace?' }];
const found = { text: '' };
const send = (message) => socket.send(JSON.stringify(message));

socket.on('open', () => {
  send({ type: 'request', id: 'whole', model: 'as-openai/text', messages });
  send({ type: 'request', id: 'cut', model: 'as-openai/text?silence=3', messages });
});
socket.on('message', (data) => {
  const event = JSON.parse(data);
  if (event.id === 'whole' && event.type === 'delta') found.text += event.data.content;
  if (event.id === 'whole' && event.type === 'done') found.done = true;
  if (event.id === 'cut' && event.type === 'delta') send({ type: 'cancel', id: 'cut' });
  if (event.id === 'cut' && event.type === 'error') found.cancelled = event.data.code;
  if (found.done && found.cancelled) socket.close(1000);
});
socket.on('close', () => process.stdout.write(JSON.stringify(found)));
