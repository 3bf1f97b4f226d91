// What the theme leaves out for keyboards and screen readers: levels of the sidebar's headings, and boxes that scroll.
const reachable = () => {
  for (const caption of document.querySelectorAll('.caption[role="heading"]')) caption.setAttribute("aria-level", "2");
  for (const box of document.querySelectorAll("pre, .table-wrapper, .math, .mathml, .output"))
    if (box.scrollWidth > box.clientWidth && !box.hasAttribute("tabindex")) box.tabIndex = 0;
};
addEventListener("DOMContentLoaded", reachable);
addEventListener("resize", reachable);
