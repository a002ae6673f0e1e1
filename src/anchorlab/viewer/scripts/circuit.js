// Draws the circuit of a member: tokens from left to right, layers upwards, an arrow for each place of a path.
(() => {
  const { shown, clamp, count, element } = anchorlab.parts;
  // All sizes are in pixels.
  const [USED, UNUSED, ALL_UNUSED] = [52, 10, 80]; // height of a layer with a path, of one without, and the most for all layers without one
  const [LEFT, TOP, GAP, TIP] = [62, 8, 8, 7]; // width of layer names, space above, space above tokens, arrow head
  const [NARROW, WIDE, LETTER] = [16, 64, 7.3]; // width of a token's column, and of a letter
  const [LOOP, ROOM] = [[16, 26], 12]; // width of an arrow from a stream to itself, and the space right of the last stream
  const COLOURS = 7;
  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

  const drawing = (tag, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  /** The stronger the attention along an arrow, the stronger its line; `act.follow(path, query, key)` selects one. */
  globalThis.anchorlab.circuit = (scene, state, which, act) => {
    const paths = () => scene.circuits[which.member];
    const title = element("h4");
    const figure = element("div", { class: "circuit-drawing" });
    const said = element("output", { class: "circuit-said", "aria-live": "off" });
    const root = element("section", { class: "circuit", "aria-label": "Circuit" }, title, figure, said);
    let arrows = []; // {path, query, key, mark, text}

    const head = (path) => `${path.layer}.${path.head}`;
    const hint = () => (paths().length ? "Stronger arrows carry more attention. Select one to see its head." : "");
    const describe = (arrow) => { said.textContent = arrow ? arrow.text : hint(); };

    /** Lays out a column for each position, or only for positions with a path if there is no room for all. */
    function layOut(tokens, room) {
      const playing = [...new Set(paths().flatMap((path) => path.places[state.example].flat()))].sort((one, other) => one - other);
      const all = tokens.map((_, at) => at);
      const columns = all.length * NARROW <= room - LEFT - ROOM || !playing.length ? all : playing;
      const width = clamp((room - LEFT - ROOM) / columns.length, NARROW, WIDE);
      const used = new Set(paths().map((path) => path.layer));
      const thin = Math.min(UNUSED, ALL_UNUSED / Math.max(scene.layers - used.size, 1));
      const heights = Array.from({ length: scene.layers }, (_, layer) => (used.has(layer) ? USED : thin));
      const bottom = TOP + heights.reduce((sum, height) => sum + height, 0);
      const levels = [bottom];
      for (const height of heights) levels.push(levels.at(-1) - height);
      const place = new Map(columns.map((position, at) => [position, LEFT + (at + 0.5) * width]));
      const turned = tokens.some((token) => shown(token.text).slice(0, 8).length * LETTER > width - 4);
      return { columns, place, width, used, levels, bottom, turned, right: LEFT + columns.length * width };
    }

    function frame({ columns, place, width, used, levels, bottom, turned, right }, tokens, inks) {
      const line = (x1, y1, x2, y2, kind) => drawing("line", { x1, y1, x2, y2, class: kind });
      const bands = [...used].map((layer) => drawing("rect", { x: LEFT, y: levels[layer + 1], width: right - LEFT, height: USED, class: "band" }));
      const names = [...used].map((layer) => drawing("text", { x: LEFT - 8, y: (levels[layer] + levels[layer + 1]) / 2, class: "layer-of" }, `layer ${layer}`));
      const labels = columns.map((position) => {
        const [x, y] = [place.get(position), bottom + GAP + (turned ? 0 : 6)];
        const label = drawing("text", { x, y, class: turned ? "token turned" : "token", ...(turned ? { transform: `rotate(-90 ${x} ${y})` } : {}) }, shown(tokens[position].text).slice(0, 8));
        label.style.color = inks[position];
        return label;
      });
      const below = turned ? Math.max(...tokens.map((token) => shown(token.text).slice(0, 8).length)) * LETTER : 14;
      const parts = [...bands, ...levels.map((y) => line(LEFT, y, right, y, "level")), ...columns.map((position) => line(place.get(position), TOP, place.get(position), bottom, "stream")), ...names, ...labels];
      return { width: right + ROOM, height: bottom + GAP + below + 4, parts };
    }

    /** A curve that leaves the key's stream upwards and joins the query's from below; a loop if they are the same. */
    function curve(start, end, low, high, width) {
      const base = high + TIP;
      if (start === end) return `M${start} ${low}C${start + width} ${low} ${start + width} ${base} ${end} ${base}`;
      const middle = (low + base) / 2;
      return `M${start} ${low}C${start} ${middle} ${end} ${middle} ${end} ${base}`;
    }
    function arrow(path, query, key, at, colour, sight) {
      const weight = sight.map(path.layer, path.head)[query * sight.stride + key] / 1000;
      const [start, end] = [at.place.get(key), at.place.get(query)];
      const [low, high] = [at.levels[path.layer], at.levels[path.layer + 1]];
      const line = curve(start, end, low, high, clamp(at.width, ...LOOP));
      const [tokens, named] = [scene.sequence(state).tokens, (position) => `${position} “${shown(tokens[position].text)}”`];
      const text = `layer ${path.layer}, head ${path.head}: ${path.text}, here query ${named(query)} attends to key ${named(key)} with weight ${weight.toFixed(3)}`;
      const mark = drawing("g", { class: "path", role: "button", tabindex: -1, "aria-label": text, "data-path": `${head(path)} ${query} ${key}` },
        drawing("path", { d: line, class: "reach" }),
        drawing("path", { d: line, class: "line", "stroke-width": 1 + 1.5 * weight }),
        drawing("circle", { cx: start, cy: low, r: 2.5 }),
        drawing("path", { d: `M${end} ${high}l-4 ${TIP + 1}h8z` }));
      mark.style.setProperty("--line", `var(--line-${colour})`);
      mark.style.setProperty("--strength", (0.2 + 0.8 * weight).toFixed(3));
      const made = { path, query, key, mark, text };
      mark.addEventListener("click", () => go(made));
      mark.addEventListener("keydown", (event) => pressed(event, made));
      for (const kind of ["pointerenter", "focus"]) mark.addEventListener(kind, () => describe(made));
      for (const kind of ["pointerleave", "blur"]) mark.addEventListener(kind, () => describe(null));
      return made;
    }
    function go(one) {
      enter(one);
      act.follow(one.path, one.query, one.key);
    }
    /** Moves focus to an arrow. Tab moves between paths, arrow keys between the places of one path. */
    function enter(one) {
      for (const { path, mark } of arrows) if (path === one.path) mark.setAttribute("tabindex", -1);
      one.mark.setAttribute("tabindex", 0);
      one.mark.focus({ preventScroll: true });
    }
    function pressed(event, one) {
      if (event.key === "Enter" || event.key === " ") go(one);
      else if (event.key in STEPS) {
        const same = arrows.filter(({ path }) => path === one.path);
        enter(same[(same.indexOf(one) + STEPS[event.key] + same.length) % same.length]);
      } else return;
      event.preventDefault();
    }

    function draw(sight, inks) {
      const heads = [...new Set(paths().map(head))];
      const focused = arrows.findIndex(({ mark }) => mark === document.activeElement);
      title.textContent = `Circuit: ${count(paths().length, "path")} in ${count(heads.length, "head")}`;
      arrows = [];
      if (state.typed) {
        figure.replaceChildren();
        said.textContent = "Its paths can be drawn on the recorded examples only.";
        return;
      }
      const { tokens } = scene.sequence(state);
      const at = layOut(tokens, figure.clientWidth);
      const { width, height, parts } = frame(at, tokens, inks);
      for (const path of paths()) for (const [query, key] of path.places[state.example]) arrows.push(arrow(path, query, key, at, heads.indexOf(head(path)) % COLOURS, sight));
      for (const path of paths()) arrows.find((one) => one.path === path)?.mark.setAttribute("tabindex", 0);
      figure.replaceChildren(drawing("svg", { width, height, role: "group", "aria-label": title.textContent }, ...parts, ...arrows.map(({ mark }) => mark)));
      if (focused >= 0 && arrows[focused]) enter(arrows[focused]);
      else describe(null);
      mark();
    }
    /** Marks the arrow of the selected head, query and key. */
    function mark() {
      for (const one of arrows) one.mark.setAttribute("aria-pressed", String(one.path.layer === state.layer && one.path.head === state.head && one.query === state.query && (state.key === null || one.key === state.key)));
    }
    return { root, draw, mark };
  };
})();
