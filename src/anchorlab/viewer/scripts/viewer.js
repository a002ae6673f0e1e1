// The attention viewer: small maps of all heads and a large one of the selected head, at any checkpoint, next to a
// second model if one is chosen, and for any sequence if the page can run the model.
//
// Each `.attention-view` holds its data as JSON. This file holds the state of the viewer and its controls.
// Keys: arrows move between heads, Enter into the large map, Escape back, [ ] steps, n p examples, s the order of heads, d dark mode.
(() => {
  const { shown, clamp, element, button, select, group, labelled, colours, typing } = anchorlab.parts;
  const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  const KEYS = [["← → ↑ ↓", "heads"], ["Enter", "into the map"], ["Esc", "back"], ["[ ]", "checkpoints"], ["n p", "examples"], ["s", "sort heads"], ["d", "dark mode"]];
  const BEAT = 700; // milliseconds per checkpoint while training plays

  function viewer(root) {
    const data = JSON.parse(root.querySelector("script").textContent);
    const scene = anchorlab.scene(data);
    const { layers, heads } = scene;
    const last = data.steps.length - 1;
    let pinned = { query: 0, key: null };
    let timer = null;
    const state = {
      example: 0, layer: 0, head: 0, query: 0, key: null, curve: "linear", typed: null, edits: [],
      sorted: -1, // the detector by whose scores the heads are sorted; -1 for layers and heads
      looked: () => pinned.query, // the position whose outputs are listed
    };

    // Elements.
    const act = { select: choose, point, follow, unpoint: () => point(pinned.query, pinned.key) };
    const sequence = anchorlab.sequence(scene, state, act);
    const panes = [newPane(0, last)];
    const live = scene.live ? anchorlab.livePanel(scene, state, {
      type(typed) { state.typed = typed; drawSequence(); },
      edit(edits) { state.edits = edits; drawAll(); },
      look: (position) => point(position, null, true),
      record() { state.edits = []; goExample(state.example); },
    }) : null;
    const row = element("div", { class: "panes" }, panes[0].root, ...(live ? [live.side] : []));

    const spaced = data.examples.some(({ tokens }) => tokens.some(({ text }) => / ./.test(text))); // tokens have their own spaces
    const written = ({ tokens }) => `${tokens.slice(0, 12).map(({ text }) => (spaced ? text : shown(text))).join(spaced ? "" : " ")}${tokens.length > 12 ? " …" : ""}`;
    const picker = select("Example", data.examples.map((one, at) => `${at + 1}: ${written(one)}`), goExample);
    const previous = button("‹", "Previous example (p)", () => goExample(state.example - 1));
    const next = button("›", "Next example (n)", () => goExample(state.example + 1));
    const slider = (label, title, act) => {
      const made = element("input", { type: "range", min: 0, max: last, step: 1, "aria-label": label, title });
      made.addEventListener("input", () => act(Number(made.value)));
      return made;
    };
    const steps = slider("Checkpoint", "Checkpoint ([ and ])", (step) => { stop(); goStep(step); });
    const stepText = element("output");
    const play = button("▶", "Play training", togglePlay);
    const model = select("Model", data.members, (member) => { panes[0].which.member = member; drawAll(); });
    const other = select("Compare with", ["nothing", ...data.members], (at) => compare(at - 1));
    const otherSteps = slider("Checkpoint compared with", "Checkpoint compared with", (step) => { panes[1].which.step = step; drawAll(); });
    const otherText = element("output");
    const beside = group("Compare with", other);
    const scale = select("Colour scale", ["linear", "square root"], (at) => { state.curve = ["linear", "root"][at]; drawAll(); });
    ["linear", "root"].forEach((value, at) => { scale.options[at].value = value; });

    const order = select("Sort heads by", ["layer and head", ...scene.detectors.map((name) => name.replaceAll("_", " "))], (at) => sort(at - 1));

    const controls = element("div", { class: "controls" }, group("Example", previous, picker, next));
    if (last || data.steps[0]) controls.append(group("Checkpoint", ...(last ? [play, steps] : []), stepText));
    if (data.members.length > 1) controls.append(labelled("Model", model));
    if (data.members.length > 1 || last) controls.append(beside);
    if (scene.detectors.length) controls.append(labelled("Sort heads by", order));
    controls.append(labelled("Colour scale", scale));
    const keys = KEYS.filter(([, text]) => text !== "sort heads" || scene.detectors.length);
    const help = element("p", { class: "keys" }, ...keys.map(([keys, text]) => element("span", {}, element("kbd", {}, keys), ` ${text}`)));
    const reason = data.recorded_only ? [element("p", { class: "recorded-only" }, data.recorded_only)] : [];
    root.append(controls, ...reason, ...(live ? [live.typed] : []), sequence.root, row, help);

    function newPane(member, step) {
      const pane = anchorlab.pane(scene, state, { member, step }, act);
      pane.grid.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") {
          pane.large.focus();
          point(state.query, keyNow(), true);
        } else if (event.key in ARROWS) choose(...pane.beside(...ARROWS[event.key]), pane);
        else if (event.key === "Home") choose(...pane.beside(0, -heads), pane);
        else if (event.key === "End") choose(...pane.beside(0, heads), pane);
        else return;
        event.preventDefault();
      });
      pane.large.addEventListener("keydown", (event) => {
        const most = scene.sequence(state).tokens.length - 1;
        if (event.key in ARROWS) {
          const [down, right] = ARROWS[event.key];
          point(clamp(state.query + down, 0, most), clamp(keyNow() + right, 0, most), true);
        } else if (event.key === "Escape") choose(state.layer, state.head, pane);
        else return;
        event.preventDefault();
      });
      return pane;
    }

    // Drawing.
    const keyNow = () => state.key ?? panes[0].strongest(state.query);
    function drawPoint() {
      const key = keyNow();
      panes.forEach((pane, at) => pane.drawPoint(key, at ? panes[0] : null));
      sequence.drawPoint(panes[0].weight);
    }
    function drawAll() {
      const theme = document.documentElement.dataset.theme === "dark" ? "dark" : "light";
      const drawn = { palette: colours(theme, state.curve), inks: sequence.inks() };
      panes.forEach((pane, at) => {
        const step = `step ${data.steps[pane.which.step].toLocaleString("en")}`;
        [stepText, otherText][at].textContent = step;
        [steps, otherSteps][at].value = pane.which.step;
        [steps, otherSteps][at].setAttribute("aria-valuetext", step);
        pane.heading.textContent = `${data.members[pane.which.member]}, ${step}`;
        pane.draw(drawn);
      });
      sequence.drawWords(panes[0].which, panes[1] ? `${panes[0].heading.textContent}: ` : "");
      live?.draw(panes);
      drawPoint();
      publish();
    }
    function drawSequence() {
      sequence.draw();
      drawAll();
    }
    /** Publishes the state as data attributes, for styles and tests. */
    function publish() {
      const { example, layer, head } = state;
      Object.assign(root.dataset, { ...panes[0].which, example, layer, head, live: scene.inForce(state) });
    }

    // Actions.
    function point(query, key, pin = false) {
      [state.query, state.key] = [query, key];
      if (pin) {
        pinned = { query, key };
        live?.drawOutputs();
      }
      drawPoint();
    }
    function choose(layer, head, pane) {
      state.layer = clamp(layer, 0, layers - 1);
      state.head = clamp(head, 0, heads - 1);
      for (const one of panes) one.drawSelection();
      live?.drawEdits();
      drawPoint();
      publish();
      pane?.show();
    }
    /** Selects the head, query and key of an arrow in the circuit; focus stays on the circuit. */
    function follow(path, query, key) {
      choose(path.layer, path.head);
      for (const pane of panes) pane.reveal();
      point(query, key, true);
    }
    function sort(by) {
      state.sorted = by;
      order.selectedIndex = by + 1;
      for (const pane of panes) pane.grid.scrollTop = 0;
      drawAll();
    }
    function goStep(step) {
      panes[0].which.step = clamp(step, 0, last);
      drawAll();
    }
    function goExample(index) {
      state.example = (index + data.examples.length) % data.examples.length;
      state.typed = null;
      picker.selectedIndex = state.example;
      const { tokens } = scene.sequence(state);
      pinned = { query: tokens.length - 1, key: null };
      Object.assign(state, pinned);
      live?.write(tokens);
      drawSequence();
    }
    /** Opens a second pane for a member: at the same checkpoint, or at the first one if it is the same member. */
    function compare(member) {
      const step = panes[1]?.which.step ?? (member === panes[0].which.member ? 0 : panes[0].which.step);
      panes.splice(1).forEach((pane) => pane.remove());
      beside.replaceChildren(beside.firstChild, other);
      row.classList.toggle("two", member >= 0);
      if (member >= 0) {
        panes.push(newPane(member, step));
        panes[0].root.after(panes[1].root);
        beside.append(...(last ? [otherSteps] : []), otherText);
      }
      drawAll();
    }
    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = "▶";
    }
    function togglePlay() {
      if (timer !== null) return stop();
      if (panes[0].which.step === last) goStep(0);
      play.textContent = "❚❚";
      timer = setInterval(() => {
        goStep(panes[0].which.step + 1);
        if (panes[0].which.step === last) stop();
      }, BEAT);
    }

    document.addEventListener("themechange", drawAll);
    addEventListener("beforeprint", () => panes.forEach((pane) => pane.drawWaiting(true)));
    goExample(0);
    let width = 0;
    new ResizeObserver(() => {
      if (root.clientWidth === width) return;
      width = root.clientWidth;
      for (const pane of panes) pane.resize();
      drawPoint();
    }).observe(root);
    const sortNext = () => sort(state.sorted + 1 < scene.detectors.length ? state.sorted + 1 : -1);
    return { root, sort: sortNext, step: (by) => { stop(); goStep(panes[0].which.step + by); }, example: (by) => goExample(state.example + by) };
  }

  // Letter keys work anywhere on the page and act on the viewer used last.
  const viewers = [...document.querySelectorAll(".attention-view")].map(viewer);
  let active = viewers[0];
  for (const one of viewers) for (const kind of ["focusin", "pointerdown"]) one.root.addEventListener(kind, () => { active = one; });
  document.addEventListener("keydown", (event) => {
    if (!active || typing(event) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "[") active.step(-1);
    else if (event.key === "]") active.step(1);
    else if (event.key === "n") active.example(1);
    else if (event.key === "p") active.example(-1);
    else if (event.key === "s") active.sort();
  });
})();
