// Elements of the page. Everything that came from elsewhere becomes text, never markup.

/** An element with properties and children; strings become text, null is left out. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** A list of terms and what they mean. */
export const facts = (pairs) => element(
  "dl",
  {},
  pairs.map(([name, ...words]) => [element("dt", {}, name), element("dd", {}, ...words)]).flat(),
);

const SAID_MS = 8000;
let said;

/** Say something to everybody for a while, screen readers too; nothing for an empty text. */
export function say(words) {
  clearTimeout(said);
  byId("status").textContent = words;
  if (words) said = setTimeout(() => say(""), SAID_MS);
}
