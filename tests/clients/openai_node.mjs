// The openai package for Node, as its documentation uses it.
import OpenAI from 'openai';
import { zodResponseFormat } from 'openai/helpers/zod';
import { z } from 'zod';
import { assert, CALL, ECHO, main, TINY } from './checks.mjs';

const options = { apiKey: 'none', maxRetries: 0, timeout: 120000 };
const tiny = new OpenAI({ baseURL: TINY, ...options }), echo = new OpenAI({ baseURL: ECHO, ...options });
const model = (await tiny.models.list()).data[0].id;
const body = (content, more) => ({ model, messages: [{ role: 'user', content }], enable_thinking: false, ...more });
const weather = {
  type: 'function',
  function: {
    name: 'weather',
    parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } }, required: ['city', 'days'] },
  },
};
const Colour = z.object({
  name: z.enum(['red', 'green', 'blue']),
  strength: z.number().int().min(0).max(9),
  warm: z.boolean(),
  also: z.array(z.enum(['dark', 'light'])).max(3),
});

await main('openai (Node)', {
  async streaming() {
    let text = '', finish, usage;
    for await (const chunk of await echo.chat.completions.create(body('over the hills', { stream: true, stream_options: { include_usage: true } }))) {
      text += chunk.choices[0]?.delta?.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, 'over the hills');
    assert.equal(finish, 'stop');
    assert.ok(usage.completion_tokens > 0);
  },
  async streaming_with_the_helper() {
    const stream = echo.chat.completions.stream(body('a b c'));
    assert.equal(await stream.finalContent(), 'a b c');
    assert.equal((await stream.finalChatCompletion()).choices[0].finish_reason, 'stop');
  },
  async streaming_can_be_left() {
    let n = 0;
    for await (const _ of await tiny.chat.completions.create(body('a long one', { stream: true, max_tokens: 1500, ignore_eos: true })))
      if (++n === 3) break;
    const next = await tiny.chat.completions.create(body('next', { max_tokens: 2 }));
    assert.ok(next.usage.prompt_tokens > 0);
  },
  async tools_in_one_piece_and_sent_back() {
    const answer = await echo.chat.completions.create(body(CALL, { tools: [weather] }));
    const message = answer.choices[0].message;
    assert.equal(answer.choices[0].finish_reason, 'tool_calls');
    assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: 'Oslo', days: 3 });
    const messages = [{ role: 'user', content: CALL }, message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'rain' },
      { role: 'user', content: 'thanks' }];
    const again = await echo.chat.completions.create({ ...body(''), messages, tools: [weather] });
    assert.equal(again.choices[0].message.content, 'thanks');
  },
  async tools_run_by_the_helper() {
    const seen = [];
    const runner = echo.chat.completions.runTools({
      ...body(CALL),
      stream: true,
      tools: [{ type: 'function', function: { ...weather.function, parse: JSON.parse, function: (x) => (seen.push(x), 'rain') } }],
    }, { maxChatCompletions: 2 });
    await runner.done().catch(() => {}); // an echo calls for ever
    assert.deepEqual(seen[0], { city: 'Oslo', days: 3 });
    assert.ok(seen.length >= 1);
  },
  async structured_output_with_zod() {
    for (let seed = 0; seed < 3; seed++) {
      const answer = await tiny.chat.completions.parse(body('a colour', {
        response_format: zodResponseFormat(Colour, 'colour'), max_tokens: 300, temperature: 1, seed,
      }));
      assert.ok(Colour.safeParse(answer.choices[0].message.parsed).success, JSON.stringify(answer));
    }
  },
  async log_probabilities() {
    const answer = await tiny.chat.completions.create(body('log', { max_tokens: 8, logprobs: true, top_logprobs: 4, temperature: 0 }));
    const tokens = answer.choices[0].logprobs.content;
    assert.equal(tokens.length, answer.usage.completion_tokens);
    for (const token of tokens) {
      assert.equal(token.top_logprobs.length, 4);
      assert.equal(token.logprob, Math.max(...token.top_logprobs.map((t) => t.logprob)));
    }
  },
  async errors_have_their_classes() {
    await assert.rejects(echo.chat.completions.create(body('x', { temperature: -1 })), OpenAI.BadRequestError);
    await assert.rejects(echo.models.retrieve('nobody'), OpenAI.NotFoundError);
  },
});
