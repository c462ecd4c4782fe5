// Anthropic's JavaScript SDK, used in all the ways its users do. See jobs.mjs for how it is run.
import Anthropic, { AnthropicError } from '@anthropic-ai/sdk';
import { betaTool } from '@anthropic-ai/sdk/helpers/beta/json-schema';
import { jsonSchemaOutputFormat } from '@anthropic-ai/sdk/helpers/json-schema';
import { RESULT, aborted, seen, serve } from './jobs.mjs';

const client = new Anthropic({ baseURL: process.argv[2], apiKey: 'none', maxRetries: 0, timeout: 60_000 });

// Puts raw events together, as users of `stream: true` do by hand.
function collector(answer) {
  const partial = [];
  return (event) => {
    if (event.type === 'message_start') {
      answer.id = event.message.id;
      answer.model = event.message.model;
    } else if (event.type === 'content_block_start') {
      const block = event.content_block;
      if (block.type === 'redacted_thinking') answer.redacted.push(block.data);
      if (block.type === 'tool_use') answer.calls.push({ id: block.id, name: block.name, arguments: block.input });
    } else if (event.type === 'content_block_delta') {
      const { delta } = event;
      if (delta.type === 'signature_delta') {
        answer.signatures.push(delta.signature);
        return;
      }
      answer.text += delta.text ?? '';
      answer.reasoning += delta.thinking ?? '';
      partial[event.index] = (partial[event.index] ?? '') + (delta.partial_json ?? '');
      answer.deltas += 1;
    } else if (event.type === 'content_block_stop') {
      if (partial[event.index]) answer.calls.at(-1).arguments = JSON.parse(partial[event.index]);
    } else if (event.type === 'message_delta') {
      answer.stop = event.delta.stop_reason;
      answer.usage = usageSeen(event.usage);
    }
  };
}

function whole(message) {
  const answer = seen({
    id: message.id,
    request_id: message._request_id ?? '',
    model: message.model,
    stop: message.stop_reason,
    usage: usageSeen(message.usage),
  });
  for (const block of message.content) {
    if (block.type === 'text') answer.text += block.text;
    if (block.type === 'thinking') {
      answer.reasoning += block.thinking;
      answer.signatures.push(block.signature);
    }
    if (block.type === 'redacted_thinking') answer.redacted.push(block.data);
    if (block.type === 'tool_use') answer.calls.push({ id: block.id, name: block.name, arguments: block.input });
  }
  return answer;
}

function usageSeen(usage) {
  return {
    input: usage.input_tokens,
    output: usage.output_tokens,
    reasoning: usage.output_tokens_details?.thinking_tokens ?? null,
  };
}

const scenarios = {
  async create(outcome, request) {
    outcome.answers.push(whole(await client.messages.create(request)));
  },

  async stream(outcome, request) {
    const events = await client.messages.create({ ...request, stream: true });
    const answer = seen();
    outcome.answers.push(answer);
    const add = collector(answer);
    for await (const event of events) add(event);
  },

  async helper(outcome, request) {
    outcome.answers.push(whole(await client.messages.stream(request).finalMessage()));
  },

  async converse(outcome, { result = RESULT, streamed = false, model, then = model, messages, ...request }) {
    for (const current of [model, then]) {
      const body = { ...request, model: current, messages };
      const message = streamed
        ? await client.messages.stream(body).finalMessage()
        : await client.messages.create(body);
      outcome.answers.push(whole(message));
      const results = message.content
        .filter((block) => block.type === 'tool_use')
        .map((block) => ({ type: 'tool_result', tool_use_id: block.id, content: result }));
      messages = [
        ...messages,
        { role: 'assistant', content: message.content },
        { role: 'user', content: results.length ? results : 'Are you sure?' },
      ];
    }
  },

  // The SDK's own loop, which calls the function and sends its result back.
  async 'tool-runner'(outcome, { result = RESULT, tools, ...request }) {
    const runner = client.beta.messages.toolRunner({
      ...request,
      tools: tools.map(({ name, description, input_schema: inputSchema }) =>
        betaTool({ name, description, inputSchema, run: () => result })),
    });
    for await (const message of runner) outcome.answers.push(whole(message));
  },

  async parse(outcome, { schema, ...request }) {
    const output_config = { format: jsonSchemaOutputFormat(schema) };
    outcome.value = (await client.messages.parse({ ...request, output_config })).parsed_output;
  },

  async 'parse-stream'(outcome, { schema, ...request }) {
    const output_config = { format: jsonSchemaOutputFormat(schema) };
    outcome.value = (await client.messages.stream({ ...request, output_config }).finalMessage()).parsed_output;
  },

  async models(outcome, { model }) {
    const ids = [];
    for await (const entry of client.models.list()) ids.push(entry.id);
    outcome.value = { ids, one: (await client.models.retrieve(model)).id };
  },

  // Abort the stream's controller after the first piece of text.
  async close(outcome, request) {
    const events = await client.messages.create({ ...request, stream: true });
    const answer = seen();
    outcome.answers.push(answer);
    const add = collector(answer);
    for await (const event of events) {
      add(event);
      if (answer.text) events.controller.abort();
    }
  },

  // Leave the loop after the first piece of text.
  async leave(outcome, request) {
    const events = await client.messages.create({ ...request, stream: true });
    const answer = seen();
    outcome.answers.push(answer);
    const add = collector(answer);
    for await (const event of events) {
      add(event);
      if (answer.text) break;
    }
  },

  // Abort the helper while it waits in the middle of the answer.
  async cancel(outcome, request) {
    const stream = client.messages.stream(request);
    const ready = new Promise((resolve) => {
      stream.on('text', (delta, text) => {
        outcome.answers = [seen({ text })];
        if (text) resolve();
      });
    });
    await aborted(stream.done(), () => stream.abort(), ready);
  },

  // Abort before there is an answer.
  async 'cancel-early'(outcome, request) {
    const controller = new AbortController();
    const waiting = client.messages.create({ ...request, stream: true }, { signal: controller.signal });
    await aborted(waiting, () => controller.abort());
  },
};

await serve(scenarios, AnthropicError, { max_tokens: 1000 });
