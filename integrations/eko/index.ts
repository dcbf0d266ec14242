/**
 * Record in Tracesite what Eko does, while it does it. README.md says how.
 *
 * Hooks on the objects of this Eko (its tasks, its callback, the prompts and calls of its agents, the requests to its models)
 * add messages to a bounded queue, which is sent in the background. No hook changes a value, throws or waits, so that the agent
 * has its own results and its own errors. What is lost is counted, here and in the trace. What comes from Eko is `any`, because
 * its versions 2 to 4 differ; it is read within `#safely`.
 */

export interface TraceOptions {
  url?: string; // of Tracesite; by default $TRACESITE_URL
  key?: string; // an API key that may write; by default $TRACESITE_KEY
  enabled?: boolean; // false: all methods work, and nothing is recorded
  deltas?: boolean; // true: the pieces of streamed texts are sent, too
  queueSize?: number; // characters of JSON that may wait for the server; messages that do not fit are lost
  timeout?: number; // milliseconds after which a request is sent again
  onMessage?: (message: TraceMessage) => void | Promise<void>; // gets each message that is recorded
  warn?: (text: string) => void; // gets the first problem of each kind; by default console.warn
}

/** One thing that happened in a task, as it is sent. */
export interface TraceMessage {
  taskId: string;
  messageId: string; // the run: a task may be executed, modified, and executed again
  id: string; // unique, so that a message that is sent twice is stored once
  type: "workflow" | "prompt" | "llm" | "agent" | "tool" | "session";
  ts: number; // milliseconds since 1970, never less than in the message before
  payload: Record<string, unknown>;
}

type Agent = { id: string; name: string };
/** A request to a model, with the texts of its answer by stream, and the times when its calls began. */
type Step = { agent: Agent; step: string; isOpen: boolean; started?: number; firstToken?: number } & {
  text: Map<string, string>; thinking: Map<string, string>; calls: Map<string, number>;
};
/** What goes on in a task, from its plan to its result, with the latest step of each agent, the newest last. */
type Run = Key & { task?: any; isExecuting: boolean; steps: number; latest: Map<string, Step> };
type Watch = { after?(result: any): void; failed?(error: any): void }; // what is called after a hooked method
type Key = { taskId: string; messageId: string };
type Entry = Key & { ts: number; json: string; isReport?: boolean };

const PLANNER: Agent = { id: "Planer", name: "Planer" }; // as Eko spells it
const PARAMETERS = ["tools", "toolChoice", "maxOutputTokens", "temperature", "topP", "topK", "stopSequences"];
const DEFAULTS = { enabled: true, deltas: false, queueSize: 32 * 2 ** 20, timeout: 10_000 };
const MOST = { runs: 1000, inRequest: 64 };
const PAUSE = { collect: 200, retry: 200, longest: 30_000, flushing: 500, asked: 300_000, exit: 5_000 }; // milliseconds
const { process } = globalThis as any; // browsers have none

export class TraceSystem {
  readonly #options;
  readonly #hooked = new WeakMap<object, Set<string>>();
  readonly #runs = new Map<string, Run>();
  readonly #warned = new Set<string>();
  readonly #counts = { recorded: 0, delivered: 0, dropped: 0, refused: 0, failed: 0 };
  readonly #losses = new Map<string, Entry & { count: number }>(); // by run
  readonly #queue: Entry[] = [];
  #characters = 0;
  #sending?: Promise<void>;
  #flushes = 0;
  #wake?: () => void;
  #ts = 0;
  #isRunning = false;
  readonly #atExit = () => void this.stop(PAUSE.exit);

  constructor(options: TraceOptions = {}) {
    const { url = process?.env.TRACESITE_URL ?? "", key = process?.env.TRACESITE_KEY ?? "" } = options;
    this.#options = { ...DEFAULTS, warn: (text: string) => console.warn(text), ...options, url: url.replace(/\/+$/, ""), key };
    // `fetch` shows invalid headers in its errors.
    if (this.#options.enabled && !(/^https?:\/\/\w/.test(url) && /^[\x21-\x7e]+$/.test(key))) {
      this.#options.enabled = false;
      this.#warn("Nothing is recorded", "expected an address with http:// or https://, and an API key");
    }
  }

  /** Begin to record and to send. */
  async start(): Promise<void> {
    if (!this.#options.enabled || this.#isRunning) return;
    this.#isRunning = true;
    process?.once?.("beforeExit", this.#atExit);
  }

  /** Record what this Eko does between `start` and `stop`, and return it. */
  enable<T extends object>(eko: T): T {
    if (!this.#options.enabled) return eko;
    const { config, getTask } = eko as any;
    const plan = (taskId: string, prompt: unknown): Watch => {
      const run = this.#run(taskId, config);
      this.#send(run, "session", { status: "planning", prompt });
      return { failed: (error) => this.#end(run, { error }) };
    };
    // `run` calls `generate` and `execute`. A task without an id gets it here instead of there, so that its plan has it.
    this.#hook(eko, "generate", (args) => plan((args[1] ??= crypto.randomUUID()), args[0]));
    this.#hook(eko, "modify", ([taskId, prompt]) => plan(taskId, prompt));
    this.#hook(eko, "execute", ([taskId]) => {
      const run = this.#run(taskId, config);
      run.isExecuting = true;
      this.#send(run, "session", { status: "running", prompt: getTask?.call(eko, taskId)?.chain?.taskPrompt });
      return { after: (result) => this.#end(run, result), failed: (error) => this.#end(run, { error }) };
    });
    this.#hook(eko, "pauseTask", ([taskId, isPaused]) => {
      const run = this.#runs.get(taskId);
      this.#send(run, "session", { status: isPaused ? "paused" : run?.isExecuting ? "running" : "planning" });
    });
    this.#hook(eko, "runAgent", ([, agent]) => this.#connectAgent(agent));
    return eko;
  }

  /** Send what waits. Return the number of messages that are not delivered after some milliseconds. */
  async flush(timeout = 10_000): Promise<number> {
    this.#flushes++;
    this.#kick();
    this.#wake?.();
    let timer: ReturnType<typeof setTimeout> | undefined;
    await Promise.race([this.#sending, new Promise((resolve) => (timer = setTimeout(resolve, timeout)))]);
    clearTimeout(timer);
    this.#flushes--;
    return this.#queue.length;
  }

  /** Stop recording, and flush. */
  async stop(timeout = 10_000): Promise<number> {
    this.#isRunning = false;
    process?.off?.("beforeExit", this.#atExit);
    const left = await this.flush(timeout);
    if (left) this.#warn("The end came first", `${left} messages are not delivered to ${this.#options.url}`);
    return left;
  }

  /** Return the counts of messages so far. */
  report() {
    return { ...this.#counts, waiting: this.#queue.length };
  }

  /** Replace a method by one that calls `before`, the method, and what `before` returned. */
  #hook(owner: any, name: string, before: (args: any[]) => Watch | void): void {
    this.#safely(() => {
      const trace = this;
      const original = owner[name];
      const names = this.#hooked.get(owner) ?? new Set();
      if (typeof original !== "function" || names.has(name)) return;
      owner[name] = function (this: unknown, ...args: unknown[]) {
        const watch = trace.#isRunning ? trace.#safely(() => before(args)) : undefined;
        const after = (result: unknown) => (trace.#safely(() => watch?.after?.(result)), result);
        const failed = (error: unknown) => (trace.#safely(() => watch?.failed?.(error)), Promise.reject(error));
        const result = original.apply(this, args);
        return result instanceof Promise ? result.then(after, failed) : after(result);
      };
      this.#hooked.set(owner, names.add(name));
    });
  }

  /** Hook callback and models, which may be others than at the last task. */
  #connect(config: any): void {
    config.callback ??= { onMessage: async () => {} };
    this.#hook(config.callback, "onMessage", ([message]) => this.#heard(message));
    for (const model of Object.values<any>(config.llms ?? {})) {
      model.handler ??= async (options: unknown) => options;
      this.#hook(model, "handler", ([{ prompt, toolChoice }, task, context]) => {
        // Eko tells no answers to the requests that it makes for itself, for example to compress a conversation.
        const isOwn = !context || (prompt === context.agentChain.agentRequest?.messages && !toolChoice);
        return { after: (options) => this.#asked(model.model, options, task, context?.agentChain.agent ?? PLANNER, isOwn) };
      });
    }
  }

  #connectAgent(agent: any): void {
    if (agent.callback) this.#hook(agent.callback, "onMessage", ([message]) => this.#heard(message));
    for (const [method, role] of [["buildSystemPrompt", "system"], ["buildUserPrompt", "user"]]) {
      this.#hook(agent, method, ([{ context, agentChain }]) => ({
        after: (prompt) => this.#prompted(this.#runs.get(context.taskId), agentChain.agent, role, prompt),
      }));
    }
    // All tools are executed by this method, also those of MCP servers and of Eko itself.
    this.#hook(agent, "callToolCall", ([{ context, agentChain }, , { toolCallId, toolName: name, input: args }]) => {
      const run = this.#runs.get(context.taskId);
      if (!run) return;
      this.#called(run, agentChain.agent, toolCallId, { phase: "start", name, args, runs: true });
      return { failed: (error) => this.#called(run, agentChain.agent, toolCallId, { phase: "error", name, error }) };
    });
  }

  #run(taskId: string, config: any): Run {
    this.#safely(() => this.#connect(config));
    const run = this.#runs.get(taskId) ?? { taskId, messageId: idFor(taskId), isExecuting: false, steps: 0, latest: new Map() };
    this.#runs.set(taskId, run);
    // Plans that are never executed have no end.
    for (const oldest of this.#runs.keys()) if (this.#runs.size > MOST.runs) this.#runs.delete(oldest);
    return run;
  }

  /** A task ends with the result of Eko, or with an error. */
  #end(run: Run, { success, stopReason, result, error }: any): void {
    this.#runs.delete(run.taskId);
    const outcome = success ? { result } : { error: error ?? result };
    const isAborted = stopReason === "abort" || error?.name === "AbortError";
    for (const step of run.latest.values()) if (step.isOpen) this.#answered(run, step, { error: outcome.error });
    // The text of the last step is the answer, and no thought.
    const last = [...run.latest.values()].at(-1);
    if (success && last) this.#send(run, "llm", { phase: "complete", step: last.step, run_answer: result }, last.agent);
    this.#send(run, "session", { status: success ? "completed" : isAborted ? "aborted" : "error", ...outcome });
  }

  #asked(model: string, options: any, task: any, agent: Agent, isOwn: boolean): void {
    const run = this.#runs.get(task?.taskId);
    if (!run) return;
    run.task = task;
    if (agent === PLANNER) for (const { role, content } of options.prompt) this.#prompted(run, agent, role, content);
    const open = run.latest.get(agent.id);
    if (isOwn && open?.isOpen && open.started) this.#answered(run, open, { error: "The request failed, and was sent again." });
    const step = this.#step(run, agent, isOwn);
    step.started = Date.now();
    const request = { messages: options.prompt, ...Object.fromEntries(PARAMETERS.map((name) => [name, options[name]])) };
    this.#send(run, "llm", { phase: "start", step: step.step, model, request }, agent);
  }

  #answered(run: Run, step: Step, more: object): void {
    step.isOpen = false;
    const { text, thinking, started, firstToken } = step;
    const said = { thought: [...text.values()].join("\n\n"), reasoning: [...thinking.values()].join("\n\n") };
    const times = started && { duration: Date.now() - started, time_to_first_token: firstToken && firstToken - started };
    this.#send(run, "llm", { phase: "complete", step: step.step, ...said, ...times, ...more }, step.agent);
  }

  /** Return the open step of an agent. Eko 2 does not tell whose a request is, so that there it begins with the answer. */
  #step(run: Run, agent: Agent, isOwn = true): Step {
    const latest = run.latest.get(agent.id);
    if (isOwn && latest?.isOpen) return latest;
    const maps = { text: new Map(), thinking: new Map(), calls: new Map() };
    const step = { agent, step: `${agent.id}:${run.steps++}`, isOpen: true, ...maps };
    if (isOwn) run.latest.delete(agent.id);
    if (isOwn) run.latest.set(agent.id, step);
    return step;
  }

  /** Something of a call in the latest step. Models may use its id again in another step. */
  #called(run: Run, agent: Agent, call_id: string, more: { phase: string; [name: string]: unknown }): void {
    const { step, calls } = run.latest.get(agent.id) ?? this.#step(run, agent);
    if (more.runs) calls.set(call_id, Date.now());
    const duration = more.phase === "start" ? undefined : Date.now() - (calls.get(call_id) ?? NaN); // NaN is null in JSON
    this.#send(run, "tool", { step, call_id, uuid: `${step}:${call_id}`, duration, ...more }, agent);
  }

  #prompted(run: Run | undefined, agent: Agent, role: string, prompt: any): void {
    const parts = Array.isArray(prompt) ? prompt : [{ text: prompt }];
    this.#send(run, "prompt", { role, text: parts.map(({ text, type }) => text ?? `[${type}]`).join("\n") }, agent);
  }

  #heard(message: any): void {
    const { type, nodeId: id, toolName: name, toolId, toolCallId: callId = toolId, params: args, toolResult, error } = message;
    const run = this.#runs.get(message.taskId);
    if (!run) return;
    const agent = id ? { id, name: message.agentName } : PLANNER;
    const latest = run.latest.get(agent.id);
    if (["text", "thinking", "tool_streaming", "tool_use"].includes(type)) this.#step(run, agent).firstToken ??= Date.now();
    if (type === "workflow" && message.streamDone) {
      if (latest?.isOpen) this.#answered(run, latest, { thought: run.task.chain.planResult });
      const agents = message.workflow.agents.map(({ xml, ...planned }: any) => planned);
      this.#send(run, "workflow", { workflow: { ...message.workflow, xml: undefined, agents } });
      if (run.isExecuting) this.#send(run, "session", { status: "running" });
    } else if (type === "text" || type === "thinking") {
      const { step, [type as "text"]: texts } = this.#step(run, agent);
      const token = message.text.slice(texts.get(message.streamId)?.length ?? 0);
      if (this.#options.deltas && token) this.#send(run, "llm", { phase: "delta", step, token }, agent);
      texts.set(message.streamId, message.text);
    } else if (type === "tool_use" || type === "tool_result") {
      const phase = type === "tool_use" ? "start" : toolResult.isError ? "error" : "complete";
      this.#called(run, agent, callId, { phase, name, args, result: toolResult });
    } else if (type === "finish" || type === "error") {
      this.#answered(run, this.#step(run, agent), { usage: message.usage, finish_reason: message.finishReason, error });
    } else if (type === "agent_start" || type === "agent_result") {
      if (latest?.isOpen) this.#answered(run, latest, { error });
      const status = type === "agent_start" ? "start" : error ? "error" : "complete";
      this.#send(run, "agent", { status, task: message.agentNode.task, result: message.result, error }, agent);
    }
  }

  /** Queue a message. Its values are written now, because agents change them. */
  #send(run: Run | undefined, type: TraceMessage["type"], fields: object, agent?: Agent): void {
    this.#safely(() => {
      if (!run) return;
      this.#ts = Math.max(this.#ts, Date.now());
      const entry = entryOf(run, this.#ts, type, { agentId: agent?.id, agent_name: agent?.name, ...fields });
      this.#counts.recorded++;
      // The beginning and the end of a run have more room, because without its end a run seems to go on.
      const room = this.#options.queueSize * (type === "session" ? 1.25 : 1);
      if (this.#characters + entry.json.length > room) this.#lose(entry, "dropped", "the queue is full");
      else this.#characters += this.#queue[this.#queue.push(entry) - 1].json.length;
      this.#kick();
      // Last, so that an error of the subscriber loses nothing.
      Promise.resolve(this.#options.onMessage?.(JSON.parse(entry.json))).catch((error) => this.#failed(error));
    });
  }

  /** Count a lost message. The next delivery tells it. */
  #lose(entry: Entry, how: "dropped" | "refused", reason: string): void {
    this.#warn("Messages are lost", reason);
    if (entry.isReport) return;
    this.#counts[how]++;
    this.#losses.set(entry.messageId, { ...entry, count: (this.#losses.get(entry.messageId)?.count ?? 0) + 1 });
  }

  #kick(): void {
    this.#sending ??= this.#deliver().catch((error) => this.#failed(error)).finally(() => (this.#sending = undefined));
  }

  async #deliver(): Promise<void> {
    if (!this.#flushes) await this.#pause(PAUSE.collect);
    for (let failures = 0, most = MOST.inRequest; this.#queue.length || this.#losses.size; ) {
      for (const { count, ...lost } of this.#losses.values()) {
        const report = entryOf(lost, lost.ts, "session", { status: "running", recorder: { dropped: count } });
        this.#queue.unshift({ ...report, isReport: true });
      }
      this.#losses.clear();
      const batch = this.#queue.slice(0, most);
      const answer = await this.#post(batch);
      if (answer === "taken" || (answer === "refused" && batch.length === 1)) {
        this.#queue.splice(0, batch.length);
        for (const { json, isReport } of batch) this.#characters -= isReport ? 0 : json.length;
        [failures, most] = [0, Math.min(most * 2, MOST.inRequest)];
      } else {
        most = Math.ceil(batch.length / 2); // so that a message that is refused, or too slow, is alone at last
        if (answer === "refused") continue;
        const pause = Math.min(PAUSE.retry * 2 ** failures++, this.#flushes ? PAUSE.flushing : PAUSE.longest);
        await this.#pause(Math.max(answer, pause * (0.5 + Math.random() / 2)));
      }
    }
  }

  /** Send messages. Return a number if they should be sent again: the milliseconds for which the server asked to wait. */
  async #post(batch: Entry[]): Promise<"taken" | "refused" | number> {
    const { url, key, timeout } = this.#options;
    try {
      const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
      const body = `[${batch.map(({ json }) => json).join(",")}]`;
      const request = { method: "POST", headers, body, signal: AbortSignal.timeout(timeout) };
      const response = await fetch(`${url}/api/v1/events/`, request);
      const text = await response.text();
      if (response.ok) {
        const { refused } = JSON.parse(text); // messages of deleted sessions
        if (refused.length) this.#warn("Messages are lost", refused[0].message);
        this.#counts.refused += refused.length;
        this.#counts.delivered += batch.filter(({ isReport }) => !isReport).length - refused.length;
        return "taken";
      }
      const reason = `${url} answers ${response.status} ${text.slice(0, 300)}`;
      const isRefused = [400, 413, 422].includes(response.status);
      if (!isRefused) this.#warn("Messages wait", reason);
      else if (batch.length === 1) this.#lose(batch[0], "refused", reason);
      return isRefused ? "refused" : Math.min(Number(response.headers.get("Retry-After")) * 1000 || 0, PAUSE.asked);
    } catch (error) {
      this.#warn("Messages wait", `${url} cannot be reached, ${error}`);
      return 0;
    }
  }

  /** Wait, or until a flush; without keeping the process alive. */
  #pause(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const timer: any = setTimeout(resolve, milliseconds);
      timer.unref?.();
      this.#wake = () => (clearTimeout(timer), resolve());
    });
  }

  #safely<T>(work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      this.#failed(error);
    }
  }

  #failed(error: unknown): void {
    this.#counts.failed++;
    this.#warn("Something is not recorded", String(error));
  }

  #warn(kind: string, detail: string): void {
    if (this.#warned.has(kind)) return;
    this.#warned.add(kind);
    try {
      this.#options.warn(`Tracesite: ${kind}: ${detail}`);
    } catch {} // nobody is left to be told
  }
}

function entryOf({ taskId, messageId }: Key, ts: number, type: TraceMessage["type"], payload: object): Entry {
  const json = JSON.stringify({ taskId, messageId, id: idFor(taskId), type, ts, payload }, function (name, value) {
    // An error of a model has the request and its headers, also in its `toJSON`.
    if (this[name] instanceof Error || typeof value === "bigint") return String(this[name]);
    if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
    return value instanceof Map ? Object.fromEntries(value) : value;
  });
  return { taskId, messageId, ts, json };
}

/** Return an id for something that happens now in a task. */
function idFor(taskId: string): string {
  return `${taskId.slice(0, 400)}_${Date.now()}_${Math.random().toString(36).slice(2, 8).padEnd(6, "0")}`;
}
