// Helpers of the viewer's other files: elements, the text of tokens, the colours of weights.
(() => {
  const RAMPS = {
    light: ["#ffffff", "#d3e4f3", "#8dbbdf", "#3f86be", "#12507f", "#052a47"],
    dark: ["#151b23", "#1b3a57", "#2767a0", "#4ba3e3", "#9dd3fb", "#f3faff"],
  };
  const INVISIBLE = { " ": "␣", "\n": "⏎", "\t": "⇥", "": "∅" };
  const WITHIN = { " ": "·", "\n": "⏎", "\r": "␍", "\t": "⇥" };
  /** A token with its spaces and line breaks visible: `␣` for a space alone, `·the` for a word after a space. */
  const shown = (text) => INVISIBLE[text] ?? text.replace(/[ \n\r\t]/g, (sign) => WITHIN[sign]);
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
  const count = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;

  /** A DOM element with attributes and children; strings become text nodes. */
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  const button = (text, label, act) => {
    const made = element("button", { type: "button", "aria-label": label, title: label }, text);
    made.addEventListener("click", act);
    return made;
  };
  const select = (label, names, act) => {
    const made = element("select", { "aria-label": label }, ...names.map((name, index) => element("option", { value: index }, name)));
    made.addEventListener("change", () => act(made.selectedIndex));
    return made;
  };
  const group = (name, ...parts) => element("div", { class: "control", role: "group", "aria-label": name }, element("span", { class: "name" }, name), ...parts);

  const labelled = (name, control) => element("label", { class: "control" }, element("span", { class: "name" }, name), control);

  /** 1001 colours, one for each thousandth of a weight, as pixels of image data. */
  const colours = (theme, curve) => {
    const stops = RAMPS[theme].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
    return Uint32Array.from({ length: 1001 }, (_, thousandths) => {
      const weight = thousandths / 1000;
      const at = (curve === "root" ? Math.sqrt(weight) : weight) * (stops.length - 1);
      const below = Math.min(Math.floor(at), stops.length - 2);
      const [red, green, blue] = stops[below].map((low, i) => Math.round(low + (stops[below + 1][i] - low) * (at - below)));
      return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    });
  };
  const css = (pixel) => `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;

  /** An edit in words. */
  const ruleText = ({ rule, shift }) => ({ off: "switched off", shift: `exact shift by ${shift}`, uniform: "uniform pattern" })[rule];

  /** Whether a key event comes from a field that people type in. */
  const typing = (event) => /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && !/^(range|radio)$/.test(event.target.type);

  globalThis.anchorlab ??= {};
  globalThis.anchorlab.parts = { shown, clamp, count, element, button, select, group, labelled, colours, css, ruleText, typing };
})();
