// Runs scenarios for the tests: a job a line on stdin, an outcome a line on stdout, until stdin ends.
// The shapes are those of Seen, Failure and Outcome in tests/sdks/expected.py. By hand:
//   echo '{"scenario": "stream", "model": "as-openai/text", "request": {}}' | node openai.mjs http://127.0.0.1:8080
import { createInterface } from 'node:readline';

export const USER = [{ role: 'user', content: 'What is a headrace?' }];
export const WAIT = 1000; // milliseconds that a scenario waits for a provider that says nothing at all
export const RESULT = '12 degrees'; // what a tool says, where the scenario is told nothing else

export function seen(fields = {}) {
  return {
    id: '', request_id: '', model: '', text: '', reasoning: '', refusal: '', signatures: [], redacted: [], calls: [],
    stop: null, usage: null, deltas: 0, bare_chunks: 0, ...fields,
  };
}

export function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// Aborts what waits for a silent provider, once `ready` is; without it after WAIT.
export async function aborted(waiting, abort, ready = new Promise((resolve) => setTimeout(resolve, WAIT))) {
  let over = false;
  const ended = waiting.catch(() => {}).finally(() => { over = true; });
  await Promise.race([ended, ready]);
  if (over) {
    await waiting; // throws what went wrong
    throw new TypeError('the provider was to be silent');
  }
  abort();
  return waiting;
}

function failure(error) {
  return {
    kind: error.constructor.name,
    message: String(error.message),
    status: error.status ?? null,
    request_id: error.requestID ?? null,
    retry_after: error.headers?.get?.('retry-after') ?? null,
  };
}

// `expected`: the class of the SDK's own errors; anything else is a fault of the test and ends the process.
export async function serve(scenarios, expected, defaults) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { scenario, model, request } = JSON.parse(line);
    const outcome = { answers: [], failure: null, value: null };
    try {
      await scenarios[scenario](outcome, { model, messages: USER, ...defaults, ...request });
    } catch (error) {
      if (!(error instanceof expected)) throw error;
      outcome.failure = failure(error);
    }
    process.stdout.write(JSON.stringify(outcome) + '\n');
  }
}
