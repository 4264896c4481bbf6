// The visits of one worker, one after another: pull, take local steps, keep the update, send it.
//
// Nothing here knows of the page: messages come in by `told`, and go out by `tell`.

import { drawn, shareOf } from "./digits.js";
import { lossAndGradient, modelOf, probabilities, Unsupported } from "./models.js";
import { Failure } from "./server.js";
import { Malformed, readSnapshot, writeUpdate } from "./wire.js";

const BATCH = 32;
const MOST_WAITING = 4; // finished updates of this page, while the server cannot be reached
const FIRST_WAIT_S = 1;
const LONGEST_WAIT_S = 60;
const LONGEST_SLEEP_MS = 60_000; // timers go off at once if set for more than 24 days
const BREATH_MS = 12; // of training between two looks at messages
const LATE = new Set(["stale", "too_old", "unknown_version", "withdrawn"]); // nobody's fault
const STOPS = new Set(["name_taken", "unauthorized"]); // the next update would meet the same

export class Visits {
  constructor({ server, outbox, tell, digits }) {
    Object.assign(this, { server, outbox, tell, digits });
    this.settings = { steps: 10, rate: 0.1, rest_s: 1, hidden: true };
    this.name = null; // where no token says it
    this.running = false;
    this.visible = true;
    this.share = [];
    this.drawings = []; // {strokes, label}
    this.snapshot = this.model = null;
    this.counts = { accepted: 0, refused: {}, steps: 0 };
    this.failures = 0;
    this.retryAt_ms = this.restUntil_ms = 0; // of performance.now(): the wall clock may be set back
    this.ended = this.offline = false;
    this.trouble = ""; // why it has to try again
    this.stopped = null; // the failure that no waiting cures
    this.again = false; // a message came while something was being done
    this.wake = () => {};
  }

  /** One message of the page, such as {kind: "running", running: true}. */
  async told({ kind, ...message }) {
    if (kind === "draw") {
      this.drawings.push(message);
    } else if (kind === "forget") {
      this.drawings = [];
    } else if (kind === "guess") {
      this.#guess(message.strokes);
      return;
    } else if (kind === "share") {
      await this.#takeShare(message.share);
    } else if (kind === "token") {
      this.server.token = message.token;
      this.stopped = null;
    } else if (kind === "online") {
      this.retryAt_ms = 0;
    } else {
      if (kind === "running" && message.running) this.stopped = null;
      Object.assign(this, message); // settings, name, running, visible
    }
    this.again = true;
    this.wake();
    await this.#report();
  }

  /** Go on until the page is closed. */
  async run() {
    for (;;) {
      this.again = false;
      const wait_ms = await this.#turn();
      if (wait_ms > 0 && !this.again) await this.#sleep(wait_ms);
    }
  }

  /** Do what can be done now; returns how long there is nothing to do. */
  async #turn() {
    if (this.stopped) return Infinity; // until a message cures it; its reason stays to be read
    const failed = (failure) => this.#failed(failure);
    const wait_ms = (await this.#exchange().catch(failed)) ?? (await this.#train().catch(failed));
    return wait_ms ?? this.#untilRetry();
  }

  /** Send and pull; returns how long to wait, or undefined if it may train. */
  async #exchange() {
    const reachable = performance.now() >= this.retryAt_ms;
    if (reachable) await this.#sendAll();
    if (!this.#works && (this.model || !reachable)) return this.#pause();
    if (this.#works && performance.now() < this.restUntil_ms) return this.#rest();
    if (reachable) await this.#pull();
    if (reachable) this.failures = 0;
    return this.#works ? undefined : this.#pause();
  }

  async #train() {
    if (!(await this.#mayTrain())) return this.#untilRetry();
    await this.#visit();
    this.restUntil_ms = performance.now() + 1000 * this.settings.rest_s;
    return 0;
  }

  get #works() {
    return this.running && (this.visible || this.settings.hidden) && !this.ended;
  }

  get #samples() {
    return [...this.share, ...this.#own];
  }

  /** Drawings as the model reads them. */
  get #own() {
    if (!this.model) return [];
    const { inputs } = this.model;
    for (const drawing of this.drawings) {
      if (drawing.x?.length !== inputs) drawing.x = drawn(drawing.strokes, inputs);
    }
    return this.drawings;
  }

  get #token() {
    return this.server.token?.slice(0, this.server.token.lastIndexOf(".")) ?? null;
  }

  // An update without a token names its worker itself, so any tab of this browser may send it.
  #mine = (update) =>
    update.api === this.server.api && (update.token === null || update.token === this.#token);

  #pause() {
    if (this.ended) this.#state("ended", "The run has ended. Thank you for your help.");
    else if (!this.running) this.#state("paused", "Press Start when you like.");
    else this.#state("paused", "It goes on when this tab is shown again.");
    return this.#untilRetry();
  }

  #rest() {
    const now_ms = performance.now();
    if (this.retryAt_ms <= now_ms) {
      this.#state("resting", "Until the next visit.");
      return this.restUntil_ms - now_ms;
    }
    this.#state(this.offline ? "offline" : "waiting", this.trouble);
    return Math.min(this.restUntil_ms, this.retryAt_ms) - now_ms;
  }

  #untilRetry() {
    return this.stopped ? Infinity : Math.max(1000, this.retryAt_ms - performance.now());
  }

  async #sendAll() {
    for (;;) {
      const update = await this.outbox.take(this.#mine);
      if (!update) return;
      this.#state("sending", `Handing in ${update.steps} local steps.`);
      const receipt = await this.server.push(update); // if that fails, the update stays where it is
      this.failures = 0;
      await this.outbox.remove(update);
      this.#count(receipt);
      await this.#report();
    }
  }

  #count({ status, code, message }) {
    if (status !== "refused") {
      this.counts.accepted += 1;
      return;
    }
    this.counts.refused[code] = (this.counts.refused[code] ?? 0) + 1;
    this.ended ||= code === "run_ended";
    this.tell({ kind: "refusal", code, message, late: LATE.has(code) });
    if (STOPS.has(code)) throw new Failure(message, { code, again: false });
  }

  async #pull() {
    this.#state("pulling", "Asking for the newest model.");
    const bytes = await this.server.pull();
    if (bytes) this.#read(bytes);
    await this.#report();
  }

  #read(bytes) {
    const tag = this.server.etag;
    this.server.etag = this.model = null; // a model that is refused now must be refused again
    const snapshot = readSnapshot(bytes);
    const model = modelOf(snapshot.tensors);
    if (!snapshot.params.every(Number.isFinite)) {
      throw new Unsupported(
        `The server's model is not finite (version ${snapshot.version}): tell the operator, and ` +
          "press Start when there is another.",
      );
    }
    this.model = model;
    this.snapshot = snapshot;
    this.server.etag = tag;
  }

  #failed(failure) {
    if (failure instanceof Failure && failure.again) {
      const wait_s = Math.min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** this.failures);
      const random_s = wait_s * (0.5 + Math.random() / 2); // so that not all come back at once
      this.failures += 1;
      this.retryAt_ms = performance.now() + 1000 * Math.max(random_s, failure.retryAfter_s ?? 0);
      this.offline = failure.code === "offline";
      this.trouble = failure.message;
      this.#state(this.offline ? "offline" : "waiting", this.trouble);
      return;
    }
    this.stopped = failure;
    const kind = { unauthorized: "token", expired: "token" }[failure.code] ?? "stopped";
    this.#state(kind, failure.message);
    if (![Failure, Malformed, Unsupported].some((known) => failure instanceof known)) console.error(failure);
  }

  /** Without a server it goes on from the last model, until enough updates wait. */
  async #mayTrain() {
    if (!this.#works || this.stopped || !this.model) return false;
    const waits = performance.now() < this.retryAt_ms;
    if (waits && (!this.offline || (await this.outbox.count(this.#mine)) >= MOST_WAITING)) return false;
    if (this.#samples.length) return true;
    this.#state("data", "Draw a digit and say which it is, or take a share of the digits.");
    return false;
  }

  async #visit() {
    const { snapshot, model, settings } = this;
    const samples = this.#samples;
    const params = snapshot.params.slice();
    this.#state("training", `On ${samples.length} digits, from version ${snapshot.version}.`);
    let [steps, loss, breath] = [0, 0, performance.now()];
    while (steps < settings.steps && (!steps || this.#works)) {
      const { x, labels } = batchOf(samples, model.inputs);
      const found = lossAndGradient(model, params, x, labels);
      for (let i = 0; i < params.length; i++) params[i] -= settings.rate * found.gradient[i];
      loss += found.loss;
      steps += 1;
      if (performance.now() - breath > BREATH_MS) {
        await new Promise((resolve) => setTimeout(resolve));
        breath = performance.now();
      }
    }
    const direction = snapshot.params.map((value, i) => (value - params[i]) / (settings.rate * steps));
    if (!direction.every((value) => Number.isFinite(Math.fround(value)))) {
      const message = "The training went to infinity: choose a lower rate, then press Start.";
      throw new Failure(message, { code: "diverged", again: false });
    }
    await this.#keep(direction, { steps, loss: loss / steps, samples: samples.length });
  }

  async #keep(direction, { steps, loss, samples }) {
    const { snapshot, settings } = this;
    const id = randomId();
    const token = this.#token;
    const body = writeUpdate(snapshot.tensors, direction, {
      id, base_version: snapshot.version, local_steps: steps, local_lr: settings.rate, samples, loss,
      run: snapshot.run, epoch: snapshot.epoch, worker: token === null ? this.name : undefined,
    });
    await this.outbox.put({ id, api: this.server.api, token, steps, body }).catch((error) => {
      const message = `This browser could not keep the update (${error.name}): free space, then press Start.`;
      throw new Failure(message, { code: "not_kept", again: false });
    });
    this.counts.steps += steps;
    await this.#report();
  }

  async #takeShare(share) {
    if (!share) {
      this.share = [];
      return;
    }
    try {
      const answer = await fetch(this.digits, { mode: "same-origin", credentials: "omit" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      this.share = shareOf(await answer.arrayBuffer(), share.number, share.of);
    } catch (error) {
      this.tell({ kind: "share", problem: `The share could not be fetched (${error.message}).` });
    }
  }

  #guess(strokes) {
    if (!this.model) return;
    const { model, snapshot } = this;
    const found = probabilities(model, snapshot.params, drawn(strokes, model.inputs));
    const label = found.indexOf(Math.max(...found));
    this.tell({ kind: "guess", label, certainty: found[label], version: snapshot.version });
  }

  async #report() {
    const { counts, model, snapshot } = this;
    if (this.share.length && model && model.inputs !== 64) {
      this.share = [];
      const problem = `This model reads ${model.inputs} pixels, the package's digits have 64: draw.`;
      this.tell({ kind: "share", problem });
    }
    const own = this.#own;
    const right = own.filter(({ x, label }) => {
      const found = probabilities(model, snapshot.params, x);
      return found[label] === Math.max(...found);
    });
    this.tell({
      kind: "report", counts, kindOfModel: model?.kind, version: snapshot?.version,
      samples: { share: this.share.length, own: this.drawings.length }, right: right.length,
      waiting: await this.outbox.count(this.#mine),
    });
  }

  #state(state, detail) {
    this.tell({ kind: "state", state, detail });
  }

  #sleep(wait_ms) {
    return new Promise((resolve) => {
      this.wake = resolve;
      if (Number.isFinite(wait_ms)) setTimeout(resolve, Math.min(wait_ms, LONGEST_SLEEP_MS));
    });
  }
}

function batchOf(samples, inputs) {
  const count = Math.min(BATCH, samples.length);
  const [x, labels] = [new Float32Array(count * inputs), new Uint8Array(count)];
  for (let s = 0; s < count; s++) {
    const picked = samples[Math.floor(Math.random() * samples.length)];
    x.set(picked.x, s * inputs);
    labels[s] = picked.label;
  }
  return { x, labels };
}

function randomId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
