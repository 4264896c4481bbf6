// Light or dark: as the system says, until somebody chooses.
import { el } from "./dom.js";

const KEY = "anarchic.colours";

function stored() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function useColours(nav) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = el("button", { type: "button", class: "colours" });
  const apply = () => {
    const dark = (stored() ?? (system.matches ? "dark" : "light")) === "dark";
    document.documentElement.classList.toggle("dark", dark);
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", `${dark ? "Light" : "Dark"} colours`);
    document.dispatchEvent(new Event("colours"));
  };
  button.addEventListener("click", () => {
    try {
      localStorage.setItem(KEY, document.documentElement.classList.contains("dark") ? "light" : "dark");
    } catch {
      document.documentElement.classList.toggle("dark");
    }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
  nav.after(button);
}
