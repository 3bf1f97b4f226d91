// A new collection: a form whose defaults are sensible, and which says what its numbers mean.
import { get, post } from "./api.js";
import { alertBox, el } from "./dom.js";
import { field } from "./fields.js";
import { forecastCard } from "./forecast.js";
import { methodPicker } from "./method_picker.js";
import { peoplePicker } from "./people_picker.js";
import { regionPicker } from "./region_picker.js";
import { tilingPicker } from "./tiling_picker.js";
import { costPicker, trustPicker } from "./trust_picker.js";
import { windowsPicker } from "./windows_picker.js";

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
  const { trusts } = await get("/trust-models", signal);
  const trust = trustPicker(trusts),
    cost = costPicker(),
    people = peoplePicker(),
    tiling = tilingPicker(),
    method = methodPicker(),
    windows = windowsPicker(),
    predicted = forecastCard(signal);
  const region = regionPicker(REGION, renew, signal);
  function renew() {
    for (const each of [cost, people, method]) each.renew(trust.value());
    tiling.renew(region.value(), trust.value());
    windows.renew(trust.value(), method.name());
    const wrong = [...form.elements].find((each) => each !== title && !each.validity.valid);
    if (wrong) predicted.clear(`${wrong.labels[0].textContent}: ${wrong.validationMessage}`);
    else predicted.renew(specification);
  }
  const specification = () => {
    const { method: name, options } = method.value(),
      all = { ...options, ...cost.options(trust.value()) };
    return {
      title: title.value.trim() || HEAD,
      trust: trust.value(),
      method: name,
      ...cost.epsilon(trust.value()),
      ...(Object.keys(all).length ? { options: all } : {}),
      region: region.value(),
      tiling: tiling.value(),
      ...people.value(trust.value()),
      ...windows.value(),
    };
  };
  const trouble = el("div", {}),
    submit = el("button", { type: "submit", class: "primary" }, "Create the collection");
  const send = async (event) => {
    event.preventDefault();
    try {
      submit.disabled = true;
      const made = await post("/collections", specification());
      location.hash = `#/collections/${made.id}`;
    } catch (error) {
      trouble.replaceChildren(alertBox(error.message));
      submit.disabled = false;
    }
  };
  const boxed = (...parts) => el("div", { class: "card form" }, ...parts);
  const form = el(
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
      el("div", { class: "stack" }, boxed(region.element), boxed(tiling.element, windows.element), predicted.element, method.element),
    ),
    trouble,
    el(
      "div",
      { class: "actions" },
      submit,
      el("a", { class: "button", href: "#/" }, "Cancel"),
      el("span", { class: "quiet" }, "No device is asked yet: you open the collection on the next page."),
    ),
  );
  main.append(
    el("p", { class: "trail" }, el("a", { href: "#/" }, "← Collections")),
    el("h1", {}, HEAD),
    form,
  );
  renew();
}
