// A pane: the heads of one member at one checkpoint as small maps, and one of them large. Two panes show a comparison.
(() => {
  const { shown, element } = anchorlab.parts;
  const NEAR = "400px"; // small maps up to this distance outside the window are drawn ahead
  const ROOM = 4; // pixels around a head that is scrolled into view
  const HELP = "Arrow keys move over queries and keys, Escape returns to the heads.";

  /** A detector's name in words. */
  const called = (detector) => detector.replaceAll("_", " ");

  /** The short form of a label, for under a small map. */
  const short = (label) => (label === "-" ? "" : label.replace(/^broadcast from /, "←"));

  /**
   * `which` is the pane's {member, step}; all panes share `state`. `act` has the actions: `select(layer, head, pane)`,
   * `point(query, key, pinned)`, `unpoint()` and `follow(path, query, key)`. Only small maps in or near the window are
   * drawn; the others wait.
   */
  globalThis.anchorlab.pane = (scene, state, which, act) => {
    const { layers, heads } = scene;
    const cells = [];
    const rows = [];
    let order = cells; // the cells as they are shown
    const grid = element("div", { class: "heads", role: "grid", "aria-label": `Heads: ${layers} layers by ${heads} heads` });
    grid.classList.toggle("labelled", scene.labelled);
    grid.style.setProperty("--heads", heads);
    const header = element("div", { role: "row" }, element("span", { role: "columnheader", "aria-label": "layer" }));
    for (let head = 0; head < heads; head++) header.append(element("span", { class: "head-name", role: "columnheader" }, heads > 6 ? `${head}` : `head ${head}`));
    grid.append(header);
    for (let layer = 0; layer < layers; layer++) {
      const row = element("div", { role: "row" }, element("span", { class: "layer-name", role: "rowheader" }, layers > 8 ? `${layer}` : `layer ${layer}`));
      for (let head = 0; head < heads; head++) {
        const canvas = element("canvas", { "aria-hidden": "true" });
        const label = element("span", { class: "label", "aria-hidden": "true" });
        const cell = element("button", { type: "button", role: "gridcell", class: "head", tabindex: -1, "aria-selected": "false" }, canvas, label);
        cell.addEventListener("click", () => act.select(layer, head, pane));
        row.append(cell);
        cells.push({ cell, canvas, label, layer, head, at: layer * heads + head, text: null, near: true, waiting: true });
      }
      rows.push(row);
      grid.append(row);
    }
    const large = anchorlab.maps.largeMap();
    const heading = element("h4", { class: "which" });
    const title = element("h4");
    const name = element("span", { class: "called" });
    const scores = element("p", { class: "scores" });
    const scale = element("div", { class: "scale", "aria-hidden": "true" }, "0", element("i"), "1");
    const readout = element("output", { class: "readout", "aria-live": "polite" });
    const notice = element("p", { class: "notice", role: "status" });
    const detail = element("div", { class: "detail" }, element("div", { class: "detail-title" }, title, name, scale), ...(scene.detectors.length ? [scores] : []), large.canvas, readout);
    const circuit = scene.circuits.length ? anchorlab.circuit(scene, state, which, act) : null;
    const root = element("section", { class: "pane" }, heading, notice, ...(circuit ? [circuit.root] : []), grid, detail);

    let sight = null;
    let palette = null;
    let inks = [];
    let chosen = null; // the selected cell
    let most = 0;
    const tokens = () => scene.sequence(state).tokens;
    const weight = (query, key) => sight.map(state.layer, state.head)[query * sight.stride + key] / 1000;
    const strongest = (query) => {
      let best = 0;
      for (let key = 1; key < tokens().length; key++) if (weight(query, key) > weight(query, best)) best = key;
      return best;
    };
    const named = (position) => `${position} “${shown(tokens()[position].text)}”`;

    function drawCell(one) {
      anchorlab.maps.paint(one.canvas, sight.map(one.layer, one.head), sight.stride, tokens().length, most, palette);
      one.waiting = false;
    }
    function drawWaiting(all = false) {
      if (sight) for (const one of cells) if (one.waiting && (all || one.near)) drawCell(one);
    }
    /** The full label of a head: its edit, or the detectors' name. */
    function labelOf(layer, head) {
      const edit = state.edits.find((one) => one.layer === layer && one.head === head);
      if (edit) return anchorlab.parts.ruleText(edit);
      const label = scene.label(which, layer, head);
      return label && (label === "-" ? "no detector fires" : label) + (scene.inForce(state) ? " on recorded examples" : "");
    }
    /** All scores of a head, in words. */
    const scoresOf = (at) => scene.scores(which).map(({ detector, values }) => `${called(detector)} ${values[at].toFixed(2)}`).join(" · ");
    function drawLabels() {
      const by = scene.scores(which)[state.sorted];
      for (const one of cells) {
        const edit = state.edits.find(({ layer, head }) => layer === one.layer && head === one.head);
        const [text, given] = [labelOf(one.layer, one.head), scoresOf(one.at)];
        const below = edit ? text : by ? `${one.layer}.${one.head} ${by.values[one.at].toFixed(2)}` : short(scene.label(which, one.layer, one.head));
        const drawn = [text, given, below].join("\n");
        if (one.text === drawn) continue;
        one.text = drawn;
        one.label.textContent = below;
        one.cell.classList.toggle("edited", edit !== undefined);
        one.cell.classList.toggle("off", edit?.rule === "off");
        const head = `layer ${one.layer}, head ${one.head}${text && ": "}${text}`;
        one.cell.setAttribute("aria-label", head);
        one.cell.title = given ? `${head}\n${given}` : text;
      }
    }
    /** Puts the heads in the order of a detector's scores, or of layers and heads; equal ones stay in this order. */
    function arrange() {
      const by = scene.scores(which)[state.sorted];
      const wanted = by ? [...cells].sort((one, other) => by.values[other.at] - by.values[one.at]) : cells;
      grid.classList.toggle("sorted", by !== undefined);
      if (wanted.every((one, at) => one === order[at])) return;
      order = wanted;
      const focused = grid.contains(document.activeElement) ? document.activeElement : null;
      rows.forEach((row, at) => row.append(...order.slice(at * heads, (at + 1) * heads).map(({ cell }) => cell)));
      focused?.focus({ preventScroll: true });
    }

    function drawLarge() {
      title.textContent = `Layer ${state.layer}, head ${state.head}`;
      name.textContent = labelOf(state.layer, state.head);
      scores.textContent = scoresOf(state.layer * heads + state.head);
      large.canvas.setAttribute("aria-label", `Attention map of layer ${state.layer}, head ${state.head}. ${HELP}`);
      large.draw(sight.map(state.layer, state.head), sight.stride, { tokens: tokens(), inks, palette, room: detail.clientWidth });
    }
    function drawSelection() {
      const now = cells[state.layer * heads + state.head];
      if (chosen && chosen !== now) {
        chosen.cell.setAttribute("aria-selected", "false");
        chosen.cell.tabIndex = -1;
      }
      now.cell.setAttribute("aria-selected", "true");
      now.cell.tabIndex = 0;
      chosen = now;
      drawLarge();
    }

    /** Draws the whole pane; `colours` are the palette of the maps and the inks of the tokens. */
    function draw(colours) {
      ({ palette, inks } = colours);
      const found = scene.sight(which, state);
      notice.textContent = found ? "" : "The page does not include these weights. Choose another checkpoint or seed to see its maps.";
      const size = tokens().length;
      sight = found ?? { map: () => new Uint16Array(size * size), stride: size };
      root.classList.toggle("live-now", scene.inForce(state));
      const stops = Array.from({ length: 21 }, (_, i) => anchorlab.parts.css(palette[i * 50]));
      scale.querySelector("i").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
      arrange();
      most = Math.max(cells[0].canvas.clientWidth * devicePixelRatio, 8);
      for (const one of cells) one.waiting = true;
      drawWaiting();
      drawLabels();
      drawSelection();
      circuit?.draw(sight, inks);
    }

    /** Draws the parts that follow the pointer. With another pane, the readout compares the two weights. */
    function drawPoint(key, other = null) {
      const verb = state.key === null && !other ? "attends most to" : "attends to";
      const here = weight(state.query, key);
      const words = `query ${named(state.query)} ${verb} key ${named(key)} with weight ${here.toFixed(3)}`;
      const more = other ? here - other.weight(state.query, key) : 0;
      const apart = more === 0 ? "the same as" : `${Math.abs(more).toFixed(3)} ${more < 0 ? "less" : "more"} than`;
      const compared = other ? `, ${apart} ${other.heading.textContent}` : "";
      readout.textContent = words + compared;
      large.mark(state.query, state.key);
      circuit?.mark();
    }

    const byCell = new Map(cells.map((one) => [one.cell, one]));
    const observer = new IntersectionObserver((seen) => {
      for (const { target, isIntersecting } of seen) byCell.get(target).near = isIntersecting;
      drawWaiting();
    }, { rootMargin: NEAR });
    for (const one of cells) observer.observe(one.cell);

    const follow = (event, pin) => {
      const place = large.at(event);
      if (place && (pin || place[0] !== state.query || place[1] !== state.key)) act.point(...place, pin);
    };
    large.canvas.addEventListener("pointermove", (event) => follow(event, false));
    large.canvas.addEventListener("click", (event) => follow(event, true));
    large.canvas.addEventListener("mouseleave", () => act.unpoint());

    const pane = {
      which, root, grid, large: large.canvas, heading, weight, strongest, draw, drawWaiting, drawSelection, drawPoint,
      /** The head that is shown `down` rows and `right` columns from the selected one, or at the edge, as [layer, head]. */
      beside(down, right) {
        const at = order.indexOf(chosen);
        const row = anchorlab.parts.clamp(Math.floor(at / heads) + down, 0, layers - 1);
        const { layer, head } = order[row * heads + anchorlab.parts.clamp((at % heads) + right, 0, heads - 1)];
        return [layer, head];
      },
      /** Scrolls the grid to the selected head. */
      reveal() {
        const { cell } = chosen;
        const [top, bottom] = [cell.offsetTop, cell.offsetTop + cell.offsetHeight];
        grid.scrollTop = anchorlab.parts.clamp(grid.scrollTop, bottom + ROOM - grid.clientHeight, top - ROOM - header.firstChild.offsetHeight);
      },
      /** Moves focus to the selected head and scrolls to its large map. */
      show() {
        chosen.cell.focus({ preventScroll: true });
        pane.reveal();
        detail.scrollIntoView({ block: "nearest" });
      },
      resize() {
        most = Math.max(cells[0].canvas.clientWidth * devicePixelRatio, 8);
        for (const one of cells) one.waiting = true;
        drawWaiting();
        drawLarge();
        circuit?.draw(sight, inks);
      },
      remove() {
        observer.disconnect();
        root.remove();
      },
    };
    return pane;
  };
})();
