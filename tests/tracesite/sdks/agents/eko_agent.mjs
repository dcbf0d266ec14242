// A task of Eko, recorded by integrations/eko. Arguments: what to do, the id of the task, and the options of the TraceSystem.
import { Agent, Eko, Log } from "@eko-ai/eko";
import { TraceSystem } from "./dist/index.js";

const [what, taskId, given] = process.argv.slice(2);
const { model = "good", ...options } = JSON.parse(given);
const apiKey = "sk-of-the-model";
const [heard, messages, warnings] = [[], [], []];
Log.setLevel(5); // says nothing

// Deeper than a server takes.
const nested = (depth) => (depth ? { nested: nested(depth - 1) } : {});
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [
  {
    name: "get_weather",
    parameters,
    execute: async ({ city }) => {
      const content = [{ type: "text", text: `31 degrees in ${city}` }];
      return what === "nest" && city === "Oslo" ? { content, extInfo: nested(2000) } : { content };
    },
  },
  {
    name: "get_traffic",
    parameters,
    execute: async ({ city }) => {
      throw new Error(`no traffic data for ${city}`);
    },
  },
];
class Callback {
  #heard = heard;
  async onMessage(message) {
    this.#heard.push(message.type);
    if (what === "abort" && message.type === "agent_start") eko.abortTask(taskId);
    if (what === "pause" && message.type === "agent_start" && eko.pauseTask(taskId, true)) eko.pauseTask(taskId, false);
    if (what === "throw" && message.type === "agent_start") throw new Error("The callback of the host fails.");
  }
}
const llm = { provider: "openai", model, apiKey, config: { baseURL: process.env.OPENAI_BASE_URL } };
const callback = new Callback();
const eko = new Eko({
  llms: { default: what === "freeze" ? Object.freeze(llm) : llm },
  agents: [
    new Agent({ name: "Lookup", description: "Looks things up.", tools }),
    new Agent({ name: "Writer", description: "Writes answers.", tools: [] }),
  ],
  callback: what === "freeze" ? Object.freeze(callback) : callback,
});

const trace = new TraceSystem({
  ...options,
  onMessage: async (message) => {
    messages.push(message);
    if (what === "subscribe") throw new Error("The subscriber fails.");
  },
  warn: (text) => warnings.push(text),
});
await trace.start();
trace.enable(trace.enable(eko));
let result;
try {
  result = await eko.run("What is the weather in Oslo?", taskId);
  if (what === "modify") {
    await eko.modify(taskId, "And in Bergen?");
    result = await eko.execute(taskId);
  }
} catch (error) {
  result = { thrown: String(error) };
}
const left = what === "leave" ? undefined : await trace.stop(options.timeout ?? 60_000);
delete result.error;
if (JSON.stringify(messages).includes(apiKey)) throw new Error("The API key of the model is recorded.");
const sent = messages.map(({ id, type }) => ({ id, type }));
console.log(JSON.stringify({ result, heard, warnings, left, report: trace.report(), messages: sent }));
