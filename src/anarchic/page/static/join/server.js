// Requests to the server, each with a deadline, and what its answers mean for a worker.

const TIMEOUT_MS = 30_000;
const LEAST_RATE = 8; // bytes per millisecond of what is sent
const MOST_MODEL = 64 << 20;
const MOST_ANSWER = 64 << 10;
const MOST_WAIT_S = 3600; // whatever a server asks for
// What docs/protocol.md says about a refused update, by status.
const FINAL = new Set([409, 413, 422]);
const FINAL_CODES = new Set(["run_ended", "name_taken"]); // the name stands in the update itself
const AGAIN = new Set([408, 425, 429, 500, 502, 503, 504, 507]);

/** No usable answer: `again` says whether the same request may be sent later. */
export class Failure extends Error {
  constructor(message, { code = "offline", again = true, retryAfter_s = null } = {}) {
    super(message);
    Object.assign(this, { code, again, retryAfter_s });
  }
}

export class Server {
  /** `api` is where the routes begin, the address of the page's server and "/v1/". */
  constructor(api) {
    this.api = api;
    this.token = null;
    this.etag = null;
  }

  /** The newest model's bytes, or null if it is the one that was pulled last. */
  async pull() {
    const headers = this.etag ? { "If-None-Match": this.etag } : {};
    const { answer, body } = await this.#ask("model", { headers: this.#proof(headers) }, MOST_MODEL);
    if (answer.status === 304) return null;
    if (!answer.ok) throw failureOf(answer, body);
    this.etag = answer.headers.get("ETag");
    return body;
  }

  /** Hand an update in: {status, code, message}; status is accepted, duplicate or refused. */
  async push(update) {
    const headers = { "Content-Type": "application/octet-stream" };
    const proof = update.token ? this.#proof(headers) : headers;
    const { answer, body } = await this.#ask(
      "updates",
      { method: "POST", headers: proof, body: update.body },
      MOST_ANSWER,
    );
    const told = json(body);
    if (answer.ok && ["accepted", "duplicate"].includes(told.status)) return told;
    const failure = failureOf(answer, body);
    // One that was made without a token may never be sent with one: it could count under two names.
    const nameless = answer.status === 401 && !update.token;
    if (FINAL.has(answer.status) || FINAL_CODES.has(failure.code) || nameless) {
      return { status: "refused", code: failure.code, message: failure.message };
    }
    throw failure;
  }

  /** Whose token this is: {worker, rights}. */
  async about() {
    const { answer, body } = await this.#ask("token", { headers: this.#proof({}) }, MOST_ANSWER);
    if (!answer.ok) throw failureOf(answer, body);
    return json(body);
  }

  #proof(headers) {
    return this.token ? { ...headers, Authorization: `Bearer ${this.token}` } : headers;
  }

  async #ask(path, request, most) {
    const patience_ms = TIMEOUT_MS + (request.body?.byteLength ?? 0) / LEAST_RATE;
    try {
      const answer = await fetch(this.api + path, {
        ...request,
        cache: "no-store",
        credentials: "omit",
        mode: "same-origin",
        redirect: "error",
        referrerPolicy: "no-referrer",
        signal: AbortSignal.timeout(patience_ms),
      });
      return { answer, body: await readAll(answer, most) };
    } catch (error) {
      if (error instanceof Failure) throw error;
      throw new Failure("The server cannot be reached.");
    }
  }
}

async function readAll(answer, most) {
  const pieces = [];
  let size = 0;
  for (const reader = answer.body?.getReader(); reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
    if ((size += value.length) > most) {
      await reader.cancel();
      throw new Failure(`The server's answer is larger than ${most} bytes.`, { again: false });
    }
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole.buffer;
}

function json(body) {
  try {
    return JSON.parse(new TextDecoder().decode(body)) ?? {};
  } catch {
    return {};
  }
}

function failureOf(answer, body) {
  const told = json(body);
  const text = [told.message, told.remedy].filter((part) => typeof part === "string").join(" ");
  const seconds = Number.parseFloat(answer.headers.get("Retry-After") ?? "");
  return new Failure(text.slice(0, 400) || `The server answered with status ${answer.status}.`, {
    code: typeof told.error === "string" ? told.error.slice(0, 40) : `http_${answer.status}`,
    again: AGAIN.has(answer.status),
    retryAfter_s: Number.isFinite(seconds) ? Math.min(seconds, MOST_WAIT_S) : null,
  });
}
