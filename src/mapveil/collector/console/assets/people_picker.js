// How many devices, and how long they are waited for.
import { el } from "./dom.js";
import { choice, field, numeric } from "./fields.js";

const MOST = 1 << 24;

/** Numbers of devices and seconds; the minimum follows the devices until it is set by hand. */
export function peoplePicker() {
  const devices = numeric("devices", 1000, 3, MOST),
    minimum = numeric("minimum", 500, 3, MOST);
  const wait = numeric("wait", 60, 0.1, 129600, "any"),
    phase = numeric("phase", 60, 1, 86400);
  const phaseField = field(
    "Seconds for each step of a round",
    phase,
    "A device that is slower is left out of that round.",
  );
  const active = el("input", { id: "active", type: "checkbox", checked: true });
  const activeField = el(
    "div",
    { class: "field" },
    choice(active, "Protection against a malicious server"),
  );
  const custom = el("input", { id: "custom-policy", type: "checkbox" });
  const customField = el(
    "div",
    { class: "field" },
    choice(custom, "Our app's policy allows it, whatever the default policy of devices says"),
  );
  let byHand = false;
  minimum.addEventListener("input", () => {
    byHand = true;
  });
  return {
    elements: [
      el(
        "div",
        { class: "two" },
        field("Devices wanted", devices, "It goes on as soon as so many are there."),
        field("At least", minimum, "With fewer no map is made."),
      ),
      el("div", { class: "two" }, field("Minutes to wait for devices", wait), phaseField),
      activeField,
      customField,
    ],
    renew(trust) {
      phaseField.hidden = activeField.hidden = trust !== "distributed";
      customField.hidden = trust === "random-features";
      if (!byHand) minimum.value = Math.max(3, Math.ceil(Number(devices.value) / 2));
      minimum.max = devices.value;
    },
    value: (trust) => ({
      devices: Number(devices.value),
      minimum: Number(minimum.value),
      ...(custom.checked ? { accept_custom_policy: true } : {}),
      join_seconds: Math.max(1, Math.round(60 * Number(wait.value))),
      ...(trust === "distributed" ? { active: active.checked, phase_seconds: Number(phase.value) } : {}),
    }),
  };
}
