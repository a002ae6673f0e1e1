// The data of a view: recorded examples and, if the page includes weights, the models' results on any sequence.
//
// `which` is {member, step}. `state` has the chosen example, the typed sequence (null if none) and the edits in force.
// Attention weights are thousandths; `AttentionView` in findings/view.py gives their order.
(() => {
  const { shown, count } = anchorlab.parts;
  const MOST_KEPT = 12; // cached results: with and without edits, in two panes, and those shown just before
  const SLOW = 20; // a run of more milliseconds waits for a pause in typing

  const decode = (text) => {
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
    return new Uint16Array(bytes.buffer);
  };

  globalThis.anchorlab.scene = (data) => {
    const weights = decode(data.weights);
    const { layers, heads, length: stride, live } = data;
    const model = live ? anchorlab.model(live) : null;
    const oracle = live?.oracle ? anchorlab.oracle(live.oracle) : null;
    const texts = live ? live.texts.slice(0, live.architecture.inputs) : [];
    const known = new Map([...texts.map((text, id) => [shown(text), id]), ...texts.map((text, id) => [text, id])]);
    const results = new Map();
    let milliseconds = 0; // duration of the last run
    const inForce = (state) => state.typed !== null || state.edits.length > 0;

    /** The oracle's {answers, roles, trace} for tokens, or {problem}; null if the page has no oracle. */
    const ask = (ids) => (oracle && ids ? oracle.ask(ids) : null);

    const examples = data.examples.map((one) => {
      const ids = live && one.tokens.every((token) => known.has(token.text)) ? one.tokens.map((token) => known.get(token.text)) : null;
      return { ...one, ids, asked: ask(ids) };
    });

    /** Parses a typed sequence into tokens and their ids, or {problem} in one line. */
    function spell(text) {
      const words = text.split(/\s+/).filter(Boolean);
      const unknown = words.find((word) => !known.has(word));
      if (unknown !== undefined) return { problem: `“${unknown}” is not a token of this model; its tokens are ${shown(texts[0])} to ${shown(texts.at(-1))}` };
      if (words.length !== stride) return { problem: `${count(words.length, "token")} given; the model reads ${stride}` };
      const ids = words.map((word) => known.get(word));
      const asked = ask(ids);
      const tokens = ids.map((id, position) => ({ text: texts[id], role: asked?.roles?.[position] ?? "noise" }));
      return { tokens, ids, asked, trace: asked?.trace ?? [], split: "", answer: "" };
    }

    const index = (sizes) => sizes.reduce((at, [size, place]) => at * size + place, 0);

    const sizes = examples.map(({ tokens }) => tokens.length);
    const triangle = (size) => (size * (size + 1)) / 2;

    /** The recorded patterns of a causal view, which leaves out the keys after each query. */
    function recordedCausal({ member, step }, example) {
      const each = sizes.map((size) => layers * heads * triangle(size));
      const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
      const first = index([[data.members.length, member], [data.steps.length, step]]) * sum(each) + sum(each.slice(0, example));
      const size = sizes[example];
      const maps = new Map();
      const map = (layer, head) => {
        const at = layer * heads + head;
        if (!maps.has(at)) {
          const whole = new Uint16Array(size * size);
          let from = first + at * triangle(size);
          for (let query = 0; query < size; from += query + 1, query++) whole.set(weights.subarray(from, from + query + 1), query * size);
          maps.set(at, whole);
        }
        return maps.get(at);
      };
      return { map, stride: size };
    }

    /** The recorded patterns: `map(layer, head)` has `stride` thousandths per query. */
    function recorded({ member, step }, example) {
      if (data.causal) return recordedCausal({ member, step }, example);
      const first = index([[data.members.length, member], [data.steps.length, step], [data.examples.length, example]]);
      const map = (layer, head) => {
        const at = index([[1, first], [layers, layer], [heads, head]]);
        return weights.subarray(at * stride * stride, (at + 1) * stride * stride);
      };
      return { map, stride };
    }

    /** The model's patterns and logits on a sequence under `edits`, as {map, stride, logits}; null if the page cannot. */
    function run({ member, step }, ids, edits) {
      if (!model || !ids || !model.carries(member, step)) return null;
      const key = JSON.stringify([member, step, ids, edits]);
      if (!results.has(key)) {
        const started = performance.now();
        const { length, logits, patterns } = model.run(member, step, ids, edits);
        if (results.size) milliseconds = performance.now() - started; // not of the first run, which is not compiled yet
        const thousandths = Uint16Array.from(patterns, (weight) => Math.round(weight * 1000));
        const map = (layer, head) => thousandths.subarray((layer * heads + head) * length * length, (layer * heads + head + 1) * length * length);
        if (results.size === MOST_KEPT) results.delete(results.keys().next().value);
        results.set(key, { map, stride: length, logits });
      }
      return results.get(key);
    }

    const sequence = (state) => state.typed ?? examples[state.example];
    return {
      layers, heads, length: stride, spell, inForce, sequence,
      live: model !== null,
      labelled: model !== null || (data.labels ?? []).length > 0,
      roles: data.examples.flatMap((one) => one.tokens),
      circuits: data.circuits ?? [],
      recordedIds: (state) => examples[state.example].ids,
      slow: () => milliseconds > SLOW,
      outputText: (id) => live.texts[id] ?? String(id),

      /** The patterns of a pane: recorded ones, or the model's while something is typed or edited; null if it has none. */
      sight: (which, state) => (inForce(state) ? run(which, sequence(state).ids, state.edits) : recorded(which, state.example)),

      /** The model's logits at a position under `edits`; null if the page cannot run it. */
      logits(which, state, position, edits) {
        const result = run(which, sequence(state).ids, edits);
        const outputs = result && result.logits.length / result.stride;
        return result && result.logits.subarray(position * outputs, (position + 1) * outputs);
      },
      /** The predicted token at every position under the edits in force; null if the page cannot run the model. */
      outputs(which, state) {
        const result = run(which, sequence(state).ids, state.edits);
        if (!result) return null;
        const outputs = result.logits.length / result.stride;
        return Array.from({ length: result.stride }, (_, position) => {
          const row = result.logits.subarray(position * outputs, (position + 1) * outputs);
          return row.indexOf(Math.max(...row));
        });
      },
      predicted: ({ member, step }, state) => data.predicted[member]?.[step]?.[state.example],
      detectors: (data.scores ?? []).map(({ detector }) => detector),
      /** The scores of all heads of a pane, by detector; `layer * heads + head` is the place of a head. */
      scores: ({ member, step }) => (data.scores ?? []).map(({ detector, values }) => ({ detector, values: values[member][step] })),
      label: ({ member, step }, layer, head) => data.labels?.[member]?.[step]?.[layer * heads + head] ?? "",
    };
  };
})();
