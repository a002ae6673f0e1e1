// The attention viewer: layers x heads of small maps, one of them large, along training.
//
// Each `.attention-view` holds its data as JSON; see `AttentionView` in findings.py for the order of the weights.
// Keys: arrows move between heads, Enter goes into the large map and Escape back, [ ] steps, n p examples, d dark mode.
(() => {
  const RAMPS = {
    light: ["#ffffff", "#d3e4f3", "#8dbbdf", "#3f86be", "#12507f", "#052a47"],
    dark: ["#151b23", "#1b3a57", "#2767a0", "#4ba3e3", "#9dd3fb", "#f3faff"],
  };
  const ROLE_COLOURS = 6;
  const LEGIBLE = 9; // pixels that a tick label needs
  const INVISIBLE = { " ": "␣", "\n": "⏎", "\t": "⇥", "": "∅" };
  const shown = (text) => INVISIBLE[text] ?? text;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  /** A DOM element with attributes and children; text stays text. */
  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

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

  const decode = (text) => {
    const binary = atob(text);
    const bytes = Uint8Array.from({ length: binary.length }, (_, i) => binary.charCodeAt(i));
    return new Uint16Array(bytes.buffer);
  };

  function viewer(root) {
    const data = JSON.parse(root.querySelector("script").textContent);
    const weights = decode(data.weights);
    const { layers, heads, length: stride } = data;
    const roles = [...new Set(data.examples.flatMap((one) => one.tokens.map((token) => token.role)))];
    const coloured = roles.filter((role) => role !== "noise");
    const state = { member: 0, step: data.steps.length - 1, example: 0, layer: 0, head: 0, query: 0, key: null, curve: "linear" };
    let pinned = { query: 0, key: null };
    let palette = colours("light", "linear");
    let timer = null;

    // What the state points at.
    const example = () => data.examples[state.example];
    const count = () => example().tokens.length;
    const map = (layer, head) => {
      let index = state.member;
      for (const [size, at] of [[data.steps.length, state.step], [data.examples.length, state.example], [layers, layer], [heads, head]]) {
        index = index * size + at;
      }
      return weights.subarray(index * stride * stride, (index + 1) * stride * stride);
    };
    const weight = (query, key) => map(state.layer, state.head)[query * stride + key] / 1000;
    const strongest = (query) => {
      let best = 0;
      for (let key = 1; key < count(); key++) if (weight(query, key) > weight(query, best)) best = key;
      return best;
    };
    const roleClass = (role) => (role === "noise" ? "role-noise" : `role-${coloured.indexOf(role) % ROLE_COLOURS}`);
    const named = (position) => `${position} “${shown(example().tokens[position].text)}”`;

    // Controls.
    const button = (text, label) => element("button", { type: "button", "aria-label": label, title: label }, text);
    const options = (names) => element("select", {}, ...names.map((name, index) => element("option", { value: index }, name)));
    const previous = button("‹", "Previous example (p)");
    const next = button("›", "Next example (n)");
    const picker = options(data.examples.map((one, index) => `${index + 1}: ${one.tokens.slice(0, 12).map((token) => shown(token.text)).join(" ")}${one.tokens.length > 12 ? " …" : ""}`));
    picker.setAttribute("aria-label", "Example");
    const slider = element("input", { type: "range", min: 0, max: data.steps.length - 1, step: 1, value: state.step, "aria-label": "Checkpoint", title: "Checkpoint ([ and ])" });
    const stepText = element("output");
    const play = button("▶", "Play training");
    const members = options(data.members);
    const curves = element("select", {}, element("option", { value: "linear" }, "linear"), element("option", { value: "root" }, "square root"));
    const group = (name, ...parts) => element("div", { class: "control", role: "group", "aria-label": name }, element("span", { class: "name" }, name), ...parts);
    const controls = element("div", { class: "controls" }, group("Example", previous, picker, next));
    if (data.steps.length > 1) controls.append(group("Checkpoint", play, slider, stepText));
    else controls.append(group("Checkpoint", stepText));
    if (data.members.length > 1) controls.append(element("label", { class: "control" }, element("span", { class: "name" }, "Model"), members));
    controls.append(element("label", { class: "control" }, element("span", { class: "name" }, "Colour scale"), curves));

    // The sequence, with a bar under each token: how much the current query attends to it.
    const sequence = element("ol", { class: "sequence", "aria-label": "Sequence" });
    const legend = element("ul", { class: "roles", "aria-label": "Roles of tokens" }, ...roles.map((role) => element("li", { class: roleClass(role) }, role)));
    const verdict = element("p", { class: "prediction" });
    const trace = element("p", { class: "trace" });

    // Small maps.
    const cells = [];
    const table = element("div", { class: "heads", role: "grid", "aria-label": `Heads: ${layers} layers by ${heads} heads` });
    table.style.setProperty("--heads", heads);
    const header = element("div", { role: "row" }, element("span", { role: "columnheader", "aria-label": "layer" }));
    for (let head = 0; head < heads; head++) header.append(element("span", { class: "head-name", role: "columnheader" }, heads > 6 ? `${head}` : `head ${head}`));
    table.append(header);
    for (let layer = 0; layer < layers; layer++) {
      const row = element("div", { role: "row" }, element("span", { class: "layer-name", role: "rowheader" }, layers > 8 ? `${layer}` : `layer ${layer}`));
      for (let head = 0; head < heads; head++) {
        const canvas = element("canvas", { "aria-hidden": "true" });
        const cell = element("button", { type: "button", role: "gridcell", class: "head", tabindex: -1, "data-layer": layer, "data-head": head }, canvas);
        cell.addEventListener("click", () => select(layer, head, true));
        row.append(cell);
        cells.push({ cell, canvas, layer, head });
      }
      table.append(row);
    }

    // The large map.
    const title = element("h4");
    const large = element("canvas", { class: "large", tabindex: 0, role: "application" });
    const readout = element("output", { class: "readout", "aria-live": "polite" });
    const bar = element("div", { class: "scale", "aria-hidden": "true" }, "0", element("i"), "1");
    const detail = element("div", { class: "detail" }, element("div", { class: "detail-title" }, title, bar), large, readout);
    const help = element("p", { class: "keys" });
    for (const [keys, text] of [["← → ↑ ↓", "heads"], ["Enter", "into the map"], ["Esc", "back"], ["[ ]", "checkpoints"], ["n p", "examples"], ["d", "dark mode"]]) {
      help.append(element("span", {}, element("kbd", {}, keys), ` ${text}`));
    }
    root.append(controls, sequence, element("div", { class: "under" }, legend, verdict), trace, element("div", { class: "panes" }, table, detail), help);

    // Drawing. `paint` fills a canvas with one pixel per weight, which the browser enlarges; at most `most` pixels on a
    // side, each then the largest weight of a square, so that a thin diagonal does not fade away.
    function paint(canvas, layer, head, most) {
      const size = count();
      const square = Math.ceil(size / most);
      const side = Math.ceil(size / square);
      canvas.width = canvas.height = side;
      const context = canvas.getContext("2d");
      const image = context.createImageData(side, side);
      const pixels = new Uint32Array(image.data.buffer);
      const values = map(layer, head);
      const largest = new Uint16Array(side * side);
      for (let query = 0; query < size; query++) {
        for (let key = 0; key < size; key++) {
          const at = Math.floor(query / square) * side + Math.floor(key / square);
          largest[at] = Math.max(largest[at], values[query * stride + key]);
        }
      }
      largest.forEach((value, at) => { pixels[at] = palette[value]; });
      context.putImageData(image, 0, 0);
    }

    const source = element("canvas");
    let frame = { left: 0, top: 0, cell: 1 };
    function drawLarge() {
      const size = count();
      const style = getComputedStyle(root);
      const context = large.getContext("2d");
      const font = `12px ${style.getPropertyValue("--mono")}`;
      context.font = font;
      const texts = example().tokens.map((token) => shown(token.text).slice(0, 8));
      const wide = Math.max(...texts.map((text) => context.measureText(text).width), 22);
      const left = Math.ceil(wide) + 26;
      const room = Math.max(Math.min(large.parentElement.clientWidth, 600) - left - 4, 80);
      const cell = Math.min(room / size, 54);
      const everyLabel = cell >= LEGIBLE;
      const turned = everyLabel && wide > cell - 3;
      const bottom = (turned ? Math.ceil(wide) + 8 : 20) + 18;
      const [width, height] = [left + cell * size + 2, cell * size + bottom + 9];
      const ratio = devicePixelRatio || 1;
      large.width = Math.round(width * ratio);
      large.height = Math.round(height * ratio);
      large.style.width = `${width}px`;
      large.style.height = `${height}px`;
      frame = { left, top: 7, cell };
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      paint(source, state.layer, state.head, size);
      context.imageSmoothingEnabled = cell * ratio < 1;
      context.drawImage(source, left, frame.top, cell * size, cell * size);
      context.strokeStyle = style.color;
      context.globalAlpha = 0.25;
      context.strokeRect(left + 0.5, frame.top + 0.5, cell * size - 1, cell * size - 1);
      context.globalAlpha = 1;
      label(context, { size, texts, font: everyLabel ? `${Math.min(12, cell + 1)}px ${style.getPropertyValue("--mono")}` : font, everyLabel, turned, bottom, ink: style.color });
      mark(context, size);
    }

    /** Tokens in the colours of their roles along both sides, or positions where there is no room. */
    function label(context, { size, texts, font, everyLabel, turned, bottom, ink }) {
      const { left, top, cell } = frame;
      const chips = sequence.children;
      context.font = font;
      context.textBaseline = "middle";
      const every = everyLabel ? 1 : [2, 4, 8, 16, 32, 64].find((step) => step * cell >= 26) ?? 64;
      for (let at = 0; at < size; at += every) {
        const text = everyLabel ? texts[at] : String(at);
        const centre = (at + 0.5) * cell;
        context.fillStyle = everyLabel ? getComputedStyle(chips[at]).color : ink;
        context.textAlign = "right";
        context.fillText(text, left - 6, top + centre);
        context.save();
        context.translate(left + centre, top + cell * size + (turned ? 6 : 11));
        if (turned) context.rotate(-Math.PI / 2);
        else context.textAlign = "center";
        context.fillText(text, 0, 0);
        context.restore();
      }
      context.fillStyle = ink;
      context.font = `12px ${getComputedStyle(root).getPropertyValue("--sans")}`;
      context.textAlign = "center";
      context.fillText("key", left + (cell * size) / 2, top + cell * size + bottom - 8);
      context.translate(8, top + (cell * size) / 2);
      context.rotate(-Math.PI / 2);
      context.fillText("query", 0, 0);
      context.rotate(Math.PI / 2);
      context.translate(-8, -top - (cell * size) / 2);
    }

    /** The row of the current query, and the current weight. */
    function mark(context, size) {
      const { left, top, cell } = frame;
      context.strokeStyle = getComputedStyle(large).color;
      context.lineWidth = 1.25;
      context.globalAlpha = cell < 5 ? 0.5 : 1; // a thin row stays visible under its frame
      context.strokeRect(left + 0.6, top + state.query * cell + 0.6, cell * size - 1.2, Math.max(cell - 1.2, 1));
      if (state.key === null) return;
      context.strokeRect(left + state.key * cell + 0.6, top + 0.6, Math.max(cell - 1.2, 1), cell * size - 1.2);
      context.globalAlpha = 1;
      context.lineWidth = 2.5;
      context.strokeRect(left + state.key * cell, top + state.query * cell, cell, cell);
    }

    function drawSmall() {
      const most = Math.max(cells[0].canvas.clientWidth * devicePixelRatio, 8);
      for (const { cell, canvas, layer, head } of cells) {
        paint(canvas, layer, head, most);
        const current = layer === state.layer && head === state.head;
        cell.setAttribute("aria-selected", String(current));
        cell.setAttribute("aria-label", `layer ${layer}, head ${head}`);
        cell.tabIndex = current ? 0 : -1;
      }
    }

    function drawSequence() {
      sequence.replaceChildren(
        ...example().tokens.map((token, position) => {
          const chip = element("li", { class: roleClass(token.role), title: `position ${position}: ${token.role}` }, element("span", {}, shown(token.text)), element("i", { "aria-hidden": "true" }));
          chip.addEventListener("mouseenter", () => point(position, null));
          chip.addEventListener("click", () => point(position, null, true));
          return chip;
        }),
      );
      const steps = example().trace;
      trace.textContent = steps.length ? `How the answer follows: ${steps.join(" → ")}` : "";
    }

    function drawWords() {
      stepText.textContent = `step ${data.steps[state.step].toLocaleString("en")}`;
      slider.setAttribute("aria-valuetext", stepText.textContent);
      const predicted = data.predicted[state.member]?.[state.step]?.[state.example];
      const parts = ["answer ", element("b", {}, shown(example().answer))];
      if (predicted !== undefined) {
        const right = predicted === example().answer;
        parts.push(" · predicted ", element("b", { class: right ? "right" : "wrong" }, `${shown(predicted)} ${right ? "✓" : "✗"}`));
      }
      if (example().split) parts.push(` · ${example().split} example`);
      verdict.replaceChildren(...parts);
      title.textContent = `Layer ${state.layer}, head ${state.head}`;
      large.setAttribute("aria-label", `Attention map of layer ${state.layer}, head ${state.head}. Arrow keys move over queries and keys, Escape goes back to the heads.`);
    }

    /** The parts that follow the pointer: large map, bars under the tokens, readout. */
    function drawPoint() {
      const key = state.key ?? strongest(state.query);
      const verb = state.key === null ? "attends most to" : "attends to";
      readout.textContent = `query ${named(state.query)} ${verb} key ${named(key)} with weight ${weight(state.query, key).toFixed(3)}`;
      [...sequence.children].forEach((chip, position) => {
        chip.style.setProperty("--weight", weight(state.query, position));
        chip.classList.toggle("query", position === state.query);
        chip.classList.toggle("key", position === state.key);
      });
      drawLarge();
    }

    function drawAll() {
      palette = colours(document.documentElement.dataset.theme === "dark" ? "dark" : "light", state.curve);
      const stops = Array.from({ length: 21 }, (_, i) => css(palette[i * 50]));
      bar.querySelector("i").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
      drawSmall();
      drawWords();
      drawPoint();
      Object.assign(root.dataset, { member: state.member, step: state.step, example: state.example, layer: state.layer, head: state.head });
    }

    // What people do.
    function point(query, key, pin = false) {
      state.query = query;
      state.key = key;
      if (pin) pinned = { query, key };
      drawPoint();
    }
    function select(layer, head, focus = false) {
      state.layer = clamp(layer, 0, layers - 1);
      state.head = clamp(head, 0, heads - 1);
      drawAll();
      if (!focus) return;
      cells[state.layer * heads + state.head].cell.focus({ preventScroll: true });
      detail.scrollIntoView({ block: "nearest" });
    }
    function goStep(step) {
      state.step = clamp(step, 0, data.steps.length - 1);
      slider.value = state.step;
      drawAll();
    }
    function goExample(index) {
      state.example = (index + data.examples.length) % data.examples.length;
      picker.value = state.example;
      pinned = { query: count() - 1, key: null };
      Object.assign(state, pinned);
      drawSequence();
      drawAll();
    }
    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = "▶";
    }
    function togglePlay() {
      if (timer !== null) return stop();
      if (state.step === data.steps.length - 1) goStep(0);
      play.textContent = "❚❚";
      timer = setInterval(() => {
        goStep(state.step + 1);
        if (state.step === data.steps.length - 1) stop();
      }, 700);
    }

    slider.addEventListener("input", () => { stop(); goStep(Number(slider.value)); });
    picker.addEventListener("change", () => goExample(Number(picker.value)));
    previous.addEventListener("click", () => goExample(state.example - 1));
    next.addEventListener("click", () => goExample(state.example + 1));
    play.addEventListener("click", togglePlay);
    members.addEventListener("change", () => { state.member = Number(members.value); drawAll(); });
    curves.addEventListener("change", () => { state.curve = curves.value; drawAll(); });

    const at = (event) => {
      const box = large.getBoundingClientRect();
      const query = Math.floor((event.clientY - box.top - frame.top) / frame.cell);
      const key = Math.floor((event.clientX - box.left - frame.left) / frame.cell);
      const inside = query >= 0 && query < count() && key >= 0 && key < count();
      return inside ? [query, key] : null;
    };
    const follow = (event, pin) => {
      const place = at(event);
      if (place && (pin || place[0] !== state.query || place[1] !== state.key)) point(...place, pin);
    };
    large.addEventListener("pointermove", (event) => follow(event, false));
    large.addEventListener("click", (event) => follow(event, true));
    for (const part of [large, sequence]) part.addEventListener("mouseleave", () => point(pinned.query, pinned.key));

    const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    table.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        large.focus();
        point(state.query, state.key ?? strongest(state.query), true);
      } else if (event.key in ARROWS) select(state.layer + ARROWS[event.key][0], state.head + ARROWS[event.key][1], true);
      else if (event.key === "Home") select(state.layer, 0, true);
      else if (event.key === "End") select(state.layer, heads - 1, true);
      else return;
      event.preventDefault();
    });
    large.addEventListener("keydown", (event) => {
      if (event.key in ARROWS) {
        const [down, right] = ARROWS[event.key];
        point(clamp(state.query + down, 0, count() - 1), clamp((state.key ?? strongest(state.query)) + right, 0, count() - 1), true);
      } else if (event.key === "Escape") select(state.layer, state.head, true);
      else return;
      event.preventDefault();
    });

    document.addEventListener("themechange", drawAll);
    goExample(0);
    let width = 0;
    new ResizeObserver(() => {
      if (root.clientWidth === width) return;
      width = root.clientWidth;
      drawSmall();
      drawLarge();
    }).observe(root);
    return { root, step: (by) => { stop(); goStep(state.step + by); }, example: (by) => goExample(state.example + by) };
  }

  // Letters work anywhere on the page, for the viewer that was last used.
  const viewers = [...document.querySelectorAll(".attention-view")].map(viewer);
  let active = viewers[0];
  for (const one of viewers) for (const kind of ["focusin", "pointerdown"]) one.root.addEventListener(kind, () => { active = one; });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range";
    if (!active || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "[") active.step(-1);
    else if (event.key === "]") active.step(1);
    else if (event.key === "n") active.example(1);
    else if (event.key === "p") active.example(-1);
  });
})();
