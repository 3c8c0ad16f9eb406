/* The theme's buttons, whose handlers stood in their tags, where the content-security policy lets none run. */
(() => {
  "use strict";

  const acts = {
    "full-screen": () => globalThis.toggleFullScreen(), // of the theme
    print: () => globalThis.print(),
  };
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-companion-click]");
    if (button) acts[button.dataset.companionClick]();
  });
})();
