// The expected error and traffic of a new collection, while its form is filled in.
import { post } from "./api.js";
import { el, facts } from "./dom.js";
import { number, whole } from "./words.js";

const PAUSE_MS = 500;
const BUSY_MS = 5000; // until a collector that makes another forecast is asked again

/** Bytes as a person reads them. */
const size = (bytes) => (bytes < 1000 ? `${whole(bytes)} bytes` : `${number(bytes / 1000)} kB`);

function rows(found) {
  const down = found.bytes_down ? `, and ${size(found.bytes_down)} received` : "";
  const rounds = found.messages === 1 ? "" : `, over ${whole(found.messages)} rounds`;
  const error =
    found.error === null
      ? null
      : `about ${number(found.error)} users in each cell; the mean cell has ${number(found.mean)}`;
  const readable =
    found.finest_m === null
      ? "at no resolution: it needs more devices or a larger ε"
      : `down to blocks about ${number(found.finest_m, 2)} m wide`;
  return [
    ["Error", error],
    ["Useful", error && readable],
    ["Each phone sends", found.bytes_up && `${size(found.bytes_up)}${down}${rounds}`],
  ];
}

/** A card; `renew(specification)` predicts what that function gives, once it rests, one request at a time; `clear(reason)`
 * takes the prediction off and says why there is none.
 */
export function forecastCard(signal) {
  const hint = (text) => el("p", { class: "hint" }, text);
  const said = el("div", { "aria-live": "polite" }, hint("…"));
  let timer = null,
    asking = false,
    again = false,
    wanted = null,
    shown = "";
  async function ask() {
    if (asking || signal.aborted) return;
    asking = true;
    let text = "",
      parts = [],
      busy = false;
    try {
      const specification = wanted();
      text = JSON.stringify(specification);
      if (text !== shown) {
        const found = await post("/forecasts", specification);
        const note = el("p", { class: found.refused ? "warn" : "hint" }, found.note);
        parts = [...(found.refused ? [] : [facts(rows(found))]), note];
      }
    } catch (error) {
      parts = [hint(error.message)];
      busy = error.status === 429;
    }
    // Cleared meanwhile: it is of what the form no longer says.
    if (wanted && parts.length) {
      said.replaceChildren(...parts);
      shown = busy ? "" : text;
    }
    asking = false;
    if (again) renew(wanted);
    else if (busy && wanted) askIn(BUSY_MS);
  }
  function askIn(pause) {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = null;
      ask();
    }, pause);
  }
  function renew(specification) {
    wanted = specification;
    again = asking;
    askIn(PAUSE_MS);
  }
  function clear(reason) {
    wanted = null;
    again = false;
    shown = "";
    clearTimeout(timer);
    said.replaceChildren(hint(reason));
  }
  signal.addEventListener("abort", () => clearTimeout(timer));
  return {
    element: el("section", { class: "card", "aria-label": "Forecast" }, el("h2", {}, "What to expect"), said),
    renew,
    clear,
  };
}
