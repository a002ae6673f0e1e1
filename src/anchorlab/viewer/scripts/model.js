// Runs the models of a view in the page: a token transformer's forward pass in typed arrays.
//
// `anchorlab.model(live)` reads the JSON of a `LiveModel` (findings/view.py). The equations are as in models/block.py
// and models/attention.py. Every array is stored row by row: a stream is [position*width], a weight [input*output].
(() => {
  const EPSILON = 1e-5; // of the layer norm, as in torch
  const RMS_EPSILON = 1e-6; // of the root-mean-square norm, as in Llama
  const ROTARY_BASE = 10000;

  const decode = (text) => {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let at = 0; at < bytes.length; at++) bytes[at] = binary.charCodeAt(at);
    return new Float32Array(bytes.buffer);
  };

  /** A checkpoint's weights by name, as views of one array. */
  const named = (weights, numbers) => {
    const found = new Map();
    let start = 0;
    for (const { name, shape } of weights) {
      const size = shape.reduce((one, other) => one * other, 1);
      found.set(name, numbers.subarray(start, start + size));
      start += size;
    }
    return found;
  };

  /** x W: rows of x `[row*input]` through a matrix `[input*output]`, four inputs at a time. */
  const product = (x, matrix, rows) => {
    const inputs = x.length / rows, outputs = matrix.length / inputs, result = new Float32Array(rows * outputs);
    const whole = inputs - (inputs % 4);
    for (let row = 0; row < rows; row++) {
      const into = result.subarray(row * outputs, (row + 1) * outputs), from = row * inputs;
      for (let input = 0; input < whole; input += 4) {
        const a = x[from + input], b = x[from + input + 1], c = x[from + input + 2], d = x[from + input + 3];
        if (a === 0 && b === 0 && c === 0 && d === 0) continue; // common after ReLU and for a head that is switched off
        const one = input * outputs, two = one + outputs, three = two + outputs, four = three + outputs;
        for (let at = 0; at < outputs; at++) {
          into[at] += a * matrix[one + at] + b * matrix[two + at] + c * matrix[three + at] + d * matrix[four + at];
        }
      }
      for (let input = whole; input < inputs; input++) {
        for (let at = 0; at < outputs; at++) into[at] += x[from + input] * matrix[input * outputs + at];
      }
    }
    return result;
  };

  const sum = (one, other) => one.map((value, at) => value + other[at]);

  /** x W + b, without b if there is none, as `owner.W_letter` and `owner.b_letter`. */
  const affine = (weights, owner, letter, x, rows) => {
    const result = product(x, weights.get(`${owner}.W_${letter}`), rows), offset = weights.get(`${owner}.b_${letter}`);
    return offset ? result.map((value, at) => value + offset[at % offset.length]) : result;
  };

  /**
   * A norm with its name: every row of x scaled to variance 1, times w. A layer norm has an offset b and subtracts the
   * mean first; a root-mean-square norm has no b and leaves the mean.
   */
  const normalised = (weights, name, x) => {
    const scale = weights.get(`${name}.w`), offset = weights.get(`${name}.b`);
    const width = scale.length, result = new Float32Array(x.length);
    for (let start = 0; start < x.length; start += width) {
      let mean = 0, variance = 0;
      for (let at = 0; offset && at < width; at++) mean += x[start + at] / width;
      for (let at = 0; at < width; at++) variance += (x[start + at] - mean) ** 2 / width;
      const factor = 1 / Math.sqrt(variance + (offset ? EPSILON : RMS_EPSILON));
      for (let at = 0; at < width; at++) {
        result[start + at] = (x[start + at] - mean) * factor * scale[at] + (offset ? offset[at] : 0);
      }
    }
    return result;
  };

  /** Embedded tokens, and positions if they have a table. */
  const embedded = (weights, tokens, width) => {
    const table = weights.get("embed.W_E"), size = tokens.length * width;
    const result = weights.get("pos_embed.W_pos")?.slice(0, size) ?? new Float32Array(size);
    tokens.forEach((token, position) => {
      for (let at = 0; at < width; at++) result[position * width + at] += table[token * width + at];
    });
    return result;
  };

  /** Puts the row of position s + by at every position s, and zeros beyond the ends. */
  const shifted = (rows, by, width) => {
    const result = new Float32Array(rows.length);
    const kept = rows.subarray(Math.max(by, 0) * width, rows.length + Math.min(by, 0) * width);
    result.set(kept, Math.max(-by, 0) * width);
    return result;
  };

  /** Rotates rows `[position*head*head_width]` by their positions; coordinates i and i + head_width / 2 turn together. */
  const rotated = (rows, { length, headWidth, inner }) => {
    const result = new Float32Array(rows.length), half = headWidth / 2;
    for (let position = 0; position < length; position++) {
      for (let turned = 0; turned < half; turned++) {
        const angle = position * ROTARY_BASE ** (-turned / half), cos = Math.cos(angle), sin = Math.sin(angle);
        for (let first = position * inner + turned; first < (position + 1) * inner; first += headWidth) {
          const second = first + half;
          result[first] = rows[first] * cos - rows[second] * sin;
          result[second] = rows[second] * cos + rows[first] * sin;
        }
      }
    }
    return result;
  };

  /** Queries, keys and values, each `[position*head*head_width]`; with a merged matrix, the stream itself is the keys. */
  const projections = (weights, name, x, shape) => {
    const through = (letter) => affine(weights, name, letter, x, shape.length);
    if (weights.has(`${name}.W_KQ`)) return { q: through("KQ"), k: x, v: through("V") };
    const [q, k, v] = ["Q", "K", "V"].map(through);
    return shape.rotary ? { q: rotated(q, shape), k: rotated(k, shape), v } : { q, k, v };
  };

  /** One head's softmax(q kᵀ / sqrt(head_width)), written into `pattern` `[query*key]`; zero beyond a causal mask. */
  const attend = ({ q, k }, head, shape, pattern) => {
    const { length, headWidth, inner, causal } = shape, scale = 1 / Math.sqrt(headWidth);
    for (let query = 0; query < length; query++) {
      const row = pattern.subarray(query * length, causal ? query * length + query + 1 : (query + 1) * length);
      const asked = query * inner + head * headWidth;
      let highest = -Infinity, total = 0;
      for (let key = 0; key < row.length; key++) {
        const offered = key * inner + head * headWidth;
        let score = 0;
        for (let at = 0; at < headWidth; at++) score += q[asked + at] * k[offered + at];
        row[key] = score * scale;
        highest = Math.max(highest, row[key]);
      }
      for (let key = 0; key < row.length; key++) total += row[key] = Math.exp(row[key] - highest);
      for (let key = 0; key < row.length; key++) row[key] /= total;
    }
  };

  /** Adds the values that one head attends to into its columns of `z` `[position*head*head_width]`. */
  const mix = (pattern, v, head, { length, headWidth, inner }, z) => {
    for (let query = 0; query < length; query++) {
      for (let key = 0; key < length; key++) {
        const weight = pattern[query * length + key];
        if (weight === 0) continue;
        const into = query * inner + head * headWidth, from = key * inner + head * headWidth;
        for (let at = 0; at < headWidth; at++) z[into + at] += weight * v[from + at];
      }
    }
  };

  /** The pattern that an edit puts in place of a head's own, by the edit's rule. */
  const PATTERNS = {
    shift: ({ shift }, { length }) => {
      const pattern = new Float32Array(length * length);
      for (let query = 0; query < length; query++) pattern[query * length + Math.max(query - shift, 0)] = 1;
      return pattern;
    },
    uniform: (edit, { length, causal }) => {
      const pattern = new Float32Array(length * length);
      for (let query = 0; query < length; query++) {
        const seen = causal ? query + 1 : length;
        pattern.fill(1 / seen, query * length, query * length + seen);
      }
      return pattern;
    },
    pattern: ({ pattern }) => pattern,
  };

  const within = (at, size) => Number.isInteger(at) && at >= 0 && at < size;

  /** Throws a RangeError for tokens that the model cannot read. */
  const checkTokens = ({ length, inputs }, tokens) => {
    if (!within(tokens.length - 1, length)) throw new RangeError(`tokens: has ${tokens.length}; give 1 to ${length}`);
    const unknown = tokens.find((token) => !within(token, inputs));
    if (unknown !== undefined) throw new RangeError(`tokens: ${unknown} is not a token; give 0 to ${inputs - 1}`);
  };

  /** Throws a RangeError for an edit that does not fit the model or the sequence. */
  const checkEdit = ({ layers, heads }, length, { layer, head, rule, shift, pattern }) => {
    const refuse = (problem) => {
      throw new RangeError(`edits: ${problem}`);
    };
    if (!within(layer, layers) || !within(head, heads)) refuse(`there is no layer ${layer}, head ${head}`);
    if (rule !== "off" && !Object.hasOwn(PATTERNS, rule)) refuse(`unknown rule ${rule}; give off, ${Object.keys(PATTERNS).join(", ")}`);
    if (rule === "shift" && !within(shift, length)) refuse(`shift ${shift} is not within the ${length} tokens`);
    if (rule === "pattern" && pattern?.length !== length ** 2) refuse(`pattern should have ${length} x ${length} weights`);
  };

  /** Returns the output of a block's attention and writes its heads' patterns into `patterns` `[head*query*key]`. */
  const attention = (architecture, weights, layer, x, edits, patterns) => {
    const name = `blocks.${layer}.attn`, { heads, head_width: headWidth, width } = architecture;
    const length = x.length / width, inner = heads * headWidth;
    const shape = { length, headWidth, inner, causal: architecture.mask[layer], rotary: architecture.rotary };
    const asked = projections(weights, name, x, shape);
    const v = shifted(asked.v, architecture.shift_values, inner);
    const z = new Float32Array(length * inner);
    for (let head = 0; head < heads; head++) {
      const mine = edits.filter((edit) => edit.layer === layer && edit.head === head);
      const pattern = patterns.subarray(head * length * length, (head + 1) * length * length);
      const given = mine.filter((edit) => edit.rule !== "off").at(-1);
      if (given) pattern.set(PATTERNS[given.rule](given, shape));
      else attend(asked, head, shape, pattern);
      if (!mine.some((edit) => edit.rule === "off")) mix(pattern, v, head, shape, z);
    }
    return architecture.output_linear[layer] ? affine(weights, name, "O", z, length) : z;
  };

  const sigmoid = (value) => 1 / (1 + Math.exp(-value));

  /** GELU in GPT-2's tanh form. */
  const gelu = (value) => value * sigmoid(2 * Math.sqrt(2 / Math.PI) * (value + 0.044715 * value ** 3));

  /** The output of a block's feed-forward layer: a perceptron, also with a gate, or one matrix. */
  const feedForward = (weights, name, x, length, activation) => {
    if (weights.has(`${name}.W_F`)) return affine(weights, name, "F", x, length);
    const hidden = affine(weights, name, "in", x, length);
    if (activation === "swiglu") {
      affine(weights, name, "gate", x, length).forEach((value, at) => (hidden[at] *= value * sigmoid(value)));
    } else {
      for (let at = 0; at < hidden.length; at++) hidden[at] = activation === "gelu" ? gelu(hidden[at]) : Math.max(hidden[at], 0);
    }
    return affine(weights, name, "out", hidden, length);
  };

  /** The scalar products of rows of x with the embedding of each token. */
  const tied = (weights, x, width) => {
    const table = weights.get("embed.W_E"), tokens = table.length / width, result = new Float32Array((x.length / width) * tokens);
    for (let at = 0; at < result.length; at++) {
      const row = Math.floor(at / tokens) * width, token = (at % tokens) * width;
      for (let place = 0; place < width; place++) result[at] += x[row + place] * table[token + place];
    }
    return result;
  };

  /** The logits of a stream. */
  const projected = (architecture, weights, x, length) => {
    const read = weights.has("ln_final.w") ? normalised(weights, "ln_final", x) : x;
    if (architecture.tied) return tied(weights, read, architecture.width);
    return architecture.projection ? affine(weights, "unembed", "U", read, length) : read;
  };

  /** The forward pass of one member. */
  const run = (architecture, weights, tokens, edits) => {
    const { layers, heads, width } = architecture, length = tokens.length, perLayer = heads * length * length;
    checkTokens(architecture, tokens);
    for (const edit of edits) checkEdit(architecture, length, edit);
    const patterns = new Float32Array(layers * perLayer);
    let x = embedded(weights, tokens, width);
    for (let layer = 0; layer < layers; layer++) {
      const name = `blocks.${layer}`, written = patterns.subarray(layer * perLayer, (layer + 1) * perLayer);
      const { norm_first: first } = architecture;
      const through = (layerOf, norm) => {
        const normed = architecture.layer_norm[layer] ? (stream) => normalised(weights, norm, stream) : (stream) => stream;
        const output = layerOf(first ? normed(x) : x), joined = architecture.residual[layer] ? sum(x, output) : output;
        return first ? joined : normed(joined);
      };
      x = through((read) => attention(architecture, weights, layer, read, edits, written), `${name}.ln1`);
      if (!architecture.feed_forward[layer]) continue;
      x = through((read) => feedForward(weights, `${name}.mlp`, read, length, architecture.activation), `${name}.ln2`);
    }
    return { length, logits: projected(architecture, weights, x, length), patterns };
  };

  /** The members of a view: `carries` says whether the page includes a checkpoint, `run` runs it. */
  const model = (live) => {
    const decoded = new Map();
    const weightsOf = (member, step) => {
      const at = `${member} ${step}`;
      if (!decoded.has(at)) decoded.set(at, named(live.weights, decode(live.data[member][step])));
      return decoded.get(at);
    };
    const carries = (member, step) => Boolean(live.data[member]?.[step]);
    return {
      carries,
      run: (member, step, tokens, edits = []) => {
        if (!carries(member, step)) throw new RangeError(`step: the page does not include member ${member} at step ${step}`);
        return run(live.architecture, weightsOf(member, step), Array.from(tokens), edits);
      },
    };
  };

  globalThis.anchorlab ??= {};
  globalThis.anchorlab.model = model;
})();
