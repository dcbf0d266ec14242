// The AI SDK with its OpenTelemetry integration, configured by OTEL_* variables: the agent of planner.py.
import { createOpenAI } from "@ai-sdk/openai";
import { OpenTelemetry } from "@ai-sdk/otel";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-proto";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { generateText, registerTelemetry, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const provider = new NodeTracerProvider({ spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter())] });
provider.register();
registerTelemetry(new OpenTelemetry());

const model = createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY }).chat("gpt-4o-mini");
const city = z.object({ city: z.string() });
const tools = {
  get_weather: tool({
    description: "Get the weather of a city",
    inputSchema: city,
    execute: async ({ city }) => `31 degrees in ${city}`,
  }),
  get_traffic: tool({
    description: "Get the traffic of a city",
    inputSchema: city,
    execute: async ({ city }) => {
      throw new Error(`no traffic data for ${city}`);
    },
  }),
  ask_expert: tool({
    description: "Ask an expert",
    inputSchema: z.object({ question: z.string() }),
    execute: async ({ question }) => {
      const { text } = await generateText({
        model,
        temperature: 0.2,
        system: "You are an expert on food.",
        prompt: question,
        telemetry: { functionId: "expert" },
      });
      return text;
    },
  }),
};

const { text } = streamText({
  model,
  temperature: 0.2,
  tools,
  system: "You plan trips.",
  prompt: "Plan a day in Oslo.",
  stopWhen: stepCountIs(5),
  telemetry: { functionId: "planner" },
});
console.log(await text);
await provider.shutdown();
