// OpenAI's JavaScript SDK on /v1/responses. See jobs.mjs for how it is run.
import OpenAI, { OpenAIError } from 'openai';
import { RESULT, parsed, seen, serve } from './jobs.mjs';

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60_000 });

function shown(response) {
  const answer = seen({ id: response.id, model: response.model, stop: response.status });
  for (const item of response.output) {
    if (item.type === 'message') for (const part of item.content) answer.text += part.text ?? '';
    if (item.type === 'reasoning') for (const part of item.summary) answer.reasoning += part.text;
    if (item.type === 'function_call') {
      answer.calls.push({ id: item.call_id, name: item.name, arguments: parsed(item.arguments) });
    }
  }
  if (response.usage) {
    answer.usage = {
      input: response.usage.input_tokens,
      output: response.usage.output_tokens,
      reasoning: response.usage.output_tokens_details.reasoning_tokens,
    };
  }
  return answer;
}

function asked({ messages: _, ...request }) {
  return { input: 'What is a headrace?', ...request };
}

async function streamed(request) {
  const events = await client.responses.create({ ...request, stream: true });
  let last;
  let number = 0;
  for await (const event of events) {
    if (event.sequence_number !== number++) throw new TypeError(`event ${number - 1} is numbered ${event.sequence_number}`);
    last = event;
  }
  return last.response;
}

async function helped(request) {
  const stream = client.responses.stream(request);
  return stream.finalResponse();
}

await serve(
  {
    create: async (outcome, request) => {
      outcome.answers.push(shown(await client.responses.create(asked(request))));
    },
    stream: async (outcome, request) => {
      outcome.answers.push(shown(await streamed(asked(request))));
    },
    helper: async (outcome, request) => {
      outcome.answers.push(shown(await helped(asked(request))));
    },
    // `then`: the model that is asked with the second turn, where it is another one
    round_trip: async (outcome, { then, ...request }) => {
      const first = await helped(asked(request));
      outcome.answers.push(shown(first));
      const results = first.output
        .filter((item) => item.type === 'function_call')
        .map((item) => ({ type: 'function_call_output', call_id: item.call_id, output: RESULT }));
      const items = first.output.map(({ parsed_arguments: _, ...item }) => item);
      const input = [{ role: 'user', content: 'What is a headrace?' }, ...items, ...results];
      if (!results.length) input.push({ role: 'user', content: 'Go on' });
      outcome.answers.push(shown(await helped({ ...asked(request), model: then ?? request.model, input })));
    },
    abort: async (outcome, request) => {
      const stream = await client.responses.create({ ...asked(request), stream: true });
      for await (const event of stream) {
        if (event.type === 'response.output_text.delta') {
          stream.controller.abort();
          break;
        }
      }
    },
  },
  OpenAIError,
  {},
);
