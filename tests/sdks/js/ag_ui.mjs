// AG-UI's HttpAgent, whose verifier checks the order of all events. See jobs.mjs for how it is run.
import { HttpAgent } from '@ag-ui/client';
import { RESULT, seen, serve } from './jobs.mjs';

class Failed extends Error {}

function agent() {
  return new HttpAgent({ url: `${process.argv[2]}/v1/ui/ag-ui`, threadId: 'thread' });
}

async function run(client, answer, { model, tools, runId = 'run' }, onText) {
  let failure;
  await client
    .runAgent(
      { runId, tools, forwardedProps: { model } },
      {
        onTextMessageContentEvent: ({ event }) => { answer.text += event.delta; onText?.(); },
        onReasoningMessageContentEvent: ({ event }) => { answer.reasoning += event.delta; },
        onReasoningEncryptedValueEvent: ({ event }) => { answer.signatures.push(event.encryptedValue); },
        onToolCallEndEvent: ({ event, toolCallName, toolCallArgs }) => {
          answer.calls.push({ id: event.toolCallId, name: toolCallName, arguments: toolCallArgs });
        },
        onRunFinishedEvent: ({ event }) => {
          answer.stop = event.result?.finishReason ?? null;
          const [usage] = event.usage ?? [];
          if (usage) answer.usage = { input: usage.inputTokens, output: usage.outputTokens, reasoning: null };
        },
        onRunErrorEvent: ({ event }) => { failure = new Failed(event.message); },
      },
    )
    .catch((error) => { failure ??= new Failed(error.message); });
  if (failure) throw failure;
}

await serve(
  {
    run: async (outcome, request) => {
      const client = agent();
      client.addMessage({ id: 'u', role: 'user', content: request.content ?? 'What is a headrace?' });
      const answer = seen();
      outcome.answers.push(answer);
      await run(client, answer, request);
    },
    round_trip: async (outcome, request) => {
      const client = agent();
      client.addMessage({ id: 'u', role: 'user', content: 'What is it like?' });
      const first = seen();
      await run(client, first, request);
      outcome.answers.push(first);
      for (const call of first.calls) {
        client.addMessage({ id: `result-${call.id}`, role: 'tool', toolCallId: call.id, content: RESULT });
      }
      if (request.then) client.addMessage({ id: 'u2', role: 'user', content: 'Go on' });
      const second = seen();
      await run(client, second, { ...request, model: request.then ?? request.model, runId: 'run-2' });
      outcome.answers.push(second);
    },
    abort: async (outcome, request) => {
      const client = agent();
      client.addMessage({ id: 'u', role: 'user', content: 'Go' });
      try {
        await run(client, seen(), request, () => client.abortRun());
      } catch (error) {
        if (!(error instanceof Failed)) throw error;
      }
    },
  },
  Failed,
  {},
);

