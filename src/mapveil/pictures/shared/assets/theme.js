// Light or dark: as the system says, until somebody chooses.
const system = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;

export const theme = () => root.dataset.theme || (system.matches ? "dark" : "light");
export const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

/** Tells `listener` the theme now and whenever it changes, until the signal. */
export function onTheme(listener, signal) {
  document.addEventListener("theme", () => listener(theme()), { signal });
  listener(theme());
}

/** Makes a button the switch; `keep` is told what somebody chose. */
export function startTheme(button, keep = () => {}) {
  const apply = () => {
    const other = theme() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `Switch to ${other} colours`);
    document.dispatchEvent(new CustomEvent("theme"));
  };
  button.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    keep(root.dataset.theme);
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
