// JSON whose numbers keep their text: digests and fingerprints are taken of texts, and 1.0 is not 1 there.

/** A number as it was written. */
export class NumberText {
  constructor(written) {
    this.text = written;
  }

  valueOf() {
    return Number(this.text);
  }
}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const DEEPEST = 32;

/** Read a JSON text: objects as Maps, numbers as NumberTexts, the rest as usual. Throws on anything else. */
export function parse(source) {
  let at = 0;
  const space = () => {
    while (" \t\n\r".includes(source[at]) && at < source.length) at += 1;
  };
  const expect = (token) => {
    if (!source.startsWith(token, at)) throw new Error(`not JSON at character ${at}`);
    at += token.length;
  };
  const match = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(source);
    if (!found) throw new Error(`not JSON at character ${at}`);
    at = pattern.lastIndex;
    return found[0];
  };
  const list = (end, item) => {
    at += 1;
    space();
    if (source[at] === end) {
      at += 1;
      return;
    }
    for (;;) {
      item();
      space();
      if (source[at] === end) break;
      expect(",");
    }
    at += 1;
  };
  const value = (depth) => {
    if (depth > DEEPEST) throw new Error("JSON that is nested too deeply");
    space();
    if (source[at] === "{") {
      const made = new Map();
      list("}", () => {
        space();
        const key = JSON.parse(match(STRING));
        if (made.has(key)) throw new Error("a JSON object with one key twice");
        space();
        expect(":");
        made.set(key, value(depth + 1));
      });
      return made;
    }
    if (source[at] === "[") {
      const made = [];
      list("]", () => made.push(value(depth + 1)));
      return made;
    }
    if (source[at] === '"') return JSON.parse(match(STRING));
    for (const [word, meaning] of [["true", true], ["false", false], ["null", null]]) {
      if (source.startsWith(word, at)) {
        at += word.length;
        return meaning;
      }
    }
    return new NumberText(match(NUMBER));
  };
  const made = value(0);
  space();
  if (at !== source.length) throw new Error(`not JSON at character ${at}`);
  return made;
}

const SHORT = { '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const escape = (unit) => SHORT[unit] ?? `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** The one text of a record: sorted keys, no spaces; with `ascii`, nothing but ASCII. */
export function write(value, { ascii = false } = {}) {
  const again = (item) => write(item, { ascii });
  if (value instanceof NumberText) return value.text;
  if (typeof value === "string") {
    const pattern = ascii ? /["\\\u0000-\u001f\u007f-\uffff]/g : /["\\\u0000-\u001f]/g;
    return `"${value.replace(pattern, escape)}"`;
  }
  if (Array.isArray(value)) return `[${value.map(again).join(",")}]`;
  if (value instanceof Map) {
    const keys = [...value.keys()].sort();
    return `{${keys.map((key) => `${again(key)}:${again(value.get(key))}`).join(",")}}`;
  }
  return JSON.stringify(value);
}

/** A record with ordinary numbers and objects. */
export function plain(value) {
  if (value instanceof NumberText) return Number(value.text);
  if (Array.isArray(value)) return value.map(plain);
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, item]) => [key, plain(item)]));
  return value;
}
