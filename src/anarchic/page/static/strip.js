// Strips on canvases: one row of marks per worker, and everybody's updates as a heat map.
import { el, colour, duration, count, plural, percent, tableBehind } from "./dom.js";

const ROW = 20, BAR = 12;
export const LATE = ["0", "1", "2–3", "4–7", "8 and more"];

export function late(staleness) {
  return staleness === 0 ? 0 : staleness === 1 ? 1 : staleness < 4 ? 2 : staleness < 8 ? 3 : 4;
}

// A canvas that is drawn again when its width or the colours change.
function canvasOf(label, height, paint) {
  const canvas = el("canvas", { role: "img", "aria-label": label });
  const state = { canvas, width: 0, height };
  state.redraw = () => {
    if (state.width < 20) return;
    const scale = Math.min(2, devicePixelRatio || 1);
    canvas.width = Math.round(state.width * scale);
    canvas.height = Math.round(state.height * scale);
    canvas.style.height = `${state.height}px`;
    const ink = canvas.getContext("2d");
    ink.scale(scale, scale);
    paint(ink, state.width, state.height);
  };
  new ResizeObserver(([entry]) => {
    const found = Math.round(entry.contentRect.width);
    if (found !== state.width) {
      state.width = found;
      state.redraw();
    }
  }).observe(canvas);
  document.addEventListener("colours", state.redraw);
  return state;
}

export function ends({ span, axis, begun_s: begun }) {
  if (axis === "version") return [`version ${count(span[0])}`, `version ${count(span[1])}`];
  if (axis === "elapsed") {  // of a recorded run, or of a store without a server
    const [from, to] = span.map((at) => duration(Math.max(0, at - (begun ?? 0))));
    return [from, begun === undefined ? to : `${to} after the first update`];
  }
  return [`${duration(span[1] - span[0])} ago`, "now"];
}

export function workerStrip() {
  let given = { rows: [], span: [0, 1] };
  const names = el("ul", { class: "names" });
  const shares = el("ul", { class: "shares" });
  const left = el("span"), right = el("span");
  const drawing = canvasOf("Updates of the listed workers over time; the table below has the same.", ROW, paint);
  const behind = tableBehind("Workers as a table", () => [
    ["worker", "updates", "share", "staleness", "norm", "loss", "refused", "unusual"],
    given.rows.map((w) => [w.worker, count(w.updates), percent(w.share), w.staleness_p50 ?? "–",
      w.norm_last === null ? "–" : w.norm_last.toPrecision(3), w.loss_last === null ? "–" : w.loss_last.toPrecision(3),
      Object.entries(w.refused).map(([code, n]) => `${n} ${code.replaceAll("_", " ")}`).join(", ") || "0", w.marks.join(", ") || "no"]),
  ]);
  const box = el("div", {},
    el("div", { class: "strip" }, names, el("div", {}, drawing.canvas, el("p", { class: "ends" }, left, right)), shares), behind);

  function paint(ink, width) {
    const hue = [0, 1, 2, 3, 4].map((n) => colour(`s${n}`));
    const [empty, hollow, lost, bad] = ["empty", "hollow", "lost", "bad"].map(colour);
    const [from, to] = given.span;
    const at = (time) => ((Math.max(time, from) - from) / (to - from || 1)) * width;
    given.rows.forEach((row, index) => {
      const y = index * ROW + (ROW - BAR) / 2;
      ink.fillStyle = empty;
      ink.globalAlpha = 0.55;
      ink.fillRect(0, y + BAR / 2 - 0.5, width, 1);
      ink.globalAlpha = 1;
      for (const [start, end] of row.lost ?? []) {
        ink.strokeStyle = lost;
        ink.lineWidth = 1;
        for (let x = at(start); x < at(end); x += 5) {
          ink.beginPath();
          ink.moveTo(x, y + BAR);
          ink.lineTo(Math.min(x + 6, at(end)), y);
          ink.stroke();
        }
      }
      for (const [start, end, staleness] of row.pushed ?? []) {
        const x = at(end);
        ink.fillStyle = staleness === null ? hollow : hue[late(staleness)];
        if (start !== null) {
          ink.globalAlpha = 0.45;
          ink.fillRect(at(start), y + 3, Math.max(0, x - at(start)), BAR - 6);
          ink.globalAlpha = 1;
        }
        ink.fillRect(Math.max(0, x - 3), y, 3, BAR);
      }
      const working = row.working?.[0];
      if (working !== null && working !== undefined) {
        ink.strokeStyle = hollow;
        ink.lineWidth = 1.5;
        ink.strokeRect(at(working), y + 2, Math.max(2, width - at(working) - 1), BAR - 4);
      }
      for (const [when] of row.refusals ?? []) {
        const x = at(when);
        ink.fillStyle = bad;
        ink.beginPath();
        ink.moveTo(x, y - 1);
        ink.lineTo(x + 5, y + BAR / 2);
        ink.lineTo(x, y + BAR + 1);
        ink.lineTo(x - 5, y + BAR / 2);
        ink.fill();
      }
    });
  }

  function draw(next) {
    given = next;
    const say = (row) => (row.marks.length ? [el("b", { title: row.marks.join(", ") }, "! "), row.worker] : [row.worker]);
    names.replaceChildren(...next.rows.map((row) => el("li", { title: [row.worker, ...row.marks].join(", ") }, ...say(row))));
    shares.replaceChildren(...next.rows.map((row) => el("li", {}, percent(row.share))));
    [left.textContent, right.textContent] = ends(next);
    drawing.height = Math.max(ROW, next.rows.length * ROW);
    drawing.redraw();
    behind.refresh();
  }
  return { box, draw };
}

export function heatMap() {
  let given = { rows: 0, columns: 0, counts: [], span: [0, 1], workers: 0 };
  const left = el("span"), right = el("span");
  const told = el("p", { class: "readout" });
  const drawing = canvasOf("Updates of all workers over time", 24, paint);
  const behind = tableBehind("Groups as a table", () => [["group, the busiest first", "updates in this time"],
    Array.from({ length: given.rows }, (_, row) => [row + 1,
      count(given.counts.slice(row * given.columns, (row + 1) * given.columns).reduce((a, b) => a + b, 0))])]);
  const over = el("div", {}, drawing.canvas, el("p", { class: "ends" }, left, right));
  const box = el("div", {}, over, told, behind);

  function paint(ink, width, height) {
    const { rows, columns, counts } = given;
    if (!rows) return;
    const most = Math.max(1, ...counts);
    const hue = [0, 1, 2, 3, 4].map((n) => colour(`h${n}`));
    const [w, h] = [width / columns, height / rows];
    for (let row = 0; row < rows; row += 1) {
      for (let column = 0; column < columns; column += 1) {
        const value = counts[row * columns + column];
        ink.fillStyle = hue[value ? 1 + Math.min(3, Math.floor((4 * Math.log1p(value)) / Math.log1p(most + 1e-9) - 1e-9)) : 0];
        ink.fillRect(column * w + 0.5, row * h + 0.5, w - 1, h - 1);
      }
    }
  }

  function draw(next) {
    given = next;
    [left.textContent, right.textContent] = ends(next);
    over.hidden = behind.hidden = !next.rows;
    const each = next.rows ? next.workers / next.rows : 0;
    told.textContent = next.rows
      ? `${plural(next.workers, "worker")} in ${plural(next.rows, "row")}, the busiest on top${each > 1 ? `; each row is about ${count(each)} workers` : ""}.`
      : "No update in this time.";
    drawing.height = Math.max(24, Math.min(10, 14) * next.rows);
    drawing.redraw();
    behind.refresh();
  }
  return { box, draw };
}
