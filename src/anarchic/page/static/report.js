// A report: the same sections as the live page, from data that lie in the file.
import { el, table, count, percent, number, duration } from "./dom.js";
import { lineChart } from "./chart.js";
import { makePage } from "./render.js";
import { useColours } from "./colours.js";

function comparison(runs, rows) {
  const metrics = [...new Set(runs.flatMap((run) => run.picture.curves.metrics))].slice(0, 4);
  const plots = metrics.map((metric) => {
    const chart = lineChart(metric, 260);
    const series = runs.map((run, hue) => {
      const place = run.picture.curves.metrics.indexOf(metric);
      const points = place < 0 ? [] : run.picture.curves.rows.map((row) => [row[0], row[place + 2]]).filter(([x, y]) => x !== null && y !== null);
      return { name: run.name, points, hue };
    }).filter((line) => line.points.length);
    const share = metric.includes("accuracy");
    requestAnimationFrame(() => chart.draw({ series, x: { name: "version", show: count }, y: { show: (v) => (share ? percent(v, 0) : number(v)), floor: share ? 0 : undefined, ceiling: share ? 1 : undefined } }));
    return chart.box;
  });
  const header = ["run", "rule", "versions", "final accuracy", "last 10", "time", "updates", "Gini of influence"];
  const facts = rows.map((row, i) => [row.name, row.rule, `${count(row.rounds)}${row.finished ? "" : "+"}`, percent(row.final), percent(row.last10), duration(row.virtual_s), count(row.updates), number(runs[i].picture.everyone.influence.gini)]);
  return el("section", { "aria-label": "Comparison" }, el("h2", {}, "Comparison"), el("div", { class: "plots" }, plots), table(header, facts, "Comparison of the runs"),
    rows.some((row) => !row.finished) ? el("p", { class: "hint" }, "+: not finished.") : null);
}

function showReport() {
  const { runs, rows } = JSON.parse(document.getElementById("data").textContent);
  const where = document.getElementById("report");
  useColours(document.getElementById("actions"));
  if (runs.length > 1) where.append(comparison(runs, rows));
  for (const run of runs) {
    const box = el("div", { class: "run" });
    if (runs.length > 1) where.append(el("h2", { class: "title" }, run.name));
    where.append(box);
    makePage(box, run.picture, { name: runs.length > 1 ? run.name : "" })(Object.keys(run.picture));
  }
}

showReport();
