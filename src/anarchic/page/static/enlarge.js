// A chart in Plotly, to zoom and pan, where the server's machine has it (the extra `page`).
import { el, colour } from "./dom.js";
import { dialog } from "./steer.js";

let loading = null;

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = el("script", { src: "page/plotly.js", onload: () => resolve(window.Plotly), onerror: async () => {
      loading = null;
      script.remove();
      const told = await fetch("page/plotly.js").then((answer) => answer.json()).catch(() => ({}));
      reject(new Error(told.message ?? "Plotly could not be loaded."));
    } });
    document.head.append(script);
  });
  return loading;
}

export function enlarge(chart) {
  return el("button", { type: "button", class: "small", "aria-label": `Zoom into ${chart.title}`, onclick: async () => {
    const place = el("div", { class: "zoomed" });
    const said = el("p", { class: "error", role: "status" }, "Loading…");
    const box = dialog(chart.title, said, place, el("div", { class: "row" }, el("button", { type: "button", onclick: () => box.close() }, "Close")));
    box.classList.add("wide");
    try {
      const Plotly = await plotly();
      said.textContent = "";
      const { series, x } = chart.shown();
      const lines = series.map((line, i) => ({ name: line.name, x: line.points.map((p) => p[0]), y: line.points.map((p) => p[1]), type: "scatter", mode: "lines", line: { color: colour(["accent", "second", "third"][i % 3]) } }));
      const axis = { gridcolor: colour("line"), zerolinecolor: colour("line") };
      await Plotly.newPlot(place, lines, { height: 460, margin: { l: 60, r: 16, t: 10, b: 44 }, paper_bgcolor: colour("card"), plot_bgcolor: colour("card"), font: { color: colour("ink") }, xaxis: { ...axis, title: { text: x.name } }, yaxis: axis, showlegend: true }, { displayModeBar: false, scrollZoom: true, responsive: true });
    } catch (failure) {
      said.textContent = failure.message;
    }
  } }, "Zoom");
}
