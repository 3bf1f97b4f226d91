// Letting devices in: a token, and the command that brings a fleet.
import { post } from "./api.js";
import { alertBox, announce, card, el } from "./dom.js";

export function enrolmentCard(one) {
  const uses = el("input", {
    id: "uses",
    type: "number",
    min: 1,
    max: 10000000,
    step: 1,
    value: one.devices,
    required: true,
  });
  const out = el("div", { class: "made", "aria-live": "polite" });
  const button = el("button", { type: "submit" }, "Make an enrolment token");
  const submit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const made = await post("/enrolment-tokens", {
        name: (one.title || "console").slice(0, 100),
        uses: Number(uses.value),
      });
      out.replaceChildren(...commandOf(one, made.token));
    } catch (error) {
      out.replaceChildren(alertBox(error.message));
    }
    button.disabled = false;
  };
  return card(
    "Let devices take part",
    el(
      "p",
      {},
      "A new device shows an enrolment token once, and from then on its own key. Devices that are enrolled already need none.",
    ),
    el(
      "form",
      { class: "form", on: { submit } },
      el("div", { class: "field short" }, el("label", { for: "uses" }, "How many devices it lets in"), uses),
      el("div", { class: "actions" }, button),
    ),
    out,
  );
}

function commandOf(one, token) {
  const command = `mapveil device --fleet points.parquet --server ${location.origin} --enrol ${token} --collection ${one.id}${one.authority ? ` --authority ${one.authority}` : ""}${one.trust === "operators" ? " --helper KEY" : ""}`;
  const parts = [
    el("p", {}, "The token is shown this once. To bring a fleet from a table of points:"),
    copied(command, "Copy the command"),
    el("p", { class: "hint" }, "For other devices, the token alone:"),
    copied(token, "Copy the token"),
  ];
  if (one.trust !== "distributed") {
    parts.push(
      el("p", { class: "hint" }, "Or from a phone's own browser, at an address that holds the token:"),
      copied(`${location.origin}/device/#enrol=${token}${one.trust === "operators" ? "&helper=KEY" : ""}`, "Copy the address"),
    );
  }
  if (one.trust === "operators") {
    parts.push(
      el(
        "p",
        { class: "hint" },
        "In the command and in the address, put the helper's key in the place of KEY: 64 hexadecimal digits, as the helper's own operator tells them, never this service.",
      ),
    );
  }
  return parts;
}

/** A text to copy, with a button that does. */
export function copied(text, name) {
  const button = el(
    "button",
    {
      type: "button",
      on: {
        click: async () => {
          try {
            await navigator.clipboard.writeText(text);
            button.textContent = "Copied";
            announce("Copied");
          } catch {
            // Without permission the text is marked, to be copied by hand.
            getSelection().selectAllChildren(code);
            announce("Marked: copy it by hand");
          }
          setTimeout(() => {
            button.textContent = name;
          }, 2000);
        },
      },
    },
    name,
  );
  // Broken between words only, where that can be.
  const code = el(
    "code",
    { tabindex: 0 },
    text.split(" ").flatMap((word, at) => [at ? " " : "", el("span", {}, word)]),
  );
  return el("div", { class: "command" }, code, button);
}
