// The slider of a series: one window after another, all on one scale.
import { el, freshId } from "./dom.js";

const STEP_MS = 800; // of the animation: four weeks in about three seconds

/** A field that shows the window of a number; `show` is told each that is chosen. */
export function windowSlider({ names, titles }, show) {
  const id = freshId("window"),
    name = el("output", { for: id });
  const slider = el("input", { id, type: "range", min: 0, max: names.length - 1, step: 1, value: 0 });
  const play = el("button", { type: "button", "aria-pressed": "false" }, "Play");
  let timer = null;

  // The name of a window stands only beside that window's map.
  const tell = (alone = true) => {
    name.textContent = alone ? titles[slider.value] : "all together";
    slider.setAttribute("aria-valuetext", name.textContent);
    slider.classList.toggle("aside", !alone); // its knob names no window now
  };
  const choose = () => {
    tell();
    show(Number(slider.value));
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  };
  const step = () => {
    // A page that was taken away, such as by another route of the console, plays no more.
    if (!slider.isConnected) return stop();
    slider.value = String((Number(slider.value) + 1) % names.length);
    choose();
  };
  slider.addEventListener("input", () => {
    stop();
    choose();
  });
  play.addEventListener("click", () => {
    if (timer) return stop();
    timer = setInterval(step, STEP_MS);
    play.textContent = "Stop";
    play.setAttribute("aria-pressed", "true");
    choose();
  });
  return {
    element: el("div", { class: "field" }, el("label", { for: id }, "Window: ", name), slider, el("div", { class: "choices" }, play)),
    get at() {
      return Number(slider.value);
    },
    stop,
    tell,
  };
}
