// Who is looking: the operator's token stays in this tab, and nowhere else.
const KEY = "mapveil-token";

export const token = () => sessionStorage.getItem(KEY);
export const keep = (text) => sessionStorage.setItem(KEY, text.trim());
export const forget = () => sessionStorage.removeItem(KEY);

/** Takes a token out of the address (#token=...), so that no history or bookmark keeps it. */
export function takeFromAddress() {
  const found = /^#token=([\w-]+)(?:&(.*))?$/.exec(location.hash);
  if (!found) return;
  keep(found[1]);
  history.replaceState(null, "", `${location.pathname}#${found[2] || "/"}`);
}
