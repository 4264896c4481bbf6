// Charts as SVG: lines with a cursor for mouse and arrow keys, and bars. Drawn again as a whole;
// a few hundred points take about a millisecond.
import { el, svg, number } from "./dom.js";

const RIGHT = 10, TOP = 8, BOTTOM = 38;  // below: a row of marks, and the name of the axis
const DIGIT = 7.1;  // width of a digit on an axis, in a wide font

// Round numbers between two, at least two of them; `least` is the smallest step.
export function ticks(low, high, many, least = 0) {
  if (!(high > low)) return [low];
  const rough = (high - low) / many;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= Math.max(0.8 * rough, least)) ?? least;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(at);
  return found.map((at) => Number(at.toPrecision(12)));
}

function range(values, floor, ceiling) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) [low, high] = [0, 1];
  if (floor !== undefined) low = Math.min(low, floor);
  if (ceiling !== undefined) high = Math.max(high, ceiling);
  if (low === high) [low, high] = [low - (low === floor ? 0 : 0.5), high + 0.5];
  return [low, high];
}

// The name of the horizontal axis, in the middle below it.
function named(name, x, height) {
  return svg("text", { class: "tick", x: x.toFixed(1), y: height - 5, "text-anchor": "middle" }, name);
}

// A chart of lines. `draw` takes {series: [{name, points, faint, breaks}], x, y, floor, ceiling, area}.
export function lineChart(title, height = 205) {
  const readout = el("p", { class: "readout", "aria-live": "off" });
  const root = svg("svg", { role: "img", tabindex: "0" });
  const heading = el("div", { class: "top" }, el("h3", {}, title));
  const legend = el("ul", { class: "key" });
  const box = el("div", { class: "plot" }, heading, legend, root, readout);
  let given = null, width = 0, place = null, scale = null, cursor = null, left = 0;

  function paint() {
    if (!given || width < 40) return;
    const all = given.series.flatMap((line) => line.points);
    const [x0, x1] = range(all.map((p) => p[0]), given.x.floor, given.x.ceiling);
    const [y0, y1] = range(all.map((p) => p[1]), given.y.floor, given.y.ceiling);
    const levels = ticks(y0, y1, 4).map((tick) => [tick, given.y.show(tick)]);
    left = Math.max(46, 10 + DIGIT * Math.max(...levels.map(([, text]) => text.length)));
    const plain = { w: width - left - RIGHT, h: height - TOP - BOTTOM };
    const at = (p) => [left + ((p[0] - x0) / (x1 - x0)) * plain.w, TOP + (1 - (p[1] - y0) / (y1 - y0)) * plain.h];
    scale = { at, x0, x1, plain };
    const parts = [];
    for (const [tick, text] of levels) {
      const y = at([x0, tick])[1];
      parts.push(svg("path", { class: "axis", d: `M${left} ${y.toFixed(1)}H${width - RIGHT}` }),
        svg("text", { class: "tick", x: left - 6, y: (y + 4).toFixed(1), "text-anchor": "end" }, text));
    }
    const steps = ticks(x0, x1, Math.max(2, Math.floor(plain.w / 90)), given.x.least);
    for (const tick of steps) {
      const x = at([tick, y0])[0];
      const anchor = x > width - 28 ? "end" : "middle";
      parts.push(svg("text", { class: "tick", x: Math.min(x, width - 2).toFixed(1), y: height - 20, "text-anchor": anchor }, given.x.show(tick)));
    }
    parts.push(named(given.x.name, left + plain.w / 2, height));
    given.series.forEach((line, index) => parts.push(...drawn(line, index, at, y0)));
    const lines = given.series.filter((line) => !line.equal);
    legend.replaceChildren(...(lines.length > 1 ? lines.map((line, i) => el("li", {}, el("span", { class: `swatch c${(line.hue ?? i) % 5}`, "aria-hidden": "true" }), line.name)) : []));
    cursor = svg("g");
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.setAttribute("aria-label", summary());
    root.replaceChildren(...parts, cursor);
    if (place !== null) move(place);
  }

  function drawn(line, index, at, floor) {
    if (!line.points.length) return [];
    const path = line.points.map((p, i) => `${!i || line.breaks?.has(i) ? "M" : "L"}${at(p).map((v) => v.toFixed(1)).join(" ")}${line.breaks?.has(i) ? "h0" : ""}`).join("");
    const hue = line.hue ?? index;
    const found = [];
    if (given.area) {
      const [first, last] = [at([line.points[0][0], floor]), at([line.points.at(-1)[0], floor])];
      found.push(svg("path", { class: "area", d: `${path}L${last.join(" ")}L${first.join(" ")}Z` }));
    }
    const dash = hue >= 5 ? ` d${Math.floor(hue / 5) % 4}` : "";
    found.push(line.equal ? svg("path", { class: "equal", d: path })
      : svg("path", { class: `line c${hue % 5}${dash}${line.faint ? " faint" : ""}`, d: path }));
    const [x, y] = at(line.points.at(-1));
    if (!line.equal) found.push(svg("circle", { class: `f${hue % 5}`, cx: x.toFixed(1), cy: y.toFixed(1), r: 3 }));
    return found;
  }

  function summary() {
    const told = given.series.filter((line) => line.points.length && !line.equal).map((line) => {
      const [x, y] = line.points.at(-1);
      return `${line.name}: ${given.y.show(y)} at ${given.x.name} ${given.x.show(x)}, ${line.points.length} points`;
    });
    return `${title}. ${told.join("; ") || "No values yet"}. Use the arrow keys to read values.`;
  }

  const lead = () => given?.series.find((line) => line.points.length && !line.equal)?.points ?? [];

  function move(to) {
    const points = lead();
    if (!points.length) return;
    place = Math.max(0, Math.min(points.length - 1, to));
    const x = points[place][0];
    const told = given.series.filter((line) => line.points.length && !line.equal).map((line) => {
      const near = line.points.reduce((best, p) => (Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best));
      return `${line.name} ${number(near[1])}`;
    });
    readout.textContent = `${given.x.name} ${given.x.show(x)}: ${told.join(", ")}`;
    const across = scale.at([x, 0])[0].toFixed(1);
    cursor.replaceChildren(svg("path", { class: "cursor", d: `M${across} ${TOP}V${height - BOTTOM}` }));
  }

  root.addEventListener("keydown", (event) => {
    const points = lead();
    const moves = { ArrowLeft: (place ?? points.length) - 1, ArrowRight: (place ?? -1) + 1, Home: 0, End: points.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    readout.setAttribute("aria-live", "polite");
    move(moves[event.key]);
  });
  root.addEventListener("pointermove", (event) => {
    const points = lead();
    if (!points.length || !scale) return;
    readout.setAttribute("aria-live", "off");
    const share = (event.offsetX * (width / root.clientWidth) - left) / scale.plain.w;
    const x = scale.x0 + share * (scale.x1 - scale.x0);
    move(points.reduce((best, p, i) => (Math.abs(p[0] - x) < Math.abs(points[best][0] - x) ? i : best), 0));
  });
  root.addEventListener("pointerleave", () => {
    place = null;
    readout.textContent = "";
    cursor?.replaceChildren();
  });
  new ResizeObserver(([entry]) => {
    const found = Math.round(entry.contentRect.width);
    if (found !== width) {
      width = found;
      paint();
    }
  }).observe(box);
  return { box, heading, title, draw: (next) => { given = next; paint(); }, shown: () => given };
}

// Bars: [{label, value, far}], counts of updates by what the axis is named after.
export function barChart(title, axis, height = 165) {
  const root = svg("svg", { role: "img" });
  const note = el("p", { class: "readout" });
  const box = el("div", { class: "plot" }, el("h3", {}, title), root, note);
  let given = [], width = 0;

  function paint() {
    if (width < 40) return;
    const most = Math.max(1, ...given.map((bar) => bar.value));
    const room = { w: width - 8, h: height - BOTTOM - 4 };
    const each = Math.min(64, room.w / Math.max(1, given.length));
    const gap = Math.min(3, each / 5);
    const widest = DIGIT * Math.max(0, ...given.map((bar) => bar.label.length));
    const centred = widest <= each;  // otherwise a label begins where its bar does
    const every = Math.ceil((widest + 8) / each);
    const parts = [svg("path", { class: "axis", d: `M4 ${height - BOTTOM}H${width - 4}` })];
    given.forEach((bar, index) => {
      const h = Math.max(bar.value ? 1.5 : 0, (bar.value / most) * room.h);
      const x = 4 + index * each;
      parts.push(svg("rect", { class: bar.far ? "bar far" : "bar", x: (x + gap / 2).toFixed(1), y: (height - BOTTOM - h).toFixed(1), width: Math.max(1, each - gap).toFixed(1), height: h.toFixed(1), rx: 1.5 }));
      const fits = centred || x + widest <= width;
      if (index % every === 0 && fits) parts.push(svg("text", { class: "tick", x: (centred ? x + each / 2 : x).toFixed(1), y: height - 20, "text-anchor": centred ? "middle" : "start" }, bar.label));
    });
    parts.push(named(axis, width / 2, height));
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.setAttribute("aria-label", `${title}. ${note.textContent}`);
    root.replaceChildren(...parts);
  }

  new ResizeObserver(([entry]) => {
    const found = Math.round(entry.contentRect.width);
    if (found !== width) {
      width = found;
      paint();
    }
  }).observe(box);
  return { box, draw: (bars, told) => { given = bars; note.textContent = told; paint(); } };
}
