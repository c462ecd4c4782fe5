// OpenAI's JavaScript SDK, used in all the ways its users do, or with the argument "azure" its class for Azure. See
// jobs.mjs for how it is run.
import OpenAI, { AzureOpenAI, OpenAIError } from 'openai';
import { makeParseableResponseFormat } from 'openai/lib/parser';
import { RESULT, aborted, parsed, seen, serve } from './jobs.mjs';

const [, , url, kind] = process.argv;
const common = { apiKey: 'none', maxRetries: 0, timeout: 60_000 };
const client = kind === 'azure'
  ? new AzureOpenAI({ ...common, endpoint: url, apiVersion: '2024-10-21' })
  : new OpenAI({ ...common, baseURL: `${url}/v1` });
const completions = client.chat.completions;

function addChunk(answer, chunk) {
  answer.id ||= chunk.id;
  answer.model = chunk.model;
  if (chunk.usage) answer.usage = usageSeen(chunk.usage);
  if (chunk.choices.length === 0) {
    answer.bare_chunks += 1;
    return;
  }
  const [choice] = chunk.choices;
  const { content, refusal, reasoning_content: reasoning, tool_calls: calls = [] } = choice.delta;
  answer.text += content ?? '';
  answer.refusal += refusal ?? '';
  answer.reasoning += reasoning ?? '';
  const pieces = [content, refusal, reasoning, ...calls.map((call) => call.function.arguments)];
  answer.deltas += pieces.filter(Boolean).length;
  addDetails(answer, choice.delta);
  for (const call of calls) {
    if (call.index === answer.calls.length) {
      answer.calls.push({ id: call.id, name: call.function.name, arguments: '' });
    }
    answer.calls[call.index].arguments += call.function.arguments ?? '';
  }
  if (choice.finish_reason) {
    answer.stop = choice.finish_reason;
    for (const call of answer.calls) call.arguments = parsed(call.arguments);
  }
}

function whole(completion) {
  const [choice] = completion.choices;
  const { message } = choice;
  const answer = seen({
    id: completion.id,
    request_id: completion._request_id ?? '',
    model: completion.model,
    text: message.content ?? '',
    refusal: message.refusal ?? '',
    reasoning: message.reasoning_content ?? '',
    calls: (message.tool_calls ?? []).map((call) => ({
      id: call.id, name: call.function.name, arguments: parsed(call.function.arguments),
    })),
    stop: choice.finish_reason,
    usage: completion.usage ? usageSeen(completion.usage) : null,
  });
  addDetails(answer, message);
  return answer;
}

function addDetails(answer, holder) {
  for (const item of holder.reasoning_details ?? []) {
    if (item.signature) answer.signatures.push(item.signature);
    if (item.data) answer.redacted.push(item.data);
  }
}

function usageSeen(usage) {
  return {
    input: usage.prompt_tokens,
    output: usage.completion_tokens,
    reasoning: usage.completion_tokens_details?.reasoning_tokens ?? null,
  };
}

function millFormat(schema) {
  const format = { type: 'json_schema', json_schema: { name: 'Mill', strict: true, schema } };
  return makeParseableResponseFormat(format, JSON.parse);
}

const scenarios = {
  async create(outcome, request) {
    outcome.answers.push(whole(await completions.create(request)));
  },

  async stream(outcome, request) {
    const chunks = await completions.create({ ...request, stream: true });
    const answer = seen();
    outcome.answers.push(answer);
    for await (const chunk of chunks) addChunk(answer, chunk);
  },

  async helper(outcome, request) {
    outcome.answers.push(whole(await completions.stream(request).finalChatCompletion()));
  },

  async converse(outcome, { result = RESULT, streamed = false, model, then = model, messages, ...request }) {
    for (const current of [model, then]) {
      const body = { ...request, model: current, messages };
      const completion = streamed
        ? await completions.stream(body).finalChatCompletion()
        : await completions.create(body);
      outcome.answers.push(whole(completion));
      const { message } = completion.choices[0];
      const results = (message.tool_calls ?? []).map((call) => ({
        role: 'tool', tool_call_id: call.id, content: result,
      }));
      messages = [...messages, message, ...(results.length ? results : [{ role: 'user', content: 'Are you sure?' }])];
    }
  },

  // The SDK's own loop, which calls the function and sends its result back.
  async 'tool-runner'(outcome, { result = RESULT, tools, ...request }) {
    const runner = completions.runTools({
      ...request,
      stream: true,
      tools: tools.map((tool) => ({
        ...tool, function: { ...tool.function, function: () => result, parse: JSON.parse },
      })),
    });
    runner.on('chatCompletion', (completion) => outcome.answers.push(whole(completion)));
    await runner.done();
  },

  async parse(outcome, { schema, ...request }) {
    const completion = await completions.parse({ ...request, response_format: millFormat(schema) });
    outcome.value = completion.choices[0].message.parsed;
  },

  async 'parse-stream'(outcome, { schema, ...request }) {
    const stream = completions.stream({ ...request, response_format: millFormat(schema) });
    outcome.value = (await stream.finalChatCompletion()).choices[0].message.parsed;
  },

  async models(outcome, { model }) {
    const ids = [];
    for await (const entry of client.models.list()) ids.push(entry.id);
    outcome.value = { ids, one: (await client.models.retrieve(model)).id };
  },

  // Abort the stream's controller after the first piece of text.
  async close(outcome, request) {
    const chunks = await completions.create({ ...request, stream: true });
    const answer = seen();
    outcome.answers.push(answer);
    for await (const chunk of chunks) {
      addChunk(answer, chunk);
      if (answer.text) chunks.controller.abort();
    }
  },

  // Leave the loop after the first piece of text.
  async leave(outcome, request) {
    const chunks = await completions.create({ ...request, stream: true });
    const answer = seen();
    outcome.answers.push(answer);
    for await (const chunk of chunks) {
      addChunk(answer, chunk);
      if (answer.text) break;
    }
  },

  // Abort the helper while it waits in the middle of the answer.
  async cancel(outcome, request) {
    const stream = completions.stream(request);
    const ready = new Promise((resolve) => {
      stream.on('content', (delta, text) => {
        outcome.answers = [seen({ text })];
        if (text) resolve();
      });
    });
    await aborted(stream.done(), () => stream.abort(), ready);
  },

  // Abort before there is an answer.
  async 'cancel-early'(outcome, request) {
    const controller = new AbortController();
    const waiting = completions.create({ ...request, stream: true }, { signal: controller.signal });
    await aborted(waiting, () => controller.abort());
  },
};

await serve(scenarios, OpenAIError, {});
