// Who may come in: tokens that let devices in, and operators.
import { get, post, send } from "./api.js";
import { alertBox, announce, card, el, table } from "./dom.js";
import { copied } from "./enrolment.js";
import { time, whole } from "./words.js";

const ROLES = {
  viewer: "sees maps, ledger and audit log",
  operator: "makes and runs collections, lets devices in",
  admin: "lets operators in",
};

export async function showPage(main, { signal, who, heading }) {
  heading("Access");
  main.append(
    el(
      "div",
      { class: "head" },
      el(
        "div",
        {},
        el("h1", {}, "Access"),
        el(
          "p",
          { class: "quiet" },
          "Tokens are shown once, when they are made; the server keeps only their digests.",
        ),
      ),
    ),
  );
  const place = el("div", { class: "stack" });
  main.append(place);
  place.append(await devicesCard(who, signal));
  if (who.role === "viewer") return;
  place.append(
    await section(
      {
        title: "Enrolment tokens",
        path: "/enrolment-tokens",
        form: enrolmentForm,
        cellsOf: (each) => [each.name, whole(each.uses_left)],
        heads: ["Name", "Devices still let in"],
        numeric: [1],
      },
      who,
      signal,
    ),
  );
  if (who.role !== "admin") return;
  place.append(
    await section(
      {
        title: "Operators",
        path: "/operators",
        form: operatorForm,
        cellsOf: (each) => [each.name, each.role],
        heads: ["Name", "Role"],
        numeric: [],
      },
      who,
      signal,
    ),
  );
}

/** The number of devices, those that are barred, and a form to bar the one that the audit log names. */
async function devicesCard(who, signal) {
  const words = el("p", {}),
    list = el("div", {}),
    trouble = el("div", {}),
    number = el("input", { id: "device-number", type: "number", min: 1, step: 1, required: true });
  const act = (method, path, said) => async () => {
    try {
      await send(method, `/devices/${path}`);
      trouble.replaceChildren();
      announce(said);
      await renew();
    } catch (error) {
      if (error.name !== "AbortError") trouble.replaceChildren(alertBox(error.message));
    }
  };
  const button = (text, className, on, label = text) =>
    el("button", { type: "button", class: className, "aria-label": label, on: { click: on } }, text);
  const renew = async () => {
    const { devices, faults, barred } = await get("/devices", signal);
    const named = faults.map((each) => [
      whole(each.device),
      `its ${each.kind}, by messages of ${whole(each.against)}${each.proven ? "" : ", which may have lied instead"}`,
      time(each.at),
    ]);
    words.textContent = `${whole(devices)} ${devices === 1 ? "device" : "devices"} may take part. Each has its own key; the server knows nothing else of it.`;
    const rows = barred.map(({ id, quarantined_at, revoked_at }) => {
      const free = act("DELETE", `${id}/quarantine`, `Device ${id} is released`);
      const last = revoked_at || who.role === "viewer" ? "" : button("Release", "small", free, `Release device ${id}`);
      return [whole(id), revoked_at ? "revoked" : "in quarantine", time(revoked_at || quarantined_at), last];
    });
    list.replaceChildren(
      ...(named.length ? [table("Devices named by the audit log", ["Device", "Why", "When"], named, [0])] : []),
      ...(rows.length ? [table("Devices that take part in nothing", ["Device", "State", "Since", ""], rows, [0])] : []),
    );
  };
  await renew();
  const bar = (method, path, said) => () => {
    if (number.reportValidity()) act(method, `${number.value}${path}`, `Device ${number.value} is ${said}`)();
  };
  const form = el(
    "div",
    { class: "actions" },
    el("div", { class: "field short" }, el("label", { for: "device-number" }, "Device, by its number"), number),
    button("Quarantine", "small", bar("PUT", "/quarantine", "in quarantine")),
    button("Revoke for good", "danger small", bar("DELETE", "", "revoked, and so is the token that it enrolled with")),
  );
  return card("Devices", words, list, ...(who.role === "viewer" ? [] : [form]), trouble);
}

const over = (each) =>
  each.revoked_at ? "revoked" : new Date(each.expires_at) < new Date() ? "expired" : null;

/** A list of tokens with a button to revoke each, and a form for a new one. */
async function section({ title, path, form, cellsOf, heads, numeric }, who, signal) {
  const list = el("div", {}),
    made = el("div", { class: "made", "aria-live": "polite" }),
    trouble = el("div", {});
  const renew = async () => {
    const rows = (await get(path, signal)).map((each) => {
      const cells = cellsOf(each);
      const revoke = el(
        "button",
        {
          type: "button",
          class: "danger small",
          "aria-label": `Revoke ${each.name}`,
          on: { click: () => attempt(() => send("DELETE", `${path}/${each.id}`), `${each.name} is revoked`) },
        },
        "Revoke",
      );
      const own = path === "/operators" && each.id === who.id;
      return [...cells, time(each.created_at), time(each.expires_at), over(each) || (own ? "you" : revoke)];
    });
    list.replaceChildren(
      rows.length
        ? table(title, [...heads, "Made", "Ends", "State"], rows, numeric)
        : el("p", { class: "quiet" }, "There are none."),
    );
  };
  async function attempt(work, said) {
    try {
      const answer = await work();
      trouble.replaceChildren();
      if (said) announce(said);
      await renew();
      return answer;
    } catch (error) {
      if (error.name !== "AbortError") trouble.replaceChildren(alertBox(error.message));
      return null;
    }
  }
  await renew();
  const fields = form(async (body) => {
    const answer = await attempt(() => post(path, body));
    if (answer)
      made.replaceChildren(
        el("p", {}, `The token of ${answer.name}:`),
        copied(answer.token, "Copy the token"),
      );
  });
  return card(title, list, el("details", {}, el("summary", {}, "Make one"), fields), trouble, made);
}

function tokenForm(prefix, extra, read, make) {
  const name = el("input", { id: `${prefix}-name`, type: "text", required: true, maxlength: 100 });
  const days = el("input", {
    id: `${prefix}-days`,
    type: "number",
    min: 1,
    max: 366,
    required: true,
    value: 30,
  });
  return el(
    "form",
    {
      class: "form",
      on: {
        submit: async (event) => {
          event.preventDefault();
          event.submitter.disabled = true;
          await make({ name: name.value.trim(), days: Number(days.value), ...read() });
          event.submitter.disabled = false;
        },
      },
    },
    el(
      "div",
      { class: "two" },
      el("div", { class: "field" }, el("label", { for: name.id }, "Name"), name),
      extra,
      el("div", { class: "field" }, el("label", { for: days.id }, "Days it is good for"), days),
    ),
    el("div", { class: "actions" }, el("button", { type: "submit" }, "Make the token")),
  );
}

function enrolmentForm(make) {
  const uses = el("input", {
    id: "new-uses",
    type: "number",
    min: 1,
    max: 1 << 24,
    required: true,
    value: 1000,
  });
  return tokenForm(
    "enrolment",
    el("div", { class: "field" }, el("label", { for: uses.id }, "Devices it lets in"), uses),
    () => ({ uses: Number(uses.value) }),
    make,
  );
}

function operatorForm(make) {
  const role = el(
    "select",
    { id: "new-role" },
    Object.entries(ROLES).map(([name, may]) => el("option", { value: name }, `${name}: ${may}`)),
  );
  return tokenForm(
    "operator",
    el("div", { class: "field" }, el("label", { for: role.id }, "Role"), role),
    () => ({ role: role.value }),
    make,
  );
}
