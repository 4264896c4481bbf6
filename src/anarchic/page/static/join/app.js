// The page: shows what the worker does, and tells it what the person chooses.

import { Pad } from "./pad.js";

const STATES = {
  pulling: "Fetching the model", training: "Training", sending: "Sending", waiting: "Waiting",
  resting: "Resting", offline: "Offline", paused: "Paused", ended: "The run has ended", data: "No digits yet",
  token: "A token is needed", stopped: "Stopped", left: "You have left",
};
const TOLD = new Set(["offline", "ended", "data", "token", "stopped", "left"]); // to screen readers
const REASONS = {
  stale: "too late", too_old: "too late", unknown_version: "for a version that is gone",
  withdrawn: "for a version that was withdrawn", not_finite: "not finite", malformed: "malformed",
  run_ended: "after the end", conflict: "id used twice", too_large: "too large",
  name_taken: "name taken", unauthorized: "without a token",
};
const TOKEN = "anarchic-token";
const NAME = "anarchic-worker";

const at = (id) => document.getElementById(id);
const show = (id, text) => {
  if (at(id).textContent !== text) at(id).textContent = text;
};

// The routes of the server, or of one of its several runs, begin where this page lies.
const here = location.href.replace(/[?#].*$/, "").replace(/join$/, "");
const api = /\/v1\/runs\/[^/]+\/$/.test(here) ? here : `${here}v1/`;

const script = new URL("./worker.js", import.meta.url);
script.searchParams.set("api", api);
const worker = new Worker(script, { type: "module" });
const tell = (kind, message = {}) => worker.postMessage({ kind, ...message });
let running = false;

worker.onmessage = ({ data }) => heard[data.kind](data);
worker.onerror = () => heard.state({ state: "stopped", detail: "The worker could not start: load the page again." });

const heard = {
  state({ state, detail }) {
    show("state", STATES[state]);
    show("detail", detail);
    show("said", TOLD.has(state) ? `${STATES[state]}. ${detail}` : "");
    document.querySelector(".state").className = `state ${state}`;
    if (state === "token") at("token-part").open = true;
    if (state === "stopped") run(false);
  },
  report({ counts, version, samples, right, waiting }) {
    const refused = Object.entries(counts.refused).map(([code, n]) => `${n} ${REASONS[code] ?? code}`);
    show("accepted", String(counts.accepted));
    show("refused", refused.join(", ") || "0");
    show("waiting", String(waiting));
    show("steps", String(counts.steps));
    show("version", version === undefined ? "none" : String(version));
    show("right", samples.own ? `${right} of ${samples.own}` : "none drawn");
    const drawn = samples.own === 1 ? "1 digit" : `${samples.own} digits`;
    show("own", samples.own ? `You have drawn ${drawn}.` : "You have drawn no digits yet.");
    at("forget").hidden = !samples.own;
    if (version !== undefined) guess();
  },
  guess: (found) => guessed(found),
  refusal: ({ message }) => show("refusal", `The last refusal: ${message}`),
  share({ problem }) {
    show("share-problem", problem);
    at("share").checked = false;
  },
};

function guessed(found) {
  if (!found) show("guess", "The model reads what you draw.");
  else if (!Number.isFinite(found.certainty)) show("guess", "The model is not finite: it reads nothing.");
  else show("guess", `The model reads a ${found.label} (${Math.round(100 * found.certainty)} %).`);
}

// Digits: drawn ones, and a share.

const pad = new Pad(at("pad"), (strokes) => {
  for (const button of at("labels").children) button.disabled = !strokes.length;
  guess();
});
function guess() {
  if (pad.strokes.length) tell("guess", { strokes: pad.strokes });
  else guessed(null);
}

for (let label = 0; label < 10; label++) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = String(label);
  button.disabled = true;
  button.addEventListener("click", () => {
    tell("draw", { strokes: pad.strokes, label });
    pad.clear();
  });
  at("labels").append(button);
}
at("clear").addEventListener("click", () => pad.clear());
at("forget").addEventListener("click", () => tell("forget"));

function tellShare() {
  const [number, of] = [at("share-number"), at("share-of")];
  number.max = of.value;
  show("share-problem", "");
  if (!number.checkValidity() || !of.checkValidity()) {
    show("share-problem", `Choose a share from 1 to ${of.checkValidity() ? of.value : "100"}.`);
    return;
  }
  const share = { number: number.valueAsNumber, of: of.valueAsNumber };
  tell("share", { share: at("share").checked ? share : null });
}
function anyShare() {
  at("share-number").value = String(1 + Math.floor(Math.random() * (at("share-of").valueAsNumber || 1)));
}
for (const id of ["share", "share-number", "share-of"]) at(id).addEventListener("change", tellShare);
at("share-random").addEventListener("click", () => {
  anyShare();
  tellShare();
});

// The worker: start, pause, leave, choices.

function run(on) {
  if (running !== on) tell("running", { running: on });
  running = on;
  show("start", on ? "Pause" : "Start");
}
at("start").addEventListener("click", () => run(!running));
at("leave").addEventListener("click", () => {
  worker.terminate();
  const kept = at("waiting").textContent === "0" ? "Nothing waits to be sent." : "What waits is sent when you come back.";
  heard.state({ state: "left", detail: `${kept} Load the page again to take part.` });
  at("start").hidden = true;
  for (const field of document.querySelectorAll("button, input")) field.disabled = true;
});

function tellSettings() {
  const fields = [at("local-steps"), at("rate"), at("rest"), at("name")];
  if (!fields.every((field) => field.reportValidity())) return;
  const [steps, rate, rest_s] = fields.map((field) => field.valueAsNumber);
  tell("settings", { settings: { steps, rate, rest_s, hidden: at("hidden").checked } });
  sessionStorage.setItem(NAME, at("name").value);
  tell("name", { name: at("name").value });
}
for (const id of ["local-steps", "rate", "rest", "name", "hidden"]) at(id).addEventListener("change", tellSettings);
document.addEventListener("visibilitychange", () => tell("visible", { visible: !document.hidden }));
window.addEventListener("online", () => tell("online"));

// The token stays in this tab, and goes to the server in a header only.

function useToken(token) {
  if (token) sessionStorage.setItem(TOKEN, token);
  else sessionStorage.removeItem(TOKEN);
  const name = token?.slice(0, token.lastIndexOf("."));
  show("token-note", token ? `You take part as ${name}.` : "It is kept until this tab is closed.");
  at("name").disabled = Boolean(token);
  tell("token", { token });
}
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = at("token").value.trim();
  at("token").value = "";
  if (/^[A-Za-z0-9_.@-]{1,64}\.[\w-]+$/.test(token)) useToken(token);
  else show("token-note", "A token has the form NAME.SECRET: copy all of it.");
});
at("no-token").addEventListener("click", () => useToken(null));

at("qr").addEventListener("error", () => {
  at("qr").hidden = true;
  show("qr-note", "For a QR code the server needs the extra: pip install 'anarchic[page]'.");
});

at("name").value =
  sessionStorage.getItem(NAME) ?? `browser-${crypto.getRandomValues(new Uint32Array(1))[0].toString(36)}`;
anyShare();
tellSettings();
useToken(sessionStorage.getItem(TOKEN));
tell("visible", { visible: !document.hidden });
