// Elements and numbers. Text from the network is only ever set as text.

export function el(name, facts = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(facts)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

export function svg(name, facts = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
  made.append(...children.flat());
  return made;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const NONE = "–";

export function count(value) {
  return value === null || value === undefined ? NONE : whole.format(value);
}

export function plural(value, thing) {
  return `${count(value)} ${thing}${value === 1 ? "" : "s"}`;
}

export function brief(value) {
  if (value === null || value === undefined) return NONE;
  return Math.abs(value) >= 10000 ? compact.format(value) : short.format(value);
}

export function number(value) {
  if (value === null || value === undefined) return NONE;
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return short.format(value);
}

export function percent(value, digits = 1) {
  return value === null || value === undefined ? NONE : `${(100 * value).toFixed(digits)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${short.format(seconds / size)} ${unit}`;
  }
  return `${short.format(seconds)} s`;
}

// Whole seconds: nobody needs to know more of what was a while ago.
export function ago(seconds) {
  return `${duration(Math.round(Math.max(0, seconds)))} ago`;
}

// The time of day, with the date if that is not today's.
export function clock(at) {
  const when = new Date(1000 * at), time = when.toLocaleTimeString("en-GB");
  return when.toDateString() === new Date().toDateString() ? time : `${when.toLocaleDateString("en-CA")} ${time}`;
}

export function measured(name, value) {
  return name.includes("accuracy") ? percent(value) : number(value);
}

export function table(header, rows, caption) {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    el("table", {},
      el("caption", { class: "unseen" }, caption),
      el("thead", {}, el("tr", {}, header.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, place) =>
        place === 0 ? el("th", { scope: "row" }, String(cell)) : el("td", {}, String(cell))))))));
}

// A table that is made when it is opened, and kept up to date only while it is open.
export function tableBehind(title, make) {
  const box = el("details", {}, el("summary", {}, title));
  box.refresh = () => {
    if (!box.open) return;
    const [header, rows] = make();
    const made = table(header, rows, title);
    if (box.lastChild !== box.firstChild) box.lastChild.replaceWith(made);
    else box.append(made);
  };
  box.addEventListener("toggle", box.refresh);
  return box;
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
