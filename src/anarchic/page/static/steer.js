// What an operator can do from the page: each with a confirmation, through the operators' routes.
import { el, ago, clock, measured } from "./dom.js";

const OTHER = "other";

export function dialog(title, ...inside) {
  const box = el("dialog", { "aria-label": title }, el("h2", {}, title), ...inside);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

const field = (name, { options, ...facts }) => (options
  ? el("select", { name, ...facts }, options.map(([value, text]) => el("option", { value }, text)))
  : el("input", { name, autocomplete: "off", ...facts }));

// A question with fields; `act` gets their values and returns what was done, or throws.
function confirm(title, told, fields, verb, act, danger) {
  const error = el("p", { class: "error", role: "alert" });
  const inputs = fields.map(([name, label, facts]) => [name, field(name, facts ?? {}), label]);
  const send = el("button", { class: danger ? "danger" : "main", type: "submit" }, verb);
  const form = el("form", {}, el("p", {}, told), inputs.map(([, input, label]) => el("label", {}, label, input)), error,
    el("div", { class: "row" }, el("button", { type: "button", onclick: () => box.close() }, "Cancel"), send));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    error.textContent = "";
    try {
      await act(Object.fromEntries(inputs.map(([name, input]) => [name, input.value.trim()])));
      box.close();
    } catch (failure) {
      error.textContent = failure.message;
      send.disabled = false;
    }
  });
  const box = dialog(title, form);
  return box;
}

async function post(url, headers, body) {
  const answer = await fetch(url, { method: "POST", headers: { ...headers(), "content-type": "application/json" }, body: JSON.stringify(body), credentials: "same-origin" });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(answer.status === 401 ? `${headers().authorization ? "Invalid token. " : ""}This needs an operator's token: give one with the button Token.` : `${told.message ?? answer.status} ${told.remedy ?? ""}`);
  return told;
}

// A rollback to one of the versions that the server keeps, or to another by its number.
function rollBack({ at_s, metric: name, rows }, command) {
  const versions = rows.map(([version, made, value]) => [String(version),
    [`Version ${version}`, ...(made === null ? [] : [`${clock(made)}, ${ago(at_s - made)}`]), ...(value === null ? [] : [`${name} ${measured(name, value)}`])].join(" · ")]);
  const box = confirm("Roll back?", "The next version will equal an old one, or be the run without one worker. Nothing is deleted: what comes after the old version is withdrawn.",
    [["to", "To version", { options: [["", "Choose a version"], ...versions, [OTHER, "Another version, by its number"]] }],
      ["number", "Number of the version", { inputmode: "numeric", pattern: "[0-9]+" }], ["without", "Without the updates of this worker (optional)"]], "Roll back",
    ({ to: chosen, number, without }) => {
      const to = chosen === OTHER ? number : chosen;
      if (!to && !without) throw new Error("Choose a version, or name a worker.");
      return command("rollback", { ...(to ? { to: Number(to) } : {}), ...(without ? { without } : {}) });
    }, true);
  const [to, number, without] = ["to", "number", "without"].map((each) => box.querySelector(`[name=${each}]`));
  const effect = el("p", { class: "hint", role: "status" });
  to.closest("label").after(effect);
  const tell = () => {
    number.parentNode.hidden = to.value !== OTHER;
    const target = to.value === OTHER ? number.value.trim() : to.value;
    const whose = without.value.trim();
    if (!number.checkValidity() || !(target || whose)) effect.textContent = "";
    else if (whose) effect.textContent = `The next version will be ${target ? `version ${target}` : "the newest one"} without the updates of ${whose}. Versions that hold them are withdrawn.`;
    else effect.textContent = `The next version will equal version ${target}. Versions from ${Number(target) + 1} on are withdrawn.`;
  };
  for (const given of [to, number, without]) given.addEventListener("input", tell);
  tell();
}

// Buttons for the header; `base` is where the routes of the run are, `say` tells what was done, and
// `kept` which versions there are to go back to.
export function makeActions(nav, { base, headers, say, askToken, kept }) {
  const asked = new Set();  // numbers of commands whose results are not told yet
  const command = async (kind, args) => {
    const given = await post(`${base}/commands`, headers, { kind, arguments: args });
    asked.add(given.number);
    say(`${kind} was given as command ${given.number}; the leader applies it within a second.`);
  };
  const pause = el("button", { type: "button" }, "Pause");
  let paused = false;
  pause.addEventListener("click", () => (paused
    ? confirm("Resume the run?", "Updates are taken again.", [], "Resume", () => command("resume", {}))
    : confirm("Pause the run?", "Updates are refused and no version is made until the run is resumed. Nothing that was accepted is lost.",
      [["reason", "Reason (optional)"]], "Pause", ({ reason }) => command("pause", reason ? { reason } : {}))));
  const back = el("button", { type: "button", onclick: () => rollBack(kept(), command) }, "Roll back…");
  const revoke = el("button", { type: "button", onclick: () => confirm("Revoke a token?", "The worker can push no more. What it has sent stays in the run; roll back without it to take that out.",
    [["worker", "Worker", { required: true }]], "Revoke", async ({ worker }) => {
      await post(`${base}/revocations`, headers, { worker });
      say(`The token of ${worker} was revoked.`);
    }, true) }, "Revoke…");
  nav.replaceChildren(pause, back, revoke, el("button", { type: "button", onclick: askToken }, "Token"));
  return ({ state, settled }) => {
    for (const { number, kind, outcome, reason } of settled ?? []) {
      if (asked.delete(number)) say(`Command ${number} (${kind}) was ${outcome}. ${reason ?? ""}`);
    }
    paused = state === "paused";
    pause.textContent = paused ? "Resume" : "Pause";
    pause.disabled = state === "ended";
  };
}
