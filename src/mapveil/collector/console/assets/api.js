// The service as the console uses it: JSON in, JSON out, one shape of errors.
import { forget, token } from "./session.js";

export const ROOT = "/v1";

/** What the service refused, in its own words. */
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const authorized = () => (token() ? { Authorization: `Bearer ${token()}` } : {});

async function ask(path, { method = "GET", body, signal, signingIn = false } = {}) {
  const headers = { ...authorized(), ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  let answer;
  try {
    answer = await fetch(ROOT + path, {
      method,
      headers,
      signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", "The server does not answer.");
  }
  if (answer.ok) return answer;
  let said = null;
  try {
    said = (await answer.json()).error;
  } catch {
    // No JSON: something between us and the service answered.
  }
  const refused = new Refused(
    answer.status,
    said?.code || "error",
    said?.message || `The server answered ${answer.status}.`, // it names what was expected
  );
  if (answer.status === 401 && token() && !signingIn) {
    forget();
    document.dispatchEvent(new CustomEvent("signedout", { detail: refused.message }));
  }
  throw refused;
}

export const get = async (path, signal) => (await ask(path, { signal })).json();
/** Whose token it is; a refusal stays with who asked. */
export const whoAmI = async () => (await ask("/me", { signingIn: true })).json();
export async function send(method, path, body) {
  const answer = await ask(path, { method, body });
  return answer.status === 204 ? null : answer.json();
}
export const post = (path, body = {}) => send("POST", path, body);
export const blob = async (path) => (await ask(path)).blob();

/** Calls `work` now and then until the signal ends it: `work` says in how many milliseconds again, or null. */
export function poll(work, signal) {
  let timer = null;
  const again = async () => {
    timer = null;
    let wait = 5000;
    if (!document.hidden) {
      try {
        wait = await work();
      } catch (error) {
        if (error.name === "AbortError" || signal.aborted || error.status === 401) return;
        throw error;
      }
    }
    if (!signal.aborted && wait !== null) timer = setTimeout(again, wait);
  };
  const woken = () => {
    if (document.hidden || timer === null) return;
    clearTimeout(timer);
    again();
  };
  document.addEventListener("visibilitychange", woken, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  return again();
}
