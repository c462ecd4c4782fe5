// Vercel's AI SDK in its two roles: as a client of models (streamText with the providers of OpenAI, Anthropic and Google),
// and as the reader of UI message streams (DefaultChatTransport). See jobs.mjs for how it is run.
import { createAnthropic } from '@ai-sdk/anthropic';
import { createGoogleGenerativeAI } from '@ai-sdk/google';
import { createOpenAI } from '@ai-sdk/openai';
import { DefaultChatTransport, generateText, jsonSchema, readUIMessageStream, stepCountIs, streamText, tool } from 'ai';
import { RESULT, aborted, seen, serve } from './jobs.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false; // they would stand between the outcomes

const url = process.argv[2];
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: 'none' });
const anthropic = createAnthropic({ baseURL: `${url}/v1`, apiKey: 'none' });
const google = createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey: 'none' });
const MODELS = {
  chat: (name) => openai.chat(name),
  responses: (name) => openai.responses(name),
  anthropic: (name) => anthropic(name),
  google: (name) => google(`models/${name.replace('?', '%3F')}`), // with a slash in a name it leaves "models/" out
};

const WEATHER = {
  description: 'The weather of a city',
  schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
};

class Failed extends Error {}

function told(error) {
  const failed = new Failed(error?.message ?? String(error));
  failed.status = error?.statusCode ?? error?.lastError?.statusCode;
  return failed;
}

// What both of the SDK's functions are asked; with `tools`, the SDK carries calls out and asks again.
function asked({ model, client, tools: withTools, image }, controller) {
  const content = image ? [{ type: 'text', text: 'What is it?' }, { type: 'image', image }] : 'What is a headrace?';
  return {
    model: MODELS[client](model),
    messages: [{ role: 'user', content }],
    maxRetries: 0,
    abortSignal: controller.signal,
    // without it the SDK sends references to what OpenAI keeps in place of the turns themselves
    providerOptions: { openai: { store: false } },
    stopWhen: stepCountIs(withTools ? 3 : 1),
    tools: withTools && {
      get_weather: tool({ ...WEATHER, inputSchema: jsonSchema(WEATHER.schema), execute: () => RESULT }),
    },
  };
}

// A model's answer by generateText, which asks for no stream; with `again`, its messages are sent back with another turn,
// to the model `then`. Aborted when the provider has had WAIT to answer.
async function whole(outcome, request) {
  const controller = new AbortController();
  const settings = asked(request, controller);
  const waiting = generateText(settings).catch((error) => { throw told(error); });
  const result = await (request.abort ? aborted(waiting, () => controller.abort()) : waiting);
  outcome.answers.push(seen({
    text: result.text,
    reasoning: result.reasoningText ?? '',
    calls: result.toolCalls.map((call) => ({ id: call.toolCallId, name: call.toolName, arguments: call.input })),
    stop: result.finishReason,
    usage: { input: result.totalUsage.inputTokens ?? 0, output: result.totalUsage.outputTokens ?? 0, reasoning: null },
  }));
  if (!request.again) return;
  const messages = [...settings.messages, ...result.response.messages, { role: 'user', content: 'Go on' }];
  const second = await generateText({ ...asked({ ...request, model: request.again }, controller), messages })
    .catch((error) => { throw told(error); });
  outcome.answers.push(seen({ text: second.text }));
}

// A model's answer by streamText.
async function text(outcome, request) {
  const { abort } = request;
  const answer = seen();
  const controller = new AbortController();
  let failure;
  const result = streamText({
    ...asked(request, controller),
    onError: ({ error }) => { failure = error; },
  });
  for await (const part of result.fullStream) {
    if (part.type === 'text-delta') answer.text += part.text;
    if (part.type === 'reasoning-delta') answer.reasoning += part.text;
    if (part.type === 'tool-call') answer.calls.push({ id: part.toolCallId, name: part.toolName, arguments: part.input });
    if (part.type === 'finish') {
      answer.stop = part.finishReason;
      answer.usage = { input: part.totalUsage.inputTokens ?? 0, output: part.totalUsage.outputTokens ?? 0, reasoning: null };
    }
    if (abort && part.type === 'text-delta') controller.abort();
  }
  if (failure && !abort) throw told(failure);
  outcome.answers.push(answer);
}

function shown(message) {
  const answer = seen({ id: message.id });
  for (const part of message.parts) {
    if (part.type === 'text') answer.text += part.text;
    if (part.type === 'reasoning') {
      answer.reasoning += part.text;
      for (const own of Object.values(part.providerMetadata ?? {})) {
        if (own.signature) answer.signatures.push(own.signature);
        if (own.redactedData) answer.redacted.push(own.redactedData);
      }
    }
    if (part.type.startsWith('tool-')) {
      answer.calls.push({ id: part.toolCallId, name: part.type.slice(5), arguments: part.input });
    }
  }
  const { usage } = message.metadata ?? {};
  answer.model = message.metadata?.model ?? '';
  if (usage) answer.usage = { input: usage.inputTokens, output: usage.outputTokens, reasoning: usage.reasoningTokens ?? null };
  return answer;
}

// A user interface's turn: the transport posts, the reader puts the message together.
async function turn(messages, body, abortSignal) {
  const transport = new DefaultChatTransport({ api: `${url}/v1/ui/vercel`, body });
  const stream = await transport
    .sendMessages({ chatId: 'chat', trigger: 'submit-message', messages, abortSignal })
    .catch((error) => { throw told(error); });
  let failure;
  let last;
  for await (const message of readUIMessageStream({ stream, onError: (error) => { failure = error; }, terminateOnError: false })) {
    last = message;
    if (abortSignal && message.parts.some((part) => part.type === 'text' && part.text)) break;
  }
  return { message: last, failure };
}

const user = (parts) => ({ id: 'u', role: 'user', parts });
const ASKED = user([{ type: 'text', text: 'What is a headrace?' }]);

await serve(
  {
    text,
    whole,
    ui: async (outcome, { model, parts }) => {
      const { message, failure } = await turn([parts ? user(parts) : ASKED], { model });
      if (message) outcome.answers.push(shown(message));
      if (failure) throw told(failure);
    },
    ui_round_trip: async (outcome, { model, then }) => {
      const tools = { get_weather: { description: WEATHER.description, inputSchema: WEATHER.schema } };
      const { message } = await turn([ASKED], { model, tools });
      outcome.answers.push(shown(message));
      const parts = message.parts.map((part) =>
        part.type.startsWith('tool-') ? { ...part, state: 'output-available', output: RESULT } : part);
      const messages = [ASKED, { ...message, parts }];
      if (then) messages.push(user([{ type: 'text', text: 'Go on' }]));
      const second = await turn(messages, { model: then ?? model, tools });
      outcome.answers.push(shown(second.message));
    },
    ui_abort: async (outcome, { model }) => {
      const controller = new AbortController();
      await turn([ASKED], { model }, controller.signal);
      controller.abort();
    },
  },
  Failed,
  {},
);
