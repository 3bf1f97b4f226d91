// What every device has been charged, collection by collection.
import { get } from "./api.js";
import { card, el, table } from "./dom.js";
import { epsilonWords, fraction, number, time, whole } from "./words.js";

export async function showPage(main, { signal, heading }) {
  heading("Ledger");
  const [lines, all] = await Promise.all([get("/ledger", signal), get("/collections", signal)]);
  const titles = new Map(all.map((one) => [one.id, one.title]));
  main.append(
    el(
      "div",
      { class: "head" },
      el(
        "div",
        {},
        el("h1", {}, "Ledger"),
        el(
          "p",
          { class: "quiet" },
          "What each device in a sum was charged, when, and for what. A line is written before anything is learnt, and never changed.",
        ),
      ),
    ),
  );
  if (lines.length === 0) {
    main.append(el("p", { class: "card" }, "Nothing has been spent yet."));
    return;
  }
  const totals = new Map();
  for (const line of lines) {
    const total = totals.get(line.collection) || { epsilon: 0, rounds: 0, devices: 0, exact: line.epsilon };
    total.epsilon += fraction(line.epsilon);
    total.rounds += 1;
    total.devices = Math.max(total.devices, line.devices);
    totals.set(line.collection, total);
  }
  const link = (id) => el("a", { href: `#/collections/${id}` }, titles.get(id) || id);
  main.append(
    el(
      "div",
      { class: "stack" },
      card(
        "Collections",
        table(
          "Spent by collection",
          ["Collection", "Charges", "Devices at most", "Spent by a device in all of them"],
          [...totals].map(([id, total]) => [
            link(id),
            whole(total.rounds),
            whole(total.devices),
            `ε = ${number(total.epsilon, 4)}`,
          ]),
          [1, 2, 3],
        ),
        el(
          "p",
          { class: "hint" },
          "A device that takes part in several collections spends the sum of their epsilons. Each device adds up its own, and stops at its own limit; this page does not.",
        ),
      ),
      card(
        "Every charge",
        table(
          "Every charge",
          ["When", "Collection", "Round", "What for", "Devices", "Cost to each"],
          lines.map((line) => [
            time(line.at),
            link(line.collection),
            line.number ? String(line.number) : "reports",
            line.purpose,
            whole(line.devices),
            el("span", { title: line.epsilon }, epsilonWords(line.epsilon)),
          ]),
          [4, 5],
        ),
      ),
    ),
  );
}
