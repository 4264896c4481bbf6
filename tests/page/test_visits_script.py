"""The loop of visits and the meaning of answers in /join, run by node."""

from __future__ import annotations

import pytest

from tests.page.javascript import node


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return node(tmp_path_factory.mktemp("node"))


PUSH = """async (load, cases) => {
  const { Server } = await load("server.js");
  const found = [];
  for (const { status, code, retry, token = null } of cases) {
    const headers = retry ? { "Retry-After": retry } : {};
    const told = code === "accepted" ? { status: code } : { error: code, message: "Why." };
    globalThis.fetch = async (url, request) => {
      found.push({ url, sent: request.headers.Authorization ?? null });
      return new Response(JSON.stringify(told), { status, headers });
    };
    const server = new Server("/v1/");
    server.token = "ann.secret";
    const push = server.push({ token, body: new ArrayBuffer(8) });
    const end = await push.then(
      (receipt) => [receipt.status, receipt.code ?? null],
      (failure) => [failure.again ? "again" : "stop", failure.code, failure.retryAfter_s],
    );
    Object.assign(found.at(-1), { end });
  }
  return found;
}"""
ANSWERS = [
    ({"status": 202, "code": "accepted"}, ["accepted", None]),
    ({"status": 409, "code": "stale"}, ["refused", "stale"]),
    ({"status": 409, "code": "conflict"}, ["refused", "conflict"]),
    ({"status": 413, "code": "too_large"}, ["refused", "too_large"]),
    ({"status": 422, "code": "not_finite"}, ["refused", "not_finite"]),
    ({"status": 410, "code": "run_ended"}, ["refused", "run_ended"]),
    ({"status": 403, "code": "name_taken"}, ["refused", "name_taken"]),
    ({"status": 429, "code": "too_many_updates", "retry": "3"}, ["again", "too_many_updates", 3]),
    ({"status": 503, "code": "paused", "retry": "5"}, ["again", "paused", 5]),
    ({"status": 507, "code": "store_full", "retry": "30"}, ["again", "store_full", 30]),
    ({"status": 503, "code": "paused", "retry": "3000000"}, ["again", "paused", 3600]),
    ({"status": 408, "code": "too_slow"}, ["again", "too_slow", None]),
    ({"status": 502, "code": None}, ["again", "http_502", None]),
    ({"status": 401, "code": "unauthorized"}, ["refused", "unauthorized"]),
    ({"status": 401, "code": "unauthorized", "token": "ann"}, ["stop", "unauthorized", None]),
    ({"status": 403, "code": "revoked", "token": "ann"}, ["stop", "revoked", None]),
    ({"status": 404, "code": "not_found"}, ["stop", "not_found", None]),
    ({"status": 200, "code": "what a proxy says"}, ["stop", "what a proxy says", None]),
]


def test_every_answer_means_what_the_protocol_says(run):
    found = run(PUSH, [case for case, _ in ANSWERS])
    assert [each["end"] for each in found] == [end for _, end in ANSWERS]
    for each, (case, _) in zip(found, ANSWERS, strict=True):
        assert each["sent"] == ("Bearer ann.secret" if "token" in case else None)
        assert "secret" not in each["url"]


def test_no_answer_at_all_is_tried_again(run):
    source = """async (load) => {
      const { Server } = await load("server.js");
      globalThis.fetch = async () => { throw new TypeError("Failed to fetch"); };
      return new Server("/v1/").pull().catch(({ code, again }) => [code, again]);
    }"""
    assert run(source) == ["offline", True]


def test_a_model_that_never_ends_is_not_read_to_the_end(run):
    source = """async (load) => {
      const { Server } = await load("server.js");
      let sent = 0;
      const pull = () => { sent += 1; return new Uint8Array(1 << 22); };
      const body = new ReadableStream({ pull: (to) => to.enqueue(pull()) });
      globalThis.fetch = async () => new Response(body);
      const { message } = await new Server("/v1/").pull().catch((failure) => failure);
      return [message, sent < 30];
    }"""
    assert run(source) == ["The server's answer is larger than 67108864 bytes.", True]


VISITS = """async (load, { tensors, failures, waits }) => {
  const { Visits } = await load("visits.js");
  const { Failure } = await load("server.js");
  const { writeUpdate } = await load("wire.js");
  const kept = { api: "/v1/", token: null, steps: 1, body: new ArrayBuffer(8) };
  const waiting = Array.from({ length: waits }, (_, id) => ({ ...kept, id: String(id) }));
  const outbox = {
    put: async (update) => waiting.push(update),
    take: async (mine) => waiting.find(mine) ?? null,
    remove: async (update) => waiting.splice(waiting.indexOf(update), 1),
    count: async (mine) => waiting.filter(mine).length,
  };
  const facts = { version: 3, run: "r" };
  const model = writeUpdate(tensors, new Float64Array(650), facts);
  const sent = [];
  const server = {
    api: "/v1/", token: null,
    pull: async () => model,
    push: async (update) => {
      sent.push([performance.now(), update.id]);
      const failure = failures.shift();
      if (failure) throw new Failure("Why.", failure);
      return { status: "accepted" };
    },
  };
  const told = [];
  // Time passes only while nothing else can happen: no busy machine changes a gap.
  const [clock, timers] = [{ now: 0 }, []];
  performance.now = () => clock.now;
  globalThis.setTimeout = (call, ms = 0) => timers.push({ at: clock.now + ms, call });
  const visits = new Visits({ server, outbox, tell: (message) => told.push(message) });
  await visits.told({ kind: "name", name: "ann" });
  await visits.told({ kind: "draw", strokes: [[[0.5, 0], [0.5, 1]]], label: 1 });
  const settings = { steps: 2, rate: 0.1, rest_s: 9, hidden: true };
  await visits.told({ kind: "settings", settings });
  await visits.told({ kind: "running", running: true });
  visits.run();
  while (visits.counts.accepted <= waits && !visits.stopped && clock.now < 5000) {
    await new Promise((resolve) => setImmediate(resolve));
    timers.sort((one, other) => one.at - other.at);
    const next = timers.shift();
    if (next) { clock.now = Math.max(clock.now, next.at); next.call(); }
  }
  const states = told.filter(({ kind }) => kind === "state").map(({ state }) => state);
  const gaps = sent.slice(1).map(([at], i) => at - sent[i][0]);
  const result = { counts: visits.counts, ids: sent.map(([, id]) => id), gaps, states };
  console.log(JSON.stringify({ ...result, waiting: waiting.length }));
  process.exit(0);
}"""


def visits(run, *failures, waits=0):
    tensors = [
        {"name": "bias", "shape": [10], "start": 0, "size": 10},
        {"name": "weight", "shape": [10, 64], "start": 10, "size": 640},
    ]
    return run(VISITS, {"tensors": tensors, "failures": list(failures), "waits": waits})


def test_a_visit_pulls_trains_keeps_and_sends(run):
    found = visits(run)
    order = [s for i, s in enumerate(found["states"]) if s != found["states"][i - 1] or not i]
    assert order[:3] == ["pulling", "training", "sending"]
    assert found["counts"] == {"accepted": 1, "refused": {}, "steps": 2}
    assert (len(found["ids"]), found["waiting"]) == (1, 0)


def test_an_update_is_sent_again_with_its_id_after_the_time_that_the_server_says(run):
    found = visits(run, {"code": "paused", "retryAfter_s": 1.2}, {"code": "offline"})
    assert len(set(found["ids"][:3])) == 1
    assert len(set(found["ids"])) <= 2  # it made another one without the network
    assert found["gaps"][0] == pytest.approx(1200)
    assert 1000 <= found["gaps"][1] <= 2000  # the second failure in a row: one to two seconds
    assert found["counts"]["accepted"] >= 1


def test_waits_grow_with_failures_in_a_row_only(run):
    full = {"code": "too_many_updates"}
    found = visits(run, full, None, full, None, waits=2)
    first, _, second = found["gaps"][:3]  # half a second to a second, both of them
    assert 500 <= first <= 1000
    assert 500 <= second <= 1000
    assert found["counts"]["accepted"] == 3


def test_what_no_waiting_cures_stops_the_worker_and_keeps_the_update(run):
    found = visits(run, {"code": "revoked", "again": False})
    assert (len(found["ids"]), found["waiting"]) == (1, 1)
    assert found["states"][-1] == "stopped"


REFUSED = """async (load, { tensors }) => {
  const { Visits } = await load("visits.js");
  const { writeUpdate } = await load("wire.js");
  const told = [];
  const model = writeUpdate(tensors, new Float64Array(6), { version: 3, run: "r" });
  const server = { api: "/v1/", token: null, etag: null };
  server.pull = async () => {
    if (server.etag) return null; // the same as before
    server.etag = "tag";
    return model;
  };
  const outbox = { take: async () => null, count: async () => 0 };
  const visits = new Visits({ server, outbox, tell: (message) => told.push(message) });
  visits.run();
  for (let turn = 0; turn < 3; turn++) {
    await new Promise((resolve) => setTimeout(resolve, 50));
    await visits.told({ kind: "running", running: true });
  }
  await new Promise((resolve) => setTimeout(resolve, 50));
  console.log(JSON.stringify(told.filter(({ kind }) => kind === "state").at(-1)));
  process.exit(0);
}"""


def test_a_model_that_is_refused_stays_refused_when_it_is_tried_again(run):
    found = run(REFUSED, {"tensors": [{"name": "x", "shape": [6], "start": 0, "size": 6}]})
    assert found["state"] == "stopped"
    assert "trains the built-in models logistic and mlp" in found["detail"]


DIGITS = [
    {"name": "bias", "shape": [10], "start": 0, "size": 10},
    {"name": "weight", "shape": [10, 64], "start": 10, "size": 640},
]
LOOP = """async (load, { tensors, first, full, retryAfter_s, backwards, long }) => {
  const { Visits } = await load("visits.js");
  const { Failure } = await load("server.js");
  const { writeUpdate } = await load("wire.js");
  const pause = (ms) => new Promise((resolve) => timer(resolve, ms));
  const [timer, sleeps] = [setTimeout, []];
  globalThis.setTimeout = (call, ms) => { sleeps.push(ms ?? 0); return timer(call, ms); };
  const params = new Float64Array(650);
  params[0] = first === "nan" ? NaN : 0;
  const model = writeUpdate(tensors, params, { version: 3, run: "r" });
  const server = { api: "/v1/", token: null, pull: async () => {
    if (retryAfter_s) {
      const failure = new Failure("Why.", { code: "paused", retryAfter_s });
      retryAfter_s = null;
      if (backwards) Date.now = () => 0;
      throw failure;
    }
    return model;
  } };
  const kept = [];
  const put = async (update) => {
    if (full) { full = false; throw new DOMException("", "QuotaExceededError"); }
    kept.push(update);
  };
  const outbox = { put, take: async () => null, count: async () => 0 };
  const states = [];
  const tell = ({ kind, ...message }) => { if (kind === "state") states.push(message); };
  const visits = new Visits({ server, outbox, tell });
  await visits.told({ kind: "draw", strokes: [[[0.5, 0], [0.5, 1]]], label: 1 });
  await visits.told({ kind: "running", running: true });
  visits.run();
  await pause(long ?? 400);
  await visits.told({ kind: "running", running: false }); // as the page does when it stops
  await pause(50);
  const stopped = { ...states.at(-1), kept: kept.length, sleep: Math.max(...sleeps) };
  await visits.told({ kind: "running", running: true });
  await pause(100);
  console.log(JSON.stringify({ ...stopped, later: kept.length }));
  process.exit(0);
}"""


def looped(run, **given):
    return run(LOOP, {"tensors": DIGITS, **given})


@pytest.mark.slow
def test_an_update_that_cannot_be_kept_stops_with_a_reason_until_start(run):
    found = looped(run, full=True)
    assert (found["state"], found["kept"], found["later"]) == ("stopped", 0, 1)
    assert "could not keep the update (QuotaExceededError): free space" in found["detail"]


@pytest.mark.slow
def test_a_model_that_is_not_finite_is_told_so(run):
    found = looped(run, first="nan")
    assert (found["state"], found["later"]) == ("stopped", 0)
    assert "not finite (version 3)" in found["detail"]


@pytest.mark.slow
def test_the_wall_clock_may_be_set_back(run):
    found = looped(run, retryAfter_s=0.1, backwards=True, long=1800)  # its own wait: up to a second
    assert found["kept"] >= 1


@pytest.mark.slow
def test_no_sleep_is_longer_than_a_timer_can_be(run):
    found = looped(run, retryAfter_s=3_000_000)
    assert 50_000 <= found["sleep"] <= 60_000
