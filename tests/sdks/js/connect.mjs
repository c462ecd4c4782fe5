// Connect's own clients against a live gateway: node connect.mjs URL PROTOCOL JSON?  (descriptor set: base64 on stdin)
import { fromBinary, createFileRegistry } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { createClient, Code, ConnectError } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from '@connectrpc/connect-node';
import { readFileSync } from 'node:fs';

const [, , baseUrl, protocol, json] = process.argv;
const files = createFileRegistry(fromBinary(FileDescriptorSetSchema, Buffer.from(readFileSync(0, 'utf8'), 'base64')));
const make = { connect: createConnectTransport, grpc: createGrpcTransport, 'grpc-web': createGrpcWebTransport }[protocol];
const options = { baseUrl, useBinaryFormat: json !== 'json' };
const transport = make(protocol === 'grpc' ? options : { ...options, httpVersion: '1.1' });
const client = createClient(files.getService('headrace.v1.LlmGateway'), transport);
const messages = [{ role: 'user', content: 'What is a headrace?' }];
const ErrorSchema = files.getMessage('headrace.v1.Error');

async function chat(request, options) {
  const found = { kinds: [], seqs: [], text: '', reasoning: '', calls: [] };
  try {
    for await (const event of client.chat({ messages, ...request }, options)) {
      found.kinds.push(event.event.case);
      found.seqs.push(Number(event.seq));
      if (event.event.case === 'delta') found.text += event.event.value.content;
      if (event.event.case === 'reasoning') found.reasoning += event.event.value.content;
      if (event.event.case === 'toolCall' && event.event.value.complete) found.calls.push(event.event.value.arguments);
    }
  } catch (error) {
    const known = ConnectError.from(error);
    found.code = Code[known.code];
    found.message = known.message;
    found.details = known.findDetails(ErrorSchema).map((detail) => detail.code);
  }
  return found;
}

async function once(request, options) {
  try {
    return (await client.chatOnce({ messages, ...request }, options)).choices[0].message.content;
  } catch (error) {
    const known = ConnectError.from(error);
    return { code: Code[known.code], details: known.findDetails(ErrorSchema).map((detail) => detail.code) };
  }
}

const abort = new AbortController();
let first = true;
const found = {
  text: await chat({ model: 'as-anthropic/text' }),
  tools: await chat({ model: 'as-openai/parallel-tools' }),
  reasoning: await chat({ model: 'as-anthropic/reasoning' }),
  llmStream: await chat({ model: 'as-openai/text', format: 2 }),
  early: await chat({ model: 'as-openai/text?status=503' }),
  late: await chat({ model: 'as-openai/error' }),
  unknown: await chat({ model: 'nobody/none' }),
  once: await once({ model: 'as-openai/text' }),
  onceUnknown: await once({ model: 'nobody/none' }),
  deadline: await chat({ model: 'as-openai/text?silence=3' }, { timeoutMs: 500 }),
  models: (await client.listModels({})).models.length,
};
try {
  for await (const event of client.chat({ messages, model: 'as-openai/text?silence=3' }, { signal: abort.signal })) {
    if (first) abort.abort();
    first = false;
  }
} catch (error) {
  found.cancelled = Code[ConnectError.from(error).code];
}
process.stdout.write(JSON.stringify(found));
process.exit(0);
