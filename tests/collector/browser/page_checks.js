// What is asked of every page, whatever it shows: an expression that gives the faults found, by kind.
(() => {
  const visible = (each) => each.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });

  const nameless = [...document.querySelectorAll("a, button, input, select, textarea, summary, [role=button]")]
    .filter(visible)
    .filter((each) => !(each.labels?.length || each.ariaLabel || each.getAttribute("aria-labelledby")
                        || each.innerText?.trim() || each.title))
    .map((each) => each.outerHTML.slice(0, 120));

  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  const doubleIds = ids.filter((id, at) => ids.indexOf(id) !== at);

  // Contrast by WCAG 2, of text over the ground that is painted behind it.
  const channels = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = ([red, green, blue]) =>
    0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
  const groundOf = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = channels(getComputedStyle(each).backgroundColor);
      if (colour.length && colour[3] !== 0) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim(), each = walker.currentNode.parentElement;
    if (!text || !visible(each) || each.closest(".unseen, .skip, :disabled, option")) continue;
    const lights = [light(channels(getComputedStyle(each).color)), light(groundOf(each))];
    const contrast = (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05);
    if (contrast < 4.5) faint.push(`${contrast.toFixed(2)}: ${text.slice(0, 60)}`);
  }

  const root = document.documentElement;
  const outside = root.scrollWidth > root.clientWidth ? [`${root.scrollWidth} px in ${root.clientWidth}`] : [];
  const heads = document.querySelectorAll("h1").length === 1 ? [] : ["not one h1"];
  const language = root.lang ? [] : ["no language"];
  // A column that is squeezed to a letter's width makes rows as tall as a page.
  const tall = [...document.querySelectorAll("tr")].filter((each) => each.offsetHeight > 200)
    .map((each) => `${each.offsetHeight} px: ${each.innerText.slice(0, 60)}`);
  return { nameless, doubleIds, faint, outside, heads, language, tall };
})()
