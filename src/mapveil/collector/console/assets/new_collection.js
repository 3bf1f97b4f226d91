// A new collection: a form whose defaults are sensible, and which says what its numbers mean.
import { post } from "./api.js";
import { alertBox, el } from "./dom.js";
import { field } from "./fields.js";
import { methodPicker } from "./method_picker.js";
import { peoplePicker } from "./people_picker.js";
import { regionPicker } from "./region_picker.js";
import { tilingPicker } from "./tiling_picker.js";
import { costPicker, trustPicker } from "./trust_picker.js";

const REGION = [-74.03, 40.69, -73.9, 40.83];
const HEAD = "New collection";

export async function showPage(main, { signal, who, heading }) {
  heading(HEAD);
  if (who.role === "viewer") {
    main.append(el("h1", {}, HEAD), alertBox("A viewer's token cannot make collections; an operator's can."));
    return;
  }
  const title = el("input", {
    id: "title",
    type: "text",
    maxlength: 200,
    required: true,
    placeholder: "Where people are, weekday mornings",
  });
  const trust = trustPicker(),
    cost = costPicker(),
    people = peoplePicker(),
    tiling = tilingPicker(),
    method = methodPicker();
  const region = regionPicker(REGION, renew, signal);
  function renew() {
    for (const each of [cost, people, method]) each.renew(trust.value());
    tiling.renew(region.value());
  }
  const trouble = el("div", {}),
    submit = el("button", { type: "submit", class: "primary" }, "Create the collection");
  const send = async (event) => {
    event.preventDefault();
    try {
      const { method: name, options } = method.value(),
        all = { ...options, ...cost.options(trust.value()) };
      submit.disabled = true;
      const made = await post("/collections", {
        title: title.value.trim(),
        trust: trust.value(),
        method: name,
        ...cost.epsilon(trust.value()),
        ...(Object.keys(all).length ? { options: all } : {}),
        region: region.value(),
        tiling: tiling.value(),
        ...people.value(trust.value()),
      });
      location.hash = `#/collections/${made.id}`;
    } catch (error) {
      trouble.replaceChildren(alertBox(error.message));
      submit.disabled = false;
    }
  };
  const boxed = (...parts) => el("div", { class: "card form" }, ...parts);
  main.append(
    el("p", { class: "trail" }, el("a", { href: "#/" }, "← Collections")),
    el("h1", {}, HEAD),
    el(
      "form",
      { class: "stack", on: { input: renew, change: renew, submit: send } },
      el(
        "div",
        { class: "columns wide" },
        el(
          "div",
          { class: "stack" },
          boxed(field("Title, which every device shows", title), trust.element),
          boxed(cost.elements, people.elements),
        ),
        el("div", { class: "stack" }, boxed(region.element), boxed(tiling.element), method.element),
      ),
      trouble,
      el(
        "div",
        { class: "actions" },
        submit,
        el("a", { class: "button", href: "#/" }, "Cancel"),
        el("span", { class: "quiet" }, "No device is asked yet: you open the collection on the next page."),
      ),
    ),
  );
  renew();
}
