// A picture of a run as sections of the page. `show` draws what has changed, one section per frame.
import { el, ago, clock, count, plural, number, brief, measured, percent, duration, table, tableBehind, NONE } from "./dom.js";
import { lineChart, barChart } from "./chart.js";
import { workerStrip, heatMap, LATE } from "./strip.js";

const METRICS = 6, UNUSUAL = 5;  // that are named
let made = 0;  // pages in this document: names of fields must differ
let about = "";  // whose sections are made: several runs may share a document

function section(title, hint, wide, ...inside) {
  return el("section", { class: wide, "aria-label": `${about}${title}` }, el("h2", {}, title), hint ? el("p", { class: "hint" }, hint) : null, ...inside);
}

function howMany(everyone) {
  return everyone ? `${everyone.exact ? "" : "at most "}${count(everyone.known)}` : NONE;
}

function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.map(([name, value, more]) =>
    el("div", { class: "fact" }, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, ` ${more}`) : null))));
}

function pairs(rows) {
  return el("dl", { class: "pairs" }, rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function key(items) {
  return el("ul", { class: "key" }, items.map(([kind, text]) => el("li", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), text)));
}

// A store whose server is gone is still "running" to it: the run has not been ended.
export function stateOf({ state, served }) {
  if (served !== false || state === "ended") return state;
  return state === "paused" ? "paused, no server" : "no server";
}

function headSection() {
  const where = el("div");
  const cells = el("div", { class: "cells", role: "meter", "aria-label": "Updates that wait for the next version", "aria-valuemin": "0" });
  const said = el("span");
  const box = section("Where the run stands", null, "", where, el("div", { class: "buffer" }, el("span", {}, "Buffer"), cells, said));
  return {
    box, parts: ["head"],
    draw({ head, everyone }) {
      const evaluation = { ...(head.evaluation ?? {}) };
      const at = evaluation.version;
      delete evaluation.version;
      const [name, value] = Object.entries(evaluation)[0] ?? ["evaluation", null];
      const workers = ["workers", howMany(everyone), everyone?.unusual ? `${everyone.unusual} unusual` : ""];
      const live = head.kind === "run" || head.served === false ? [workers] : [["updates per second", number(head.rate_per_s), "in the last minute"], workers];
      const last = head.last_s ? `last update ${clock(head.last_s)}` : "no update yet";
      where.replaceChildren(facts([
        ...(head.kind === "store" ? [["state", stateOf(head), last]] : []),
        ["version", count(head.version)], [name, measured(name, value), at === undefined ? "" : `at version ${count(at)}`],
        ["updates folded", brief(head.updates?.folded)], ...live,
        ...(head.kind === "run" ? [] : [["refused", brief(head.updates?.refused ?? null)]]),
      ]));
      const m = head.m ?? 1;
      const waiting = head.buffered ?? 0;
      const many = Math.min(m, 40);
      cells.setAttribute("aria-valuemax", String(m));
      cells.setAttribute("aria-valuenow", String(Math.min(waiting, m)));
      cells.setAttribute("aria-valuetext", `${waiting} of ${m}`);
      cells.replaceChildren(...Array.from({ length: many }, (_, i) => el("i", { class: (i + 0.5) / many < waiting / m ? (waiting > m ? "over" : "full") : "" })));
      said.textContent = `${count(waiting)} of ${plural(m, "update")} for the next version`;
      box.querySelector(".buffer").hidden = head.kind === "run";
    },
  };
}

function curvesSection(tools) {
  const group = `against-${made}`;
  const plots = el("div", { class: "plots" });
  const charts = new Map();
  const axis = el("fieldset", { class: "switch" }, el("legend", {}, "Against"),
    ["version", "time"].map((name) => el("label", {}, el("input", { type: "radio", name: group, value: name, checked: name === "version", onchange: () => draw(last) }), name)));
  const empty = el("p", { class: "hint" });
  const behind = tableBehind("Evaluations as a table", () => [["version", "time", ...(last.curves?.metrics ?? [])],
    (last.curves?.rows ?? []).slice(-100).reverse().map((row) => [count(row[0]), duration(row[1]), ...row.slice(2).map(number)])]);
  const box = section("Accuracy and loss", null, "w8", axis, empty, plots, behind);
  let last = {};

  function draw(picture) {
    last = picture;
    const by = axis.querySelector("input:checked").value === "version" ? 0 : 1;
    const runs = picture.compare ?? [{ name: "evaluated", curves: picture.curves, told: picture.told }];
    const metrics = [...new Set(runs.flatMap((run) => run.curves?.metrics ?? []))].slice(0, METRICS);
    const told = runs.some((run) => run.told?.rows?.length);
    if (told && !metrics.includes("loss")) metrics.push("loss");
    axis.hidden = !metrics.length;
    behind.hidden = !last.curves?.rows.length;
    empty.textContent = metrics.length ? "" : "Nothing was evaluated yet: give the server --evaluate, or let workers report their loss.";
    for (const metric of metrics) {
      if (!charts.has(metric)) {
        const chart = lineChart(metric, 285);
        charts.set(metric, chart);
        if (tools?.enlarge) chart.heading.append(tools.enlarge(chart));
        // Losses that workers report may come before the first evaluation.
        plots.replaceChildren(...metrics.filter((name) => charts.has(name)).map((name) => charts.get(name).box));
      }
      const series = runs.flatMap((run, hue) => {
        const place = (run.curves?.metrics ?? []).indexOf(metric);
        const points = place < 0 ? [] : run.curves.rows.map((row) => [row[by], row[place + 2]]).filter(([x, y]) => x !== null && y !== null);
        const lines = [{ name: runs.length > 1 ? run.name : "evaluated", points, hue }];
        if (metric === "loss" && run.told?.rows?.length) {
          const loss = run.told.rows.filter((row) => row[2] !== null).map((row) => [row[by], row[2]]);
          // A row without a loss: nobody looked before the next one.
          const breaks = new Set(run.told.rows.flatMap((row, i) => (row[2] === null ? [i] : [])).map((i, gaps) => i - gaps));
          lines.push({ name: `${runs.length > 1 ? `${run.name}, ` : ""}reported by workers`, points: loss, breaks, faint: true, hue: hue + 1 });
        }
        return lines.filter((line) => line.points.length);
      });
      const share = metric.includes("accuracy");
      charts.get(metric).draw({
        series, x: { name: by ? "time" : "version", show: by ? duration : brief, least: by ? 0 : 1 },
        y: { show: (v) => (share ? `${Math.round(100 * v)} %` : number(v)), floor: share ? 0 : undefined, ceiling: share ? 1 : undefined },
      });
    }
    behind.refresh();
  }
  return { box, parts: ["curves", "told", "compare"], draw };
}

function paceSection(tools) {
  const whole = lineChart("Whole run", 185), lately = lineChart("Lately", 185);
  const box = section("Updates per second", null, "w4", el("div", { class: "plots" }, whole.box, lately.box));
  const points = (rates, length) => rates.map((rate, i) => [((i + 0.5) * length) / rates.length, rate]);
  return {
    box, parts: ["pace"],
    draw({ pace, head }) {
      box.hidden = (head?.kind === "run" || head?.served === false) && !pace.whole;
      const y = { show: brief, floor: 0 };
      whole.box.hidden = !pace.whole;
      lately.box.hidden = head?.kind === "run" || head?.served === false;
      if (pace.whole) whole.draw({ series: [{ name: "updates per second", points: points(pace.whole.rates, pace.whole.length_s) }], x: { name: "time", show: duration, floor: 0 }, y, area: true });
      const length = pace.lately.span[1] - pace.lately.span[0];
      const shift = points(pace.lately.rates, length).map(([x, rate]) => [x - length, rate]);
      lately.draw({ series: [{ name: "updates per second", points: shift }], x: { name: "time", show: (v) => (v > -1e-9 ? "now" : `-${duration(-v)}`), floor: -length, ceiling: 0 }, y, area: true });
    },
  };
}

function workersSection() {
  const strip = workerStrip();
  const said = el("p", { class: "hint" });
  const marks = key([["s0", "pushed, staleness 0"], ...LATE.slice(1).map((text, i) => [`s${i + 1}`, text]), ["working", "working"], ["lost", "lost"], ["refused", "refused"]]);
  const why = el("p", { class: "readout" });
  const box = section("Workers", null, "w8", said, marks, strip.box, why);
  return {
    box, parts: ["workers"],
    draw({ workers, everyone }) {
      const known = everyone?.known ?? workers.rows.length;
      marks.hidden = strip.box.hidden = !known;
      if (!known) said.textContent = "No worker has sent an update yet.";
      else said.textContent = known > workers.rows.length
        ? `${workers.rows.length} of ${howMany(everyone)} workers: the most influential, the unusual (!), and those heard last. On the right: share of influence.`
        : "Each mark is an update, its colour the staleness. On the right: share of influence. Unusual workers have a !.";
      const odd = workers.rows.filter((row) => row.marks.length).slice(0, UNUSUAL);
      why.textContent = odd.length ? `Unusual: ${odd.map((row) => `${row.worker} (${row.marks.join(", ")})`).join(", ")}.` : "";
      strip.draw(workers);
    },
  };
}

function everyoneSection() {
  const heat = heatMap();
  const chart = lineChart("Share of influence (Lorenz curve)", 240);
  const said = el("p", { class: "hint" });
  const box = section("Activity and influence", "Updates of all workers over time: the stronger the colour, the more.", "w4", heat.box, el("hr"), chart.box, said);
  return {
    box, parts: ["everyone"],
    draw({ everyone, head }) {
      heat.draw(everyone.heat);
      const found = everyone.influence;
      const equal = head?.kind === "run" ? " Norms are not recorded: each update counts by its staleness and local steps." : "";
      said.textContent = found.gini === null ? "No update was folded yet." : `Gini index ${found.gini.toFixed(2)} over ${everyone.exact ? "" : "at most "}${plural(found.workers, "worker")}: 0 is equal, 1 is one worker alone.${equal}`;
      chart.box.hidden = found.gini === null;
      chart.draw({
        series: [{ name: "share of influence", points: found.lorenz }, { name: "equal", points: [[0, 0], [1, 1]], equal: true }],
        x: { name: "share of workers", show: (v) => percent(v, 0), floor: 0, ceiling: 1 }, y: { show: (v) => percent(v, 0), floor: 0, ceiling: 1 },
      });
    },
  };
}

function histogramsSection() {
  const [stale, steps, norms] = [["Staleness (versions)", "versions behind"], ["Local steps", "steps per update"], ["Norm of the update", "norm"]].map((t) => barChart(...t));
  const far = el("div");
  const said = el("p", { class: "hint" });
  const behind = tableBehind("Counts as a table", () => [["value", "updates"],
    [["staleness", last.staleness], ["local steps", last.steps], ["norm from", (last.norms?.counts ?? []).map((n, i) => [number(last.norms.edges[i]), n])]].flatMap(([name, found]) => found.map(([label, n]) => [`${name} ${label}`, count(n)]))]);
  const plots = el("div", { class: "plots" }, stale.box, steps.box, el("div", {}, norms.box, far));
  const box = section("Staleness, local steps and norms", null, "w8", said, plots, behind);
  let last = { staleness: [], steps: [] };
  const most = (found) => (found.length ? `Most often ${found.reduce((a, b) => (b[1] > a[1] ? b : a))[0]}.` : "No update yet.");
  return {
    box, parts: ["histograms"],
    draw({ histograms }) {
      last = histograms;
      said.textContent = histograms.updates ? `Counts of the newest ${plural(histograms.updates, "update")}.` : "No update yet.";
      plots.hidden = behind.hidden = !histograms.updates;
      stale.draw(histograms.staleness.map(([label, value]) => ({ label, value })), most(histograms.staleness));
      steps.draw(histograms.steps.map(([label, value]) => ({ label, value })), most(histograms.steps));
      const found = histograms.norms;
      norms.box.hidden = !found;
      if (!found) return far.replaceChildren();
      norms.draw(found.counts.map((value, i) => ({ label: number(found.edges[i]), value, far: found.edges[i] >= found.limit })),
        `Median ${number(found.median)}; ${found.outliers ? `${plural(found.outliers, "outlier")} beyond ${number(found.limit)}` : "no outlier"}.`);
      const names = [...new Map(found.newest.map((one) => [one.worker, one.times])).entries()].slice(0, 5);
      far.replaceChildren(names.length ? el("p", { class: "readout" }, `Outliers: ${names.map(([w, t]) => `${w} (${brief(t)} times the median)`).join(", ")}.`) : "");
    },
  };
}

function refusalsSection() {
  const list = el("ul", { class: "bars" });
  const said = el("p", { class: "hint" });
  const box = section("Refusals by reason", null, "w4", said, list);
  return {
    box, parts: ["head"],
    draw({ head }) {
      box.hidden = head.kind === "run";
      const found = Object.entries(head.refusals ?? {});
      const most = Math.max(1, ...found.map(([, n]) => n));
      said.textContent = found.length ? `${plural(head.updates?.refused, "refused request")}.` : "No request was refused.";
      list.replaceChildren(...found.map(([code, n]) => {
        const bar = el("i");
        bar.style.width = `${(100 * n) / most}%`;
        return el("li", {}, el("span", {}, code.replaceAll("_", " ")), el("span", { class: "track", "aria-hidden": "true" }, bar), el("span", {}, count(n)));
      }));
    },
  };
}

function leaderSection() {
  const where = el("div");
  const box = section("Server and rule", null, "w4", where);
  return {
    box, parts: ["head"],
    draw({ head }) {
      const leader = head.leader;
      const who = leader ? `process ${leader.pid} on ${leader.host}, epoch ${leader.epoch}, heard ${head.served === false ? `last ${clock(leader.seen_s)}: no longer at work` : ago(head.at_s - leader.seen_s)}` : "none at work";
      const rows = [["rule", `${head.rule}, m = ${head.m}, server rate ${number(head.server_lr)}`]];
      if (head.parameters) rows.push(["parameters", count(head.parameters)]);
      if (head.kind !== "run") rows.unshift(["leader", who]);
      if (head.kind === "server") rows.splice(1, 0, ["this server", head.leads ? "leads" : "follows"]);
      if (head.updates) rows.push(["updates", Object.entries(head.updates).filter(([name, n]) => n || name === "accepted").map(([name, n]) => `${count(n)} ${name.replace("_", " ")}`).join(", ")]);
      for (const command of head.commands ?? []) rows.push(["waiting", `${command.kind}, by ${command.issued_by}`]);
      rows.push(["run", head.run]);
      where.replaceChildren(pairs(rows));
    },
  };
}

function theorySection() {
  const saidId = `theory-${made}`;
  const where = el("div");
  const asked = el("input", { type: "number", min: "0", step: "any", size: "8", "aria-describedby": saidId });
  const said = el("p", { class: "verdict", id: saidId, role: "status" });
  const ask = el("label", { class: "inline" }, "Your L", asked);
  const box = section("Theory", "What the paper's theorems say of the newest arrivals.", "w4", where, ask, said);
  let found = {};

  function judge() {
    const L = asked.value === "" ? null : Number(asked.value);
    const largest = found.largest_smoothness;
    said.className = "verdict";
    if (largest === null || largest === undefined) {
      said.textContent = found.theorem ? "A worker has never reported: the delay is unbounded." : "";
    } else if (!(L > 0)) {
      said.textContent = `The learning-rate conditions of Theorem ${found.theorem} hold if the gradients' Lipschitz constant L is at most ${number(largest)}.`;
    } else {
      said.classList.add(L <= largest ? "holds" : "broken");
      said.textContent = L <= largest ? `They hold: ${number(L)} is at most ${number(largest)}.`
        : `They do not hold for L = ${number(L)}, which is above ${number(largest)}. The run may converge all the same: the conditions are sufficient, not necessary.`;
    }
  }
  asked.addEventListener("input", judge);
  return {
    box, parts: ["theory"],
    draw({ theory }) {
      found = theory;
      if (!theory.rounds) {
        ask.hidden = true;
        said.className = "hint";
        said.textContent = "Too few full rounds yet, or the rounds have no fixed size.";
        where.replaceChildren();
        return;
      }
      const K = theory.steps;
      const rows = [["rounds looked at", `${count(theory.rounds)}, m = ${theory.m}, ${plural(theory.workers, "worker")}`],
        ["staleness (tau)", `at most ${theory.staleness}, mean ${number(theory.staleness_mean)}`],
        ["local steps (K)", K[0] === K[4] ? K[0] : `${K[0]} to ${K[4]}, median ${K[2]}`],
        ["rates", `eta ${number(theory.server_lr)}, eta_L ${number(theory.local_lr)}`],
        ["arrivals", `${percent(theory.shares[0])} to ${percent(theory.shares[1])} of updates per worker: ${theory.arrivals}`]];
      if (theory.theorem === 4) rows.push(["age of rows", theory.row_age === null ? "unbounded" : count(theory.row_age)]);
      where.replaceChildren(pairs(rows));
      ask.hidden = !theory.theorem || theory.largest_smoothness === null;
      if (!theory.theorem) said.textContent = `The theorems are about AFA-CD and AFA-CS, not ${theory.rule}.`;
      else judge();
    },
  };
}

// Where anybody with a browser takes part; the operators' port does not serve that page itself.
function joinSection(tools) {
  const where = el("div", { class: "settings" });
  const box = section("Take part", null, "w4", where);
  return {
    box, parts: ["head"],
    draw({ head }) {
      box.hidden = !head.join;
      if (!head.join || where.firstChild) return;
      const here = tools?.atWorkersPort?.();
      where.append(here
        ? el("p", {}, "Anybody with a browser can train here: ", el("a", { href: head.join }, location.origin + head.join))
        : el("p", {}, `Anybody with a browser can train: open ${head.join} at the address that workers use.`));
      if (here) where.append(el("img", { src: `${head.join}.svg`, width: "160", height: "160", alt: `QR code of ${location.origin + head.join}` }));
    },
  };
}

function settingsSection() {
  const where = el("div", { class: "settings" });
  const box = section("Settings", null, "last", where);
  return {
    box, parts: ["settings"],
    draw({ settings }) {
      where.replaceChildren(table(["setting", "value"], settings.rows, "Settings of the run"),
        ...(settings.again ? [el("h3", {}, "Run it again"), el("pre", { tabindex: "0" }, settings.again)] : []));
    },
  };
}

// The sections below `main`; returns show(part names), which draws from `picture`.
export function makePage(main, picture, tools) {
  made += 1;
  about = tools?.name ? `${tools.name}: ` : "";
  const head = headSection();
  const settings = settingsSection();
  const left = [curvesSection(tools), workersSection(), histogramsSection(), settings];
  const right = [paceSection(tools), everyoneSection(), refusalsSection(), leaderSection(), theorySection(), joinSection(tools)];
  const sections = [head, ...left.slice(0, -1), ...right, settings];  // in the order of drawing
  const waiting = new Set();
  let due = false;
  const column = (wide, some) => el("div", { class: `column ${wide}` }, some.map((each) => each.box));
  main.replaceChildren(head.box, column("w8", left), column("w4", right));
  for (const each of sections) each.box.hidden = true;

  function frame() {
    const [next] = waiting;
    waiting.delete(next);
    performance.mark("draw");
    if (next.parts.some((part) => picture[part])) {
      next.box.hidden = false;
      next.draw(picture);
    }
    performance.measure("anarchic draw", "draw");
    due = waiting.size > 0;
    if (due) requestAnimationFrame(frame);
  }

  return (names) => {
    for (const each of sections) if (each.parts.some((part) => names.includes(part))) waiting.add(each);
    if (!due && waiting.size) {
      due = true;
      requestAnimationFrame(frame);
    }
  };
}

// Join what came to what is shown: points that a server has forgotten stay on the screen.
export function merge(picture, parts) {
  const same = !parts.head || !picture.head || parts.head.run === picture.head.run;
  for (const [name, part] of Object.entries(parts)) {
    const before = picture[name]?.rows, after = part?.rows;
    if (name === "told" && same && before?.length) {
      const first = after.length ? after[0][0] : Infinity;
      const old = before.filter((row) => row[0] < first);
      const forgotten = old.length === before.length && after.length && old.at(-1)[2] !== null;
      const rows = [...old, ...(forgotten ? [[...after[0].slice(0, 2), null]] : []), ...after];
      picture[name] = { ...part, rows: rows.length > 600 ? rows.filter((row, i) => i % 2 === 0 || row[2] === null || i === rows.length - 1) : rows };
    } else {
      picture[name] = part;
    }
  }
  return Object.keys(parts);
}
