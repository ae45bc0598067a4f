// The Vercel AI SDK with its provider for servers that speak OpenAI's API.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from 'ai';
import { z } from 'zod';
import { assert, CALL, ECHO, main, TINY } from './checks.mjs';

globalThis.AI_SDK_LOG_WARNINGS = false;
const model = (await (await fetch(`${TINY}/models`)).json()).data[0].id;
const provider = (baseURL) => createOpenAICompatible({
  name: 'pergola', baseURL, apiKey: 'none', includeUsage: true, supportsStructuredOutputs: true,
});
const tiny = provider(TINY).chatModel(model), echo = provider(ECHO).chatModel(model);
const still = { pergola: { enable_thinking: false } }; // goes into the body as it is
const Colour = z.object({
  name: z.enum(['red', 'green', 'blue']),
  strength: z.number().int().min(0).max(9),
  warm: z.boolean(),
});
const tools = (seen) => ({
  weather: tool({
    description: 'weather of a city',
    inputSchema: z.object({ city: z.string(), days: z.number().int() }),
    execute: async (x) => (seen.push(x), 'rain'),
  }),
});
const base = { providerOptions: still, maxRetries: 0 };

await main('Vercel AI SDK', {
  async generateText() {
    const result = await generateText({ ...base, model: echo, prompt: 'over the hills' });
    assert.equal(result.text, 'over the hills');
    assert.equal(result.finishReason, 'stop');
    assert.ok(result.usage.inputTokens > 0 && result.usage.outputTokens > 0);
  },
  async generateText_with_system_and_history() {
    const result = await generateText({
      ...base, model: echo, system: 'Be short.',
      messages: [{ role: 'user', content: 'a' }, { role: 'assistant', content: 'b' }, { role: 'user', content: [{ type: 'text', text: 'c d' }] }],
    });
    assert.equal(result.text, 'c d');
  },
  async streamText() {
    let text = '', n = 0;
    const result = streamText({ ...base, model: echo, prompt: 'a b c d e f' });
    for await (const part of result.textStream) {
      text += part;
      n++;
    }
    assert.equal(text, 'a b c d e f');
    assert.ok(n > 1, 'in pieces');
    assert.equal(await result.finishReason, 'stop');
    assert.ok((await result.usage).outputTokens > 0);
  },
  async streamText_with_reasoning() {
    const result = streamText({
      ...base, providerOptions: { pergola: { enable_thinking: true } }, model: echo, prompt: 'I wonder.\n</think>\n\nIt is so.',
    });
    assert.equal((await result.text).trim(), 'It is so.');
    assert.match(await result.reasoningText, /I wonder/);
  },
  async tools() {
    const seen = [];
    const result = await generateText({ ...base, model: echo, prompt: CALL, tools: tools(seen), stopWhen: stepCountIs(2) });
    assert.deepEqual(seen[0], { city: 'Oslo', days: 3 });
    assert.equal(result.steps[0].finishReason, 'tool-calls');
    assert.equal(result.steps.length, 2, 'the result of the call went back');
  },
  async tools_streamed() {
    const seen = [], kinds = new Set();
    const result = streamText({ ...base, model: echo, prompt: CALL, tools: tools(seen), stopWhen: stepCountIs(2) });
    for await (const part of result.fullStream) kinds.add(part.type);
    assert.deepEqual(seen[0], { city: 'Oslo', days: 3 });
    for (const kind of ['tool-input-start', 'tool-input-delta', 'tool-call', 'tool-result']) assert.ok(kinds.has(kind), kind);
    assert.ok(!kinds.has('error'));
  },
  async generateObject() {
    for (let seed = 0; seed < 3; seed++) {
      const result = await generateObject({ ...base, model: tiny, schema: Colour, prompt: 'a colour', maxOutputTokens: 300, temperature: 1, seed });
      assert.ok(Colour.safeParse(result.object).success);
    }
  },
  async streamObject() {
    const result = streamObject({ ...base, model: tiny, schema: Colour, prompt: 'a colour', maxOutputTokens: 300, temperature: 1, seed: 5 });
    let n = 0;
    for await (const _ of result.partialObjectStream) n++;
    assert.ok(n > 0 && Colour.safeParse(await result.object).success);
  },
  async a_stream_that_is_left() {
    const stop = new AbortController();
    const result = streamText({
      ...base, providerOptions: { pergola: { enable_thinking: false, ignore_eos: true } }, model: tiny, prompt: 'a long one',
      maxOutputTokens: 1500, abortSignal: stop.signal, onError() {},
    });
    let n = 0;
    for await (const _ of result.fullStream) if (++n === 5) stop.abort();
    assert.equal((await generateText({ ...base, model: echo, prompt: 'next' })).text, 'next');
  },
});
