// Drawing attention maps: small ones for the grid of heads, and a large one with tokens along its sides.
(() => {
  const { shown, element } = anchorlab.parts;
  const LEGIBLE = 9; // pixels that a tick label needs
  const WIDEST = 600; // pixels of the large map with its labels

  /**
   * Fills a canvas with one pixel per weight, which the browser enlarges. A side has at most `most` pixels; if there are
   * more weights, each pixel shows the largest of a square, so that a thin diagonal stays visible. `values` has a row of
   * `stride` weights per query.
   */
  function paint(canvas, values, stride, size, most, palette) {
    const square = Math.ceil(size / most);
    const side = Math.ceil(size / square);
    if (canvas.width !== side || canvas.height !== side) canvas.width = canvas.height = side;
    const context = canvas.getContext("2d");
    const image = context.createImageData(side, side);
    const pixels = new Uint32Array(image.data.buffer);
    if (square === 1) {
      for (let query = 0; query < size; query++) for (let key = 0; key < size; key++) pixels[query * size + key] = palette[values[query * stride + key]];
    } else {
      const largest = new Uint16Array(side * side);
      for (let query = 0; query < size; query++) {
        const row = Math.floor(query / square) * side;
        for (let key = 0; key < size; key++) {
          const at = row + Math.floor(key / square);
          const value = values[query * stride + key];
          if (value > largest[at]) largest[at] = value;
        }
      }
      for (let at = 0; at < pixels.length; at++) pixels[at] = palette[largest[at]];
    }
    context.putImageData(image, 0, 0);
  }

  /** The layout of a large map that is `room` pixels wide. */
  function layOut(context, texts, room) {
    const size = texts.length;
    const wide = Math.max(...texts.map((text) => context.measureText(text).width), 22);
    const left = Math.ceil(wide) + 26;
    const cell = Math.min(Math.max(Math.min(room, WIDEST) - left - 4, 80) / size, 54);
    const everyLabel = cell >= LEGIBLE;
    const turned = everyLabel && wide > cell - 3;
    const bottom = (turned ? Math.ceil(wide) + 8 : 20) + 18;
    return { size, texts, left, top: 7, cell, everyLabel, turned, bottom, width: left + cell * size + 2, height: cell * size + bottom + 9 };
  }

  /** Writes tokens in the colours of their roles along both sides, or positions if there is no room for tokens. */
  function label(context, frame, inks, style) {
    const { size, texts, left, top, cell, everyLabel, turned, bottom } = frame;
    context.font = `${everyLabel ? Math.min(12, cell + 1) : 12}px ${style.getPropertyValue("--mono")}`;
    context.textBaseline = "middle";
    const every = everyLabel ? 1 : [2, 4, 8, 16, 32, 64].find((step) => step * cell >= 26) ?? 64;
    for (let at = 0; at < size; at += every) {
      const text = everyLabel ? texts[at] : String(at);
      const centre = (at + 0.5) * cell;
      context.fillStyle = everyLabel ? inks[at] : style.color;
      context.textAlign = "right";
      context.fillText(text, left - 6, top + centre);
      context.save();
      context.translate(left + centre, top + cell * size + (turned ? 6 : 11));
      if (turned) context.rotate(-Math.PI / 2);
      else context.textAlign = "center";
      context.fillText(text, 0, 0);
      context.restore();
    }
    context.fillStyle = style.color;
    context.font = `12px ${style.getPropertyValue("--sans")}`;
    context.textAlign = "center";
    context.fillText("key", left + (cell * size) / 2, top + cell * size + bottom - 8);
    context.save();
    context.translate(8, top + (cell * size) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText("query", 0, 0);
    context.restore();
  }

  /**
   * A large map. `draw` draws the map and its labels, `mark` frames a query and a key, which is cheap, and `at` returns
   * the query and the key under a pointer.
   */
  const largeMap = () => {
    const canvas = element("canvas", { class: "large", tabindex: 0, role: "application" });
    const base = element("canvas");
    const source = element("canvas");
    let frame = null;
    let ink = "";

    function draw(values, stride, { tokens, inks, palette, room }) {
      const style = getComputedStyle(canvas.parentElement);
      ink = getComputedStyle(canvas).color; // read here because in `mark` it would force the browser to restyle the page
      const context = base.getContext("2d");
      context.font = `12px ${style.getPropertyValue("--mono")}`;
      frame = layOut(context, tokens.map((token) => shown(token.text).slice(0, 8)), room);
      const { size, left, top, cell, width, height } = frame;
      const ratio = devicePixelRatio || 1;
      const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (canvas.width !== across || canvas.height !== down) {
        [canvas.width, canvas.height] = [across, down];
        [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
      }
      [base.width, base.height] = [across, down];
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      paint(source, values, stride, size, size, palette);
      context.imageSmoothingEnabled = cell * ratio < 1;
      context.drawImage(source, left, top, cell * size, cell * size);
      context.strokeStyle = style.color;
      context.globalAlpha = 0.25;
      context.strokeRect(left + 0.5, top + 0.5, cell * size - 1, cell * size - 1);
      context.globalAlpha = 1;
      label(context, frame, inks, style);
    }

    /** Frames the row of the query and, if a key is given, its column and their weight. */
    function mark(query, key) {
      const { size, left, top, cell } = frame;
      const ratio = devicePixelRatio || 1;
      const context = canvas.getContext("2d");
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, canvas.width, canvas.height);
      context.drawImage(base, 0, 0);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.strokeStyle = ink;
      context.lineWidth = 1.25;
      context.globalAlpha = cell < 5 ? 0.5 : 1; // a thin row stays visible under its frame
      context.strokeRect(left + 0.6, top + query * cell + 0.6, cell * size - 1.2, Math.max(cell - 1.2, 1));
      if (key !== null) {
        context.strokeRect(left + key * cell + 0.6, top + 0.6, Math.max(cell - 1.2, 1), cell * size - 1.2);
        context.lineWidth = 2.5;
        context.globalAlpha = 1;
        context.strokeRect(left + key * cell, top + query * cell, cell, cell);
      }
      context.globalAlpha = 1;
    }

    function at(event) {
      const box = canvas.getBoundingClientRect();
      const query = Math.floor((event.clientY - box.top - frame.top) / frame.cell);
      const key = Math.floor((event.clientX - box.left - frame.left) / frame.cell);
      const inside = query >= 0 && query < frame.size && key >= 0 && key < frame.size;
      return inside ? [query, key] : null;
    }
    return { canvas, draw, mark, at };
  };
  globalThis.anchorlab.maps = { paint, largeMap };
})();
