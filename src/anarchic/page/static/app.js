// The live page: asks for a token where one is needed, follows the stream, and shows it.
import { el } from "./dom.js";
import { follow } from "./feed.js";
import { makePage, merge, stateOf } from "./render.js";
import { dialog, makeActions } from "./steer.js";
import { enlarge } from "./enlarge.js";
import { useColours } from "./colours.js";

const KEY = "anarchic.token", NOTICE_MS = 10000;
const main = document.getElementById("main");
const link = document.getElementById("link");
const state = document.getElementById("state");
const nav = document.getElementById("actions");
const run = new URLSearchParams(location.hash.slice(1)).get("run");
const root = new URL(".", location.href).pathname.replace(/\/$/, "");
const base = `${root}/v1${run ? `/runs/${encodeURIComponent(run)}` : ""}`;
const picture = {};
let show = null, act = null, noticed = 0;

const headers = () => {
  const token = sessionStorage.getItem(KEY);
  return token ? { authorization: `Bearer ${token}` } : {};
};

function say(text, kind = "") {
  if (link.textContent !== text) link.textContent = text;
  link.className = `link ${kind}`;
}

// What was done: it gives way to the state of the link after a while.
function notice(text) {
  say(text);
  clearTimeout(noticed);
  noticed = setTimeout(() => link.textContent === text && say("Live"), NOTICE_MS);
}

// Why a server takes no commands with a token; null if it does, or does not answer.
async function refusal(token, name) {
  if (!/^[\x21-\x7e]+$/.test(token)) return "Invalid token: it has letters that no token has.";
  const where = `${root}/v1${name ? `/runs/${encodeURIComponent(name)}` : ""}/commands`;
  const answer = await fetch(where, { headers: { authorization: `Bearer ${token}` }, cache: "no-store", credentials: "same-origin" }).catch(() => null);
  if (answer?.status === 401) return "Invalid token: the server knows no such token, or it has expired or was revoked.";
  return answer?.status === 403 ? "Invalid token: it is not an operator's." : null;
}

function start() {
  if (show) return;
  main.replaceChildren();
  // Only the port of the workers asks for a token.
  show = makePage(main, picture, { enlarge, atWorkersPort: () => sessionStorage.getItem(KEY) !== null });
  const readOnly = picture.head?.kind !== "server";
  if (!readOnly) act = makeActions(nav, { base, headers, say: notice, kept: () => ({ rows: [], ...picture.versions, at_s: picture.head.at_s }), askToken: () => dialog("Operator's token", ...tokenForm("Buttons that change the run need a token.")) });
}

function shown(parts) {
  if (parts.failure) return say(parts.failure, "down");
  if (link.className !== "link ") say("Live");
  const names = merge(picture, parts);
  start();
  if (parts.head) {
    const { name, version, run: id } = parts.head;
    const now = stateOf(parts.head);
    document.getElementById("name").textContent = name || (id ?? "").slice(0, 8);
    document.title = `${version} · ${name || "anarchic"}`;
    state.hidden = false;
    state.textContent = now;
    state.className = `badge ${parts.head.served === false ? "ended" : now}`;
    act?.(parts.head);
  }
  show(names);
}

// What asks for a token; the page then begins anew with it.
function tokenForm(told) {
  const given = el("input", { type: "password", autocomplete: "off", name: "token", spellcheck: "false" });
  const named = el("input", { autocomplete: "off", name: "run", value: run ?? "" });
  const error = el("p", { class: "error", role: "alert" });
  const form = el("form", {}, el("label", {}, "Operator's token", given), el("label", {}, "Run, where the server has several", named), error, el("button", { class: "main", type: "submit" }, show ? "Use this token" : "Show the run"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const to = named.value.trim(), token = given.value.trim();
    error.textContent = (token && await refusal(token, to)) || "";
    if (error.textContent) return;
    if (token) sessionStorage.setItem(KEY, token);
    if (to !== (run ?? "")) location.hash = to ? `run=${encodeURIComponent(to)}` : "";
    location.reload();
  });
  return [el("p", {}, told), el("p", {}, "Make a token with ", el("code", {}, "anarchic token add NAME --store STORE --rights operate"),
    ". It is kept in this tab until the tab is closed, and sent in a header."), form];
}

function askToken(told) {
  show = null;
  main.replaceChildren(el("div", { class: "note", role: "group", "aria-label": "Token" }, el("h2", {}, "This run is for operators"), ...tokenForm(told)));
  main.querySelector("input").focus();
}

useColours(nav);
say("Connecting…");
const ended = await follow(`${base}/live`, headers, {
  picture: shown,
  link: (kind, told) => (kind === "up" ? say("Live") : say(`${told} What is shown stays; trying again.`, "down")),
});
const given = sessionStorage.getItem(KEY) !== null;
let told = ended.told;  // the server's words, but for what a person types into the page
if (ended.status === 401) told = given ? "The token is not valid: it is unknown, has expired or was revoked." : "Type an operator's token to see the run.";
if (ended.status === 404 && !run) told = "This server has several runs: type the name of one, and a token where it asks for one.";
say(ended.status === 401 ? "A token is needed" : told, "down");
if (ended.status === 401 || ended.status === 403) sessionStorage.removeItem(KEY);
askToken(told);
