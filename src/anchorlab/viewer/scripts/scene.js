// What there is to see: recorded examples and, where the page carries weights, what its models do with any sequence.
//
// A `which` is {member, step}; a `state` says which example is chosen, what is typed (null for nothing) and which edits
// are in force. Weights of attention are thousandths throughout; see `AttentionView` in views.py for their order.
(() => {
  const { shown, count } = anchorlab.parts;
  const MOST_KEPT = 12; // results of the model: before and after edits, in two panes, and those just left

  const SLOW = 20; // milliseconds of a run from which typing is awaited

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
    let milliseconds = 0; // that the last run took
    const inForce = (state) => state.typed !== null || state.edits.length > 0;

    /** What the oracle says of tokens: {answers, roles, trace}, or {problem}; null where the page has no oracle. */
    const ask = (ids) => (oracle && ids ? oracle.ask(ids) : null);

    const examples = data.examples.map((one) => {
      const ids = live && one.tokens.every((token) => known.has(token.text)) ? one.tokens.map((token) => known.get(token.text)) : null;
      return { ...one, ids, asked: ask(ids) };
    });

    /** The sequence that text spells, as tokens and their ids, or {problem} in one line. */
    function spell(text) {
      const words = text.split(/\s+/).filter(Boolean);
      const unknown = words.find((word) => !known.has(word));
      if (unknown !== undefined) return { problem: `“${unknown}” is not a token of this model: its tokens are ${shown(texts[0])} to ${shown(texts.at(-1))}` };
      if (words.length !== stride) return { problem: `${count(words.length, "token")} given: the model reads ${stride}` };
      const ids = words.map((word) => known.get(word));
      const asked = ask(ids);
      const tokens = ids.map((id, position) => ({ text: texts[id], role: asked?.roles?.[position] ?? "noise" }));
      return { tokens, ids, asked, trace: asked?.trace ?? [], split: "", answer: "" };
    }

    const index = (sizes) => sizes.reduce((at, [size, place]) => at * size + place, 0);

    /** Patterns as recorded: `map(layer, head)` holds `stride` thousandths for each query. */
    function recorded({ member, step }, example) {
      const first = index([[data.members.length, member], [data.steps.length, step], [data.examples.length, example]]);
      const map = (layer, head) => {
        const at = index([[1, first], [layers, layer], [heads, head]]);
        return weights.subarray(at * stride * stride, (at + 1) * stride * stride);
      };
      return { map, stride };
    }

    /** What the model makes of the sequence under `edits`: {map, stride, logits}; null where it cannot run. */
    function run({ member, step }, ids, edits) {
      if (!model || !ids || !model.carries(member, step)) return null;
      const key = JSON.stringify([member, step, ids, edits]);
      if (!results.has(key)) {
        const started = performance.now();
        const { length, logits, patterns } = model.run(member, step, ids, edits);
        if (results.size) milliseconds = performance.now() - started; // the first run, not compiled yet, tells nothing
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

      /** What a pane shows: recorded patterns, or while something is in force the model's own; null where it has none. */
      sight: (which, state) => (inForce(state) ? run(which, sequence(state).ids, state.edits) : recorded(which, state.example)),

      /** The model's logits at a position, without edits or with those in force; null where it cannot run. */
      logits(which, state, position, edits) {
        const result = run(which, sequence(state).ids, edits);
        const outputs = result && result.logits.length / result.stride;
        return result && result.logits.subarray(position * outputs, (position + 1) * outputs);
      },
      /** The token that the model predicts at every position, under the edits in force; null where it cannot run. */
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
      label: ({ member, step }, layer, head) => data.labels?.[member]?.[step]?.[layer * heads + head] ?? "",
    };
  };
})();
