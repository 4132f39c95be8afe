// The official JavaScript SDKs as clients: prints, as JSON, everything their helpers compute.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.BATON_SDKS}/x.js`);
const OpenAI = require("openai").default;
const Anthropic = require("@anthropic-ai/sdk").default;
const { zodResponseFormat, zodTextFormat } = require("openai/helpers/zod");
const { z } = require("zod");

const address = process.argv[2];
const openai = new OpenAI({ baseURL: `${address}/s/js-openai/v1`, apiKey: "none" });
const anthropic = new Anthropic({ baseURL: `${address}/s/js-anthropic`, apiKey: "none" });
const city = z.object({ city: z.string(), km: z.number() });
const user = (content) => [{ role: "user", content }];
const names = ["odd_sum", "look-up"];
const parameters = { type: "object", properties: {} };
const chatTools = names.map((name) => ({ type: "function", function: { name, parameters } }));
const tools = names.map((name) => ({ type: "function", name, parameters, strict: false }));
const blocks = names.map((name) => ({ name, input_schema: parameters }));
const seen = {};

// Chat Completions
{
  const told = await openai.chat.completions.create({ model: "m", messages: user("say it") });
  seen.chat = { text: told.choices[0].message.content, usage: told.usage };
  const stream = await openai.chat.completions.create({
    model: "m", messages: user("say it"), stream: true, stream_options: { include_usage: true },
  });
  let text = "", usage = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  seen.chatStream = { text, usage };
  const runner = openai.chat.completions.stream({ model: "m", messages: user("tools please"), tools: chatTools });
  const final = await runner.finalChatCompletion();
  const message = final.choices[0].message;
  seen.chatTools = { text: message.content, calls: message.tool_calls.map((c) => [c.function.name, c.function.arguments]) };
  const results = message.tool_calls.map((c, n) => ({ role: "tool", tool_call_id: c.id, content: `${n}` }));
  const again = await openai.chat.completions.create({
    model: "m", messages: [...user("tools please"), message, ...results], tools: chatTools,
  });
  seen.chatResults = again.choices[0].message.content;
  const parsed = await openai.chat.completions.parse({
    model: "m", messages: user("json please"), response_format: zodResponseFormat(city, "city"),
  });
  seen.chatParsed = parsed.choices[0].message.parsed;
  const tokens = await openai.chat.completions.create({
    model: "m", messages: user("tokens please"), logprobs: true, top_logprobs: 2,
  });
  seen.chatLogprobs = tokens.choices[0].logprobs.content.map((t) => [t.token, t.logprob]);
  const several = await openai.chat.completions.create({ model: "m", messages: user("several please"), n: 3 });
  seen.chatSeveral = several.choices.map((c) => c.message.content);
}

// Responses
{
  const told = await openai.responses.create({ model: "m", input: "say it" });
  seen.responses = { text: told.output_text, usage: told.usage };
  const stream = openai.responses.stream({ model: "m", input: "tools please", tools });
  const kinds = [];
  for await (const event of stream) kinds.push(event.type);
  const final = await stream.finalResponse();
  const calls = final.output.filter((item) => item.type === "function_call");
  seen.responsesTools = { kinds, calls: calls.map((c) => [c.name, c.arguments]) };
  const results = calls.map((c, n) => ({ type: "function_call_output", call_id: c.call_id, output: `${n}` }));
  const kept = await openai.responses.create({ model: "m", input: results, tools, previous_response_id: final.id });
  seen.responsesKept = kept.output_text;
  const parsed = await openai.responses.parse({
    model: "m", input: "json please", text: { format: zodTextFormat(city, "city") },
  });
  seen.responsesParsed = parsed.output_parsed;
}

// Messages
{
  const asked = (content, more) => ({ model: "m", max_tokens: 99, messages: user(content), ...more });
  const told = await anthropic.messages.create(asked("say it"));
  seen.messages = { text: told.content[0].text, usage: told.usage, reason: told.stop_reason };
  const stream = anthropic.messages.stream(asked("tools please", { tools: blocks }));
  const inputs = [];
  stream.on("inputJson", (_, snapshot) => inputs.push(snapshot));
  const final = await stream.finalMessage();
  const uses = final.content.filter((block) => block.type === "tool_use");
  seen.messagesTools = { text: await stream.finalText(), uses: uses.map((u) => [u.name, u.input]), last: inputs.at(-1) };
  const results = uses.map((u, n) => ({ type: "tool_result", tool_use_id: u.id, content: `${n}` }));
  const again = await anthropic.messages.create({
    ...asked("", { tools: blocks }),
    messages: [...user("tools please"), { role: "assistant", content: final.content }, { role: "user", content: results }],
  });
  seen.messagesResults = again.content[0].text;
  const thought = await anthropic.messages
    .stream(asked("think first", { thinking: { type: "adaptive" } })).finalMessage();
  seen.thought = thought.content;
  seen.counted = (await anthropic.messages.countTokens({ model: "m", messages: user("say it") })).input_tokens;
}

// Refusals
for (const [name, ask] of Object.entries({
  openai: () => openai.chat.completions.create({ model: "m", messages: user("refused in js") }),
  anthropic: () => anthropic.messages.create({ model: "m", max_tokens: 9, messages: user("refused in js") }),
})) {
  try {
    await ask();
  } catch (error) {
    seen[`${name}Refused`] = [error.status, error.message];
  }
}
console.log(JSON.stringify(seen));
