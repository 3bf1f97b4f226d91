// Light or dark: as the system says, until somebody chooses.
const KEY = "mapveil-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export const theme = () => localStorage.getItem(KEY) || (system.matches ? "dark" : "light");
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Tells `listener` the theme now and whenever it changes, until the signal. */
export function onTheme(listener, signal) {
  document.addEventListener("theme", () => listener(theme()), { signal });
  listener(theme());
}

export function startTheme(button) {
  const apply = () => {
    if (localStorage.getItem(KEY)) document.documentElement.dataset.theme = theme();
    const other = theme() === "dark" ? "light" : "dark";
    button.textContent = other === "dark" ? "Dark" : "Light";
    button.setAttribute("aria-label", `Switch to ${other} colours`);
    document.dispatchEvent(new CustomEvent("theme"));
  };
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, theme() === "dark" ? "light" : "dark");
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
