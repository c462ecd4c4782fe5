// Google's JavaScript SDK. See jobs.mjs for how it is run.
import { ApiError, GoogleGenAI } from '@google/genai';
import { RESULT, seen, serve } from './jobs.mjs';

const ai = new GoogleGenAI({ apiKey: 'none', httpOptions: { baseUrl: process.argv[2], timeout: 60_000 } });

function add(answer, chunk) {
  const [candidate] = chunk.candidates ?? [];
  answer.model = chunk.modelVersion;
  for (const part of candidate?.content?.parts ?? []) {
    if (part.thought) answer.reasoning += part.text ?? '';
    else answer.text += part.text ?? '';
    if (part.functionCall) {
      const { id, name, args } = part.functionCall;
      answer.calls.push({ id: id ?? '', name, arguments: args });
    }
  }
  if (candidate?.finishReason) answer.stop = candidate.finishReason;
  const usage = chunk.usageMetadata;
  if (usage) {
    const output = (usage.candidatesTokenCount ?? 0) + (usage.thoughtsTokenCount ?? 0);
    answer.usage = { input: usage.promptTokenCount, output, reasoning: usage.thoughtsTokenCount ?? null };
  }
}

function asked({ messages: _, ...request }) {
  return { contents: 'What is a headrace?', ...request };
}

async function streamed(request) {
  const answer = seen();
  const parts = [];
  for await (const chunk of await ai.models.generateContentStream(request)) {
    add(answer, chunk);
    parts.push(...(chunk.candidates?.[0]?.content?.parts ?? []));
  }
  return { answer, parts };
}

await serve(
  {
    create: async (outcome, request) => {
      const answer = seen();
      add(answer, await ai.models.generateContent(asked(request)));
      outcome.answers.push(answer);
    },
    stream: async (outcome, request) => {
      outcome.answers.push((await streamed(asked(request))).answer);
    },
    // `then`: the model that is asked with the second turn, where it is another one
    round_trip: async (outcome, { then, ...request }) => {
      const first = await streamed(asked(request));
      outcome.answers.push(first.answer);
      const results = first.answer.calls.map(({ id, name }) => ({
        functionResponse: { id, name, response: { output: RESULT } },
      }));
      const contents = [
        { role: 'user', parts: [{ text: 'What is it like?' }] },
        { role: 'model', parts: first.parts },
        { role: 'user', parts: results.length ? results : [{ text: 'Go on' }] },
      ];
      outcome.answers.push((await streamed({ ...asked(request), model: then ?? request.model, contents })).answer);
    },
    abort: async (outcome, request) => {
      const controller = new AbortController();
      const config = { abortSignal: controller.signal };
      for await (const chunk of await ai.models.generateContentStream({ ...asked(request), config })) {
        if (chunk.text) break;
      }
      controller.abort();
    },
  },
  ApiError,
  {},
);
